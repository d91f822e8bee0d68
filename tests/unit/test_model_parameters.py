"""A model's parameters: read, set, refused; and its options."""

import re
from dataclasses import replace

import numpy as np
import pytest

from ampsim import Amp, load_model, simulate
from ampsim.errors import OptionError
from ampsim.study import parameters_of

CHEAP = ((1, 1, 1),) * 2
NAMES = ["stage-1.weight", "stage-1.bias", "stage-2.weight", "stage-2.bias"]
EXPECTED = f"expected: {', '.join(NAMES)}"


@pytest.fixture
def model(chain):
    return chain(CHEAP).model()


def refused(text):
    return pytest.raises(OptionError, match=f"^{re.escape(text)}$")


def test_a_loaded_model_has_the_parameters_of_seed_0(model):
    of_seed_0 = parameters_of(model.graph(0))
    assert list(model.parameters()) == NAMES
    for name, array in model.parameters().items():
        assert (array == of_seed_0[name]).all()


def test_parameters_are_copies(model):
    model.parameters()["stage-1.bias"][:] = 7
    assert not (model.parameters()["stage-1.bias"] == 7).any()


def test_set_parameters_is_the_inverse_of_parameters(model):
    random = np.random.default_rng(0)
    given = {name: random.standard_normal(a.shape) for name, a in model.parameters().items()}
    changed = model.set_parameters(given)
    for name, array in changed.parameters().items():
        assert (array == given[name]).all()
    lists = {name: array.tolist() for name, array in changed.parameters().items()}
    again = model.set_parameters(lists).parameters()
    assert all((again[name] == given[name]).all() for name in NAMES)


def test_set_parameters_changes_neither_the_model_nor_its_copies_nor_what_it_was_given(model):
    before = model.parameters()
    given = {name: array + 1 for name, array in before.items()}
    changed = model.set_parameters(given)
    copy = replace(changed)
    other = copy.set_parameters({name: array + 1 for name, array in given.items()})
    given["stage-1.bias"][:] = 9
    copy.given["stage-1.bias"][:] = 7
    for name in NAMES:
        assert (model.parameters()[name] == before[name]).all()
        assert (changed.parameters()[name] == before[name] + 1).all()
        assert (other.parameters()[name] == before[name] + 2).all()


def test_the_seed_draws_parameters_only_where_none_were_given(model):
    drawn = [parameters_of(model.graph(seed))["stage-1.weight"] for seed in (0, 1)]
    assert (drawn[0] != drawn[1]).all()
    model = model.set_parameters(model.parameters())
    given = [parameters_of(model.graph(seed))["stage-1.weight"] for seed in (0, 1)]
    assert (given[0] == given[1]).all()
    assert (given[0] == drawn[0]).all()


def test_a_run_leaves_its_model_alone_and_goes_on_from_its_result(model, make_cluster):
    before = model.parameters()
    first = simulate(model, make_cluster(2), Amp(2))
    after = model.parameters()
    assert all((before[name] == after[name]).all() for name in NAMES)
    learned = first.model.parameters()
    assert all((learned[name] != before[name]).any() for name in NAMES)
    second = simulate(first.model, make_cluster(2), Amp(2), seed=5)
    assert all((first.model.parameters()[name] == learned[name]).all() for name in NAMES)
    assert (second.model.parameters()["stage-1.weight"] != learned["stage-1.weight"]).any()


def test_what_is_no_mapping_is_told_what_one_holds(model):
    with refused("parameters must be a mapping of names to arrays, got [] (list)"):
        model.set_parameters([])


def test_a_parameter_that_is_missing_or_unknown_is_named(model):
    parameters = model.parameters()
    with refused(f"parameter 'stage-3.weight' belongs to no node; {EXPECTED}"):
        model.set_parameters({**parameters, "stage-3.weight": 0})
    del parameters["stage-1.bias"]
    with refused(f"parameter 'stage-1.bias' is missing; {EXPECTED}"):
        model.set_parameters(parameters)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((2, 3)), "must have shape (2,), got (2, 3)"),
        (0.0, "must have shape (2,), got ()"),
        ([1.0, np.nan], "must be finite in float64, got NaN or infinity"),
        ([1.0, -np.inf], "must be finite in float64, got NaN or infinity"),
        (
            np.ma.masked_array([1.0, 2.0], [False, True]),
            "must have a number at every place, got a masked array with 1 masked; leave rows out "
            "that have none, or say what they are, such as x.filled(0.0)",
        ),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_and_changes_nothing(model, value, text):
    before = model.parameters()
    with refused(f"parameter 'stage-1.bias' {text}"):
        model.set_parameters({**before, "stage-1.bias": value})
    assert all((model.parameters()[name] == before[name]).all() for name in NAMES)


@pytest.mark.parametrize("value", ["zero", [[1.0], [2.0, 3.0]], object()])
def test_what_is_no_array_of_numbers_is_refused(model, value):
    text = "^parameter 'stage-1.bias' must be an array of numbers: "
    with pytest.raises(OptionError, match=text):
        model.set_parameters({**model.parameters(), "stage-1.bias": value})


def test_a_number_too_large_for_the_data_type_is_refused(model):
    single = replace(model, dtype="float32", given={})
    with refused("parameter 'stage-1.bias' must be finite in float32, got NaN or infinity"):
        single.set_parameters({**model.parameters(), "stage-1.bias": [1e300, 0.0]})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"min_update_interval": 0}, "min_update_interval must be a whole number >= 1, got 0"),
        (
            {"node_update_intervals": {"stage-1": 0}},
            "node_update_intervals of stage-1 must be a whole number >= 1, got 0",
        ),
        ({"replicas": 0}, "replicas must be a whole number >= 1, got 0"),
        ({"dtype": "int8"}, "dtype must be float32 or float64, got 'int8'"),
        (
            {"target": 97},
            "target must be an accuracy above 0 and at most 1, got 97; for 97 % write 0.97",
        ),
    ],
)
def test_a_model_with_an_impossible_option_is_refused(model, changes, text):
    with refused(text):
        replace(model, **changes)


def test_the_data_type_is_that_of_the_parameters():
    for dtype in ("float32", "float64"):
        model = load_model("rnn", hidden=4, replicas=1, dtype=dtype)
        assert {array.dtype.name for array in model.parameters().values()} == {dtype}


def test_an_interval_of_no_node_is_refused(model):
    wrong = replace(model, node_update_intervals={"stage-9": 3})
    with refused(
        "no learning node in node_update_intervals named 'stage-9'; did you mean 'stage-2'? "
        "known: stage-1, stage-2"
    ):
        simulate(wrong, "tflops-1", Amp())
