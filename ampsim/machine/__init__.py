"""Hardware at work: what every method of training shares. It knows no graph and no learning."""

from ampsim.machine.channel import Channel
from ampsim.machine.checkpoints import Checkpointed, checkpointed
from ampsim.machine.fabric import Fabric
from ampsim.machine.lane import CopyLanes, Lane, LaneTask, NothingFree, RecordedLane, SomeFree
from ampsim.machine.memory import Memory, Sample
from ampsim.machine.pace import outages_until, paced
from ampsim.machine.processor import Begun, Instant, Processor, Tasks
from ampsim.machine.stoppable import StoppableProcessor, UnawaitedProcessor

__all__ = [
    "Begun",
    "Channel",
    "Checkpointed",
    "CopyLanes",
    "Fabric",
    "Instant",
    "Lane",
    "LaneTask",
    "Memory",
    "NothingFree",
    "Processor",
    "RecordedLane",
    "Sample",
    "SomeFree",
    "StoppableProcessor",
    "Tasks",
    "UnawaitedProcessor",
    "checkpointed",
    "outages_until",
    "paced",
]
