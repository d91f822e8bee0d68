"""`ampsim whatif`: what each thing would buy, anomalies, and what is learned again."""

from __future__ import annotations

import json
import math
import re
from math import inf
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

import ampsim
from ampsim.cli.console import in_columns
from ampsim.errors import OptionError
from ampsim.exploring import whatif as library
from ampsim.exploring.changes import Change, changes_of, sped
from ampsim.exploring.making import FirstEpoch, PointRuns
from ampsim.exploring.whatif import AS_FIRST, OUTAGES_MOVE, sentence_of
from ampsim.forecasting.change import PARTS_STAY
from ampsim.hardware import Cluster, Device, Event, Messages, Ports
from ampsim.hardware.load import replaced
from ampsim.metric import Goal
from ampsim.runs import RunCache
from ampsim.runs.rows import times_of
from ampsim.study import Simulation
from ampsim.study.elasticity import Elasticities, elasticities
from ampsim.units import format_percent

MODEL = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
CLUSTER = ampsim.load_cluster("ampnet-core", workers=4, latency_s=1e-6)
HOW: dict[str, Any] = {"instances": 200, "mode": "sleep"}


def rows(found: Any) -> dict[tuple[str, float], dict[str, Any]]:
    return {(one["what"], one["factor"]): one for one in found.table.to_dict("records")}


@pytest.fixture(scope="module")
def found() -> Any:
    return ampsim.whatif(MODEL, CLUSTER, "sequential", **HOW)


@pytest.fixture(scope="module")
def late() -> Any:
    """What-if of AMP where a faster worker makes it slower."""
    return ampsim.whatif(MODEL, LATE, "amp", **HOW)


def test_each_row_is_a_run_of_the_changed_cluster(found):
    by_what = rows(found)
    now_s = by_what["now", 1.0]["epoch_s"]
    fast = ampsim.load_cluster("ampnet-core", workers=4)
    run = ampsim.simulate(MODEL, fast, "sequential", mode="sleep", instances=200)
    without = by_what["latency of links", math.inf]
    assert without["epoch_s"] == run.makespan_s
    assert without["change"] == pytest.approx(run.makespan_s / now_s - 1, rel=1e-12)


def test_where_nothing_is_beside_anything_all_changes_follow_from_shares():
    by_what = rows(ampsim.whatif(MODEL, ampsim.load_cluster("ampnet-core", workers=1), **HOW))
    assert {what for what, _factor in by_what} == {
        "now", "device ampnet-core", "flop_per_s", "step_overhead_s", "no light work", "everything",
    }  # fmt: skip
    for (what, factor), row in by_what.items():
        if not math.isnan(row["share"]):
            expected = row["share"] * (1 / factor - 1)
            assert row["change"] == pytest.approx(expected, abs=1e-9), (what, factor)
    assert by_what["device ampnet-core", 2.0]["share"] == pytest.approx(1.0, abs=1e-9)


def test_links_of_a_hierarchy_are_made_faster_in_each_of_its_levels(only):
    only(what="latency of links")
    slow = ampsim.load_cluster("tflops-1", workers=4, latency_s=1e-6, topology="hierarchy:2x2")
    free = ampsim.load_cluster("tflops-1", workers=4, topology="hierarchy:2x2")
    row = rows(ampsim.whatif(MODEL, slow, "sequential", **HOW))["latency of links", math.inf]
    run = ampsim.simulate(MODEL, free, "sequential", mode="sleep", instances=200)
    assert row["epoch_s"] == run.makespan_s


@pytest.mark.parametrize("topology", [None, "ring", "hierarchy:2x2"])
@pytest.mark.parametrize(
    "keys", [{"delay_cv": 0.5}, {"loss_probability": 0.1, "retry_after_s": 0.0}]
)
def test_messages_that_are_late_alone_do_not_keep_a_latency_from_becoming_nothing(
    only, keys, topology
):
    only(what="latency of links")
    slow, free = (
        ampsim.load_cluster("tflops-1", workers=4, latency_s=latency_s, topology=topology)
        for latency_s in (1e-6, 0.0)
    )
    late = replaced(slow, messages=Messages(**keys))
    row = rows(ampsim.whatif(MODEL, late, "sequential", **HOW))["latency of links", math.inf]
    kept = free.model_copy(update={"messages": late.messages})
    run = ampsim.simulate(MODEL, kept, "sequential", mode="sleep", instances=200)
    assert row["epoch_s"] == run.epochs["time_s"].iloc[0]


