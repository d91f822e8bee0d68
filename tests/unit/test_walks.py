"""How far it is from the command line to the first pass of a run; the limits only ever tighten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import ampsim
from ampsim.cli import main

ROOT = f"{Path(ampsim.__file__).parent}{os.sep}"
MODELS = f"{ROOT}_shipped{os.sep}"  # where an installed package has them; no part of the walk
ROOMS = ("cli", "forecasting", "runs")

UNDER_WAY_MAX = {"functions": 19, "files": 12, "lines": 584}
"""Of what is under way when the first pass begins: what one reads to follow the walk. Spending a
budget (decision 22) is one step and one file of it."""

BEGUN_MAX = {"functions": 477, "files": 98, "functions of a forecast": 69}
"""Of what has begun by then, without what imports call: all, and what of it lies in `ROOMS`."""


@dataclass(frozen=True)
class Step:
    """A function that was begun; its file is below `ROOT`."""

    file: str
    name: str
    lines: int


class Arrived(BaseException):
    """The first pass begins."""


class Walk:
    """Which functions of ampsim a profiler sees until the first pass begins.

    Attributes:
        begun: all of them, in their order.
        under_way: those that have not ended by then.
    """

    def __init__(self) -> None:
        self.begun: dict[CodeType, None] = {}
        self.under_way: list[CodeType] = []
        self._imports = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(ROOT):
            return
        if code.co_filename.startswith(MODELS):
            return
        if code.co_name == "<module>":
            self._imports += 1 if event == "call" else -1
        elif event == "call" and not self._imports and not code.co_name.startswith("<"):
            self.begun[code] = None
            if code.co_qualname == "Engine.run_pass":
                self.under_way = [one for one in _above(frame) if one in self.begun]
                raise Arrived


def _above(frame: FrameType | None) -> Iterable[CodeType]:
    found: dict[CodeType, None] = {}
    while frame is not None:
        found[frame.f_code] = None
        frame = frame.f_back
    return found


def _step_of(code: CodeType) -> Step:
    last = max(line for *_, line in code.co_lines() if line)
    return Step(code.co_filename[len(ROOT) :], code.co_qualname, last - code.co_firstlineno + 1)


def _walk() -> None:
    """Begin a forecast, and print the steps that lead to its first pass."""
    made = Walk()
    sys.setprofile(made)
    try:
        main(("forecast", "rnn", "--jobs", "1", "--quiet"))
    except Arrived:
        sys.setprofile(None)
    steps = [[asdict(_step_of(code)) for code in codes] for codes in (made.begun, made.under_way)]
    sys.stdout.write(json.dumps(steps) + "\n")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[list[Step]]:
    """All steps, and those that are under way; of a process of its own, which has kept nothing."""
    command = [sys.executable, "-P", __file__]
    folder = tmp_path_factory.mktemp("walk")
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return [[Step(**one) for one in part] for part in json.loads(done.stdout.splitlines()[-1])]


def _require(found: dict[str, int], limits: dict[str, int]) -> None:
    longer = {name: count for name, count in found.items() if count > limits[name]}
    assert not longer, f"the walk has grown to {longer}, from {limits}; make it shorter instead"


def _counts(steps: Iterable[Step]) -> dict[str, int]:
    steps = list(steps)
    return {"functions": len(steps), "files": len({step.file for step in steps})}


def test_what_leads_from_the_command_line_to_the_first_pass_is_short(steps):
    _, under_way = steps
    found = {**_counts(under_way), "lines": sum(step.lines for step in under_way)}
    _require(found, UNDER_WAY_MAX)


def test_little_is_done_before_the_first_pass(steps):
    begun, _ = steps
    of_forecast = sum(
        step.file.startswith(tuple(f"{room}{os.sep}" for room in ROOMS)) for step in begun
    )
    _require({**_counts(begun), "functions of a forecast": of_forecast}, BEGUN_MAX)


def test_the_first_pass_is_the_forecasts_own(steps):
    """No tiny run comes before it."""
    names = {step.name for step in steps[0]}
    assert "RunMaker.make" in names
    assert not names & {"tiny_task", "condensed"}


if __name__ == "__main__":
    _walk()
