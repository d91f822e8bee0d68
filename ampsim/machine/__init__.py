"""Hardware at work: what every method of training shares. It knows no graph and no learning."""

from ampsim.machine.fabric import Channel, Fabric

__all__ = ["Channel", "Fabric"]
