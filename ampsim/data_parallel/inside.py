"""Names of what is inside a solver, and the ranks that make a group there.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Section 3.1: "The grouping method can be
predetermined or random." Groups are drawn once, before time passes, and stay.

`amp:8` is a schedule and its `max_active_keys`, `sync-sgd:4` a solver and its `ranks`, and
`sync-sgd:4/pipeline:2` a solver whose ranks are pipelines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final, TypeAlias

from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.model_parallel.schedules import SCHEDULES, Schedule
from ampsim.rng import stream
from ampsim.text import shown

FIXED: Final = "fixed"
RANDOM: Final = "random"

GROUPS: Final = (FIXED, RANDOM)
"""How it may be decided which copies make a group."""

Levels: TypeAlias = Sequence[tuple[int, str]]
"""Ranks of a solver, and how their copies are found; of the one inside that, and so on."""


def blocks_of(levels: Levels, copies: int, seed: int) -> list[int]:
    """For each copy, group by group, the block of workers that it lies on.

    Args:
        levels: of all solvers whose ranks are groups.
        copies: in all ranks.
        seed: of the run.

    >>> blocks_of([(2, "fixed")], 6, seed=0)
    [0, 1, 2, 3, 4, 5]
    >>> blocks_of([(2, "random")], 6, seed=1)
    [2, 3, 4, 1, 0, 5]
    """
    random = stream(seed, "groups")

    def within(blocks: list[int], levels: Levels) -> list[int]:
        if not levels:
            return blocks
        (ranks, how), *inner = levels
        if how == RANDOM:
            blocks = [blocks[place] for place in random.permutation(len(blocks))]
        each = len(blocks) // ranks
        parts = (blocks[each * rank : each * (rank + 1)] for rank in range(ranks))
        return [block for part in parts for block in within(part, inner)]

    return within(list(range(copies)), levels)


_KINDS: Final[dict[str, Any]] = dict(SCHEDULES)
"""All that may be inside; solvers come here as they are defined."""

_COUNTS: Final = ("max_active_keys", "ranks")
"""Options that a number after a colon may set: the first of these that there is."""

NESTED_MAX: Final = 8
"""Most solvers within each other (chosen: twice as many as racks, machines, sockets and cores)."""


def make_known(kind: Any) -> None:
    """Let a solver's class be found by its name; the first of a name is."""
    _KINDS.setdefault(kind.name, kind)


def inner_named(text: str) -> Schedule:
    """Return the schedule or solver that a name stands for.

    Raises:
        OptionError: it is no name, or what it names has no such number.

    >>> inner_named("amp:4")
    Amp(max_active_keys=4, min_update_interval=None, remedy='none', max_group=1, group_wait_s=0.0)
    """
    kind, chosen = kind_named(text)
    return kind(**chosen)


def kind_named(text: str, what: str = "inner") -> tuple[Any, dict[str, Any]]:
    """The class that a name stands for, and those of its options that the name says.

    Args:
        text: such as "amp:4" or "sync-sgd:2/amp:4".
        what: which option it is, for messages.

    Raises:
        OptionError, UnknownNameError: as of `inner_named`.

    >>> kind_named("amp:4")[1], kind_named("sync-sgd:2/amp:4")[1]
    ({'max_active_keys': 4}, {'ranks': 2, 'inner': 'amp:4'})
    """
    if text.count("/") > NESTED_MAX:
        raise OptionError(
            f"{what} must name at most {NESTED_MAX} solvers within each other, got {shown(text)}"
        )
    first, slash, rest = text.partition("/")
    name, colon, count = first.partition(":")
    kind: Any = _KINDS.get(name.strip().casefold())
    if kind is None:
        noun = f"{what} schedule" if what == "inner" else "schedule that has such a number"
        raise UnknownNameError(one_of(noun, name.strip(), _KINDS))
    options = [one for one in _COUNTS if one in {field.name for field in fields(kind)}]
    has_inner = "inner" in {field.name for field in fields(kind)}
    is_count = count.isascii() and count.isdigit()
    if (colon and not (options and is_count)) or (slash and not has_inner):
        raise OptionError(
            f"{what} must be a schedule's name, or such a name and its max_active_keys, as amp:8, "
            f"got {shown(text)}; or a solver's and its ranks, as sync-sgd:4 or sync-sgd:4/amp:8"
        )
    chosen: dict[str, Any] = {options[0]: int(count)} if colon else {}
    if slash:
        chosen["inner"] = rest
    return kind, chosen


def name_of(schedule: Schedule) -> str:
    """The name by which `inner_named` finds it, as far as that says.

    >>> name_of(inner_named("amp:4")), name_of(inner_named("sequential"))
    ('amp:4', 'sequential')
    """
    known: Any = schedule
    count = next((getattr(known, one) for one in _COUNTS if hasattr(known, one)), None)
    own = schedule.name if count is None else f"{schedule.name}:{count}"
    inner = name_of(known.inner) if hasattr(known, "inner") else "sequential"
    return own if inner == "sequential" else f"{own}/{inner}"
