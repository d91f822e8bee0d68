"""Hardware at work: what every method of training shares. It knows no graph and no learning."""

from ampsim.machine.fabric import Channel, Fabric
from ampsim.machine.memory import Memory, Sample
from ampsim.machine.processor import Begun, Instant, Processor, Tasks

__all__ = ["Begun", "Channel", "Fabric", "Instant", "Memory", "Processor", "Sample", "Tasks"]
