"""Bytes that a device with a memory bandwidth charges are bytes that the step can have touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ampsim.ir import Direction, ParameterizedNode

TOUCHES = 4  # chosen: no step reads or writes all that it takes, holds and sends more often


def size(payloads: list[Any]) -> int:
    return sum(int(np.prod(payload.shape)) for payload in payloads if payload is not None)


def held(node: Any) -> int:
    return node.parameter_count if isinstance(node, ParameterizedNode) else 0


def largest(payloads: list[Any]) -> tuple[int, ...]:
    return max((p.shape for p in payloads if p is not None), key=lambda shape: np.prod(shape))


def charged(node: Any, direction: Direction, took: list[Any], sent: list[Any]) -> int:
    """As `Site.price_of_step`: light steps by their largest payload, others by what they took."""
    shape = took[-1].shape if node.is_parameterized else largest(took + sent)
    return node.work(direction, shape).bytes


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
def test_a_step_is_charged_for_no_more_than_it_touches(trial, direction):
    node = trial.node(dtype="float32")
    sent = trial.serve(node)
    took = [message.payload for message in trial.messages]
    gave = [message.payload for message in sent]
    if direction is Direction.BACKWARD:
        if node.is_loss:
            pytest.skip("a loss has no backward step")
        answers = [trial.answer(message) for message in sent]
        back = trial.send_back(node, answers)
        took, gave = [answer.payload for answer in answers], list(back.values())
    work = node.work(direction, took[-1].shape)
    assert work.operations >= 1
    assert 0 <= work.weight_bytes <= (work.bytes if node.is_parameterized else 0)
    most = TOUCHES * node.element_bytes * (size(took) + size(gave) + held(node))
    assert 0 <= charged(node, direction, took, gave) <= most


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
def test_double_precision_moves_twice_the_bytes_and_nothing_else_more(trial, direction):
    single, double = trial.node(dtype="float32"), trial.node(dtype="float64")
    double.element_bytes = 8
    shape = trial.messages[-1].payload.shape
    once, twice = single.work(direction, shape), double.work(direction, shape)
    assert (twice.bytes, twice.weight_bytes) == (2 * once.bytes, 2 * once.weight_bytes)
    assert (twice.flop, twice.operations) == (once.flop, once.operations)
