"""Commands killed at a random moment: nothing half written, nothing lost, no process left.

    python tests/robustness/kill_at_random.py --each 100 --seed 0
    python tests/robustness/kill_at_random.py --each 5 --command report --signal KILL
    python tests/robustness/kill_at_random.py --each 0 --pairs 200

Each of `forecast`, `run`, `report` and `gantt` is started in a folder of its own, with two
processes where it makes several runs, and gets each of the signals INT, TERM, KILL and QUIT so many
times; a Ctrl-C goes to the whole group of processes, as a terminal sends it, the others to the
first alone. A pair is two SIGTERM or two SIGINT of which the second comes up to 50 ms after the
first, as `timeout` sends them; in every other pair the first comes while the last run is sent.
A fault is

* a command that does not end,
* a process of it that is there two seconds later,
* a file that is seen but is not whole, or an output folder that is left empty,
* a hidden temporary file, unless the process had no chance to remove it,
* an exit code other than 128 + the signal's number, unless it had finished, or not begun,
* another number of lines on standard error than one, after INT and TERM,
* a finished run that is made again by the same command, or another result of that.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

PROGRAM = [sys.executable, "-m", "ampsim"]
UNPAINTED = [sys.executable, str(Path(__file__).parents[1] / "unpainted.py")]
SIGNALS = ("INT", "TERM", "KILL", "QUIT")
GOOD_ORDER = ("INT", "TERM")
GRACE_S = 2.0
"""Seconds until no process may be left; those of this machine that others take come on top."""
HANG_S = 300.0
"""Seconds after a signal in which a command must end (chosen: a page takes five, on a machine that
others take a minute)."""

SAY_EVERY = 10

GAP_S = 0.05
"""Most between the two signals of a pair."""

SENT_BYTES = 100_000
"""What the parent has read when a run is surely being sent to it."""

_MODEL = ("--set", "hidden=8", "--instances", "300", "--seed", "1")
_RECIPE = """
title = "A recipe"
text = "Two schedules, two seeds."
model = "rnn"
cluster = "tflops-1"
workers = 4
epochs = 1
seeds = [1, 2]
instances = 300
figures = []

[set]
hidden = 8

[[schedules]]
name = "sequential"

[[schedules]]
name = "amp"
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "forecast": (
        "forecast", "rnn", *_MODEL, "--schedule", "sequential,amp", "--repeats", "2",
        "--max-epochs", "1", "--jobs", "2", "--out", "out",
    ),
    "run": ("run", "rnn", *_MODEL, "--epochs", "3", "--out", "out"),
    "report": ("report", "./recipe", "--jobs", "2", "--out", "."),
    "gantt": ("gantt", "rnn", *_MODEL, "--schedule", "sequential,amp", "--out", "out/g.json"),
}  # fmt: skip
PAIRED = "two processes"
"""A command whose two runs, each of a process of its own, take a moment to send."""

WORDS = {
    **COMMANDS,
    PAIRED: (
        "forecast", "rnn", "--set", "hidden=8", "--instances", "100", "--mode", "sleep",
        "--schedule", "sequential,amp", "--jobs", "2", "--out", "out",
    ),
}  # fmt: skip
STORES = {"forecast": "out/.runs", PAIRED: "out/.runs", "report": "recipe/.runs"}
"""Where a command keeps its finished runs."""

Signalling: TypeAlias = Callable[["subprocess.Popen[str]"], None]
"""What sends signals to a command that has just been started."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and when."""

    code: int
    err: str
    took_s: float
    left: tuple[int, ...] = ()
    is_hung: bool = False


def main() -> int:
    """Kill, count, and tell each fault; 1 if there was one."""
    chosen = _arguments()
    if chosen.unpainted:
        PROGRAM[:] = UNPAINTED
    random_ = random.Random(chosen.seed)
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    faulty = 0
    for command in (chosen.command or COMMANDS) if chosen.each else ():
        whole = whole_of(command)
        for name in chosen.signal or SIGNALS:
            for number in range(chosen.each):
                after_s = random_.uniform(0.0, 1.05 * whole.took_s)
                is_resumed = number % chosen.resume_every == 0
                how, faults = kill_one(command, name, _once(name, after_s), is_resumed)
                counts[command, name, how] += 1
                faulty += bool(faults)
                for fault in faults:
                    print(f"FAULT {command} {name} after {after_s:.3f} s: {fault}", flush=True)
    faulty += _pairs(chosen.pairs, random_, counts) if chosen.pairs else 0
    for (command, name, how), count in sorted(counts.items()):
        print(f"{command:16}{name:12}{how:14}{count:6}")
    print(f"{sum(counts.values())} kills, {faulty} with a fault")
    return 1 if faulty else 0


