"""Names and options of schedules and solvers, read from their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampsim.cli.methods import REGISTRIES, Option, listed, own_options

MINE = '''
from dataclasses import dataclass, field
from typing import ClassVar

@dataclass(frozen=True)
class Helper:
    size: int = 3

@dataclass(frozen=True)
class Mine:
    """A schedule.

    Args:
        pairs: pairs of instances
            in flight at most.
        pace: seconds between them.
        is_strict: whether all wait.

    Raises:
        OptionError: never.
    """

    pairs: Count = 2
    pace: float | None = field(default=0.5, kw_only=True)
    is_strict: bool = False
    name: ClassVar[str] = "mine"
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one schedule, and nothing in the other registries."""
    schedules, *others = (tmp_path / file for file in REGISTRIES.values())
    for one in (schedules, *others):
        one.parent.mkdir(parents=True)
        one.write_text("__all__ = []\n")
    schedules.write_text(
        'from ampsim.model_parallel.schedules.mine import Mine\n\n__all__ = ["Mine"]\n'
    )
    (schedules.parent / "mine.py").write_text(MINE)
    return tmp_path


def test_what_a_registry_lists_has_its_name_and_each_field_is_an_option(package):
    (mine,) = methods = listed(package)
    assert (mine.name, mine.heading) == ("mine", "Schedule")
    options = dict(own_options(methods))
    assert options == {
        "pairs": Option(
            "N", "Pairs of instances in flight at most. Under mine.  [default: 2]", (), "Schedule"
        ),
        "pace": Option("X", "Seconds between them. Under mine.  [default: 0.5]", (), "Schedule"),
        "is_strict": Option(None, "Whether all wait. Under mine.", (), "Schedule"),
    }
    assert [one.kind for one in options.values()] == [int, float, bool]


def test_a_class_without_a_name_is_said(package):
    file = package / "ampsim" / "model_parallel" / "schedules" / "mine.py"
    file.write_text(MINE.replace('name: ClassVar[str] = "mine"', "name: ClassVar[str]"))
    with pytest.raises(AssertionError, match="name is assigned no value in Mine"):
        listed(package)
