"""The way of one gradient through `ampsim.data_parallel`, which only ever becomes shorter."""

import inspect
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import ampsim
from ampsim import data_parallel
from ampsim.data_parallel import SOLVERS

FOLDER = str(Path(data_parallel.__file__).parent)

FIRST, LAST = "run", "Rank.next_batches"
"""From "the last backward step has ended", by which the controller lets the rank's coroutine go on,
to "the rank takes its next batches"."""

MOST = {
    "sync-sgd": (18, 6, 275),
    "async-sgd": (18, 6, 251),
}
"""Functions, files and lines of these functions; over a ring, and to a server and back."""


def way_of(solver: Any) -> list[CodeType]:
    """The functions that are called from a gradient's end to the next batches of the same rank."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=16, layers=2, batch=50)
    cluster = ampsim.load_cluster("tflops-1", workers=5, latency_s=1e-7, bandwidth_bytes_per_s=1e10)
    found: dict[CodeType, None] = {}
    drained: list[Any] = []
    ends: list[Any] = []

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        if event != "call" or ends or not code.co_filename.startswith(FOLDER):
            return
        caller = frame.f_back.f_code.co_qualname if frame.f_back else ""
        if (caller, code.co_qualname) == ("Controller._finish", FIRST):
            drained.append(frame.f_locals["coroutine"].cr_frame.f_locals["rank"])
        if len(drained) > 4 and "<" not in code.co_name:  # each rank's first gradient is over
            found[code] = None
            if code.co_qualname == LAST and frame.f_locals["self"] is drained[4]:
                ends.append(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        ampsim.simulate(model, cluster, solver, instances=1000)
    finally:
        sys.setprofile(before)
    return list(found)


@pytest.mark.parametrize("name", MOST)
def test_the_way_of_one_gradient_becomes_no_longer(name):
    way = way_of(SOLVERS[name](4))
    names = [code.co_qualname for code in way]
    assert (names[0], names[-1]) == (FIRST, LAST)
    assert "train" in names
    functions, files, lines = MOST[name]
    assert len(way) <= functions
    assert len({code.co_filename for code in way}) <= files
    assert sum(len(inspect.getsourcelines(code)[0]) for code in way) <= lines