def _pairs(
    pairs: int, random_: random.Random, counts: collections.Counter[tuple[str, str, str]]
) -> int:
    """Send pairs of signals, tell each fault, and return how many pairs had one."""
    whole_s, faulty = whole_of(PAIRED).took_s, 0
    for number in range(pairs):
        name = GOOD_ORDER[number // 2 % 2]
        after_s, gap_s = random_.uniform(0.0, whole_s), random_.uniform(0.0, GAP_S)
        is_aimed = number % 2 == 0
        wait = _until_the_last_is_sent if is_aimed else _after(after_s)
        how, faults = kill_one(PAIRED, name, _twice(name, wait, gap_s), is_resumed=number % 20 == 0)
        counts[PAIRED, f"2 {name}{' send' if is_aimed else ''}", how] += 1
        if number % SAY_EVERY == SAY_EVERY - 1:
            sys.stderr.write(f"{number + 1} pairs, {faulty} with a fault\n")
        faulty += bool(faults)
        for fault in faults:
            moment = "while the last is sent" if is_aimed else f"after {after_s:.3f} s"
            print(f"FAULT {PAIRED} 2 {name} {moment}, {gap_s:.3f} s apart: {fault}", flush=True)
    return faulty


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=10, help="kills of each command and signal")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of signals")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command", choices=list(COMMANDS), action="append")
    parser.add_argument("--unpainted", action="store_true", help="write empty pictures")
    parser.add_argument("--signal", choices=SIGNALS, action="append")
    parser.add_argument(
        "--resume-every", type=int, default=5, help="one in so many is run again to its end"
    )
    return parser.parse_args()


def whole_of(command: str) -> Ended:
    """How the command ends that nobody kills."""
    with _folder() as place:
        ended = _killed(command, Path(place), None)
        assert ended.code == 0, ended.err
        assert not list(faults_of_files(command, Path(place), "whole")), "not whole by itself"
        return ended


def kill_one(command: str, name: str, send: Signalling, is_resumed: bool) -> tuple[str, list[str]]:
    """Kill a command by `send`; return how it ended in a word, and all faults."""
    with _folder() as folder:
        place = Path(folder)
        ended = _killed(command, place, send)
        if ended.is_hung:
            return "hung", [f"has not ended {HANG_S:g} s later"]
        how = _how(ended, name)
        faults = [f"process {one} is left" for one in ended.left]
        if how == "wrong":
            faults.append(f"exit code {ended.code}: {ended.err[-300:]!r}")
        if how == "interrupted" and len(ended.err.splitlines()) != 1:
            faults.append(f"not one line: {ended.err[-500:]!r}")
        faults += faults_of_files(command, place, how)
        if is_resumed:
            faults += _faults_of_resuming(command, place, ended)
        return how, faults


def _once(name: str, after_s: float) -> Signalling:
    """A signal after some seconds."""

    def send(process: subprocess.Popen[str]) -> None:
        _after(after_s)(process)
        _signal(process, name)

    return send


def _twice(name: str, wait: Signalling, gap_s: float) -> Signalling:
    """Two signals, the first as soon as `wait` returns."""

    def send(process: subprocess.Popen[str]) -> None:
        wait(process)
        _signal(process, name)
        _after(gap_s)(process)
        _signal(process, name)

    return send


