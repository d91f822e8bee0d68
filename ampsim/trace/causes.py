"""Causes: the number of the record that made another one possible.

A step waits for its message, a transfer for the step that sent it, an instance for the controller
to admit it. A record's cause is one whole number: that of a span where it is 0 or more, `START` for
what nothing came before, and below that transfers and admissions in turn.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Cause: TypeAlias = int
"""The number of a span; `START`; or what `of_transfer` or `of_admission` made of a number."""

Kind: TypeAlias = Literal["span", "transfer", "admission", "start"]

START: Final = -1
"""Nothing came before: the run began."""


def of_transfer(number: int) -> Cause:
    """Return the cause that is transfer `number`."""
    return -2 - 2 * number


def of_admission(number: int) -> Cause:
    """Return the cause that is admission `number`."""
    return -3 - 2 * number


def record_of(cause: Cause) -> tuple[Kind, int]:
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
