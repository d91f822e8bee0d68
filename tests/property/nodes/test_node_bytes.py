"""Bytes that a device with a memory bandwidth charges are bytes that the step can have touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from covering import of_each
from watched import arrays

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


@of_each("trial")
def test_light_steps_that_have_flop_are_of_nodes_that_say_that_they_multiply(trial):
    node = trial.node()
    work = node.work(Direction.FORWARD, largest([one.payload for one in trial.messages]))
    assert node.multiplies == (work.flop > 0 and not node.is_parameterized)


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
@of_each("trial")
def test_a_step_is_charged_for_no_more_than_it_touches(trial, direction):
    node = trial.node(dtype="float64")  # as the messages; both are counted by their elements
    sent = trial.serve(node)
    took = [message.payload for message in trial.messages]
    gave = [message.payload for message in sent]
    if direction is Direction.BACKWARD:
        if node.is_loss:
            return
        answers = [trial.answer(message) for message in sent]
        back = trial.send_back(node, answers)
        took, gave = [answer.payload for answer in answers], list(back.values())
    work = node.work(direction, took[-1].shape)
    assert work.operations >= 1
    assert 0 <= work.weight_bytes <= (work.bytes if node.is_parameterized else 0)
    most = TOUCHES * node.element_bytes * (size(took) + size(gave) + held(node))
    assert 0 <= charged(node, direction, took, gave) <= most


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
@of_each("trial")
def test_double_precision_moves_twice_the_bytes_and_nothing_else_more(trial, direction):
    single, double = trial.node(dtype="float32"), trial.node(dtype="float64")
    double.element_bytes = 8
    shape = trial.messages[-1].payload.shape
    once, twice = single.work(direction, shape), double.work(direction, shape)
    assert (twice.bytes, twice.weight_bytes) == (2 * once.bytes, 2 * once.weight_bytes)
    assert (twice.flop, twice.operations) == (once.flop, once.operations)


FUSED = {
    "Attention": "no kernel that is fused keeps the softmax",
    "Distribute": "rows of all parts are charged as those of the largest payload (decision 3)",
    "Mean": "what is sent back is one number for a whole axis",
    "Replicate": "how many copies there are is a state's, and a work is asked for a shape",
}
"""Whose bytes are meant to be fewer, and why."""


def floats(payloads: Any) -> list[np.ndarray]:
    return [one for one in arrays(payloads) if one.dtype.kind == "f"]


@of_each("trial")
def test_a_light_step_is_charged_for_what_comes_goes_and_is_kept(kit, trial):
    """At least; a step that sends views of what came moves nothing."""
    node, name = trial.node(dtype="float32"), trial.name
    if node.is_parameterized or node.is_loss or name.split(",")[0] in FUSED:
        return
    node.check(tuple(one.payload.shape for one in trial.messages)[: len(node.inputs)])
    moved = dict.fromkeys(Direction, 0)

    def served(direction: Direction, messages: list[Any]) -> list[Any]:
        taken, sent = [one.payload for one in messages], list[Any]()
        kept = floats(list(vars(node).get("_saved", {}).values()))
        for one in messages:
            sends = (node.forward if direction is Direction.FORWARD else node.backward)(*one)
            sent += sends
            payloads = [one.payload, *(payload for _port, _state, payload in sends)]
            moved[direction] += node.work(direction, largest(payloads)).bytes if sends else 0
        made = [
            one
            for one in floats([payload for _port, _state, payload in sent])
            if not any(np.shares_memory(one, other) for other in floats(taken))
        ]
        least = sum(one.nbytes for one in (*floats(taken), *kept, *made)) if made else 0
        assert (
            moved[direction] >= 0.7 * least
        )  # chosen: small payloads are left out, no third array
        return [kit.Message(*one) for one in sent]

    singles = [
        one._replace(payload=one.payload.astype(np.float32)) if one.is_float else one
        for one in trial.messages
    ]
    served(Direction.BACKWARD, [trial.answer(one) for one in served(Direction.FORWARD, singles)])
