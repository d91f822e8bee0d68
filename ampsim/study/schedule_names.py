"""Schedules by their names on the command line, with the options that each of them takes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.runtime import SCHEDULES, Schedule


def schedules_of(names: str, **options: Any) -> list[Schedule]:
    """Make the schedules that a list of names asks for.

    Args:
        names: one name, or several separated by commas; case does not matter.
        options: for each schedule that takes them, by the names of `option_names`; None for its
            own default. One that no schedule of `names` takes must make sense to one that does.

    Raises:
        UnknownNameError: no schedule has such a name, or an option names nothing that there is.
        OptionError: a name is empty or comes twice, or an option has a value that it cannot have.

    >>> schedules_of("sequential,amp", max_active_keys=4)
    [Sequential(), Amp(max_active_keys=4, min_update_interval=None, remedy='none')]
    """
    given = {key: value for key, value in options.items() if value is not None}
    made = [_make(name, given) for name in _split(names)]
    for option in without_effect(made, list(given)):
        _make(next(name for name in SCHEDULES if option in _options_of(SCHEDULES[name])), given)
    return made


def option_names() -> list[str]:
    """Names of all options that any schedule takes."""
    every = (option for kind in SCHEDULES.values() for option in _options_of(kind))
    return list(dict.fromkeys(every))


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
                f"known: {', '.join(SCHEDULES)}"
            )
        if part not in SCHEDULES:
            raise UnknownNameError(one_of("schedule", part, SCHEDULES))
        if parts.count(part) > 1:
            raise OptionError(f"schedules must differ, got {part} twice in {names!r}")
    return parts


def _make(name: str, options: dict[str, Any]) -> Schedule:
    kind: Any = SCHEDULES[name]
    return kind(**{key: options[key] for key in _options_of(kind) if key in options})


def _options_of(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
