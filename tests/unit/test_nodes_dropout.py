"""Dropout's masks: given by seed, name and place in training alone, and of the right rate."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from covering import pairwise

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.ir import Graph
from ampsim.nodes import Attention, BranchLSTM, Dropout, LeafLSTM, Linear, Pick, SoftmaxCrossEntropy
from ampsim.nodes.elementwise import Masks
from ampsim.optim import sgd
from ampsim.runs.witness import leading
from ampsim.study import training
from ampsim.study.apart import Learning
from ampsim.study.simulation import Simulation


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


def attending() -> ampsim.Model:
    """A small network with `Dropout` and with the masks of `Attention`."""
    points, labels = np.random.default_rng(0).standard_normal((10, 3, 4)), np.arange(10) % 2
    data = ArrayDataset((points, labels), (points[:4], labels[:4]), batch=2)

    def graph() -> Graph:
        made = Graph("attending")
        points, label = made.controller(points=("rows", 3, 4), label=("rows",))
        row = made.add(Dropout("dropout", 0.5, 0), made.add(Linear("first", 4, 5), points))
        row = made.add(Attention("attention", dropout=0.5), row, row, row)
        row = made.add(Linear("second", 5, 2), made.add(Pick("pick", [None, 0]), row))
        made.end(SoftmaxCrossEntropy("loss"), row, label)
        return made

    return ampsim.Model("attending", None, graph, data.for_run, pump_arrays, sgd(0.1))


@cache
def trees(kept: float = 0.6) -> ampsim.Model:
    """Cells of an LSTM with masks, which are served in batches where that is asked for."""
    options = {"hidden": 3, "embedding": 4, "words": 400, "data": "synthetic"}
    return leading(ampsim.load_model("tree_lstm", **options, keep_probability=kept), 4, 2)


SCHEDULES = {
    "sequential": ampsim.Sequential(),
    "amp": ampsim.Amp(3),
    "pipeline": ampsim.Pipeline(3),
    "pipedream": ampsim.PipeDream(2),
    "one rank": ampsim.SyncSGD(ranks=1),
    "ranks of a server": ampsim.AsyncSGD(ranks=2),
    "ranks that step": ampsim.LocalSGD(ranks=2, inner=ampsim.Amp(2)),
}
OF_TREES = ("sequential", "amp", "pipeline")
EVERY = (None, 1, 3)
WHEN = ("on the clock", "off the clock")
LEARNING: tuple[Learning, ...] = ("live", "apart", "batched")
VALIDATED = [
    *[(attending, *case) for case in pairwise(SCHEDULES, EVERY, WHEN, LEARNING)],
    *[(trees, *case) for case in pairwise(OF_TREES, EVERY, WHEN, LEARNING)],
]


def drawn_by(
    model: Any, schedule: str, every: int | None, when: str, learning: Learning
) -> tuple[Any, ...]:
    """Run two epochs; give all masks that were drawn, and what was learned."""
    drawn, of = Counter[bytes](), Masks.of

    def noted(self: Masks, *args: Any) -> Any:
        mask = of(self, *args)
        drawn[mask.tobytes()] += 1
        return mask

    run = Simulation(
        model(), ampsim.load_cluster("tflops-1", workers=6), SCHEDULES[schedule], seed=1,
        validate_every=every, times_validation=when == "on the clock", learning=learning,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Masks, "of", noted)
        for _epoch in range(2):
            run.run_epoch()
    result = run.result()
    weights = {name: one.tobytes() for name, one in result.model.parameters().items()}
    return drawn, result.epochs[["loss", "valid_loss"]].to_numpy().tolist(), weights


@cache
def drawn_by_default(model: Any, schedule: str, learning: Learning) -> tuple[Any, ...]:
    return drawn_by(model, schedule, None, "on the clock", learning)


@pytest.mark.parametrize(("model", "schedule", "every", "when", "learning"), VALIDATED)
def test_nothing_else_is_dropped_however_validation_is_done(model, schedule, every, when, learning):
    """Epoch 2 has masks of its own, and one copy then learns the same to the bit."""
    masks, *learned = drawn_by(model, schedule, every, when, learning)
    is_batched = model is trees and learning == "batched"
    wanted, *plainly = drawn_by_default(model, "sequential", "batched" if is_batched else "live")
    assert masks == wanted
    assert learned == plainly or schedule not in ("sequential", "one rank")
    assert model is trees or max(masks.values()) == 1


@pytest.mark.parametrize(("kept", "is_told"), [(1.0, False), (0.6, True)])
def test_a_digest_says_how_masks_are_drawn_where_there_are_any(kept, is_told, monkeypatch):
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    here = ampsim.simulate(trees(kept), cluster, ampsim.Amp(2)).learning_digest
    monkeypatch.setattr(training, "MASKED", "by another rule")
    there = ampsim.simulate(trees(kept), cluster, ampsim.Amp(2)).learning_digest
    assert (there != here) == is_told
