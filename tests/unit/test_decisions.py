"""What a solver decides is read by the engine: each decision, changed, changes a run."""

import re
from pathlib import Path
from typing import Any

import pytest

import ampsim
from ampsim.data_parallel.decisions import DECISIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-solver.md"


def with_other(kind: Any, **values: Any) -> Any:
    """A solver whose class has other values."""
    return type(kind.__name__, (kind,), values)(ranks=4)


HIERARCHY: dict[str, Any] = {"ranks": 4, "collective": "hierarchical"}
PAIRS: dict[str, tuple[Any, Any]] = {
    "meets": (ampsim.EASGD(4), ampsim.SyncEASGD(4)),
    "sends": (ampsim.AsyncSGD(4), with_other(ampsim.AsyncEASGD, overlaps=False)),
    "locks": (ampsim.AsyncSGD(4), with_other(ampsim.AsyncSGD, locks="nothing")),
    "period": (ampsim.EASGD(4), ampsim.EASGD(4, period=2)),
    "steps_first": (ampsim.LocalSGD(4), with_other(ampsim.LocalSGD, steps_first=False)),
    "is_elastic": (ampsim.EASGD(4), with_other(ampsim.EASGD, is_elastic=False)),
    "elastic": (ampsim.EASGD(4), ampsim.EASGD(4, elastic="worker")),
    "overlaps": (ampsim.AsyncEASGD(4), with_other(ampsim.AsyncEASGD, overlaps=False)),
    "has_outer_step": (
        ampsim.DiLoCo(4, period=2),
        type("Plain", (ampsim.DiLoCo,), {"has_outer_step": False})(4, period=2),
    ),
    "servers": (ampsim.AsyncSGD(4), ampsim.AsyncSGD(4, servers=2)),
    "staleness_bound": (ampsim.SSP(4, staleness_bound=0), ampsim.SSP(4, staleness_bound=5)),
    "collective": (ampsim.SyncSGD(4), ampsim.SyncSGD(4, collective="tree")),
    "ranks_per_group": (
        ampsim.SyncSGD(ranks_per_group=2, **HIERARCHY),
        ampsim.SyncSGD(ranks_per_group=4, **HIERARCHY),
    ),
    "bucket_bytes": (ampsim.SyncSGD(4), ampsim.SyncSGD(4, bucket_bytes=0)),
    "overlap": (
        ampsim.SyncSGD(4, bucket_bytes=0),
        ampsim.SyncSGD(4, bucket_bytes=0, overlap=True),
    ),
    "backup_ranks": (ampsim.SyncSGD(4), ampsim.SyncSGD(4, backup_ranks=1)),
    "compression": (ampsim.AsyncSGD(4), ampsim.AsyncSGD(4, compression=0.1)),
}
"""Two solvers that decide one thing differently, and as few others as may be."""


def trained(solver: Any) -> Any:
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, layers=2, batch=10)
    cluster = ampsim.load_cluster("cpu-core", workers=6, latency_s=1e-6, bandwidth_bytes_per_s=1e9)
    return ampsim.simulate(model, cluster, solver, instances=240, epochs=2)


@pytest.mark.parametrize("name", [one for one in DECISIONS if one != "reads_values"])
def test_a_decision_that_changes_changes_the_run(name):
    one, other = PAIRS[name]
    assert getattr(one.decisions, name) != getattr(other.decisions, name)
    assert trained(one).digest != trained(other).digest


UNREAD: list[tuple[Any, dict[str, Any], str]] = [
    (ampsim.SyncSGD, {"locks": "update"}, "locks='update' needs meets='server', got 'all'"),
    (ampsim.SyncSGD, {"period": 3}, "period=3 needs sends='weights', got 'gradient'"),
    (ampsim.SyncSGD, {"is_elastic": True}, "is_elastic=True needs sends='weights'"),
    (ampsim.SyncSGD, {"servers": 1}, "servers=1 needs meets='server'"),
    (ampsim.AsyncSGD, {"elastic": "worker"}, "elastic='worker' needs sends='weights'"),
    (ampsim.AsyncSGD, {"overlaps": True}, "overlaps=True needs sends='weights'"),
    (ampsim.AsyncSGD, {"bucket_bytes": 0}, "bucket_bytes=0 needs meets='all'"),
    (ampsim.EASGD, {"steps_first": True}, "steps_first=True needs meets='all', got 'server'"),
    (ampsim.EASGD, {"staleness_bound": 1}, "needs locks='update' or 'nothing', got 'exchange'"),
    (ampsim.EAWild, {"compression": 0.1}, "compression=0.1 needs sends='gradient'"),
    (ampsim.LocalSGD, {"backup_ranks": 1}, "backup_ranks=1 needs sends='gradient'"),
    (
        ampsim.LocalSGD,
        {"overlap": True},
        "overlap=True needs sends='gradient', got 'weights'; leave overlap",
    ),
    (ampsim.SyncEASGD, {"has_outer_step": True}, "needs steps_first=True, got False"),
]


@pytest.mark.parametrize(("kind", "values", "told"), UNREAD)
def test_a_decision_that_nothing_would_read_is_refused(kind, values, told):
    """They changed nothing, or what was charged, or the run ended in a KeyError or stuck."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=8)
    with pytest.raises(ampsim.AmpsimError, match=re.escape(told)):
        ampsim.simulate(model, "tflops-1", with_other(kind, **values), instances=20)


def test_a_solver_that_reads_values_is_refused_without_them():
    solver = with_other(ampsim.SyncSGD, reads_values=True)
    assert solver.decisions.reads_values
    model = ampsim.load_model("mlp", data="synthetic", hidden=8)
    with pytest.raises(ampsim.AmpsimError, match="mode 'sleep' has no numbers, but sync-sgd"):
        ampsim.simulate(model, "tflops-1", solver, instances=20, mode="sleep")


def test_the_page_on_solvers_names_decisions_that_there_are():
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert {"meets", "sends", "locks", "period", "steps_first"} <= set(names) <= set(DECISIONS)


def test_decisions_are_taken_by_their_former_names():
    with pytest.warns(DeprecationWarning, match="Old.exchange_period is called period now"):
        old: Any = type("Old", (ampsim.SyncSGD,), {"exchange_period": property(lambda _self: 3)})
    with pytest.warns(DeprecationWarning, match="Held.bound is called staleness_bound now"):
        held: Any = type("Held", (ampsim.AsyncSGD,), {"bound": 2})
    assert old(4).decisions.period == 3
    assert held(4).decisions.staleness_bound == 2
