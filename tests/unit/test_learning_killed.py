"""A command that is killed between its timing and its learning goes on as if it had not been."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ampsim.cli import main
from ampsim.learning import LearningStore, Replay
from ampsim.learning.replay import Learner
from ampsim.runs.store import RunCache
from ampsim.study.apart import LearningApart

METHODS = multiprocessing.get_all_start_methods()
WORDS = (
    "forecast", "mlp", "--set", "data=synthetic", "--set", "hidden=6", "--set", "layers=3", "--set",
    "batch=10", "--set", "valid_images=40", "--instances", "80", "--schedule",
    "pipeline,gpipe,amp", "--max-active-keys", "3",
    "--repeats", "1", "--max-epochs", "2", "--workers", "3", "--latency-s", "1e-6", "--seed", "3",
    "--jobs", "1", "--quiet", "--out", "out", "--json", "rows.json",
)  # fmt: skip
POINTS: dict[str, tuple[type, str, int]] = {
    "timed, nothing learned": (LearningApart, "train", 1),
    "an epoch learned, the next timed": (LearningApart, "train", 2),
    "within a pass": (Learner, "update", 9),
    "weights written, losses not": (LearningStore, "_write", 2),
    "weights of the epoch before still there": (LearningStore, "forget_weights", 2),
    "all learned, validation not": (Replay, "validate", 2),
    "all learned, run not kept": (RunCache, "put", 1),
    "what another run learned is found": (LearningApart, "train", 3),
}
"""Where a process is killed: before which call of what."""


def before(owner: type, name: str, act: Callable[[int], object]) -> None:
    """Have `act` told of each call of a method, which number it is, before it is made."""
    method, calls = getattr(owner, name), 0

    def told(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        act(calls)
        return method(*args, **named)

    setattr(owner, name, told)


def after(owner: type, name: str, act: Callable[..., object]) -> None:
    """Have `act` told of each call of a method, with its arguments, after it is made."""
    method = getattr(owner, name)

    def told(self: Any, *args: Any) -> Any:
        made = method(self, *args)
        act(*args)
        return made

    setattr(owner, name, told)


def forecast(folder: Path, point: tuple[type, str, int] | None) -> None:
    """What the process does: the command, which notes what it finishes, and is killed."""
    os.chdir(folder)
    RunCache.forget = lambda _self: None  # pyright: ignore[reportAttributeAccessIssue] - to look at
    with Path("finished").open("a", encoding="utf-8", buffering=1) as notes:
        after(LearningStore, "put", lambda digest, *_rest: notes.write(f"pass {digest}\n"))
        after(RunCache, "put", lambda known, *_rest: notes.write(f"run {known.key}\n"))
        if point is not None:
            owner, name, count = point
            ends = {count: lambda: os.kill(os.getpid(), signal.SIGKILL)}
            before(owner, name, lambda number: ends.get(number, lambda: None)())
        main(WORDS)


def ended(folder: Path, point: tuple[type, str, int] | None = None) -> int | None:
    """Run the command in a process of its own; return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=forecast, args=(folder, point))
    process.start()
    process.join(120)
    return process.exitcode


def written(folder: Path) -> dict[str, bytes]:
    """All files: tables, pages, kept runs with their digests, learnings with their weights."""
    there = (path for path in folder.rglob("*") if path.is_file())
    kept = (path for path in there if path.suffix != ".lock" and path.name != "finished")
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def finished(folder: Path) -> Counter[str]:
    return Counter((folder / "finished").read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
def whole(empty: Path, undrawn: None) -> Path:
    """The folder of a command that nobody killed, once for all tests."""
    if not (empty / "finished").exists():
        assert ended(empty) == 0
    return empty


@pytest.mark.slow
@pytest.mark.skipif("fork" not in METHODS, reason="this system cannot fork")
@pytest.mark.parametrize("point", POINTS)
def test_killed_between_timing_and_learning_and_resumed_is_identical(point, whole, tmp_path):
    """All files are, to the byte; and nothing that was finished is made again."""
    assert ended(tmp_path, POINTS[point]) == -signal.SIGKILL
    assert finished(tmp_path) < finished(whole)
    assert ended(tmp_path) == 0
    assert finished(tmp_path) == finished(whole)
    found, expected = written(tmp_path), written(whole)
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []
    digests = re.findall(rb'"learning_digest": "(\w+)"', b"".join(found.values()))
    assert len(digests) == 3
    assert len(set(digests)) == 2, "pipeline and gpipe learn the same, amp does not"