def test_the_round_trip_of_a_client_counts_for_the_schedule_not_for_a_link(only):
    only()
    client, model = ampsim.OutOfGraph(round_trip_s=1e-6), ampsim.load_model("rnn", hidden=4)
    cluster = ampsim.load_cluster("tflops-1", workers=1, latency_s=1e-6)
    found = ampsim.whatif(model, cluster, [client], mode="sleep", instances=100, learn=0)
    table = found.table.set_index(["what", "factor"])
    told: dict[Any, Any] = table[["change", "share"]].to_dict("index")
    share = told["round_trip_s of the schedule", 2.0]["share"]
    assert share > 0.5
    assert told["round_trip_s of the schedule", 0.5]["change"] == pytest.approx(share)
    assert told["latency of links", 2.0] == {"change": 0.0, "share": 0.0}
    assert found.elasticities["where"].tolist()[0] == "schedule"


def test_elasticities_of_the_table_add_up_to_one(found):
    assert found.elasticities["elasticity"].sum() == pytest.approx(1.0, abs=1e-9)
    assert set(found.elasticities["constant"]) == {"flop_per_s", "step_overhead_s", "latency_s"}


def test_curves_are_of_what_matters_most_and_fall(found):
    assert found.curves["what"].nunique() == 3
    for _what, own in found.curves.groupby("what"):
        assert own["change"].is_monotonic_decreasing
        assert own.set_index("factor").loc[1.0, "change"] == 0.0


def test_the_sentences_say_what_matters_most(found):
    first = found.sentences[0]
    assert first.startswith("sequential: device ampnet-core twice as fast: ")
    assert re.search(r"[0-9.]+ % sooner; it accounts for [0-9.]+ % of the time now\.$", first)
    assert len(found.cells[1]) == found.table["what"].nunique()


@pytest.mark.parametrize("count", [1, 2])
def test_the_table_fits_80_columns_and_names_what_differs(late, count, only):
    only()
    both, few = ("amp", "pipeline"), {**HOW, "instances": 60}
    headings, lines = (late if count == 1 else ampsim.whatif(MODEL, LATE, both, **few)).cells
    assert ("schedule" in headings) == (count == 2)
    assert lines[0][headings.index("epoch")].endswith(" ms")  # in mode "sleep", to no target
    assert max(map(len, in_columns([headings, *lines]).splitlines())) <= 80


def test_what_varies_and_what_is_light_can_only_be_left_out():
    devices = (
        Device(name="a", flop_per_s=1e9, step_overhead_s=1e-6, jitter_cv=0.3),
        Device(name="b", flop_per_s=2e9, step_overhead_s=1e-6),
    )
    pause = Event(kind="pause", worker=0, from_s=1e-5, until_s=2e-3)
    found = ampsim.whatif(MODEL, Cluster(name="c", devices=devices, events=(pause,)), **HOW)
    by_what = rows(found)
    assert {factor for what, factor in by_what if what == "no stragglers"} == {math.inf}
    assert by_what["no stragglers", math.inf]["change"] < -0.05
    assert by_what["no light work", math.inf]["change"] < -0.03
    assert {"worker 0 (a)", "worker 1 (b)", "flop_per_s", "step_overhead_s"} <= {
        what for what, _factor in by_what
    }


def test_light_work_is_left_out_as_well_where_messages_cost_something(only):
    only(what="no light work")
    plain, charged = (
        Device(name="a", flop_per_s=1e12, step_overhead_s=1e-5, message_overhead_s=overhead_s)
        for overhead_s in (0.0, 1e-12)
    )
    changes = [
        rows(ampsim.whatif(MODEL, Cluster(name="c", devices=(one,) * 2), "sequential", **HOW))[
            "no light work", math.inf
        ]["change"]
        for one in (plain, charged)
    ]
    assert changes[0] < -0.1
    assert changes[1] == pytest.approx(changes[0], rel=1e-5)


