"""Hardware at work: what every method of training shares. It knows no graph and no learning."""

from ampsim.machine.channel import Channel
from ampsim.machine.checkpoints import Checkpointed, checkpointed
from ampsim.machine.copies import CopyLanes
from ampsim.machine.fabric import Fabric
from ampsim.machine.lane import Job, Lane
from ampsim.machine.memory import Memory, Sample
from ampsim.machine.outages import outages_until
from ampsim.machine.pace import paced
from ampsim.machine.processor import Begun, Instant, Processor, Tasks
from ampsim.machine.stoppable import StoppableProcessor

__all__ = [
    "Begun",
    "Channel",
    "Checkpointed",
    "CopyLanes",
    "Fabric",
    "Instant",
    "Job",
    "Lane",
    "Memory",
    "Processor",
    "Sample",
    "StoppableProcessor",
    "Tasks",
    "checkpointed",
    "outages_until",
    "paced",
]
