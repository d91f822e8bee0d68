"""What was taken from a foreign file, and what was not."""

from __future__ import annotations

from typing import NamedTuple


class Taken(NamedTuple):
    """A number of ours, and how it follows from the foreign file.

    Args:
        value: in our unit.
        how: which keys it comes from, and what was done with them.
    """

    value: float | int
    how: str


class Reading(NamedTuple):
    """What a foreign file says of a device.

    Args:
        simulator: whose file it is.
        numbers: by our keys.
        left_out: a sentence for each thing that a device of ours cannot say.
    """

    simulator: str
    numbers: dict[str, Taken]
    left_out: list[str]