def test_a_host_that_varies_is_steady_without_stragglers(only):
    only(what="no stragglers")
    host = Device(name="h", flop_per_s=1e9, step_overhead_s=3e-5, jitter_cv=0.5)
    cluster = Cluster(name="c", devices=(Device(name="a", flop_per_s=1e9),), host=host)
    found = rows(ampsim.whatif(MODEL, cluster, "sequential", **HOW))["no stragglers", math.inf]
    steady = cluster.model_copy(update={"host": host.model_copy(update={"jitter_cv": 0.0})})
    run = ampsim.simulate(MODEL, steady, "sequential", mode="sleep", instances=200)
    assert found["epoch_s"] == run.epochs["time_s"].iloc[0]


def test_shares_are_said_to_move_outages_where_a_small_change_does_less(only):
    """What comes before a stop ends with it, however fast; a share is whose time that was."""
    only(factor=2.0)
    device = Device(name="a", flop_per_s=1e9, step_overhead_s=1e-6)
    stop = Event(kind="stop", worker=0, from_s=1e-3, until_s=2e-3)
    one = Cluster(name="c", devices=(device,), events=(stop,))
    found = ampsim.whatif(MODEL, one, "sequential", **HOW)
    share = rows(found)["device a", 2.0]["share"]
    devices = (device.model_copy(update={"flop_per_s": 1e9 / 1.001, "step_overhead_s": 1.001e-6}),)
    now_s, longer_s = (
        ampsim.simulate(MODEL, of, "sequential", mode="sleep", instances=200).makespan_s
        for of in (one, one.model_copy(update={"devices": devices}))
    )
    assert longer_s > now_s and (longer_s / now_s - 1) / 0.001 < share - 0.001
    assert OUTAGES_MOVE in found.sentences
    steady = ampsim.whatif(MODEL, one.model_copy(update={"events": ()}), "sequential", **HOW)
    assert OUTAGES_MOVE not in steady.sentences


def test_shares_are_said_to_keep_parts_of_bandwidth_where_a_small_change_moves_them(only):
    """Of two pushes that meet at the server's port, the one that comes last ends last for both."""
    only(factor=2.0)
    rates, own = (1e9, 3e9, 2e9, 5e9), {"step_overhead_s": 1e-6}
    devices = [Device(name=f"d{rate:g}", flop_per_s=rate, **own) for rate in rates]
    ports = Ports(egress_bytes_per_s=5e8, ingress_bytes_per_s=5e8)
    cluster = Cluster(name="c", devices=tuple(devices), ports=ports)
    found = ampsim.whatif(MODEL, cluster, "async-sgd", **HOW)
    devices[1] = devices[1].model_copy(update={"flop_per_s": 3e9 / 1.0001})
    now_s, longer_s = (
        ampsim.simulate(MODEL, of, "async-sgd", mode="sleep", instances=200).makespan_s
        for of in (cluster, cluster.model_copy(update={"devices": tuple(devices)}))
    )
    assert rows(found)["worker 1 (d3e+09)", 2.0]["share"] == 0.0
    assert (longer_s / now_s - 1) / 0.0001 > 0.4
    assert any(PARTS_STAY[1:] in one for one in found.sentences)
    in_turn = cluster.model_copy(update={"sharing": "first-come"})
    steady = ampsim.whatif(MODEL, in_turn, "async-sgd", **HOW)
    assert not any(PARTS_STAY[1:] in one for one in steady.sentences)


def test_nothing_is_shared_where_outages_come_as_epochs_differ(only):
    only(factor=2.0)
    device = Device(name="a", flop_per_s=1e9, step_overhead_s=1e-6)
    stop = {"events": (Event(kind="stop", worker="all", from_s=1e-3, until_s=2e-2),)}
    losses = {"messages": Messages(loss_probability=1e-3, retry_after_s=2e-2)}
    how: dict[str, Any] = {"target": 0.2, "max_epochs": 8, "instances": 300}
    how |= {"repeats": 2, "learn": 1}
    for varies, basis in (({}, "shared"), (stop, "learned"), (losses, "learned")):
        cluster = Cluster(name="c", devices=(device,) * 2, **varies)
        found = ampsim.whatif(MODEL, cluster, "sequential", **how)
        twice = found.table[found.table["factor"] == 2.0]
        assert basis in set(twice["basis"]) <= {basis, "shared" if not varies else "timing"}
        assert (AS_FIRST in found.sentences) == (varies is losses)


