"""Whether two installations of ampsim give the same numbers, to the bit.

    python tests/comparison/same_numbers.py OLD NEW
    python tests/comparison/same_numbers.py OLD NEW --only amp --only gpipe

OLD and NEW are folders that hold the package `ampsim`: checkouts, or what
`pip install --target FOLDER` filled. Every schedule is run on a chain, a loop, a tree and a graph
model, in both modes, on one worker and several, with free links and with links that take time, and
with each option that changes how steps are served. Spans, transfers, updates, stashes, epochs and
weights are compared column by column; columns that only one of the two has are named, and are no
difference. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = {
    "mlp": ({"hidden": 16, "layers": 4, "data": "synthetic"}, 400),
    "rnn": ({"hidden": 8, "replicas": 2}, 300),
    "tree_lstm": ({"hidden": 6, "embedding": 5, "data": "synthetic"}, 6),
    "ggnn": ({"hidden": 12, "data": "synthetic"}, 8),
}
CLUSTERS = {
    "1 worker": (1, {}),
    "4 workers": (4, {}),
    "4 workers, links": (4, {"latency_s": 3e-7, "bandwidth_bytes_per_s": 2e9}),
    "7 cores, links": (7, {"latency_s": 1e-5}),
}
"""A name to a number of workers and the link's options; "cores" are `cpu-core`."""

SCHEDULES = {
    "sequential": "Sequential",
    "pipeline": "Pipeline",
    "gpipe": "GPipe",
    "1f1b": "OneFOneB",
    "1f1b-interleaved": "InterleavedOneFOneB",
    "zb-h1": "ZeroBubbleH1",
    "pipedream": "PipeDream",
    "pipedream-2bw": "PipeDream2BW",
    "amp": "Amp",
    "amp-budget": "AmpBudget",
}
"""By their names, which no installation may change, the classes' names in `ampsim`."""

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "amp": [
        {"max_active_keys": 4},
        {"max_active_keys": 8, "min_update_interval": 3},
        {"max_active_keys": 6, "max_group": 3},
        {"max_active_keys": 6, "max_group": 3, "group_wait_s": 2e-7},
        {"max_active_keys": 4, "remedy": "weight-prediction"},
    ],
    "amp-budget": [{"max_active_keys": 9, "staleness_budget": 1.5}],
    "pipeline": [{"max_active_keys": 3}],
    "gpipe": [{"max_active_keys": 3}],
    "1f1b": [{"max_active_keys": 3}],
    "pipedream": [{}, {"vertical_sync": True}],
    "pipedream-2bw": [{}, {"min_update_interval": 8}],
}
"""Of schedules that have others than their defaults."""


def cases() -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """(model, cluster, mode, schedule, options) of every run."""
    for model in MODELS:
        for cluster in CLUSTERS:
            for mode in ("numeric", "sleep"):
                for schedule in SCHEDULES:
                    for options in OPTIONS.get(schedule, [{}]):
                        yield model, cluster, mode, schedule, options


def dump(only: list[str]) -> None:
    """Print, a line a run, what there is to compare: a hash of each column, or why it failed."""
    import ampsim

    for model, cluster, mode, schedule, options in cases():
        if only and schedule not in only:
            continue
        settings, instances = MODELS[model]
        workers, link = CLUSTERS[cluster]
        device = "cpu-core" if "cores" in cluster else "tflops-1"
        try:
            made = getattr(ampsim, SCHEDULES[schedule])(**options)
            result = ampsim.simulate(
                ampsim.load_model(model, **settings),
                ampsim.load_cluster(device, workers=workers, **link),
                made,
                epochs=2,
                seed=1,
                mode=mode,  # pyright: ignore[reportArgumentType]  # one of the two
                instances=instances,
            )
        except ampsim.errors.AmpsimError as error:
            found: Any = {"error": str(error)}
        else:
            found = hashes(result)
        name = f"{model}, {cluster}, {mode}, {schedule} {options}"
        print(json.dumps([name, found]), flush=True)


def hashes(result: Any) -> dict[str, str]:
    """A hash of each column of each table, and of each weight."""
    found: dict[str, str] = {}
    for table in ("spans", "transfers", "updates", "stashes", "epochs", "staleness"):
        frame = getattr(result, table)
        for column in frame:
            values = frame[column]
            is_text = values.dtype.kind not in "biuf"
            content = (
                "\n".join(map(str, values)).encode() if is_text else values.to_numpy().tobytes()
            )
            found[f"{table}.{column}"] = hashlib.sha256(content).hexdigest()
    for name, array in result.model.parameters().items():
        found[f"weights.{name}"] = hashlib.sha256(array.tobytes()).hexdigest()
    for number in ("makespan_s", "train_per_s", "utilisation", "staleness_mean", "messages"):
        found[number] = repr(getattr(result, number))
    return found


def runs_of(folder: Path, only: list[str]) -> dict[str, dict[str, str]]:
    """What an installation gives, by run."""
    command = [sys.executable, str(Path(__file__).resolve()), "--dump"]
    command += [word for name in only for word in ("--only", name)]
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "PYTHONSAFEPATH": "1"}
    ended = subprocess.run(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(line) for line in ended.stdout.splitlines())


def main() -> int:
    """Run both, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--only", action="append", default=[], metavar="SCHEDULE")
    parser.add_argument("--dump", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.dump:
        dump(chosen.only)
        return 0
    if len(chosen.folders) != 2:
        parser.error("expected two folders, OLD and NEW")
    old, new = (runs_of(folder, chosen.only) for folder in chosen.folders)
    differing = 0
    for name in sorted({*old, *new}):
        first, second = old.get(name, {}), new.get(name, {})
        parts = [key for key in first if key in second and first[key] != second[key]]
        if parts or not first or not second or ("error" in first) != ("error" in second):
            differing += 1
            print(f"{name}: {', '.join(parts) or 'not in both'}")
    columns = [{key for run in runs.values() for key in run} for runs in (old, new)]
    print(f"only in OLD: {', '.join(sorted(columns[0] - columns[1])) or 'nothing'}")
    print(f"only in NEW: {', '.join(sorted(columns[1] - columns[0])) or 'nothing'}")
    refused = sum("error" in run for run in old.values())
    print(f"{len(old)} runs, {refused} of them refused by both; {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
