"""Checkpoints: what a device that stops comes back with, where it loses its weights.

`docs/decisions/0012-time-that-varies.md` says what is modelled and what is not.
"""

from __future__ import annotations

from ampsim.hardware.events import Event, Failures, MeanSeconds
from ampsim.hardware.record import UNSOURCED, Rate, Seconds, Source
from ampsim.toml_file import Record


class Checkpoints(Record):
    """When each device that has parameters keeps a copy of them elsewhere, and what that takes.

    A copy holds the parameters and the optimizer's state of the nodes on the device. It takes no
    room in the device's memory.

    Args:
        every_s: a checkpoint is due at every multiple of it, in seconds of the run; it is left out
            where no update has been made since the last.
        takes_s: how long a checkpoint occupies its device, beside its bytes.
        bandwidth_bytes_per_s: at which its bytes leave the device meanwhile; None for at once.
        source: where the numbers come from; a file must say.
    """

    every_s: MeanSeconds
    takes_s: Seconds = 0.0
    bandwidth_bytes_per_s: Rate | None = None
    source: Source | None = None

    @property
    def is_free(self) -> bool:
        """Whether a checkpoint takes no time."""
        return not self.takes_s and self.bandwidth_bytes_per_s is None

    def seconds(self, size_bytes: int) -> float:
        """How long a checkpoint of so many bytes occupies its device."""
        rate = self.bandwidth_bytes_per_s
        return self.takes_s + (0.0 if rate is None else size_bytes / rate)


def fault_of_checkpoints(
    checkpoints: Checkpoints | None, events: tuple[Event, ...], failures: Failures | None
) -> str | None:
    """What is wrong with the checkpoints of a cluster where this happens, if anything."""
    losing = [f"events[{i}]" for i, one in enumerate(events) if one.loses_weights]
    if failures is not None and failures.loses_weights:
        losing.append("failures")
    if losing and checkpoints is None:
        return (
            f'{losing[0]}: weights "checkpoint" needs a table [checkpoints] that says every_s; '
            "add it"
        )
    if checkpoints is not None and checkpoints.is_free and not losing:
        return (
            "checkpoints have no effect: they take no time, and no stop has "
            'weights = "checkpoint"; leave them out, or add one of the two'
        )
    return None


def checkpoints_in_words(checkpoints: Checkpoints) -> tuple[str, str, Source]:
    """Of what, what, and where the numbers come from."""
    takes, rate = f", {checkpoints.takes_s:g} s each", checkpoints.bandwidth_bytes_per_s
    if rate is not None:
        takes += f" and {rate:g} bytes/s"
    takes = ", which take no time" if checkpoints.is_free else takes
    what = f"every {checkpoints.every_s:g} s{takes}"
    return "checkpoints", what, checkpoints.source or UNSOURCED
