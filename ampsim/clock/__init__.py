"""Time: one protocol, a virtual clock over SimPy and a wall clock over asyncio."""

from ampsim.clock.protocol import OVER, Clock, Signal
from ampsim.clock.simulated import SimClock
from ampsim.clock.wall import WallClock, interrupted_after

__all__ = ["OVER", "Clock", "Signal", "SimClock", "WallClock", "interrupted_after"]
