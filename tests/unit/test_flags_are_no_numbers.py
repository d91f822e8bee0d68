"""True and False are refused wherever a number is asked for, in every file and for every model."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
from covering import together
from pydantic import ValidationError

import ampsim
import ampsim.hardware
import ampsim.recipes.recipe  # defines the records of a recipe
from ampsim.assets import names
from ampsim.errors import OptionError
from ampsim.study.loading import option_names
from ampsim.toml_file import Record

MODELS = names("models")


def records(record: type[Record] = Record) -> list[type[Record]]:
    found = [one for each in record.__subclasses__() for one in [each, *records(each)]]
    return [one for one in found if one.__module__.startswith("ampsim.")]


def wrong(record: type[Record], key: str, value: object) -> bool:
    """Whether a record refuses that value under that key."""
    with pytest.raises(ValidationError) as caught:
        record.model_validate({key: value, "no such key": 1})
    return any(one["loc"][0] == key for one in caught.value.errors())


def numbers(record: type[Record]) -> list[str]:
    """Keys that take the number 1."""
    keys = [field.alias or name for name, field in record.model_fields.items()]
    return [key for key in keys if not wrong(record, key, 1)]


KEYS = [(record, key) for record in records() for key in numbers(record)]


def test_there_are_numbers_in_recipes_and_in_hardware():
    found = {f"{record.__name__}.{key}" for record, key in KEYS}
    assert {
        "RecipeFile.epochs", "ScheduleEntry.max_active_keys", "Published.value",
        "Device.flop_per_s", "Link.latency_s", "_DeviceEntry.count", "_RouteEntry.from",
    } <= found  # fmt: skip


@together("flag, record, key", [(flag, *one) for flag in (True, False) for one in KEYS])
def test_no_number_in_a_file_is_a_flag(flag, record, key):
    assert wrong(record, key, flag)


@together("model, flag", product(MODELS, [True, False, np.bool_(True)]))
def test_no_option_of_a_model_that_is_a_number_is_a_flag(model, flag):
    config = ampsim.load_model(model).config
    tried = 0
    for option in option_names(model):
        if type(getattr(config, option)) in (int, float):
            tried += 1
            with pytest.raises(OptionError, match=f"field '{option}': input should not be true or"):
                ampsim.load_model(model, **{option: flag})
    assert tried > 2


def test_an_option_that_is_a_flag_takes_one(tmp_path):
    shown = (
        "import dataclasses\n"
        "import ampsim\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Config:\n"
        "    deep: bool = False\n"
        "    wide: int | bool = 3\n"
        "def build(config):\n"
        "    return dataclasses.replace(ampsim.load_model('rnn', hidden=4), config=config)\n"
    )
    (tmp_path / "own.py").write_text(shown)
    config = ampsim.load_model(tmp_path / "own.py", deep=True, wide=True).config
    assert dataclasses.asdict(config) == {"deep": True, "wide": True}
    assert ampsim.load_model(tmp_path / "own.py", deep=np.bool_(True)).config.deep is True


def test_a_recipe_that_says_true_for_a_number_is_told(call, tmp_path):
    recipe = (
        'title = "A"\nmodel = "rnn"\nset = { hidden = true }\nepochs = 1\n'
        '[[schedules]]\nname = "amp"\n'
    )
    (tmp_path / "recipe.toml").write_text(recipe)
    ended = call("check", "recipe.toml")
    assert ended.code == 2
    assert ended.err == (
        "ampsim: recipe.toml: schedules[0]: model: rnn: field 'hidden': input should not be true "
        "or false, got True\n"
    )
