"""What double precision changes: twice the bytes in every step, and the data must have it, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import Sequential, load_cluster, load_model, simulate, try_out
from ampsim.errors import SimulationError
from ampsim.runs.witness import leading

MODELS = {
    "mlp": {"hidden": 8, "data": "synthetic"},
    "lenet": {"filters": 2, "more_filters": 3, "hidden": 8, "data": "synthetic"},
    "lstm_mnist": {"hidden": 4, "data": "synthetic"},
    "rnn": {"hidden": 4, "replicas": 2},
    "dynamic_lstm": {"hidden": 4, "layers": 2},
    "tree_lstm": {"hidden": 4, "embedding": 3, "data": "synthetic"},
    "tree_lstm, composed": {"hidden": 4, "embedding": 3, "data": "synthetic", "cell": "composed"},
    "ggnn": {"hidden": 12, "data": "synthetic"},
    "ggnn, composed": {"hidden": 12, "data": "synthetic", "cell": "composed"},
    "bilstm_tagger": {"data": "synthetic", "hidden": 4},
}


def first_pass_of(name: str, dtype: str) -> Any:
    """Spans of the first training instances on a device that charges for bytes."""
    model = leading(load_model(name.split(",")[0], **MODELS[name], dtype=dtype), 10**9, 2)
    cluster = load_cluster("cpu-core", workers=2)
    spans = simulate(model, cluster, Sequential(), instances=20, mode="sleep").spans
    keys = ["node", "direction", "instance", "state"]  # times differ, and so may the order
    return spans[spans["instance"] < 2].sort_values(keys, kind="stable")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_step_in_double_precision_moves_twice_the_bytes(name):
    single, double = (first_pass_of(name, dtype) for dtype in ("float32", "float64"))
    assert single["bytes"].sum()
    assert (double["bytes"].to_numpy() == 2 * single["bytes"].to_numpy()).all()
    assert (double["flop"].to_numpy() == single["flop"].to_numpy()).all()


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize(("dtype", "other"), [("float32", "float64"), ("float64", "float32")])
def test_data_in_another_precision_than_the_model_are_refused(dtype, other, mode):
    model = load_model("mlp", hidden=4, data="synthetic", dtype=dtype)
    wrong = load_model("mlp", hidden=4, data="synthetic", dtype=other)
    mixed = replace(model, make_data=wrong.make_data)
    text = (
        f"the model's pump failed for instance 0: expected {dtype}, the model's dtype, at port 0, "
        f"got {other}; cast it in the data, which ArrayDataset does to its dtype, or in the pump, "
        "or give the model this dtype"
    )
    with pytest.raises(SimulationError) as caught:
        simulate(mixed, load_cluster("tflops-1", workers=1), Sequential(), mode=mode)
    assert str(caught.value) == text
    with pytest.raises(SimulationError):
        try_out(mixed)


def test_integers_of_any_width_are_no_floats_in_another_precision():
    model = load_model("mlp", hidden=4, data="synthetic")
    pump = model.pump
    assert pump is not None

    def with_short_labels(instance: int, batch: Any) -> list[Any]:
        return [
            (port, state, payload.astype(np.int16) if payload.dtype.kind == "i" else payload)
            for port, state, payload in pump(instance, batch)
        ]

    cluster = load_cluster("tflops-1", workers=1)
    changed = simulate(replace(model, pump=with_short_labels), cluster, Sequential(), instances=200)
    result = simulate(model, cluster, Sequential(), instances=200)
    assert changed.epochs["loss"].iloc[0] == result.epochs["loss"].iloc[0]
