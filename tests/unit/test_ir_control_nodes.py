"""Cond, Phi, Isu, Bcast: routing by state, there and back."""

import re
from typing import NamedTuple

import numpy as np
import pytest

from ampsim.errors import GraphError
from ampsim.ir import Bcast, Cond, Isu, Phi, Standin
from ampsim.ir.control import CHECKED_STATES


class Step(NamedTuple):
    instance: int
    step: int = 0


def forth(state):
    return state._replace(step=state.step + 1)


def back(state):
    return state._replace(step=state.step - 1)


def refused(text):
    return pytest.raises(GraphError, match=f"^{re.escape(text)}$")


def test_cond_routes_by_the_state_and_returns_to_its_one_input():
    cond = Cond("cond", lambda state: "odd" if state.step % 2 else "even", ("even", "odd"))
    assert cond.forward(0, Step(0, 3), "payload") == ((1, Step(0, 3), "payload"),)
    assert cond.forward(0, Step(0, 4), "payload") == ((0, Step(0, 4), "payload"),)
    assert cond.backward(1, Step(0, 3), "gradient") == ((0, Step(0, 3), "gradient"),)


def test_cond_that_names_no_port_is_told_the_ports_and_the_state():
    cond = Cond("cond", lambda state: "up", ("left", "right"))
    text = (
        "cond (Cond): the query must name an output port (left, right), "
        "got 'up' for Step(instance=2, step=0)"
    )
    with refused(text):
        cond.forward(0, Step(2), None)


@pytest.mark.parametrize("outputs", [(), ("a", "a")])
def test_cond_needs_outputs_of_distinct_names(outputs):
    text = f"cond: output names must be distinct and at least one, got {outputs}"
    with refused(text):
        Cond("cond", str, outputs)


def test_phi_returns_a_gradient_to_where_its_message_came_from_in_any_order():
    phi = Phi("phi", ("start", "again"))
    phi.forward(1, Step(0), None)
    phi.forward(0, Step(1), None)
    assert list(phi.pending()) == [Step(0), Step(1)]
    assert phi.backward(0, Step(1), "g") == ((0, Step(1), "g"),)
    assert phi.backward(0, Step(0), "g") == ((1, Step(0), "g"),)
    assert list(phi.pending()) == []


def test_phi_sends_no_gradient_where_none_is_needed():
    phi = Phi("phi", ("start", "again"))
    phi.input_needs_gradient = (False, True)
    phi.forward(0, Step(0), None)
    assert phi.backward(0, Step(0), "g") == ((0, Step(0), None),)


def test_phi_remembers_nothing_of_a_validation_pass():
    phi = Phi("phi", ("start", "again"))
    phi.is_training = False
    assert phi.forward(0, Step(0), "x") == ((0, Step(0), "x"),)
    assert list(phi.pending()) == []


def test_phi_that_meets_a_state_twice_says_so():
    phi = Phi("phi", ("start", "again"))
    phi.forward(0, Step(0), None)
    with pytest.raises(AssertionError, match=r"^phi: Step\(instance=0, step=0\) arrived twice"):
        phi.forward(1, Step(0), None)


@pytest.mark.parametrize("inputs", [(), ("a", "a")])
def test_phi_needs_inputs_of_distinct_names(inputs):
    with refused(f"phi: input names must be distinct and at least one, got {inputs}"):
        Phi("phi", inputs)


def test_isu_goes_forth_and_back():
    isu = Isu("isu", forth, back)
    assert isu.forward(0, Step(0, 1), "x") == ((0, Step(0, 2), "x"),)
    assert isu.backward(0, Step(0, 2), "g") == ((0, Step(0, 1), "g"),)


def test_isu_whose_inverse_is_none_shows_the_way_of_a_state():
    text = (
        "isu (Isu): the inverse must give the state back, but Step(instance=0, step=0) -> "
        "Step(instance=0, step=1) -> Step(instance=0, step=2)"
    )
    with refused(text):
        Isu("isu", forth, forth).forward(0, Step(0), None)


def test_isu_is_checked_on_its_first_states_and_on_all_where_asked():
    def wrong_later(state):
        return back(state) if state.step <= CHECKED_STATES else state

    for checks_all in (False, True):
        isu = Isu("isu", forth, wrong_later)
        isu.checks_all = checks_all
        for step in range(CHECKED_STATES):
            isu.forward(0, Step(0, step), None)
        if checks_all:
            with pytest.raises(GraphError, match="the inverse must give the state back"):
                isu.forward(0, Step(0, CHECKED_STATES), None)
        else:
            isu.forward(0, Step(0, CHECKED_STATES), None)


def test_bcast_sums_gradients_in_port_order_whatever_their_order_of_arrival():
    parts = [np.array([0.1]), np.array([0.2]), np.array([0.3])]
    totals = []
    for order in ([0, 1, 2], [2, 0, 1]):
        bcast = Bcast("bcast", 3)
        assert [send[0] for send in bcast.forward(0, Step(0), "x")] == [0, 1, 2]
        sent = [bcast.backward(port, Step(0), parts[port]) for port in order]
        assert sent[:2] == [(), ()]
        totals.append(sent[2][0][2])
        assert list(bcast.pending()) == []
    assert totals[0] == totals[1] == (0.1 + 0.2) + 0.3


def test_bcast_leaves_out_gradients_that_nobody_computed():
    bcast = Bcast("bcast", 2)
    bcast.backward(1, Step(0), None)
    assert list(bcast.pending()) == [Step(0)]
    assert bcast.backward(0, Step(0), np.array([2.0])) == ((0, Step(0), np.array([2.0])),)
    bcast.backward(0, Step(1), None)
    assert bcast.backward(1, Step(1), None) == ((0, Step(1), None),)


def test_bcast_of_shapes_returns_a_shape():
    bcast = Bcast("bcast", 2)
    bcast.is_abstract = True
    bcast.backward(0, Step(0), Standin((3, 4)))
    ((_port, _state, total),) = bcast.backward(1, Step(0), Standin((3, 4)))
    assert (total.shape, total.nbytes) == ((3, 4), 48)
    assert repr(total) == "Standin(3, 4)"


def test_bcast_of_no_copy_is_refused():
    with refused("bcast: copies must be >= 1, got 0"):
        Bcast("bcast", 0)
