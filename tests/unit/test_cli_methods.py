"""Names and options of schedules and solvers, read from their files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from ampsim import optim
from ampsim.cli.methods import OPTIONS, REGISTRIES, Option, listed, own_options
from ampsim.cli.option_table import EVERY
from ampsim.study.schedule_names import METHODS

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


def default_told(option: str, method: str) -> str:
    """Read off help what an option is under a method where nobody gives it."""
    (said,) = re.findall(r"\[default: (.*)\]", OPTIONS[option].text) or [""]
    usual, *others = said.split("; ")
    of_others = {name: told for one in others for names, told in [one.split(": ")]
                 for name in names.split(" and ")}  # fmt: skip
    return of_others.get(method, usual)


@pytest.mark.parametrize("method", METHODS)
def test_the_default_that_help_tells_of_an_option_is_that_of_each_method(method):
    for field in dataclasses.fields(METHODS[method]):
        told = default_told(field.name, method) if field.name in OPTIONS else ""
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(told) == field.default, field.name
        elif field.default is None:
            assert not re.fullmatch(r"[\d.]+", told), (field.name, told)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "lars", "adam", "adagrad"])
def test_help_tells_of_each_optimizer_by_which_rule_its_rate_grows(name):
    (said,) = re.findall(r"\[default: (.*)\]", EVERY["scale_rate"].text)
    rules = dict(re.findall(r"(linear|sqrt) for ([\w, ]+?)(?=, sqrt|$)", said))
    assert name in re.findall(r"\w+", rules[getattr(optim, name)(0.1).scaling])
