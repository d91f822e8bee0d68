"""What goes on inside a rank, by name: a schedule, or a solver of a group and what is inside that.

`amp:8` is a schedule and its `max_active_keys`, `sync-sgd:4` a solver and its `ranks`, and
`sync-sgd:4/pipeline:2` a solver whose ranks are pipelines.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.model_parallel.schedules import SCHEDULES, Schedule
from ampsim.shown import shown

_KINDS: Final[dict[str, Any]] = dict(SCHEDULES)
"""All that may be inside; solvers come here as they are defined."""

_COUNTS: Final = ("max_active_keys", "ranks")
"""What a number after a colon is: the first of these that there is."""


def make_known(kind: Any) -> None:
    """Let a solver's class be found by its name; the first of a name is."""
    _KINDS.setdefault(kind.name, kind)


def inner_named(text: str) -> Schedule:
    """What a name stands for.

    Raises:
        OptionError: it is no name, or what it names has no such number.

    >>> inner_named("amp:4")
    Amp(max_active_keys=4, min_update_interval=None, remedy='none', max_group=1, group_wait_s=0.0)
    """
    first, slash, rest = text.partition("/")
    name, colon, count = first.partition(":")
    kind: Any = _KINDS.get(name.strip().casefold())
    if kind is None:
        raise UnknownNameError(one_of("inner schedule", name.strip(), _KINDS))
    options = [one for one in _COUNTS if one in {field.name for field in fields(kind)}]
    has_inner = "inner" in {field.name for field in fields(kind)}
    is_count = count.isascii() and count.isdigit()
    if (colon and not (options and is_count)) or (slash and not has_inner):
        raise OptionError(
            "inner must be a schedule's name, or such a name and its max_active_keys, as amp:8, "
            f"got {shown(text)}; or a solver's and its ranks, as sync-sgd:4 or sync-sgd:4/amp:8"
        )
    chosen: dict[str, Any] = {options[0]: int(count)} if colon else {}
    if slash:
        chosen["inner"] = rest
    return kind(**chosen)


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
