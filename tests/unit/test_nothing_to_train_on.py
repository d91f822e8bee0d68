"""Data without a batch to train on are refused, whatever is asked; none to validate on may do."""

from types import SimpleNamespace

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import OptionError
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd

CLUSTER = ampsim.load_cluster("tflops-1", workers=2)
BOTH = ["sequential", "amp"]


def split(count):
    return np.linspace(-1.0, 1.0, 2 * count).reshape(count, 2), np.arange(count) % 2


def model(make_data) -> ampsim.Model:
    def graph() -> Graph:
        made = Graph("net")
        x, label = made.controller(x=("rows", 2), label=("rows",))
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("linear", 2, 2), x), label)
        return made

    return ampsim.Model("net", None, graph, make_data, pump_arrays, sgd(0.1), target=0.01)


def without_batches(_seed, _count):
    """It counts items, and gives none."""
    data = ArrayDataset(split(8), split(8), batch=4)
    return SimpleNamespace(
        count=data.count, batch_count=data.batch_count, batches=lambda split, **_: iter(())
    )


ASKED = {
    "simulate": lambda model: ampsim.simulate(model, CLUSTER, "amp"),
    "solver": lambda model: ampsim.simulate(model, CLUSTER, "sync-sgd"),
    "sleep": lambda model: ampsim.simulate(model, CLUSTER, "amp", mode="sleep"),
    "try_out": ampsim.try_out,
    "forecast": lambda model: ampsim.forecast(model, CLUSTER, BOTH, max_epochs=1),
    "explore": lambda model: ampsim.explore(
        model, CLUSTER, BOTH, over={"workers": [1, 2]}, max_epochs=1
    ),
    "whatif": lambda model: ampsim.whatif(model, CLUSTER, "amp", max_epochs=1),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(
    "make_data",
    [ArrayDataset(split(0), split(8), batch=4).for_run, without_batches],
    ids=["no items", "no batches"],
)
def test_data_without_a_batch_to_train_on_are_refused(asked, make_data):
    said = r"^batches\('train'\) of the data of model net must give a batch to train on, gave none$"
    with pytest.raises(OptionError, match=said):
        ASKED[asked](model(make_data))


def test_data_without_a_batch_to_validate_on_leave_the_accuracy_unknown():
    result = ampsim.simulate(
        model(ArrayDataset(split(8), split(0), batch=4).for_run), CLUSTER, "amp"
    )
    assert np.isnan(result.epochs["accuracy"]).all() and (result.epochs["loss"] > 0).all()
