"""What every trace obeys where time varies, under each listed schedule on a chain of stages."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from covering import together
from short_runs import schedule_of

import ampsim
from ampsim.clock import SimClock
from ampsim.hardware import Checkpoints, Cluster, Device, Event, Failures, Link, Messages, Ports
from ampsim.machine import Fabric
from ampsim.model_parallel import SCHEDULES
from ampsim.trace import START, Recorder
from ampsim.trace.kinds import record_of

STAGES = 4
COSTS = ((4, 6, 1), (3, 5, 2), (5, 8, 1), (2, 3, 1))
JITTER = "jitter"
ALL_BUT_1 = (0, 2, 3)

VARIES: dict[str, dict[str, Any]] = {
    JITTER: {},
    "slow": {"events": (Event(kind="slow", worker=1, from_s=9.5, until_s=60.0, factor=3.0),)},
    "pause": {
        "events": (
            Event(kind="pause", worker=ALL_BUT_1, from_s=7.3, until_s=19.0),
            Event(kind="pause", worker="all", from_s=31.0, until_s=40.7),
        )
    },
    "stop": {"events": (Event(kind="stop", worker=1, from_s=9.1, until_s=33.0),)},
    "checkpoint": {
        "events": (
            Event(kind="stop", worker=1, from_s=9.1, until_s=33.0, weights="checkpoint"),
            Event(kind="stop", worker=(0, 2), from_s=41.0, until_s=43.5, weights="checkpoint"),
        ),
        "checkpoints": Checkpoints(every_s=17.0, takes_s=1.5),
    },
    "chance": {"failures": Failures(mean_time_between_s=30.0, mean_time_to_repair_s=5.0)},
    "lost": {"messages": Messages(loss_probability=0.2, retry_after_s=1.5, delay_cv=0.8)},
}
BY_CHANCE = (JITTER, "chance", "lost")
USUAL: dict[str, Any] = {}


def cluster_of(name: str, workers: int = STAGES, latency_s: float = 0.5) -> Cluster:
    device = Device(name="test", flop_per_s=1.0, jitter_cv=0.4 if name == JITTER else 0.0)
    link = Link(latency_s=latency_s, bandwidth_bytes_per_s=64.0 if latency_s else None)
    varies = VARIES.get(name, USUAL)
    return Cluster(name="test", devices=(device,) * workers, link=link, **varies)


@pytest.fixture(scope="module")
def run(chain):
    """`run(schedule, name, seed)` trains a chain in time alone."""

    @cache
    def made(schedule: str, name: str, seed: int = 0) -> Any:
        model = chain(COSTS, instances=12, valid=3).model()
        how = {"epochs": 2, "mode": "sleep", "seed": seed}
        return ampsim.simulate(model, cluster_of(name), schedule_of(schedule), **how)

    return made


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


every = together("schedule, name", product(SCHEDULES, VARIES))


def sent_again(transfers: pd.DataFrame) -> list[tuple[int, int]]:
    """(Transmission that did not arrive, the next one of the same message), by their rows."""
    ends = list(zip(transfers["source"], transfers["target"], strict=True))
    caused = enumerate(map(record_of, transfers["cause"]))
    return [
        (number, row)
        for row, (kind, number) in caused
        if kind == "transfer" and ends[number] == ends[row]
    ]


@every
def test_a_run_goes_on_to_its_end_and_does_all_its_work(run, schedule, name):
    """The same steps at the same nodes and as many gradients in updates, at other times."""
    result, usual = run(schedule, name), run(schedule, "usual")
    for columns in (["node", "direction"], ["worker", "instance"]):
        counts, as_usual = (
            one.spans[one.spans["direction"] != "update"].groupby(columns, observed=True).size()
            for one in (result, usual)
        )
        pd.testing.assert_series_equal(counts, as_usual)
    gradients = result.updates.groupby("node", observed=True)["gradient_count"].sum()
    assert (gradients == 2 * 12).all()
    assert len(gradients) == STAGES
    assert result.makespan_s != usual.makespan_s


@every
def test_workers_serve_one_step_at_a_time_and_time_never_falls(run, schedule, name):
    result = run(schedule, name)
    assert (np.diff(result.spans["end_s"]) >= 0).all()
    assert (np.diff(result.transfers["sent_s"]) >= 0).all()
    for _worker, own in result.spans.groupby("worker"):
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()
    assert 0 < result.utilisation <= 1
    assert (result.updates["staleness"] >= 0).all()
    if SCHEDULES[schedule]().admission.drains:
        assert (result.updates["staleness_max"] == 0).all()


@every
def test_the_critical_path_is_the_makespan_without_a_gap(run, schedule, name):
    result = run(schedule, name)
    path = result.critical_path
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert path["start_s"].tolist()[1:] == path["end_s"].tolist()[:-1]


def test_no_step_begins_while_its_device_is_down(run, schedule):
    for name in ("pause", "stop", "checkpoint"):
        result, cluster = run(schedule, name), cluster_of(name)
        spans = result.spans
        for event in cluster.events:
            own = spans[[event.hits(worker) for worker in spans["worker"]]]
            is_inside = (own["start_s"] > event.from_s) & (own["start_s"] < event.until_s - 1e-9)
            assert not is_inside.any()
            ends_inside = (own["end_s"] > event.from_s + 1e-9) & (own["end_s"] < event.until_s)
            assert not ends_inside.any()


def test_a_seed_gives_the_same_trace_to_the_bit_and_another_seed_another(run, chain, schedule):
    for name in VARIES:
        model = chain(COSTS, instances=12, valid=3).model()
        made = schedule_of(schedule)
        again = ampsim.simulate(model, cluster_of(name), made, epochs=2, mode="sleep")
        assert again.digest == run(schedule, name).digest
        first, other = (run(schedule, name, seed).spans["start_s"] for seed in (0, 1))
        assert (first.tolist() == other.tolist()) == (name not in BY_CHANCE)


def test_a_lost_message_takes_its_link_and_is_sent_again_after_a_while(run, schedule):
    sent = run(schedule, "lost").transfers
    again = sent_again(sent)
    assert 0.1 * len(sent) < len(again) < 0.3 * len(sent)
    for before, after in again:
        assert sent["sent_s"][after] == pytest.approx(sent["end_s"][before] + 1.5)
        assert sent["bytes"][after] == sent["bytes"][before]
    for _pair, own in sent.groupby(["source_worker", "target_worker"]):
        assert (own["start_s"].to_numpy()[1:] >= own["held_s"].to_numpy()[:-1] - 1e-12).all()
        np.testing.assert_allclose(own["held_s"] - own["start_s"], own["bytes"] / 64.0, atol=1e-12)


def test_messages_of_a_pair_are_served_in_the_order_in_which_they_were_sent(chain):
    """First come first served at stage 2, which has one sender: instances stay in order."""
    model = chain(((1, 1, 0), (1, 1, 0)), instances=60).model()
    messages = Messages(loss_probability=0.3, retry_after_s=9.0, delay_cv=2.0)
    cluster = cluster_of("usual", 2).model_copy(update={"messages": messages})
    result = ampsim.simulate(model, cluster, ampsim.GPipe(60), mode="sleep")
    spans = result.spans[result.spans["node"] == "stage-2"]
    forward = spans[spans["direction"] == "forward"]["instance"].tolist()
    assert forward == sorted(forward)
    assert sent_again(result.transfers)


@pytest.mark.parametrize("sharing", ["fair", "first-come"])
def test_what_a_message_leads_to_at_once_comes_before_one_that_waited_for_it(sharing):
    """Decision 4: free steps run before what else arrives in that instant, though it came early."""
    cluster = cluster_of("lost", 2).model_copy(
        update={"ports": Ports(egress_bytes_per_s=64.0), "sharing": sharing}
    )
    clock, told = SimClock(), list[int | None]()
    settle = partial(told.append, None)
    channel = Fabric(cluster, clock, Recorder(["a", "b"], 2), settle, seed=0).channel(0, 1)
    assert channel is not None
    for number in range(20):
        channel.send(8, (0, 1), START, lambda _cause, number=number: told.append(number))
    clock.run()
    assert [number for number in told if number is not None] == list(range(20))
    assert all(None in pair for pair in pairwise(told))


def test_a_worker_more_leaves_the_jitter_of_the_others_as_it_is(chain):
    """On free links, so that the loss, which then has a worker of its own, changes nothing."""
    model = chain(COSTS, instances=12).model()
    few, many = (
        ampsim.simulate(model, cluster_of(JITTER, n, 0.0), ampsim.Amp(3), mode="sleep")
        for n in (STAGES, STAGES + 1)
    )
    stages = [f"stage-{number}" for number in range(1, STAGES + 1)]
    columns = ["worker", "node", "direction", "instance", "start_s", "end_s"]
    first, second = (
        one.spans[one.spans["node"].isin(stages)][columns].reset_index(drop=True)
        for one in (few, many)
    )
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_slow_from_start_to_end_all_steps_take_exactly_so_many_times_as_long(chain, factor):
    model = chain(COSTS, instances=5).model()
    event = Event(kind="slow", worker="all", from_s=0.0, until_s=1e6, factor=factor)
    usual = cluster_of("usual", latency_s=0.0)
    slow = usual.model_copy(update={"events": (event,)})
    before, after = (
        ampsim.simulate(model, one, ampsim.Sequential(), mode="sleep").spans
        for one in (usual, slow)
    )
    for column in ("start_s", "end_s"):
        np.testing.assert_array_equal(after[column], before[column] * factor)


@pytest.mark.parametrize("from_s", [1.0, 25.5, 60.0])
def test_a_pause_of_all_lengthens_a_sequential_run_by_exactly_its_length(chain, from_s):
    model = chain(COSTS, instances=5).model()
    event = Event(kind="pause", worker="all", from_s=from_s, until_s=from_s + 8.5)
    usual = cluster_of("usual", latency_s=0.0)
    before, after = (
        ampsim.simulate(model, one, ampsim.Sequential(), mode="sleep").makespan_s
        for one in (usual, usual.model_copy(update={"events": (event,)}))
    )
    assert after == before + 8.5
