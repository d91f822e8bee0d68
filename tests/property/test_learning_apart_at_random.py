"""Random graphs on random clusters learn live what they learn from the order that sleep decided."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from short_runs import small_model

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.hardware import Cluster, Device, Event, Failures, Link, Messages
from ampsim.ir import Graph
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.nodes import Cond, Linear, Phi, ReLU, SoftmaxCrossEntropy, Tanh
from ampsim.optim import adam, exponential, momentum, sgd
from ampsim.study.simulation import Simulation

pytestmark = pytest.mark.slow  # seconds, for each example is two runs that learn

WIDTH, CLASSES = 5, 3
LOOPS = ("rnn", "tree_lstm", "ggnn", "dynamic_lstm")
OPTIMIZERS = (sgd(0.1), momentum(0.05, 0.9), adam(0.01), sgd(exponential(0.2, 0.5)))
Draw = Any


def rate(draw: Draw, low: float, high: float) -> float:
    """A number whose logarithm is drawn."""
    return 10.0 ** draw(st.floats(low, high))


def chain(depth: int, ways: int, functions: list[Any]) -> Graph:
    """Layers in a row; with several ways one layer is one of several, by an instance's number."""
    made = Graph("random")
    row, label = made.controller(row=("rows", WIDTH), label=("rows",))
    if ways > 1:
        names = [f"way-{number}" for number in range(ways)]
        cond = Cond("way", lambda state: names[state[0] % ways], names)
        ends = made.branch(cond, row)
        ends = [made.add(Linear(f"of-{n}", WIDTH, WIDTH), one) for n, one in enumerate(ends)]
        row = made.add(Phi("met", names), *ends)
    for place in range(depth):
        row = made.add(Linear(f"linear-{place}", WIDTH, WIDTH), row)
        row = made.add(functions[place](f"function-{place}"), row)
    logits = made.add(Linear("logits", WIDTH, CLASSES), row)
    made.end(SoftmaxCrossEntropy("loss"), logits, label)
    return made


@st.composite
def models(draw: Draw) -> Any:
    """A chain, one that branches, or a shipped model that loops."""
    name = draw(st.sampled_from(["own", "own", "branching", *LOOPS]))
    optimizer = draw(st.sampled_from(OPTIMIZERS))
    if name in LOOPS:
        return name, replace(small_model(name), optimizer=optimizer)
    depth, ways = draw(st.integers(1, 3)), draw(st.integers(2, 3)) if name == "branching" else 1
    functions = draw(st.lists(st.sampled_from([ReLU, Tanh]), min_size=depth, max_size=depth))
    chance, batch = np.random.default_rng(depth), draw(st.integers(1, 4))
    train, valid = (
        (chance.standard_normal((n, WIDTH)).astype("f"), chance.integers(0, CLASSES, n))
        for n in (7 * batch + 1, 5)
    )
    data = ArrayDataset(train, valid, batch=batch)

    def graph() -> Graph:
        return chain(depth, ways, functions)

    return name, ampsim.Model(name, None, graph, data.for_run, pump_arrays, optimizer)


@st.composite
def clusters(draw: Draw, least: int) -> Cluster:
    """So many devices or more, and links, with what may vary: rates, lanes, stops, losses."""

    def maybe(key: str, value: Any) -> dict[str, Any]:
        return {key: value} if draw(st.booleans()) else {}

    devices = tuple(
        Device(
            name=f"d{number}", flop_per_s=rate(draw, 10, 12),
            jitter_cv=draw(st.sampled_from([0.0, 0.4])),
            **maybe("step_overhead_s", rate(draw, -9, -7)),
            **maybe("copy_bandwidth_bytes_per_s", rate(draw, 8, 10)),
            **maybe("dispatch_s", rate(draw, -9, -7)),
        )
        for number in range(draw(st.integers(least, least + 3)))
    )  # fmt: skip
    stop = Event(kind="stop", worker=0, from_s=1e-7, until_s=rate(draw, -6.9, -5))
    lost = Messages(loss_probability=0.2, retry_after_s=rate(draw, -8, -6), delay_cv=0.5)
    link = Link(latency_s=rate(draw, -9, -5), **maybe("bandwidth_bytes_per_s", rate(draw, 8, 10)))
    return Cluster(
        name="drawn", devices=devices, link=link,
        **maybe("events", (stop,)), **maybe("messages", lost),
        **maybe("failures", Failures(mean_time_between_s=1e-4, mean_time_to_repair_s=1e-5)),
    )  # fmt: skip


@st.composite
def schedules(draw: Draw, *, is_chain: bool) -> Any:
    """One of all that there are, with all that it may be given."""
    fitting = [one for one in SCHEDULES.values() if is_chain or not needs_chain(one())]
    kind: Any = draw(st.sampled_from(fitting))
    options = {
        "max_active_keys": draw(st.integers(1, 6)),
        "staleness_budget": draw(st.floats(0.0, 4.0)),
        "max_group": draw(st.sampled_from([1, 1, 2, 4])),
        "remedy": draw(st.sampled_from(["none", "none", "weight-prediction"])),
    }
    if kind.name.startswith("amp"):
        options["min_update_interval"] = draw(st.sampled_from([None, 1, 2, 3]))
    return kind(**{one.name: options[one.name] for one in fields(kind) if one.name in options})


def result_of(what: tuple[Any, ...], **options: Any) -> Any:
    run = Simulation(*what, seed=3, **options)
    for _epoch in range(2):
        run.run_epoch()
    return run.result()


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_live_is_sleep_and_then_replay_to_the_bit(data):
    """Weights, losses, the trace; a sleeping run knows the digest of what is learned."""
    name, model = data.draw(models())
    stages = len(model.graph().parameterized) if name == "own" else 1
    cluster = data.draw(clusters(stages))
    schedule = data.draw(schedules(is_chain=name == "own"))
    what = model, cluster, schedule
    live, apart = result_of(what), result_of(what, learning="apart")
    assert apart.digest == live.digest
    assert apart.validations.equals(live.validations)
    for node, values in live.model.parameters().items():
        np.testing.assert_array_equal(apart.model.parameters()[node], values)
    digests = {one.learning_digest for one in (live, apart, result_of(what, mode="sleep"))}
    assert len(digests) == 1