def test_nothing_is_shared_where_stages_of_an_optimizer_take_unlike_times(only):
    only(factor=2.0)
    options = {"optimizer": "two-stage", "warmup_epochs": 1, "learning_rate": 0.02}
    model = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, **options)
    device = Device(name="a", flop_per_s=1e9, memory_bandwidth_bytes_per_s=1e9)
    how: dict[str, Any] = {"target": 0.5, "max_epochs": 9, "instances": 300, "learn": 1}
    cluster = Cluster(name="c", devices=(device,))
    found = ampsim.whatif(model, cluster, "sequential", repeats=1, **how)
    assert "shared" not in set(found.table["basis"])
    assert AS_FIRST in found.sentences


def test_epochs_in_which_ranks_meet_now_and_then_are_not_as_the_first(only):
    only(factor=2.0)
    rows = ampsim.SyncSGD(ranks=2), ampsim.LocalSGD(ranks=2, period=4)  # of three steps an epoch
    how: dict[str, Any] = {"cluster": LATE, "mode": "sleep", "instances": 120}
    each, seldom = (ampsim.whatif(MODEL, schedules=[row], **how).sentences for row in rows)
    assert AS_FIRST in seldom and AS_FIRST not in each
    assert any(said.startswith("local-sgd, first epoch: ranks never ex") for said in seldom)


LATE = ampsim.load_cluster("ampnet-core", workers=4, latency_s=3e-5)
"""On it AMP is slower where worker 2 is twice as fast; found by trying latencies."""


def test_a_faster_worker_that_makes_it_slower_is_found_and_explained(late):
    assert rows(late)["worker 2", 2.0]["change"] == pytest.approx(0.0301, abs=1e-4)
    said = next(one for one in late.sentences if "worker 2 twice as fast makes" in one)
    parts = re.search(
        r"an epoch 3\.01 % longer, an anomaly of order: from ([0-9.]+ [µm]s) on, worker (\d) "
        r"serves (\w+) of (\S+) for instance (\d+) at its step (\d+), and not (\w+) of (\S+) for "
        r"instance (\d+)\.",
        said,
    )
    assert parts is not None, said
    fast = LATE.devices[2].model_copy(
        update={"flop_per_s": 2 * 22.31e9, "step_overhead_s": 2.293e-05 / 2}
    )
    faster = LATE.model_copy(update={"devices": (*LATE.devices[:2], fast, LATE.devices[3])})
    worker, step = int(parts[2]), int(parts[6])
    served = [steps_of(cluster, worker) for cluster in (faster, LATE)]
    assert served[0][: step - 1] == served[1][: step - 1]
    assert served[0][step - 1] == (parts[3], parts[4], parts[5])
    assert served[1][step - 1] == (parts[7], parts[8], parts[9])


def test_an_anomaly_of_one_seed_names_it_beside_medians_of_several(late, only):
    only()
    device = Device(name="a", flop_per_s=1e9, step_overhead_s=1e-6, jitter_cv=0.3)
    cluster = Cluster(name="c", devices=(device,) * 3, link=LATE.link)
    how: dict[str, Any] = {"instances": 200, "target": 0.05, "max_epochs": 1, "learn": 0}
    found = ampsim.whatif(MODEL, cluster, "amp", repeats=2, seed=1, **how)
    said = [one for one in found.sentences if "anomaly" in one]
    assert said
    assert all(
        "% longer with seed 1, an" in one or "% shorter with seed 1, an" in one for one in said
    )
    assert not [one for one in said if "no stragglers taking no time" in one]
    assert not [one for one in late.sentences if "with seed" in one]


def steps_of(cluster: Cluster, worker: int) -> list[tuple[str, str, str]]:
    spans = ampsim.simulate(MODEL, cluster, "amp", mode="sleep", instances=200).spans
    own = spans[(spans["worker"] == worker) & (spans["end_s"] > spans["start_s"])]
    names = ("direction", "node", "instance")
    return [(d, n, str(i)) for d, n, i in zip(*(own[name] for name in names), strict=True)]


