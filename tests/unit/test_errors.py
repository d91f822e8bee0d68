"""Errors are of one family, and a message leads from a wrong name to the right one."""

import pytest

from ampsim import errors
from ampsim.errors import AmpsimError, SimulationError, one_of


def test_whatever_a_user_can_repair_is_an_ampsim_error():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = [kind for kind in kinds if issubclass(kind, Exception)]
    told = [kind for kind in ours if not issubclass(kind, Warning)]
    assert len(told) == 11
    assert all(issubclass(kind, AmpsimError) for kind in told)


def test_a_run_that_could_not_go_on_is_a_simulation_error_without_result_until_it_has_one():
    for kind in (errors.DivergenceError, errors.StuckError):
        assert issubclass(kind, SimulationError)
        assert kind("why").partial is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("treelstm", "no model named 'treelstm'; did you mean 'tree_lstm'? known: rnn, tree_lstm"),
        ("q", "no model named 'q'; known: rnn, tree_lstm"),
        (None, "no model named 'None'; known: rnn, tree_lstm"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_all_that_are_known(name, text):
    assert one_of("model", name, ["tree_lstm", "rnn"]) == text
