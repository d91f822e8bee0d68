"""What nodes refuse, at building and while running, and in which words."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.errors import GraphError, OptionError
from ampsim.ir import Partition
from ampsim.nodes import (
    BranchLSTM,
    Collect,
    Conv2d,
    Distribute,
    Dropout,
    Group,
    GRUCell,
    LeafLSTM,
    LSTMCell,
    MaxPool,
    Product,
    Replicate,
    Split,
    SquaredError,
    Sum,
    Ungroup,
)


class Step(NamedTuple):
    instance: int
    step: int = 0


def numbered(state: Step, i: int) -> Step:
    return state._replace(step=i)


def same(state: Step, _i: int) -> Step:
    return state


REFUSED: list[tuple[Any, str]] = [
    (lambda: LSTMCell("n", 0, 3), "n: widths must be >= 1, got hidden=3, inputs of (0, 3)"),
    (lambda: LeafLSTM("n", 2, 0), "n: widths must be >= 1, got hidden=0, inputs of (2,)"),
    (lambda: BranchLSTM("n", -1), "n: widths must be >= 1, got hidden=-1, inputs of (-1, -1)"),
    (lambda: GRUCell("n", 0, 3), "n: widths must be >= 1, got d_in=0, hidden=3"),
    (lambda: Dropout("n", 1.0, 0), "n: rate must be >= 0 and < 1, got 1.0"),
    (lambda: LeafLSTM("n", 2, 3, dropout=-0.1), "n: rate must be >= 0 and < 1, got -0.1"),
    (lambda: BranchLSTM("n", 3, dropout=1), "n: rate must be >= 0 and < 1, got 1"),
    (
        lambda: Conv2d("n", 1, 2, 3, padding=3),
        "n: padding must be from 0 to 2 for a kernel of 3, got 3",
    ),
    (
        lambda: Conv2d("n", 1, 2, 3, padding=-1),
        "n: padding must be from 0 to 2 for a kernel of 3, got -1",
    ),
    (
        lambda: MaxPool("n", 3, padding=2),
        "n: padding must be from 0 to 1 for a kernel of 3, got 2",
    ),
    (lambda: Sum("n", 1), "n: count must be two or more inputs, got 1"),
    (lambda: Product("n", 0), "n: count must be two or more inputs, got 0"),
    (lambda: Split("n", (3,)), "n: widths must be two or more numbers >= 1, got (3,)"),
    (lambda: Split("n", (3, 0)), "n: widths must be two or more numbers >= 1, got (3, 0)"),
    (lambda: Distribute("n", 0), "n: parts must be >= 1, got 0"),
    (lambda: Collect("n", 0), "n: parts must be >= 1, got 0"),
    (
        lambda: Partition(([0, 3],), 3),
        "Partition: rows must be from 0 to below 3, the size of the whole, got 3",
    ),
    (
        lambda: Partition(([0], [-1]), 3),
        "Partition: rows must be from 0 to below 3, the size of the whole, got -1",
    ),
    (
        lambda: Partition(([0], [0.5]), 3),  # pyright: ignore[reportArgumentType]  # the mistake
        "Partition: part 1 must be a list of integers, got float64 of shape (1,)",
    ),
    (
        lambda: Partition((np.zeros((2, 2), int),), 3),
        "Partition: part 0 must be a list of integers, got int64 of shape (2, 2)",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_refused_at_building(make, message):
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        make()


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_masks_need_a_seed(seed):
    with pytest.raises(OptionError, match="seed must be a whole number >= 0"):
        Dropout("n", 0.5, seed)


def fails(node: Any, messages: list[tuple[int, Any, Any]], text: str) -> None:
    """The last of `messages` fails."""
    *before, last = messages
    for message in before:
        node.forward(*message)
    with pytest.raises(GraphError, match=f"^{re.escape(text)}"):
        node.forward(*last)


def test_ungroup_of_nothing_is_refused():
    text = "n (Ungroup) expects at least one part, got 0 of Step(instance=0, step=0)"
    fails(Ungroup("n", numbered), [(0, Step(0), np.zeros((0, 2)))], text)


def test_no_copies_are_refused():
    text = "n (Replicate) expects at least one part, got 0 of Step(instance=0, step=0)"
    fails(Replicate("n", numbered, lambda _state: 0), [(0, Step(0), np.zeros((1, 2)))], text)


def test_a_counter_that_gives_one_state_twice_is_refused():
    text = "n (Ungroup): the counter must give a state of its own to each part, got Step("
    fails(Ungroup("n", same), [(0, Step(0), np.zeros((2, 2)))], text)


def test_a_counter_that_gives_the_state_of_another_message_is_refused():
    node = Replicate("n", lambda state, i: Step(0, i), lambda _state: 2)
    text = "n (Replicate): the counter must give a state of its own to each part, got Step("
    fails(node, [(0, Step(0, 5), np.zeros(2)), (0, Step(0, 6), np.zeros(2))], text)


def test_a_member_outside_its_group_is_refused():
    node = Group("n", lambda state: (Step(0), state.step, 2))
    text = (
        "n (Group): a member's number must be from 0 to below 2, got 2 for Step(instance=0, step=2)"
    )
    fails(node, [(0, Step(0, 2), np.zeros((1, 2)))], text)


def test_two_members_of_one_number_are_refused():
    node = Group("n", lambda _state: (Step(0), 1, 2))
    text = "n (Group): two members have number 1, Step(instance=0, step=3) and Step(instance=0, "
    fails(node, [(0, Step(0, 3), np.zeros((1, 2))), (0, Step(0, 4), np.zeros((1, 2)))], text)


def test_a_control_of_other_parts_is_refused():
    control = Partition(([0], [1], []), 2)
    text = "n (Distribute) expects a control of 2 parts, got Partition(parts of (1, 1, 0), size=2)"
    fails(Distribute("n", 2), [(0, Step(0), np.zeros((2, 3))), (1, Step(0), control)], text)


def test_a_control_of_another_number_of_rows_is_refused():
    text = "n (Distribute) got an input of shape (3, 2), but a control of size 2"
    control = Partition(([0],), 2)
    fails(Distribute("n", 1), [(0, Step(0), np.zeros((3, 2))), (1, Step(0), control)], text)


def test_a_part_of_other_rows_than_its_control_says_is_refused():
    text = "n (Collect): part 0 has 1 rows, but its control says 2"
    control = Partition(([0, 1],), 2)
    fails(Collect("n", 1), [(0, Step(0), np.zeros((1, 2))), (1, Step(0), control)], text)


def test_a_target_of_another_shape_is_refused():
    """As (rows, 1) and (rows,) would silently become (rows, rows)."""
    text = "n (SquaredError) expects two payloads of one shape, got (3, 1) and (3,)"
    fails(SquaredError("n"), [(0, Step(0), np.zeros((3, 1))), (1, Step(0), np.zeros(3))], text)
