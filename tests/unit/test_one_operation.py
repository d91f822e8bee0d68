"""The way of one operation through `ampsim.dependency`, which only ever becomes shorter."""

import inspect
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ampsim

PACKAGE = Path(ampsim.__file__).parent

FIRST, LAST = "DependencyEngine.push", "_note_ready"
"""From the push of an operation to the next one that its end makes ready."""

OF_THE_WAIT = ("wait_for_all", "require_outside", "require_whole", "run")
"""Functions that the program calls in between, to let time pass."""

MOST = {"functions": 20, "files": 7, "lines": 320}
"""What is called on the way, without clock and trace."""


def way_of_the_first() -> list[CodeType]:
    """The functions from the push of an operation to what its end makes ready, in their order."""
    engine = ampsim.DependencyEngine(ampsim.load_cluster("tflops-1", workers=1))
    first, second = engine.new_variable("a"), engine.new_variable("b")
    engine.push(None, mutates=[second], work=ampsim.Work(flop=10))
    engine.wait_for_all()
    found: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or LAST in (one.co_name for one in found):
            return
        if path.is_relative_to(PACKAGE) and path.parent.name not in ("clock", "trace"):
            found[code] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        engine.push(None, mutates=[first], work=ampsim.Work(flop=10))
        engine.push(None, reads=[first], mutates=[second], work=ampsim.Work(flop=10))
        engine.wait_for_all()
    finally:
        sys.setprofile(before)
    return list(found)


def test_the_way_of_one_operation_becomes_no_longer():
    way = way_of_the_first()
    assert (way[0].co_qualname, way[-1].co_qualname) == (FIRST, LAST)
    own = [code for code in way if code.co_name not in OF_THE_WAIT]
    found = {
        "functions": len(own),
        "files": len({code.co_filename for code in own}),
        "lines": sum(len(inspect.getsourcelines(code)[0]) for code in own),
    }
    assert {name: count for name, count in found.items() if count > MOST[name]} == {}
