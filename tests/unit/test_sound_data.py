"""Data of one's own are what they say: counts, the same numbers each time, as many as are asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import AmpsimError, OptionError
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd

ROWS = (np.linspace(-1.0, 1.0, 80).reshape(40, 2), np.arange(40) % 2)
DATA = ArrayDataset(train=ROWS, valid=[one[:10] for one in ROWS], batch=4)
CLUSTER = ampsim.load_cluster("tflops-1", workers=2)


class Batch(NamedTuple):
    arrays: tuple[np.ndarray, ...]
    rows: int


@dataclass
class Own:
    """A data set that says of itself what is given."""

    items: int = 40
    batch_total: int = 10
    rows: int | None = None
    is_seeded: bool = True
    calls: int = 0
    name: str = "own"
    description: str = "as it says"

    def count(self, split: str) -> int:
        return self.items if split == "train" else 10

    def batch_count(self, split: str) -> int:
        return self.batch_total if split == "train" else 3

    def batches(self, split: Any, *, epoch: int, seed: int) -> Iterator[Any]:
        self.calls += 1
        for one in DATA.batches(split, epoch=epoch, seed=seed if self.is_seeded else self.calls):
            yield one if self.rows is None else Batch(one.arrays, self.rows)


def model(data: Any) -> ampsim.Model:
    def graph() -> Graph:
        made = Graph("net")
        x, label = made.controller(x=("rows", 2), label=("rows",))
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("linear", 2, 2), x), label)
        return made

    return ampsim.Model("net", None, graph, lambda _seed, _count: data, pump_arrays, sgd(0.1))


COUNTS = "count('train') and batch_count('train') of the data must say how many items and batches "
SEEDED = "the data must be the same whenever the same epoch of the same seed is asked for, got "
WRONG = {
    "twice the items": ({"items": 80}, f"{COUNTS}they give, 40 and 10, got 80 and 10"),
    "no batches": ({"batch_total": 0}, f"{COUNTS}they give, 40 and 10, got 40 and 0"),
    "rows of one": ({"rows": 1}, f"{COUNTS}they give, 10 and 10, got 40 and 10"),
    "no seed": ({"is_seeded": False}, SEEDED),
}


def test_data_that_are_what_they_say_pass():
    assert ampsim.try_out(model(Own())).is_measured


@pytest.mark.parametrize("what", WRONG)
def test_data_that_are_not_what_they_say_are_refused(what):
    changes, said = WRONG[what]
    with pytest.raises(OptionError, match=f"^{re.escape(said)}"):
        ampsim.try_out(model(Own(**changes)))


def test_a_batch_of_no_items_is_refused():
    with pytest.raises(AmpsimError, match=r"gave a Batch with 0 for its rows; a batch must have"):
        ampsim.simulate(model(Own(rows=0)), CLUSTER, "amp")


def test_data_that_do_not_heed_how_many_items_are_asked_for_are_refused():
    """A run of 8 items trained on all, and said nothing."""
    said = "^make_data of model net must heed train_count, 8, gave 40$"
    with pytest.raises(OptionError, match=said):
        ampsim.simulate(model(Own()), CLUSTER, "amp", instances=8)
    result = ampsim.simulate(model(Own()), CLUSTER, "amp", instances=40)
    assert result.epochs["instances"].tolist() == [40]


def test_a_pump_that_fails_late_is_told_before_anything_runs():
    data, place = Own(), list(DATA.batches("valid", epoch=0, seed=0))[2].arrays[0]

    def pump(instance: int, batch: Any) -> Any:
        if np.array_equal(batch.arrays[0], place):
            raise KeyError("late")
        return pump_arrays(instance, batch)

    made = ampsim.Model("net", None, model(data).make_graph, lambda *_: data, pump, sgd(0.1))
    said = "^the model fails to bring in batch 2 of the validation data: KeyError: 'late'"
    with pytest.raises(AmpsimError, match=said):
        ampsim.try_out(made)
