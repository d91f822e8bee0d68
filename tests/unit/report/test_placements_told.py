"""Where nodes are, as a page tells it: of each row its own."""

from __future__ import annotations

from typing import Any

import ampsim
from ampsim.hardware import Cluster, Device, Link
from ampsim.report.page.tables import node_tables

MODEL = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)


def placements(found):
    tables = {name: lines for name, lines in node_tables(found) if name.startswith("Placement")}
    return {
        name: {(node, worker) for node, worker, _device in lines[1:]}
        for name, lines in tables.items()
    }


def test_rows_whose_nodes_are_elsewhere_have_a_table_of_their_own():
    slow, fast = (Device(name="d", flop_per_s=rate, step_overhead_s=1e-7) for rate in (1e8, 1e10))
    cluster = Cluster(name="c", devices=(slow, slow, fast, fast), link=Link(latency_s=1e-6))
    schedules = ["sequential", "amp", "sync-sgd"]
    how: dict[str, Any] = {"instances": 200, "target": 0.1, "max_epochs": 1, "budget_s": 1}
    found = ampsim.forecast(MODEL, cluster, schedules, **how)
    rows = {run.label: run.placement for run in found.runs}
    assert rows["sequential"] != rows["amp"]  # which the budget placed by what is faster
    assert set(found.manifest["placements"]) == set(schedules)
    told = placements(found)
    assert list(told) == [
        "Placement of nodes under sequential", "Placement of nodes under amp",
        "Placement of nodes in the first rank under sync-sgd",
    ]  # fmt: skip
    for (_name, nodes), label in zip(told.items(), schedules, strict=True):
        workers = rows[label]["workers"].items()
        assert nodes == {(node, f"worker {worker}") for node, worker in workers}


def test_a_program_has_no_nodes_of_the_graph():
    how: dict[str, Any] = {"instances": 200, "target": 0.1, "max_epochs": 1, "placement": "paper"}
    found = ampsim.forecast(MODEL, "cpu-core", ["dataflow", "sequential"], **how)
    assert list(placements(found)) == ["Placement of nodes under sequential"]
    alike = ampsim.forecast(MODEL, "cpu-core", ["sequential", "pipeline"], **how)
    assert list(placements(alike)) == ["Placement of nodes"]
