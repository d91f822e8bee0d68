"""Runs one report again, the one verified longest ago, and writes down what came of it.

Only reports with witnesses and with all their data files here take part, and of these the ones
whose recorded seconds fit the limit; one of which nothing is recorded is tried, and comes first,
unless its runs served more messages than could be served within the limit.
Where nobody keeps what is written down, as in a copy, the commit decides among those of one day, so
that each has its turn. It ends with 1 where the report does not follow, with 2 where it could not
be run, else with 0: a time-out is written down and is no fault.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ampsim.data import data_folder
from ampsim.files import write_text
from ampsim.text import to_toml

LOG = "verified.toml"
HEAD = "# When each report was last run again in full, and what was found: .ci/one_report.py\n\n"
SECONDS_MAX = 30.0  # chosen: a thirtieth of what CI may take
MESSAGES_PER_S = 50_000.0  # chosen: above the 41,000 of paper-table-1, the most of three reports
GRACE_S = 10.0  # chosen: a run that is interrupted ends within a second or two
FOLLOWS, STALE, FAILED = 0, 1, 2


@dataclass(frozen=True)
class Entry:
    """What was found of a report.

    Args:
        date: day of the run, UTC.
        commit: what the code was.
        seconds: how long it took; of a run that was ended, the limit.
        verdict: in a sentence.
    """

    date: str
    commit: str
    seconds: float
    verdict: str


def read_log(path: Path) -> dict[str, Entry]:
    """What was found before, by the reports' names."""
    if not path.is_file():
        return {}
    return {name: Entry(**one) for name, one in tomllib.loads(path.read_text("utf-8")).items()}


def write_log(path: Path, found: dict[str, Entry]) -> None:
    """Write down what was found, sorted by name."""
    write_text(path, HEAD + to_toml({name: asdict(found[name]) for name in sorted(found)}))


def candidates(reports: Path, found: dict[str, Entry], seconds_max: float) -> list[str]:
    """Names of the reports that have witnesses, whose data files are here, and that may fit."""
    return sorted(
        manifest.parent.name
        for manifest in reports.glob("*/manifest.toml")
        if (manifest.parent / "witness.json").is_file()
        and _has_data(manifest)
        and (manifest.parent.name in found or least_s(manifest.parent) < seconds_max)
    )


def least_s(folder: Path) -> float:
    """Seconds that a report's runs take at least, by their messages; 0 where none are told."""
    outlines = folder / "outlines.json"
    if not outlines.is_file():
        return 0.0
    runs: list[Any] = json.loads(outlines.read_text("utf-8")).get("runs", [])
    return sum(run["numbers"].get("messages") or 0 for run in runs) / MESSAGES_PER_S


def _has_data(manifest: Path) -> bool:
    data: list[dict[str, str]] = tomllib.loads(manifest.read_text("utf-8")).get("data", [])
    return all((data_folder() / one["file"]).is_file() for one in data)


def choose(
    names: list[str], found: dict[str, Entry], seconds_max: float, commit: str = ""
) -> str | None:
    """The report verified longest ago that fits; None where none does.

    Those never verified come first; of the same day, the one that the commit's hash falls on.
    """
    fit = [one for one in names if one not in found or found[one].seconds < seconds_max]
    dates = {name: found[name].date if name in found else "" for name in fit}
    oldest = sorted(name for name in fit if dates[name] == min(dates.values()))
    turn = int(hashlib.sha256(commit.encode()).hexdigest(), 16)
    return oldest[turn % len(oldest)] if oldest else None


def run_again(name: str, root: Path, seconds_max: float) -> tuple[int, str]:
    """Run a report of the checkout `root` in full: how it ended, and the verdict in a sentence.

    Its processes are interrupted when the time is over, and then killed.
    """
    command = [sys.executable, "-P", "-m", "ampsim", "report", name, "--check", "--rerun"]
    with subprocess.Popen(
        [*command, "--quiet", "--json", "-"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            end(process)
            return FOLLOWS, f"not known: took more than {seconds_max:g} s"
        except BaseException:
            end(process)
            raise
    if process.returncode not in (FOLLOWS, STALE):
        return FAILED, f"could not be run: {' '.join(said.split())}"
    return process.returncode, verdict(json.loads(out)["reports"][0])


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt a process and those that it started; kill what does not end."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_S)


def verdict(told: dict[str, Any]) -> str:
    """What `ampsim report --check --json` says of one report, in a sentence."""
    faults, notes = "; ".join(told["faults"]), "; ".join(told["notes"])
    return (f"does not follow: {faults}" if faults else "follows") + (notes and f" ({notes})")


def main(words: list[str] | None = None) -> int:
    """Choose a report, run it again and write down what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, nargs="?", default=Path(), help="the checkout")
    parser.add_argument("--seconds-max", type=float, default=SECONDS_MAX, help="end it then")
    parser.add_argument("--commit", default="unknown", help="what to write down as the code's")
    given = parser.parse_args(words)
    reports, log = given.root / "reports", given.root / "reports" / LOG
    found = read_log(log)
    names = candidates(reports, found, given.seconds_max)
    name = choose(names, found, given.seconds_max, given.commit)
    if name is None:
        print("no report fits: all of them lack witnesses or data, or take longer")
        return FOLLOWS
    start_s = time.monotonic()
    code, said = run_again(name, given.root, given.seconds_max)
    seconds = round(min(time.monotonic() - start_s, given.seconds_max), 1)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    write_log(log, {**found, name: Entry(today, given.commit, seconds, said)})
    print(f"{name}: {said} ({seconds:g} s)\n\n{log.read_text('utf-8')}", end="")
    return code


if __name__ == "__main__":
    sys.exit(main())