def test_what_learns_the_same_is_shared_and_what_does_not_is_learned_again(only, tmp_path):
    how: dict[str, Any] = {"instances": 200, "target": 0.05, "max_epochs": 2, "repeats": 2}
    only()
    drains = rows(ampsim.whatif(MODEL, CLUSTER, "pipeline", **how))
    assert {row["basis"] for (what, _), row in drains.items() if what != "now"} == {"shared"}
    now = drains["now", 1.0]
    twice = drains["device ampnet-core", 2.0]
    ratio = twice["epoch_s"] / now["epoch_s"]
    assert twice["time_to_target_s"] == pytest.approx(now["time_to_target_s"] * ratio, rel=1e-12)
    only(factor=2.0)
    made = ampsim.whatif(MODEL, LATE, "amp", learn=1, keeping=RunCache(tmp_path), **how)
    learned = [key for key, row in rows(made).items() if row["basis"] == "learned"]
    assert learned == [("now", 1.0), ("device ampnet-core", 2.0)]
    row = rows(made)["device ampnet-core", 2.0]
    assert row["low"] <= row["change"] <= row["high"]
    assert (row["seeds"], row["seeds_agree"]) == (2, 2)
    said: list[str] = []
    again = ampsim.whatif(
        MODEL, LATE, "amp", learn=1, keeping=RunCache(tmp_path, say=said.append), **how
    )
    assert again.table.equals(made.table)
    assert all(line.endswith("kept from before") for line in said)


def test_seeds_are_counted_that_both_have(only, monkeypatch):
    """One was lost now and another then: of a single pair it was said that 1 of 2 seeds agree."""
    only(factor=2.0, what="device ampnet-core")
    learn = PointRuns.learn_once

    def lose(runs: PointRuns, wanted: Any) -> Any:
        lost = [seed == ("learned" in row.label) for row, seed in wanted]
        kept = [one for one, is_lost in zip(wanted, lost, strict=True) if not is_lost]
        made = iter(learn(runs, kept))
        return ["its process died" if is_lost else next(made) for is_lost in lost]

    monkeypatch.setattr(PointRuns, "learn_once", lose)
    how: dict[str, Any] = {"instances": 200, "target": 0.05, "max_epochs": 2, "repeats": 3}
    found = ampsim.whatif(MODEL, LATE, "amp", learn=1, **how)
    row = rows(found)["device ampnet-core", 2.0]
    assert (row["basis"], row["seeds"], row["seeds_agree"]) == ("learned", 1, 1)
    keys = {key: sped(key, value, 2.0) for key, value in LATE.devices[0].numbers.items()}
    fast = LATE.model_copy(update={"devices": (LATE.devices[0].model_copy(update=keys),) * 4})
    alone = {**how, "repeats": 1, "seed": 2, "placement": "paper"}
    made = [ampsim.forecast(MODEL, on, "amp", **alone) for on in (LATE, fast)]
    times = [one.table["time_to_target_s"].iloc[0] for one in made]
    assert row["time_to_target_s"] == pytest.approx(times[1], rel=1e-12)
    assert row["change"] == pytest.approx(times[1] / times[0] - 1, rel=1e-12)
    assert "(1 of 1 seeds)" in found.sentences[0]


@pytest.mark.thorough
def test_times_of_what_is_shared_are_those_of_a_forecast_there_seed_by_seed(only):
    """Lists have other lengths with each seed, and latency another share of the time."""
    only(what="latency of links")
    model = ampsim.load_model("rnn", hidden=4, replicas=1, batch=20)
    how: dict[str, Any] = {"instances": 100, "target": 0.05, "max_epochs": 1, "repeats": 3}
    cluster = ampsim.load_cluster("ampnet-core", workers=2, latency_s=1e-4)
    found = rows(ampsim.whatif(model, cluster, [ampsim.Pipeline(4)], learn=0, **how))
    free = ampsim.load_cluster("ampnet-core", workers=2)
    made = ampsim.forecast(model, free, [ampsim.Pipeline(4)], placement="paper", **how)
    row = found["latency of links", math.inf]
    assert row["basis"] == "shared"
    expected = made.table["time_to_target_s"].iloc[0]
    assert row["time_to_target_s"] == pytest.approx(expected, rel=1e-9)


