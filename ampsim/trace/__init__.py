"""Records of a run, and what can be read off them."""

from ampsim.trace.bounds import Bounds, bounds_of
from ampsim.trace.kinds import Kinds
from ampsim.trace.recorder import Recorder, to_frame
from ampsim.trace.summary import DIRECTIONS, Summary
from ampsim.trace.window import Window, window_of

__all__ = [
    "DIRECTIONS",
    "Bounds",
    "Kinds",
    "Recorder",
    "Summary",
    "Window",
    "bounds_of",
    "to_frame",
    "window_of",
]
