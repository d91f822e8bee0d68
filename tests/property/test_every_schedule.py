"""What every trace obeys: under each listed schedule, on each shipped model that it accepts."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from short_runs import (
    LINKS,
    MODELS,
    PAIRS,
    REFUSED,
    ROUNDING_S,
    RUNS,
    STAGES,
    Run,
    cluster_of,
    run_of,
    schedule_of,
    small_model,
)

from ampsim import simulate
from ampsim.errors import OptionError
from ampsim.model_parallel import SCHEDULES, RunSettings, needs_chain, paper_placement
from ampsim.rng import stream
from ampsim.study.training import Training
from ampsim.trace.kinds import record_of

ROUNDING = 1 + 1e-9


@pytest.fixture(params=RUNS, ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    return request.param


@pytest.fixture
def run(case: tuple[str, str, str]) -> Run:
    return run_of(*case)


@pytest.fixture
def links(case: tuple[str, str, str]) -> str:
    return case[2]


def test_every_two_of_schedule_model_and_links_meet():
    assert {(schedule, model) for schedule, model, _ in RUNS} == set(PAIRS)
    for place, names in ((0, SCHEDULES), (1, MODELS)):
        assert {(one[place], one[2]) for one in RUNS} == set(product(names, LINKS))


@pytest.mark.parametrize(("schedule", "model"), REFUSED)
def test_a_schedule_of_stages_refuses_a_model_that_is_no_chain(schedule, model):
    cluster = cluster_of(4, *LINKS["free"])
    with pytest.raises(OptionError, match=f"^{schedule} needs a chain of stages, but {model}"):
        simulate(small_model(model), cluster, schedule_of(schedule), mode="sleep")


def test_a_worker_serves_one_step_at_a_time(run):
    spans = run.result.spans
    assert (spans["end_s"] >= spans["start_s"]).all()
    for _worker, own in spans.groupby("worker"):
        starts_s, ends_s = own["start_s"].to_numpy(), own["end_s"].to_numpy()
        assert (starts_s[1:] >= ends_s[:-1]).all(), "spans overlap, or are out of order"


def test_time_never_falls(run):
    result = run.result
    for table, column in (
        ("transfers", "sent_s"), ("admissions", "time_s"), ("updates", "time_s"),
        ("epochs", "time_s"), ("spans", "end_s"),
    ):  # fmt: skip
        times_s = getattr(result, table)[column].to_numpy()
        assert (times_s >= 0).all()
        assert (np.diff(times_s) >= 0).all(), table
    for earlier, later in pairwise(("sent_s", "start_s", "held_s", "end_s")):
        assert (result.transfers[later] >= result.transfers[earlier] - ROUNDING_S).all()


def test_the_makespan_is_the_last_end_and_no_shorter_than_the_work_over_the_workers(run):
    result, spans, workers = run.result, run.result.spans, run.cluster.workers
    busy_s = (spans["end_s"] - spans["start_s"]).groupby(spans["worker"]).sum()
    assert result.makespan_s == spans["end_s"].max()
    assert result.makespan_s * ROUNDING >= busy_s.max() >= busy_s.sum() / workers
    assert result.utilisation == pytest.approx(busy_s.sum() / (workers * result.makespan_s))
    assert 0 < result.utilisation <= 1


def test_shares_of_the_makespan_are_at_most_one_and_those_of_the_trace(run):
    bounds, spans, sent = run.result.bounds, run.result.spans, run.result.transfers
    makespan_s = run.result.makespan_s
    shares = (bounds.worker_share, bounds.path_share, bounds.link_share, bounds.admission_share)
    assert all(0 <= share <= 1 for share in shares)
    busy_s = (spans["end_s"] - spans["start_s"]).groupby(spans["worker"]).sum().max()
    assert bounds.worker_share == pytest.approx(busy_s / makespan_s)
    held_s = sent["held_s"].clip(upper=makespan_s) - sent["start_s"].clip(upper=makespan_s)
    most_s = held_s.groupby([sent["source_worker"], sent["target_worker"]]).sum().max()
    assert bounds.link_share == pytest.approx(most_s / makespan_s if len(sent) else 0.0)
    assert max(bounds.worker_share, bounds.link_share) + bounds.admission_share <= ROUNDING
    largest = max(shares)
    named = {"worker": 0, "critical": 1, "link": 2, "admission": 3}[str(bounds.bound_by).split()[0]]
    assert shares[named] == largest


def test_every_transfer_is_served_once_where_it_arrives(run):
    spans, sent = run.result.spans, run.result.transfers
    caused = [record_of(cause) for cause in spans["cause"]]
    served = sorted(number for kind, number in caused if kind == "transfer")
    assert served == np.flatnonzero(sent["target"] != "controller").tolist()


def test_a_link_carries_bytes_at_its_rate_one_after_the_other(run, links):
    sent, (latency_s_max, bandwidth) = run.result.transfers, LINKS[links]
    assert (len(sent) == 0) == (links == "free")
    for (source, target), own in sent.groupby(["source_worker", "target_worker"]):
        link = run.cluster.link_between(source, target)
        starts_s, held_s = own["start_s"].to_numpy(), own["held_s"].to_numpy()
        assert (starts_s[1:] >= held_s[:-1] - ROUNDING_S).all()
        lasts_s = own["bytes"].to_numpy() / bandwidth if bandwidth else 0.0
        np.testing.assert_allclose(held_s - starts_s, lasts_s, rtol=1e-6, atol=ROUNDING_S)
        flight_s = own["end_s"].to_numpy() - held_s
        np.testing.assert_allclose(flight_s, link.latency_s, rtol=1e-6, atol=ROUNDING_S)
        assert link.latency_s <= latency_s_max


def test_gradients_take_as_many_bytes_back_as_activations_took_there(run):
    """Over the edges that leave nodes with parameters; in training, for validation gives none."""
    sent = run.result.transfers[run.is_training(run.result.transfers["sent_s"])]
    bytes_of = sent.groupby(["source", "target"], observed=True)["bytes"].sum().to_dict()
    edges = {edge for edge in run.graph.to_networkx().edges() if edge[0] in run.learning}
    there = {edge: bytes_of[edge] for edge in edges & bytes_of.keys()}
    back = {edge: bytes_of[edge[::-1]] for edge in edges if edge[::-1] in bytes_of}
    assert there == back
    assert not there or sum(there.values()) > 0


def test_every_activation_that_is_taken_is_given_back(run):
    spans = run.result.spans
    steps = spans[spans["node"].isin(run.learning) & run.is_training(spans["start_s"])]
    for _node, own in steps.groupby("node", observed=True):
        keys = {
            direction: set(zip(of["instance"], of["state"], strict=True))
            for direction, of in own.groupby("direction", observed=True)
        }
        assert keys["forward"] == keys["backward"]
    assert set(steps["node"]) == set(run.learning)


def test_staleness_is_never_negative_and_zero_where_the_schedule_drains(run):
    spans, updates = run.result.spans, run.result.updates
    gradients = spans[spans["staleness"] != -1]["staleness"]
    assert len(gradients) == updates["gradient_count"].sum() > 0
    assert (gradients >= 0).all()
    assert (updates["staleness"] >= 0).all()
    assert (updates["staleness_max"] >= updates["staleness"]).all()
    assert run.result.staleness_mean == pytest.approx(gradients.mean())
    assert run.result.staleness_max == gradients.max()
    if run.schedule.admission.drains:
        assert (gradients == 0).all()


def test_a_gradient_is_as_stale_as_its_node_was_updated_since_it_read_the_weights(run):
    """Recounted from the trace; a schedule of stages may have it read older weights than these."""
    spans = run.result.spans[run.result.spans["node"].isin(run.learning)]
    version, read, recounted = dict.fromkeys(run.learning, 0), {}, []
    for span in spans.itertuples():
        key = (span.node, span.instance, span.state)
        if span.direction == "update":
            version[span.node] += 1
        elif span.direction == "forward":
            read[key] = version[span.node]
        elif span.staleness >= 0:
            recounted.append(version[span.node] - read[key])
    recorded = spans[spans["staleness"] >= 0]["staleness"].to_numpy()
    if needs_chain(run.schedule) and not run.schedule.admission.drains:
        assert (recorded >= recounted).all()
    else:
        assert recorded.tolist() == recounted


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_order_that_is_learned_by_is_that_of_the_trace(schedule):
    """Of each gradient, which weights its step read, and how many updates come before its own."""
    model, made = small_model("mlp"), schedule_of(schedule)
    graph, cluster = model.graph(), cluster_of(STAGES, *LINKS["both"])
    place = paper_placement(graph, STAGES, stream(0, "placement"))
    settings = RunSettings(is_abstract=True, keeps_order=True)
    training = Training(model, graph, cluster, place, made, settings=settings)
    order = training.train(model.data(0, None).batches("train", epoch=0, seed=0)).order
    assert order is not None
    version = dict.fromkeys(order.learners, 0)
    gradients: dict[str, list[Any]] = {name: [] for name in version}
    spans: Any = training.recorder.frame("spans").itertuples()
    for span in spans:
        if span.direction == "update":
            version[span.node] += 1
        elif span.staleness >= 0:
            lag = span.staleness if made.weights.versions is not None else 0
            met = version[span.node]
            gradients[span.node].append((span.instance, (met - lag, met)))
    for name, learner in order.learners.items():
        noted = [(state[0], versions) for state, versions in learner.gradients.items()]
        assert sorted(noted) == sorted(gradients[name])
        assert learner.last == version[name] > 0


def test_no_more_instances_are_in_flight_than_the_schedule_allows(run):
    """Its limit, or, without one, as many as there are stages."""
    limit = run.schedule.admission.in_flight_max or len(run.learning)
    spans = run.result.spans
    steps = spans[spans["direction"] != "update"]
    alive = steps.groupby("instance").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    events = [(end_s, -1) for end_s in alive["end_s"]] + [(at_s, 1) for at_s in alive["start_s"]]
    assert int(np.cumsum([change for _at_s, change in sorted(events)]).max()) <= limit


def test_a_schedule_that_drains_updates_only_when_nothing_is_in_flight(run):
    spans = run.result.spans
    updates = spans[spans["direction"] == "update"]
    assert len(updates) == len(run.result.updates) > 0
    if not run.schedule.admission.drains:
        return
    steps = spans[(spans["direction"] != "update")]
    alive = steps.groupby("instance").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    for start_s, end_s in zip(updates["start_s"], updates["end_s"], strict=True):
        assert ((alive["end_s"] <= start_s) | (alive["start_s"] >= end_s)).all()
