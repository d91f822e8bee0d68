"""Learning by the order that a clock decided, afterwards and without one.

`replay.py` is what to read first; `batches.py` is the same for many messages at once.
"""

from ampsim.learning.batches import why_by_message
from ampsim.learning.kept import Arrays, LearningStore
from ampsim.learning.operations import WHY_ALONE
from ampsim.learning.replay import Replay, pumped

__all__ = ["WHY_ALONE", "Arrays", "LearningStore", "Replay", "pumped", "why_by_message"]
