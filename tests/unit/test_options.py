"""Options are checked where they come in, one line each."""

import re

import numpy as np
import pytest

from ampsim.errors import OptionError
from ampsim.metric import ACCURACY
from ampsim.options import require_count
from ampsim.study.loading import settings_of


@pytest.mark.parametrize("value", [1, 10**9, np.int64(3)])
def test_a_count_comes_back_as_a_python_int(value):
    assert require_count("epochs", value) == value
    assert type(require_count("epochs", value)) is int


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, True, "3", None, float("nan")])
def test_what_is_no_count_is_refused_with_its_name_and_value(value):
    text = f"epochs must be a whole number >= 1, got {value!r}"
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        require_count("epochs", value)


@pytest.mark.parametrize("value", [0.97, 1.0, 1, 1e-9, np.float32(0.5), np.float64(1.0)])
def test_every_accuracy_up_to_all_right_can_be_a_target(value):
    assert ACCURACY.require_target(value) == float(value)
    assert type(ACCURACY.require_target(value)) is float


def test_no_target_stays_none():
    assert ACCURACY.require_target(None) is None


@pytest.mark.parametrize("value", [0, -0.1, 1.0001, 97, True, False, "0.97", float("nan")])
def test_what_is_no_accuracy_is_refused_with_what_to_write(value):
    text = f"target must be an accuracy above 0 and at most 1, got {value!r}; for 97 % write 0.97"
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        ACCURACY.require_target(value)


def test_a_setting_is_split_at_its_first_equals_sign():
    assert settings_of([" a = 1 ", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["hidden", "=3", " ", ""])
def test_a_setting_without_key_or_value_is_shown_one_that_works(text):
    wanted = f"a setting must be KEY=VALUE, got {text!r}; for example hidden=64"
    with pytest.raises(OptionError, match=f"^{re.escape(wanted)}$"):
        settings_of([text])


def test_a_setting_given_twice_is_refused():
    with pytest.raises(OptionError, match=r"^settings must differ, got hidden twice$"):
        settings_of(["hidden=1", "batch=2", "hidden=1"])