def test_epochs_to_the_target_are_those_of_the_runs_though_epochs_differ_in_length(only):
    """Buckets of lists are other ones in each epoch, so that none takes as long as the first."""
    only(factor=2.0, what="flop_per_s")
    model = ampsim.load_model("rnn", hidden=8, replicas=1, batch=10, digits=2)
    how: dict[str, Any] = {"instances": 200, "target": 0.25, "max_epochs": 6, "seed": 5}
    found = rows(ampsim.whatif(model, "ampnet-core", "pipeline:4", learn=0, **how))
    made = ampsim.forecast(model, "ampnet-core", "pipeline:4", repeats=3, placement="paper", **how)
    times_s = [run.epochs["time_s"].tolist() for run in made.runs]
    assert any(one[-1] != pytest.approx(len(one) * one[0], rel=1e-3) for one in times_s)
    assert [row["epochs_to_target"] for row in found.values()] == [2.0, 2.0]
    assert made.table["epochs_to_target"].tolist() == [2.0]


def test_times_of_what_is_only_timed_follow_from_the_epochs_of_each_seed(only):
    """The first seed's ratio is none of the middle, as lists have other lengths with each."""
    only(what="latency of links")
    model = ampsim.load_model("rnn", hidden=4, replicas=1, batch=20)
    cluster = ampsim.load_cluster("ampnet-core", workers=2, latency_s=1e-4)
    how: dict[str, Any] = {"instances": 40, "target": 0.01, "max_epochs": 1, "seed": 5}
    found = rows(ampsim.whatif(model, cluster, [ampsim.Amp(2)], learn=0, **how))
    row = found["latency of links", math.inf]
    times_s: list[list[float]] = []
    for on in (cluster, ampsim.load_cluster("ampnet-core", workers=2)):
        runs = [
            ampsim.simulate(
                model, on, ampsim.Amp(2), mode="sleep", instances=40, placement="paper", seed=seed
            )
            for seed in range(5, 8)
        ]
        times_s.append([float(run.epochs["time_s"].iloc[0]) for run in runs])
    ratios = [after / before for before, after in zip(*times_s, strict=True)]
    assert row["basis"] == "timing"
    assert abs(ratios[0] - median(ratios)) > 1e-3
    assert row["change"] == pytest.approx(median(ratios) - 1, rel=1e-12)
    assert row["epoch_s"] == median(times_s[1])


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((-0.25, -0.05), "5.87 % sooner (5.00 % to 25.0 %, 4 of 5 seeds)"),
        ((-0.25, 0.13), "5.87 % sooner (-25.0 % to +13.0 %, 4 of 5 seeds)"),
        ((-0.25, math.nan), "5.87 % sooner (-25.0 % to reached only now, 4 of 5 seeds)"),
        ((math.nan, 0.13), "5.87 % sooner (reached only then to +13.0 %, 4 of 5 seeds)"),
    ],
)
def test_an_interval_around_no_change_is_not_said_to_lie_on_one_side(ends, said):
    row = {"what": "host", "low": ends[0], "high": ends[1], "seeds": 5, "seeds_agree": 4}
    row |= {"change": -0.0587, "share": None, "basis": "learned", "time_to_target_s": 1.0}
    assert sentence_of(row) == f"host twice as fast: {said}."


def test_one_seed_is_said_to_be_one():
    row = {"what": "host", "low": math.nan, "high": math.nan, "seeds": 1, "seeds_agree": 1}
    row |= {"change": -0.05, "share": None, "basis": "learned", "time_to_target_s": 1.0}
    assert sentence_of(row) == "host twice as fast: 5.00 % sooner (1 of 1 seeds)."


def recorded(now_s: list[float], then_s: list[float]) -> dict[str, Any]:
    """The row of a thing at twice its speed, by times to the target of each seed."""
    row: Any = SimpleNamespace(label="amp", plan=SimpleNamespace(epochs_differ=False))
    now, then = (
        library._Tried(
            Change(what, None), factor, row,
            {seed: FirstEpoch(1.0, digest=f"{what}{seed}") for seed in range(len(times))},
            dict(enumerate(times)), dict(enumerate(times)),
        )
        for what, factor, times in (("now", 1.0, now_s), ("links", 2.0, then_s))
    )  # fmt: skip
    anything: Any = None
    return library._Question(row, anything, anything, now)._record(then)


