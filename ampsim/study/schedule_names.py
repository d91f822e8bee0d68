"""Schedules by their names on the command line, with the options that each of them takes."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Final, get_args, get_type_hints

from pydantic import Field

from ampsim.data_parallel import SOLVERS, kind_named, name_of
from ampsim.dataflow import PROGRAMS
from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.model_parallel import SCHEDULES, Schedule
from ampsim.text import distinct, marked
from ampsim.toml_file import Text

METHODS: Final[dict[str, Any]] = {**SCHEDULES, **SOLVERS, **PROGRAMS}
"""Schedules, solvers and schedules of programs, under their names."""

_WORDS: Final = {"max_active_keys": "{} in flight", "min_update_interval": "update interval {}"}
"""What tables and figures say of options."""

_VALUES: Final = (bool, int, float, str)
"""Types of which one value of an option is."""

_hints_of: Final = cache(get_type_hints)

_FIELDS: Final[dict[type, Any]] = {
    int: Annotated[int, Field(ge=1)], float: float, str: Text, bool: bool
}  # fmt: skip
"""What a file may say for an option, by its type."""


def schedules_of(names: str, **options: Any) -> list[Schedule]:
    """Make the schedules that a list of names asks for.

    Args:
        names: one name, or several separated by commas; case does not matter. One may say how many
            instances are in flight, or how many ranks there are, as "amp:8" or "sync-sgd:4/amp:8".
        options: for each schedule that takes them, by the names of `option_types`; None for its
            own default. A list stands for a schedule with each of its values, and several lists for
            one with each combination. One that no schedule of `names` takes must make sense to one
            that does.

    Raises:
        UnknownNameError: no schedule has such a name, or an option names nothing that there is.
        OptionError: a name is empty or comes twice, an option has a value that it cannot have, or a
            list is empty or has a value twice.

    >>> schedules_of("sequential,pipeline", max_active_keys=[2, 4])
    [Sequential(), Pipeline(max_active_keys=2), Pipeline(max_active_keys=4)]
    """
    given = {key: value for key, value in options.items() if value is not None}
    for option, value in given.items():
        if isinstance(value, list) and (not value or any(value.count(one) > 1 for one in value)):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]  # of any values
            raise OptionError(f"{option} must be a value, or several that differ, got {value!r}")
    made = [schedule for name in _split(names) for schedule in _make(name, given)]
    for option in without_effect(made, list(given)):
        name = next(name for name, kind in METHODS.items() if option in _options_of(kind))
        list(_make(name, given))
    return made


def schedule_of_row(name: str, row: object) -> Schedule:
    """The schedule of this name with the options that a row of a file gives.

    Raises:
        OptionError: one of them has no effect on it.
    """
    given = {option: getattr(row, option) for option in option_types()}
    schedules = schedules_of(name, **given)
    for option in without_effect(schedules, [key for key, one in given.items() if one is not None]):
        raise OptionError(f"{option} has no effect on {name}; leave it out")
    return schedules[0]


def labels_of(schedules: Sequence[Schedule], told: Collection[str] = ()) -> list[str]:
    """A name for each schedule, no two alike: its own, and what sets it apart from its namesakes.

    Of options that are `told` elsewhere it says nothing, and those that differ in no other have one
    name.

    >>> labels_of(schedules_of("sequential,amp", max_active_keys=[2, 4]))
    ['sequential', 'amp, 2 in flight', 'amp, 4 in flight']
    """
    labels = [schedule.name for schedule in schedules]
    for option in option_types():
        if option in told:
            continue
        given: list[Any] = [getattr(schedule, option, None) for schedule in schedules]
        values = [name_of(one) if hasattr(one, "admission") else repr(one) for one in given]
        labels = marked(labels, values, f"{{}}, {_WORDS.get(option, f'{option} {{}}')}".format)
    return labels if told else distinct(labels)


@cache
def option_types() -> dict[str, type]:
    """List the options of all schedules, by name, with the type of one value.

    >>> option_types()["min_update_interval"], option_types()["group_wait_s"]
    (<class 'int'>, <class 'float'>)
    """
    found: dict[str, type] = {}
    for kind in METHODS.values():
        hints = _hints_of(kind)
        for option in _options_of(kind):
            given = get_args(hints[option]) or (hints[option],)  # texts of one that is a choice
            kinds = [type(one) if isinstance(one, str) else one for one in given]
            found.setdefault(option, next(one for one in _VALUES if one in kinds))
    return found


def option_fields() -> dict[str, Any]:
    """Give options as fields for `pydantic.create_model`; each may be absent."""
    return {name: (_FIELDS[kind] | None, None) for name, kind in option_types().items()}


def without_effect(schedules: list[Schedule], options: list[str]) -> list[str]:
    """Return those of `options` that none of the schedules takes.

    >>> without_effect(schedules_of("pipeline"), ["max_active_keys", "min_update_interval"])
    ['min_update_interval']
    """
    taken = {option for schedule in schedules for option in _options_of(type(schedule))}
    return [option for option in options if option not in taken]


def _split(names: str) -> list[str]:
    parts = [part.strip().casefold() for part in names.split(",")]
    for part in parts:
        if not part:
            raise OptionError(
                f"schedules must be names separated by single commas, got {names!r}; "
                f"known: {', '.join(METHODS)}"
            )
        if re.split("[:/]", part)[0] not in METHODS:
            raise UnknownNameError(one_of("schedule", part, METHODS))
        if parts.count(part) > 1:
            raise OptionError(f"schedules must differ, got {part} twice in {names!r}")
    return parts


def _make(name: str, options: dict[str, Any]) -> Iterator[Schedule]:
    """The schedule with each combination of those of `options` that it takes."""
    kind, own = kind_named(name, "schedules") if re.search("[:/]", name) else (METHODS[name], {})
    if (twice := next((key for key in own if key in options), None)) is not None:
        raise OptionError(
            f"{name} says {twice} itself, got {options[twice]} besides; leave one out"
        )
    taken = own | {key: options[key] for key in _options_of(kind) if key in options}
    choices: list[list[Any]] = [
        value if isinstance(value, list) else [value] for value in taken.values()
    ]
    for values in itertools.product(*choices):
        yield kind(**dict(zip(taken, values, strict=True)))


def _options_of(kind: type) -> list[str]:
    """Its options."""
    return [field.name for field in dataclasses.fields(kind)]
