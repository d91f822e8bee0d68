"""The plain loops of the benchmark train as the simulator does: one instance, then an update."""

from __future__ import annotations

import numpy as np
import pytest
from plain_loops import LOOPS

from ampsim import Sequential, load_cluster, load_model, simulate
from ampsim.runs.witness import leading

CONFIG = {
    "mlp": {"data": "synthetic"},
    "rnn": {"replicas": 1},
    "tree_lstm": {"data": "synthetic", "cell": "composed"},
    "ggnn": {"data": "synthetic", "cell": "composed"},
    "bilstm_tagger": {"data": "synthetic", "cell": "composed"},
}
INSTANCES = 3


@pytest.mark.parametrize("name", LOOPS)
def test_a_plain_loop_trains_as_sequential_does(name):
    model = leading(load_model(name, dtype="float64", **CONFIG[name]), INSTANCES, 1)
    instances = list(model.make_data(0, None).batches("train", epoch=0, seed=0))
    assert len(instances) == INSTANCES
    before = model.parameters()
    found = {key: value.copy() for key, value in before.items()}
    train = LOOPS[name](found)
    for instance in instances:
        train(instance)
    result = simulate(model, load_cluster("tflops-1", workers=1), Sequential(), counts_memory=False)
    expected = result.model.parameters()
    assert set(found) == set(expected)
    changes = {key: np.abs(value - before[key]).max() for key, value in expected.items()}
    assert np.mean([change > 0 for change in changes.values()]) > 0.7
    for key, value in expected.items():
        assert np.abs(found[key] - value).max() <= 1e-6 * changes[key], key
