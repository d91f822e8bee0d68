"""How far it is from the command line to the first pass of a run; the limits only ever tighten."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import ampsim
from ampsim.cli import main

ROOT = f"{Path(ampsim.__file__).parent}{os.sep}"
ROOMS = ("cli", "forecasting", "runs")

UNDER_WAY_MAX = {"functions": 18, "files": 12, "lines": 557}
"""Of what is under way when the first pass begins: what one reads to follow the walk."""

BEGUN_MAX = {"functions": 428, "files": 103, "functions of a forecast": 57}
"""Of what has begun by then, without what imports call: all, and what of it lies in `ROOMS`."""


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


def _files(codes: Iterable[CodeType]) -> int:
    return len({code.co_filename for code in codes})


def _lines(code: CodeType) -> int:
    """Lines of a function, from its head to its last statement."""
    return max(line for *_, line in code.co_lines() if line) - code.co_firstlineno + 1


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    made, before, here = Walk(), sys.getprofile(), Path.cwd()
    os.chdir(tmp_path_factory.mktemp("walk"))
    sys.setprofile(made)
    try:
        with pytest.raises(Arrived):
            main(("forecast", "rnn", "--jobs", "1", "--quiet"))
    finally:
        sys.setprofile(before)
        os.chdir(here)
    return made


def _require(found: dict[str, int], limits: dict[str, int]) -> None:
    longer = {name: count for name, count in found.items() if count > limits[name]}
    assert not longer, f"the walk has grown to {longer}, from {limits}; make it shorter instead"


def test_what_leads_from_the_command_line_to_the_first_pass_is_short(walk: Walk) -> None:
    lines = sum(map(_lines, walk.under_way))
    found = {"functions": len(walk.under_way), "files": _files(walk.under_way), "lines": lines}
    _require(found, UNDER_WAY_MAX)


def test_little_is_done_before_the_first_pass(walk: Walk) -> None:
    rooms = tuple(f"{ROOT}{room}{os.sep}" for room in ROOMS)
    of_forecast = sum(code.co_filename.startswith(rooms) for code in walk.begun)
    found = {"functions": len(walk.begun), "files": _files(walk.begun)}
    _require({**found, "functions of a forecast": of_forecast}, BEGUN_MAX)


def test_the_first_pass_is_the_forecasts_own(walk: Walk) -> None:
    """No tiny run comes before it."""
    names = {code.co_qualname for code in walk.begun}
    assert "RunMaker.make" in names
    assert not names & {"tiny_task", "condensed"}