def _after(seconds: float) -> Signalling:
    def wait(process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

    return wait


def _until_the_last_is_sent(process: subprocess.Popen[str]) -> None:
    """Wait until one process is left besides the first, and the first reads what it sends."""
    most, before = 0, 0
    while process.poll() is None:
        others = len(session_of(process.pid)) - 1
        most = max(most, others)
        read = _bytes_read(process.pid)
        if most < 2 or others != 1:
            before = read
        elif read - before > SENT_BYTES:
            return
        time.sleep(0.001 if most >= 2 else 0.01)  # to look at all processes takes a millisecond


def _bytes_read(process: int) -> int:
    with contextlib.suppress(OSError):
        found = re.search(r"rchar: (\d+)", Path(f"/proc/{process}/io").read_text())
        return int(found[1]) if found else 0
    return 0


def _signal(process: subprocess.Popen[str], name: str) -> None:
    """Send a signal to a command that may have ended."""
    if process.poll() is None:
        number = signal.Signals[f"SIG{name}"]
        (os.killpg if name == "INT" else os.kill)(process.pid, number)


def _killed(command: str, place: Path, send: Signalling | None) -> Ended:
    """Run a command in a folder, and send signals to it."""
    words = [*PROGRAM, *WORDS[command], *_quiet(command)]
    started_s = time.monotonic()
    process = subprocess.Popen(
        words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    if send is not None:
        send(process)
    try:
        process.wait(HANG_S if send is not None else None)
        is_hung = False
    except subprocess.TimeoutExpired:
        is_hung = True
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    ended_s = time.monotonic()
    while (left := session_of(process.pid)) and time.monotonic() - ended_s < GRACE_S:
        time.sleep(0.02)
    for one in left:
        os.kill(one, signal.SIGKILL)
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    return Ended(process.returncode, err, ended_s - started_s, left, is_hung)


def _quiet(command: str) -> tuple[str, ...]:
    return () if command == "gantt" else ("--quiet",)


def session_of(leader: int) -> tuple[int, ...]:
    """The processes that a process has started, and they, and so on, that still live."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == leader:
            found.append(int(entry.name))
    return tuple(found)


def _how(ended: Ended, name: str) -> str:
    number = signal.Signals[f"SIG{name}"].value
    if ended.code == 0:
        return "finished"
    if name not in GOOD_ORDER:
        return "killed" if ended.code == -number else "wrong"
    if ended.code == 128 + number:
        return "interrupted"
    has_begun = re.search(r'cli/start\.py", line \d+, in _run', ended.err)
    # Python itself ends with 1 where a signal comes while it imports `site`, before any program
    is_at_start = ended.err.startswith("Fatal Python error: init_import_site")
    has_ended_early = ended.code == -number or (ended.code == 1 and is_at_start)
    return "not begun" if has_ended_early and not has_begun else "wrong"


def faults_of_files(command: str, place: Path, how: str) -> list[str]:
    """What is wrong with the files that are there."""
    out = place / ("recipe" if command == "report" else "out")
    faults: list[str] = []
    seen = [path for path in sorted(out.rglob("*")) if not _is_hidden(path.relative_to(out))]
    files = [path for path in seen if path.is_file() and path.name != "recipe.toml"]
    if command == "gantt":
        faults += [f"{path.name} is not whole" for path in files if not _is_json(path)]
    elif files:
        faults += _faults_of_manifest(out, files)
    if how != "killed":
        hidden = [path.name for path in out.rglob("*") if _is_temporary(path.relative_to(out))]
        faults += [f"{name} is left" for name in hidden]
        if out.is_dir() and not any(out.iterdir()):
            faults.append("an empty folder is left")
    if how in ("finished", "whole") and not files:
        faults.append("nothing was written")
    return faults


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_temporary(path: Path) -> bool:
    return _is_hidden(path) and path.parts[0] not in (".runs", ".gitignore")


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _faults_of_manifest(out: Path, files: list[Path]) -> list[str]:
    """Each file must be in the manifest, with its hash."""
    manifest = out / "manifest.toml"
    if not manifest.is_file():
        return ["files without a manifest: " + ", ".join(path.name for path in files)]
    table = tomllib.loads(manifest.read_text(encoding="utf-8"))
    known = dict[str, str]()
    for key, value in {**table.get("files", {}), **table.get("pages", {})}.items():
        is_table = isinstance(value, dict)
        known[f"{key}.parquet" if is_table else key] = value["sha256"] if is_table else value
    there = {path.name: path for path in files if path != manifest}
    faults = [f"{name} is not there" for name in known if name not in there]
    for name, path in there.items():
        if known.get(name) != hashlib.sha256(path.read_bytes()).hexdigest():
            faults.append(f"{name} is not the file that the manifest lists")
    return faults


def _faults_of_resuming(command: str, place: Path, before: Ended) -> list[str]:
    """Run the same command to its end; finished runs must be taken up, temporary files go."""
    store = place / STORES.get(command, "none")
    kept = _runs(store)
    times = {name: (store / name).stat().st_mtime_ns for name in kept}
    ended = _killed(command, place, None)
    faults = [f"afterwards: {one}" for one in faults_of_files(command, place, "finished")]
    if ended.code:
        faults.append(f"afterwards: exit code {ended.code}: {ended.err[-300:]!r}")
    for name, time_ns in times.items():
        if (store / name).exists() and (store / name).stat().st_mtime_ns != time_ns:
            faults.append(f"{name} was made again")
    said = re.search(r"(\d+) of \d+ runs are kept", before.err)
    if said and int(said[1]) != len(kept):
        faults.append(f"{said[0]}, but {len(kept)} are there")
    return faults


def _runs(store: Path) -> list[str]:
    """Finished runs in a store, by the names of the files that complete them."""
    return sorted(str(path.relative_to(store)) for path in store.glob("*/numbers.json"))


class _folder:
    """A temporary folder, with the recipe in it."""

    def __enter__(self) -> str:
        self._path = tempfile.mkdtemp(prefix="kill-at-random-")
        recipe = Path(self._path, "recipe")
        recipe.mkdir()
        (recipe / "recipe.toml").write_text(_RECIPE, encoding="utf-8")
        return self._path

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
