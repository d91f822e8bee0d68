"""What `ampsim run` takes for so many spans: they go to Parquet as they come.

    python tests/benchmark/bench_streaming.py [--epochs 4,42] [--schedule amp,sequential]

An epoch has 240 thousand spans, a message each, so that 42 have 10 million. Prints, for each,
spans, the most resident memory of the process, which must not grow with them, and processor time,
also for a million of them, which must not either.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from ampsim.runs.loaded_run import load_run

RUN = ("rnn", "--set", "hidden=8", "--mode", "sleep", "--instances", "200000", "--quiet")


def measured(schedule: str, epochs: int) -> tuple[int, float, float]:
    """Spans, MB and seconds of processor time of one run."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--schedule", schedule, "--epochs", str(epochs), "--out", folder]
        # A process of its own waits for the run, for only then is the peak that of this run.
        waiting = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
            "stdout=subprocess.DEVNULL); "
            "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print(used.ru_maxrss, used.ru_utime + used.ru_stime)"
        )
        command = [sys.executable, "-c", waiting, sys.executable, "-m", "ampsim", "run", *RUN]
        ended = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
        spans = load_run(Path(folder)).manifest["files"]["spans"]["rows"]
    unit = 2**20 if sys.platform == "darwin" else 2**10
    most, seconds = ended.stdout.split()
    return spans, int(most) / unit, float(seconds)


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", default="4,42")
    parser.add_argument("--schedule", default="amp,sequential")
    chosen = parser.parse_args()
    for schedule in chosen.schedule.split(","):
        for epochs in map(int, chosen.epochs.split(",")):
            spans, megabytes, seconds = measured(schedule, epochs)
            each_s = seconds / spans * 1e6
            print(
                f"{schedule}: {spans:,} spans, {megabytes:.0f} MB, {seconds:.1f} s, "
                f"{each_s:.2f} s a million",
                flush=True,
            )


if __name__ == "__main__":
    main()
