"""Records of a run, and what can be read off them."""

from ampsim.trace.recorder import Recorder, to_frame
from ampsim.trace.summary import Summary

__all__ = ["Recorder", "Summary", "to_frame"]
