"""Orders and modes that must not matter to any node: arrival, interleaving, sleep, validation."""

from __future__ import annotations

from itertools import islice, permutations
from typing import Any

import numpy as np
from covering import of_each

from ampsim.ir import Standin


def same(one: Any, other: Any) -> bool:
    """Whether two payloads are equal to the last bit."""
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def assert_same(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    assert found.keys() == expected.keys()
    assert all(same(found[key], expected[key]) for key in expected)


def described(payloads: dict[Any, Any]) -> dict[Any, Any]:
    return {k: None if p is None else (p.shape, p.nbytes) for k, p in payloads.items()}


@of_each("joining")
def test_order_of_arrival_changes_nothing(joining):
    expected = joining.outcome(joining.node())
    for order in permutations(joining.messages):
        found = joining.outcome(joining.node(), order)
        assert_same(found.sent, expected.sent)
        assert_same(found.returned, expected.returned)


@of_each("returning")
def test_order_of_gradients_changes_nothing(returning):
    expected = returning.outcome(returning.node()).returned
    count = len(returning.serve(returning.node()))
    for order in islice(permutations(range(count)), 24):
        node = returning.node()
        answers = [returning.answer(one) for one in returning.serve(node)]
        assert_same(returning.send_back(node, [answers[i] for i in order]), expected)


@of_each("trial")
def test_instances_may_interleave(trial):
    """Two instances whose messages alternate get what each gets alone."""
    others = [
        m._replace(
            state=m.state._replace(instance=8), payload=m.payload / 2 if m.is_float else m.payload
        )
        for m in trial.messages
    ]
    alone = [trial.outcome(trial.node(), one) for one in (trial.messages, others)]
    alternating = [m for pair in zip(trial.messages, others, strict=True) for m in pair]
    found = trial.outcome(trial.node(), alternating)
    assert_same(found.sent, alone[0].sent | alone[1].sent)
    assert_same(found.returned, alone[0].returned | alone[1].returned)


@of_each("trial")
def test_sleep_mode_gives_the_shapes_of_numeric_mode(trial):
    numeric, node = trial.outcome(trial.node()), trial.node()
    node.is_abstract = True
    standins = [
        m._replace(payload=Standin(m.payload.shape, 8)) if m.is_float else m for m in trial.messages
    ]
    sent = trial.serve(node, standins)
    assert not any(m.is_float for m in sent), "numbers were computed"
    leaving = {(m.port, m.state): m.payload for m in sent}
    if node.is_loss:
        assert trial.report(node, standins) is None
        assert described(leaving) == described(numeric.returned)
    else:
        assert described(leaving) == described(numeric.sent)
        assert described(trial.send_back(node, sent)) == described(numeric.returned)


@of_each("trial")
def test_validation_records_nothing_and_sends_the_same_but_for_dropout(trial):
    node = trial.node()
    node.is_training = False
    sent = {(m.port, m.state): m.payload for m in trial.serve(node)}
    assert list(node.pending()) == []
    if node.is_loss:
        assert sent == {}
        assert trial.report(node) is not None
        return
    trained = trial.outcome(trial.node()).sent
    again = {(m.port, m.state): m.payload for m in trial.serve(node)}
    assert_same(again, sent)
    assert described(sent) == described(trained)
    if getattr(node, "_masks", None) is None:
        assert_same(sent, trained)


def frozen(message: Any) -> Any:
    """The message, with an array that cannot be written to."""
    if isinstance(message.payload, np.ndarray):
        message = message._replace(payload=message.payload.copy())
        message.payload.setflags(write=False)
    return message


@of_each("trial")
def test_what_has_come_is_never_written_to(trial):
    node = trial.node()
    sent = trial.serve(node, map(frozen, trial.messages))
    if not node.is_loss:
        trial.send_back(node, (frozen(trial.answer(one)) for one in sent))
    if node.is_parameterized:
        node.take_gradient()


@of_each("trial")
def test_what_has_been_sent_is_never_written_to(trial):
    """By a second message, by gradients, or by taking the sum of gradients."""
    node = trial.node()
    sent = trial.serve(node)
    returned = [] if node.is_loss else [node.backward(*trial.answer(one)) for one in sent]
    out = [m.payload for m in sent] + [p for sends in returned for _port, _state, p in sends]
    copies = [None if p is None else p.copy() for p in out]
    trial.outcome(node)
    if node.is_parameterized:
        node.take_gradient()
    assert all(map(same, out, copies))


@of_each("trial")
def test_single_precision_stays_single(trial):
    node = trial.node(dtype="float32")
    messages = [
        m._replace(payload=m.payload.astype("float32")) if m.is_float else m for m in trial.messages
    ]
    found = trial.outcome(node, messages)
    payloads = [p for p in (*found.sent.values(), *found.returned.values()) if p is not None]
    if node.is_parameterized:
        payloads.append(node.take_gradient())
    names = {payload.dtype.name for payload in payloads if payload.dtype != bool}  # of a mask
    assert names <= {"float32"}
