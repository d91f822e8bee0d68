"""Kinds of steps, and causes: what made each span or transfer possible.

A step waits for its message, a transfer for the step that sent it, an instance for the controller
to admit it. A record's cause is one whole number: that of a span where it is 0 or more, `START` for
what nothing came before, and below that transfers and admissions in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ampsim.trace.table import schema

Kind: TypeAlias = tuple[int, int, int, int, int, int]
"""(worker, node, direction, FLOP, bytes, operations)."""

LANES: Final = ("compute", "dispatch", "copy-out", "copy-in")
"""Names of the codes of a span's lane: what a device does beside each other. It computes; its
driver issues steps; and two engines copy, to the host and from it."""

COMPUTE_LANE, DISPATCH_LANE, COPY_OUT_LANE, COPY_IN_LANE = range(len(LANES))

KIND_SCHEMA: Final = schema("worker node direction flop bytes operations lane")


class Kinds:
    """Numbers the kinds of span in the order of their coming.

    A run has few: nodes, directions, and shapes. A row that names its kind by number is half as
    long as one that spells it out, and becomes columns in half the time.

    Attributes:
        seconds_on: of kinds that a device's numbers price, by number: what such a step takes on a
            device, so that who asks later can change one of its numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self.seconds_on: dict[int, Callable[[Any], float]] = {}

    def number(self, kind: Kind, lane: int = COMPUTE_LANE) -> int:
        """Return the number of a kind on a lane, a new one if it is new."""
        return self._numbers.setdefault((*kind, lane), len(self._numbers))

    @property
    def all(self) -> list[tuple[int, ...]]:
        """The kinds by their numbers, each with its lane."""
        return list(self._numbers)

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Spell out the kinds of these numbers, a column for each field."""
        fields = zip(*self._numbers, strict=True)
        return {
            name: np.array(values, dtype)[numbers]
            for (name, dtype), values in zip(KIND_SCHEMA.items(), fields, strict=True)
        }


Cause: TypeAlias = int
"""The number of a span; `START`; or what `of_transfer` or `of_admission` made of a number."""

CauseKind: TypeAlias = Literal["span", "transfer", "admission", "start"]

START: Final = -1
"""Nothing came before: the run began."""


def of_transfer(number: int) -> Cause:
    """Return the cause that is transfer `number`."""
    return -2 - 2 * number


def of_admission(number: int) -> Cause:
    """Return the cause that is admission `number`."""
    return -3 - 2 * number


def record_of(cause: Cause) -> tuple[CauseKind, int]:
    """Return which record a cause is: the table, and the row in it.

    >>> record_of(7), record_of(of_transfer(3)), record_of(of_admission(0)), record_of(START)
    (('span', 7), ('transfer', 3), ('admission', 0), ('start', 0))
    """
    if cause >= 0:
        return "span", cause
    if cause == START:
        return "start", 0
    number, is_admission = divmod(-2 - cause, 2)
    return ("admission" if is_admission else "transfer"), number
