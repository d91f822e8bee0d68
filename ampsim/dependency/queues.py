"""The queues of the variables at an instant, made again from the records of what ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ampsim.dependency.log import Uses


class Use(NamedTuple):
    """What one operation uses, as numbers of variables."""

    reads: tuple[int, ...]
    mutates: tuple[int, ...]


class Waiter(NamedTuple):
    """An operation in a queue.

    Args:
        operation: its number.
        is_mutation: whether it mutates the variable.
        is_running: whether it has started.
    """

    operation: int
    is_mutation: bool
    is_running: bool


def uses_of(uses: Uses) -> tuple[Use, ...]:
    """What each operation uses."""
    variables, found, first = uses.variables.tolist(), list[Use](), 0
    for reads, mutates in zip(uses.reads.tolist(), uses.mutates.tolist(), strict=True):
        middle, last = first + reads, first + reads + mutates
        found.append(Use(tuple(variables[first:middle]), tuple(variables[middle:last])))
        first = last
    return tuple(found)


def queues_at(uses: Sequence[Use], times: Sequence[Any], time_s: float) -> dict[int, list[Waiter]]:
    """For each variable that is waited for or in use, its queue at an instant, in push order.

    Args:
        uses: of each operation.
        times: of each operation (pushed, started, ended), three columns in seconds.
        time_s: the instant, after what is pushed and starts in it and before what ends.
    """
    pushed_s, start_s, end_s = times
    found: dict[int, list[Waiter]] = {}
    for number in np.flatnonzero((pushed_s <= time_s) & (time_s < end_s)).tolist():
        is_running = bool(start_s[number] <= time_s)
        for is_mutation, variables in enumerate(uses[number]):
            for variable in variables:
                waiter = Waiter(number, bool(is_mutation), is_running)
                found.setdefault(variable, []).append(waiter)
    return {variable: found[variable] for variable in sorted(found)}


def text_of(
    queues: Mapping[int, Sequence[Waiter]], operations: Sequence[str], variables: Mapping[int, str]
) -> str:
    """The queues as lines, their heads on the left."""
    if not queues:
        return "no operation waits or runs"
    width = max(len(variables[one]) for one in queues)
    return "\n".join(
        f"{variables[one]:{width}} | " + " ".join(_word(waiter, operations) for waiter in waiters)
        for one, waiters in queues.items()
    )


def _word(waiter: Waiter, operations: Sequence[str]) -> str:
    opening, closing = "[]" if waiter.is_mutation else "()"
    return f"{opening}{operations[waiter.operation]}{'*' if waiter.is_running else ''}{closing}"