def test_seeds_of_which_most_never_arrive_have_no_interval():
    """Of five one was sooner and one arrived then only, and "high" was 25 % sooner."""
    row = recorded([1.0, inf, inf, inf, inf], [0.75, 3.0, inf, inf, inf])
    assert row["basis"] == "learned"
    assert [row[name] for name in ("change", "low", "high", "seeds_agree")] == [None] * 4
    row = recorded([1.0, 1.0, 1.0, inf, 1.0], [0.75, 3.0, inf, inf, 0.5])
    assert [row[name] for name in ("low", "high", "seeds_agree")] == [-0.5, None, 2]
    assert row["change"] == (-0.25 + 2.0) / 2


@pytest.mark.thorough
@pytest.mark.parametrize(("latency_s", "target"), [(1e-5, 0.15), (1e-4, 0.15), (1e-4, 0.18)])
def test_what_is_learned_again_is_compared_seed_by_seed_also_where_one_does_not_arrive(
    only, latency_s, target
):
    only(factor=2.0, what="device ampnet-core")
    how: dict[str, Any] = {"instances": 200, "target": target, "max_epochs": 3, "repeats": 5}
    cluster = ampsim.load_cluster("ampnet-core", workers=4, latency_s=latency_s)
    found = ampsim.whatif(MODEL, cluster, "amp", learn=1, **how)
    (row,) = [one for (_, by), one in rows(found).items() if one["basis"] == "learned" and by == 2]
    change = next(
        one
        for one in changes_of(cluster, ampsim.Amp(), Elasticities({}))
        if one.what == row["what"]
    )
    times: list[dict[int, float]] = []
    for on in (cluster, change.on(cluster, ampsim.Amp(), 2.0)[0]):
        made = ampsim.forecast(MODEL, on, "amp", placement="paper", **how)
        times.append(dict(times_of(Goal(made.metric, target), made.runs)))
    (said,) = [one for one in found.sentences if f": {row['what']} twice" in one]
    pairs = [(times[0][seed], times[1][seed]) for seed in times[0]]
    there = sum(map(math.isfinite, times[0].values()))
    few = f"amp: {there} of {len(pairs)} seeds reach the target now."
    assert (few in found.sentences) == (2 * there <= len(pairs)), (there, found.sentences)
    known = [after / before - 1 if before < math.inf else -math.inf
             for before, after in pairs if min(before, after) < math.inf]  # fmt: skip
    if 2 * len(known) > len(pairs) and math.isfinite(median(known)):
        assert row["change"] == pytest.approx(median(known), rel=1e-12)
        way = "sooner" if row["change"] < 0 else "later"
        assert f" {way}" in said
    else:
        assert math.isnan(row["change"])
        arrives = math.isfinite(median(times[1].values()))
        assert ("most seeds reach the target" in said) is arrives


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_where_no_seed_reaches_the_target_that_is_told_too(only, mode):
    only(factor=2.0)
    cluster = ampsim.load_cluster("ampnet-core", workers=2)
    how: dict[str, Any] = {"target": 0.99, "max_epochs": 1, "repeats": 2, "learn": 0}
    how = how if mode == "numeric" else {"mode": mode}
    found = ampsim.whatif(MODEL, cluster, "pipeline:2", instances=100, **how)
    few = "pipeline: 0 of 2 seeds reach the target now."
    assert (few in found.sentences) is (mode == "numeric"), found.sentences


@pytest.mark.parametrize(
    ("seeds", "whose"), [(1, "all is"), (3, "shares are those")], ids=["alone", "medians"]
)
def test_where_seeds_are_timed_unlike_it_is_said_whose_the_numbers_are(only, seeds, whose):
    """Lists of unlike lengths come in another order with each seed; images are all alike."""
    only(factor=2.0, what="latency of links")
    how: dict[str, Any] = {"instances": 100, "target": 0.05, "max_epochs": 1, "learn": 0}
    how = how | {"repeats": seeds} if seeds > 1 else {"instances": 100, "mode": "sleep"}
    model = ampsim.load_model("rnn", hidden=4, replicas=1)
    runs = (ampsim.simulate(model, CLUSTER, "pipeline", mode="sleep", instances=100, seed=seed)
            for seed in range(5, 5 + max(seeds, 2)))  # fmt: skip
    times = [float(run.epochs["time_s"].iloc[0]) for run in runs]
    (said,) = [
        one for of in (model, MODEL)
        for one in ampsim.whatif(of, CLUSTER, "pipeline", seed=5, **how).sentences
        if "seeds differ" in one
    ]  # fmt: skip
    by = format_percent(max(times) / min(times) - 1)
    assert said == f"pipeline: seeds differ, epochs by {by}: {whose} of seed 5."


