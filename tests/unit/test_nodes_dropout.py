"""Dropout's masks: given by seed, name and state alone, and of the right rate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.nodes import BranchLSTM, Dropout, LeafLSTM


class Branch(NamedTuple):
    """A state that nests others."""

    instance: int
    path: tuple[Any, ...] = ()


ONES = np.ones((40, 50))
PINNED = [[0, 0, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0]]


def mask(node: Dropout, state: Any, ones: np.ndarray = ONES) -> np.ndarray:
    ((_port, _state, output),) = node.forward(0, state, ones)
    return output


def test_elements_are_dropped_at_the_rate_and_the_mean_is_kept():
    dropped = mask(Dropout("d", 0.3, 1), Branch(0), np.ones((1000, 100)))
    assert set(np.unique(dropped)) == {0.0, 1 / 0.7}
    assert (dropped == 0).mean() == pytest.approx(0.3, abs=0.005)
    assert dropped.mean() == pytest.approx(1, abs=0.01)


def test_masks_do_not_depend_on_the_order_of_messages():
    states = [Branch(0), Branch(1), Branch(1, (0, (1,))), Branch(1, (0, 1))]
    forth, back = Dropout("d", 0.5, 1), Dropout("d", 0.5, 1)
    first = [mask(forth, state) for state in states]
    second = [mask(back, state) for state in reversed(states)]
    assert all((a == b).all() for a, b in zip(first, reversed(second), strict=True))
    assert all((first[i] != first[j]).any() for i in range(4) for j in range(i))


def test_masks_differ_by_seed_and_by_name():
    masks = [mask(Dropout(n, 0.5, s), Branch(0)) for n, s in (("d", 1), ("d", 2), ("e", 1))]
    assert all((masks[i] != masks[j]).any() for i in range(3) for j in range(i))


def test_a_node_can_have_the_masks_of_another():
    own, lent = Dropout("d", 0.5, 1), Dropout("e", 0.5, 1, masks_of="d")
    assert (mask(own, Branch(0)) == mask(lent, Branch(0))).all()


def test_equal_states_get_equal_masks_whatever_their_integers_type():
    node = Dropout("d", 0.5, 1)
    assert (mask(node, Branch(3)) == mask(node, Branch(np.int64(3)))).all()  # pyright: ignore[reportArgumentType]  # as an index may be


def test_masks_are_the_same_in_every_process():
    """Pinned: a committed report must still follow from the code."""
    found = mask(Dropout("d", 0.5, 7), Branch(3, (1, 2)), np.ones((2, 8)))
    assert (found / 2).astype(int).tolist() == PINNED


def test_single_precision_drops_the_same_elements():
    whole, half = (mask(Dropout("d", 0.5, 1), Branch(0), ONES.astype(t)) for t in ("f8", "f4"))
    assert (whole == half).all()


def test_nothing_is_dropped_in_validation():
    node = Dropout("d", 0.5, 1)
    node.is_training = False
    assert mask(node, Branch(0)) is ONES


@pytest.mark.parametrize("make", [LeafLSTM, BranchLSTM])
def test_candidates_are_not_dropped_in_validation(make):
    widths = (4, 3) if make is LeafLSTM else (3,)
    outputs: list[Any] = []
    for rate in (0.0, 0.5):
        node = make("n", *widths, dropout=rate)
        node.adopt(node.initialise(np.random.default_rng(1)))
        node.is_training = False
        for port in range(len(node.inputs)):
            payload = np.ones((2, 4 if make is LeafLSTM else 6))
            sends = node.forward(port, Branch(0), payload)
        outputs.append(sends[0][2])
    assert (outputs[0] == outputs[1]).all()
