"""Labels that name no class are told where they are met: NumPy takes -1 for the last class."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import AmpsimError
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd
from ampsim.study import Simulation

RIGHT = np.arange(20) % 3
WRONG = {
    "-1": RIGHT - 1,
    "3": RIGHT + 1,
    "100": np.where(RIGHT == 2, 100, RIGHT).astype(np.uint8),
    r"float32 of shape \(\d,\)": RIGHT.astype(np.float32),
    r"bool of shape \(\d,\)": RIGHT == 1,
    r"float32 of shape \(\d, 3\)": np.eye(3, dtype=np.float32)[RIGHT],
}


def model(labels, batch) -> ampsim.Model:
    rows = np.linspace(-1.0, 1.0, 40).reshape(20, 2)
    data = ArrayDataset((rows, labels), (rows, labels), batch=batch)

    def graph() -> Graph:
        made = Graph("net")
        x, label = made.controller(x=("rows", 2), label=("rows",))
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("linear", 2, 3), x), label)
        return made

    return ampsim.Model("net", None, graph, data.for_run, pump_arrays, sgd(0.1), target=0.01)


def mlp(changed) -> ampsim.Model:
    """The shipped model, whose labels are changed."""
    whole = ampsim.load_model("mlp", data="synthetic", hidden=4)

    def make_data(seed, count):
        data = whole.make_data(seed, count)

        def batches(split, *, epoch, seed):
            for batch in data.batches(split, epoch=epoch, seed=seed):
                yield batch._replace(labels=changed(batch.labels))

        return SimpleNamespace(batches=batches, count=data.count, batch_count=data.batch_count)

    return replace(whole, make_data=make_data)


@pytest.mark.parametrize("learning", ["live", "batched"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("got", WRONG)
def test_labels_that_name_no_class_are_told(got, batch, learning):
    run = Simulation(
        model(WRONG[got], batch),
        ampsim.load_cluster("tflops-1", workers=1),
        ampsim.Sequential(),
        learning=learning,
    )
    where = r"loss \(SoftmaxCrossEntropy\) failed .*"
    with pytest.raises(
        AmpsimError, match=f"{where} labels must be .* 0 to 2, one a row, got {got}"
    ):
        run.run_epoch()


def test_a_program_tells_them_too():
    cluster = ampsim.load_cluster("tflops-1", workers=1)
    with pytest.raises(AmpsimError, match=r"softmax_cross_entropy.* from 0 to 9, .* got -1"):
        ampsim.simulate(mlp(lambda labels: labels * 0 - 1), cluster, "dataflow", instances=20)