@pytest.mark.thorough
def test_what_is_said_to_be_shared_is_so_with_each_seed(only):
    """With the first seed alone a worker that is twice as fast learns the same here."""
    only(factor=2.0)
    model = ampsim.load_model("rnn", hidden=4, batch=20)
    cluster = ampsim.load_cluster("ampnet-core", workers=4, latency_s=1e-7)
    how: dict[str, Any] = {"instances": 40, "target": 0.05, "max_epochs": 1, "repeats": 2}
    found = rows(ampsim.whatif(model, cluster, [ampsim.Amp(2)], learn=0, **how))

    def digests(on: Cluster) -> list[str | None]:
        how = {"mode": "sleep", "instances": 40, "placement": "paper"}
        return [
            ampsim.simulate(model, on, ampsim.Amp(2), seed=seed, **how).learning_digest
            for seed in range(2)
        ]

    now, same = digests(cluster), list[tuple[bool, ...]]()
    for worker in range(4):
        devices = list(cluster.devices)
        made: Any = devices[worker]
        twice = {"flop_per_s": 2 * made.flop_per_s, "step_overhead_s": made.step_overhead_s / 2}
        devices[worker] = made.model_copy(update=twice)
        faster = digests(cluster.model_copy(update={"devices": tuple(devices)}))
        same.append(tuple(a == b for a, b in zip(now, faster, strict=True)))
        basis = found[f"worker {worker}", 2.0]["basis"]
        assert basis == ("shared" if all(same[-1]) else "timing"), worker
    assert (True, False) in same
    assert found["everything", 2.0]["basis"] == "shared"


def test_a_change_of_one_worker_leaves_the_others():
    run = Simulation(MODEL, CLUSTER, ampsim.Amp(), instances=100, mode="sleep")
    run.run_epoch()
    changes = changes_of(CLUSTER, ampsim.Amp(), elasticities(run.result(), CLUSTER))
    (worker,) = [one for one in changes if one.what == "worker 2"]
    cluster, schedule = worker.on(CLUSTER, ampsim.Amp(), 4.0)
    rates = [one.flop_per_s / CLUSTER.devices[0].flop_per_s for one in cluster.devices]
    assert (rates, schedule) == ([1, 1, 4, 1], ampsim.Amp())
    assert cluster.devices[2].step_overhead_s == CLUSTER.devices[0].step_overhead_s / 4
    assert sped("idle_power_w", 3.0, 2.0) == 3.0


def test_a_model_that_decides_by_values_is_told():
    with pytest.raises(OptionError, match="sleep"):
        ampsim.whatif("moe_rnn", "tflops-1", "dataflow", instances=20)


SMALL = (
    "mlp", "--set", "hidden=8", "--set", "data=synthetic", "--set", "batch=20",
    "--set", "valid_images=40", "--instances", "100", "--workers", "4", "-q", "-j", "1",
)  # fmt: skip


@pytest.mark.usefixtures("unpainted")
def test_the_command_gives_rows_and_files(call, tmp_path):
    ended = call("whatif", *SMALL, "--mode", "sleep", "--device", "ampnet-core", "--json", "w.json")
    assert (ended.code, ended.err) == (0, "")
    made = json.loads((tmp_path / "w.json").read_text())
    assert [*made["rows"][0]] == [
        "schedule", "what", "factor", "time_to_target_s", "change", "low", "high", "epoch_s",
        "epochs_to_target", "share", "basis", "seeds", "seeds_agree",
    ]  # fmt: skip
    assert made["rows"][3]["factor"] is None
    assert made["elasticities"]
    assert "device ampnet-core twice as fast: " in ended.out
    written = {path.name for path in (tmp_path / "whatif-mlp").iterdir()}
    figures = {"tornado.png", "curves.png"}
    tables = {"whatif.csv", "curves.csv", "elasticities.csv"}
    assert written == {"report.md", "manifest.toml", *figures, *tables}


def test_mistakes_are_one_line(mistake):
    assert "no model named 'mlpp'" in mistake("whatif", "mlpp")
    assert "learn must be a whole number >= 0" in mistake("whatif", *SMALL, "--learn", "-1")
