"""The options of schedules and solvers, as commands take them, and the schedules that they make."""

from __future__ import annotations

import re
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ampsim.cli import completion
from ampsim.cli.console import complain
from ampsim.cli.methods import OPTIONS, SEVERAL, Option
from ampsim.cli.options import optional
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.model_parallel import Schedule


@dataclass(frozen=True)
class Given:
    """What was given of `OPTIONS`; None of what was not.

    Raises:
        OptionError: one that counts something is no count.
    """

    def __post_init__(self) -> None:
        """Read the counts, so that one that is none is told before any work."""
        self.given()

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        every = {name: getattr(self, name) for name in OPTIONS}
        return {
            name: counts_of(name, value) if OPTIONS[name].metavar == SEVERAL else value
            for name, value in every.items()
            if value is not None
        }

    def schedules(self, names: str) -> list[Schedule]:
        """The schedules of these names; says so where an option concerns none of them."""
        from ampsim.study.schedule_names import schedules_of, without_effect

        given = self.given()
        made = schedules_of(names, **given)
        for option in without_effect(made, list(given)):
            complain(f"note: --{option.replace('_', '-')} has no effect on {names}")
        return made


def _typed(one: Option) -> Any:
    more = {"autocompletion": completion.one_of(*one.offered)} if one.offered else {}
    return optional(one.metavar, one.text, **more)


if TYPE_CHECKING:
    Tuning: TypeAlias = Given
else:
    Tuning = make_dataclass(
        "Tuning",
        [(name, Annotated[one.kind | None, _typed(one)], None) for name, one in OPTIONS.items()],
        bases=(Given,),
        frozen=True,
    )
"""A command's argument of this type has all of `OPTIONS`."""


def counts_of(option: str, text: str) -> int | list[int]:
    """Read a whole number, or several with commas between.

    Raises:
        OptionError: it is neither, or a number is below 1 or comes twice.
    """
    from ampsim.options import require_count

    parts = text.split(",")
    if not all(re.fullmatch(r"\s*[+-]?[0-9]{1,100}\s*", part) for part in parts):
        raise OptionError(
            f"--{option.replace('_', '-')} must be a whole number, or several with single commas "
            f"between, such as 2,4,8, got {text!r}"
        )
    counts = [require_count(option, int(part)) for part in parts]
    if len(set(counts)) < len(counts):
        raise OptionError(
            f"--{option.replace('_', '-')} must be numbers that differ, got {text!r}; "
            "leave out what comes twice"
        )
    return counts[0] if len(counts) == 1 else counts
