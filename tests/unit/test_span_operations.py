"""A span says how many operations its step was charged for, beside FLOP and bytes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ampsim import Amp, load_model, simulate
from ampsim.hardware import Cluster, Device
from ampsim.model_parallel import SCHEDULES
from ampsim.runs.witness import leading

OVERHEAD_S = 1e-3
"""Of an operation; on a device of 1e24 FLOP/s nothing else takes time."""

SMALL: dict[str, dict[str, Any]] = {
    "rnn": {"hidden": 4, "replicas": 2},
    "mlp": {"hidden": 4, "data": "synthetic"},
    "lenet": {"filters": 2, "more_filters": 3, "hidden": 4, "data": "synthetic"},
    "lstm_mnist": {"hidden": 4, "data": "synthetic"},
    "dynamic_lstm": {"hidden": 4, "layers": 2},
    "tree_lstm": {"hidden": 4, "embedding": 4, "data": "synthetic"},
    "ggnn": {"hidden": 12, "data": "synthetic"},
    "bilstm_tagger": {"data": "synthetic"},
}


def cluster(workers: int = 4) -> Cluster:
    device = Device(name="d", flop_per_s=1e24, operation_overhead_s=OVERHEAD_S)
    return Cluster(name="c", devices=(device,) * workers)


def require_time_is_operations(result: Any) -> None:
    """Steps last as long as their operations take, and there are such steps in all directions."""
    spans = result.spans
    assert list(spans.columns)[-3:] == ["lane", "operations", "cause"], "others read these places"
    assert set(spans["lane"]) == {"compute"}
    lasted_s = spans["end_s"] - spans["start_s"]
    assert lasted_s.tolist() == pytest.approx((spans["operations"] * OVERHEAD_S).tolist(), rel=1e-6)
    issued = spans.groupby("direction", observed=False)["operations"].sum()
    assert (issued > 0).all(), issued


@pytest.mark.parametrize("name", SMALL)
def test_a_step_of_any_model_takes_its_operations_times_their_overhead(name):
    model = leading(load_model(name, **SMALL[name]), 8, 2)
    result = simulate(model, cluster(), Amp(2), instances=8)
    require_time_is_operations(result)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_step_under_any_schedule_takes_its_operations_times_their_overhead(name):
    kind: Any = SCHEDULES[name]
    takes = {field.name for field in fields(kind)}
    options = {"max_active_keys": 2, "staleness_budget": 4.0}
    schedule = kind(**{key: value for key, value in options.items() if key in takes})
    model = load_model("mlp", **SMALL["mlp"])
    require_time_is_operations(simulate(model, cluster(), schedule, instances=400))


def test_members_of_a_group_share_the_operations_of_its_one_step_without_a_rest():
    model = load_model("rnn", **SMALL["rnn"])
    alone, merged = (
        simulate(model, cluster(2), Amp(8, max_group=size), instances=400) for size in (1, 8)
    )
    assert merged.group_size_mean > 1.2
    lasted_s = (merged.spans["end_s"] - merged.spans["start_s"]).sum()
    assert merged.spans["operations"].sum() * OVERHEAD_S == pytest.approx(lasted_s, rel=1e-9)
    assert merged.spans["operations"].sum() < alone.spans["operations"].sum()
