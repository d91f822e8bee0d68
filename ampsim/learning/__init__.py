"""Learning by the order that a clock decided, afterwards and without one.

`replay.py` is what to read first.
"""

from ampsim.learning.kept import Arrays, LearningStore
from ampsim.learning.replay import Replay

__all__ = ["Arrays", "LearningStore", "Replay"]
