"""The wall clock tells the story of the virtual clock: same makespan, same order everywhere."""

from __future__ import annotations

import gc
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import Amp, Pipeline, load_cluster, load_model, simulate
from ampsim.clock import SimClock, WallClock
from ampsim.data import ListReduction
from ampsim.errors import SimulationError
from ampsim.hardware import HOST, Link
from ampsim.ir import Graph
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy

pytestmark = pytest.mark.quiet

WALL_S = 0.8  # seconds that a run takes; tests here are slow by their nature
ATTEMPTS = 5  # an operating system may hold a process up; the engine must not

# Chosen by search: in these runs no two independent events come close (see `gap`).
CHAIN = ((4264, 5085, 303), (2763, 3665, 678), (2172, 8569, 892))
LINKS = {
    (0, 1): Link(latency_s=0.573),
    (2, 1): Link(latency_s=0.257),
    (HOST, 0): Link(latency_s=0.553),
}
LISTS_SEED, LATENCY_SEED = 23, 137
WAYS = {"latency_s_max": 2e-8, "bandwidth_bytes_per_s": 1e10}


def gap(result: Any) -> float:
    """Smallest difference between two event times, as part of the makespan.

    What a step causes at the instant of its end is no tie; nor are messages that leave at once
    over one link of the same latency: they keep their order.
    """
    spans, transfers = result.spans, result.transfers
    columns = [spans["start_s"], spans["end_s"], transfers["start_s"], transfers["end_s"]]
    times = np.unique(np.concatenate(columns))
    own = set(zip(spans["start_s"], spans["end_s"], strict=True))  # a short step is no tie either
    steps = [b - a for a, b in itertools.pairwise(times.tolist()) if (a, b) not in own]
    return min(step for step in steps if step > 1e-9 * result.makespan_s) / result.makespan_s


def order(result: Any) -> list[list[tuple[Any, ...]]]:
    """What each worker served, in its order."""
    spans = result.spans
    return [
        list(zip(own["node"], own["direction"], own["instance"], strict=True))
        for own in (spans[spans["worker"] == worker] for worker in range(result.workers))
    ]


def tiny_rnn() -> Any:
    data = ListReduction.generate(LISTS_SEED, 4, 1, batch=2)
    model = load_model("rnn", hidden=8, replicas=2)
    return replace(model, make_data=lambda _seed, _count: data)


@pytest.fixture
def story(request, chain, make_cluster, random_cluster) -> tuple[Any, Any, Any]:
    """(model, cluster, schedule): nothing in it may tie."""
    if request.param == "rnn":
        cluster = random_cluster(4, seed=LATENCY_SEED, **WAYS)
        return tiny_rnn(), cluster, Amp(max_active_keys=3)
    model = chain(CHAIN, instances=4, valid=1).model()
    if request.param == "groups":
        schedule = Amp(max_active_keys=2, max_group=2, group_wait_s=1.1)
        return model, make_cluster(3, flop_per_s=1e3), schedule
    if request.param == "pipeline":
        return model, make_cluster(3, flop_per_s=1e3), Pipeline(max_active_keys=3)
    return model, make_cluster(3, flop_per_s=1e3, links=LINKS), Amp(max_active_keys=3)


@pytest.mark.slow  # it really waits
@pytest.mark.parametrize("story", ["pipeline", "amp", "groups", "rnn"], indirect=True)
@pytest.mark.parametrize("mode", ["sleep"])
def test_wall_clock_meets_the_virtual_makespan_in_the_same_order(story, mode):
    model, cluster, schedule = story
    virtual = simulate(model, cluster, schedule, mode=mode)
    assert gap(virtual) * WALL_S > 1e-3, f"times too close: {gap(virtual)}"
    for _ in range(ATTEMPTS):
        clock = WallClock(stretch=WALL_S / virtual.makespan_s)
        real = simulate(model, cluster, schedule, mode=mode, clock=clock)
        clock.close()
        ratio, is_same = real.makespan_s / virtual.makespan_s, order(real) == order(virtual)
        if ratio <= 1.05 and is_same:
            break
    assert 1.0 - 1e-9 <= ratio <= 1.05
    assert is_same


def test_what_was_sent_first_arrives_first_on_the_wall_clock_too(monkeypatch):
    """Deadlines a moment apart, and a time that now and then jumps from one look to the next."""
    clock, random, at_s = WallClock(), np.random.default_rng(0), 0.0
    arrived: list[int] = []

    def jumping_time() -> float:
        nonlocal at_s
        at_s += 1e-3 if random.random() < 0.02 else 1e-7
        return at_s

    monkeypatch.setattr(clock.loop, "time", jumping_time)
    for number in range(50):
        clock.call_later(2.5e-3, lambda number=number: arrived.append(number))
    clock.run()
    clock.close()
    assert arrived == list(range(50))


@pytest.mark.slow  # it really waits
def test_numbers_are_the_same_on_both_clocks():
    """What is computed does not depend on whose time passes, as long as the order is the same."""
    model, schedule = tiny_rnn(), Pipeline(max_active_keys=2)
    cluster = load_cluster("tflops-1", workers=1)
    virtual = simulate(model, cluster, schedule, epochs=2)
    clock = WallClock(stretch=0.2 / virtual.makespan_s)
    real = simulate(model, cluster, schedule, epochs=2, clock=clock)
    clock.close()
    assert order(real) == order(virtual)
    for name, expected in virtual.model.parameters().items():
        assert np.array_equal(real.model.parameters()[name], expected), name
    known = ["loss", "accuracy", "valid_loss", "train_accuracy"]
    assert (real.epochs[known] == virtual.epochs[known]).all(axis=None)


class Breaks(ReLU):
    """Fails at the backward step of instance 1."""

    def backward(self, port: int, state: Any, gradient: Any) -> Any:
        if state[0] == 1:
            raise ZeroDivisionError("on purpose")
        return super().backward(port, state, gradient)


def breaking_graph() -> Graph:
    graph = Graph("breaking")
    wire, label = graph.controller(values=("rows", 2), label=("rows",))
    wire = graph.add(Breaks("breaks"), graph.add(Linear("linear-1", 2, 2), wire))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Linear("linear-2", 2, 2), wire), label)
    return graph


@pytest.mark.parametrize("make_clock", [SimClock, lambda: WallClock(stretch=1e-3)])
def test_an_exception_in_a_step_surfaces_with_node_state_and_time(chain, make_cluster, make_clock):
    model = replace(chain((), instances=3).model(), make_graph=breaking_graph)
    clock = make_clock()
    expected = (
        r"^breaks \(Breaks\) failed at \S+ s serving backward One\(instance=1\): "
        r"ZeroDivisionError: on purpose \(.*test_wall_clock.py, line \d+\)$"
    )
    with pytest.raises(SimulationError, match=expected) as caught:
        simulate(model, make_cluster(2), Amp(max_active_keys=2), clock=clock)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    if isinstance(clock, WallClock):
        clock.close()
    del clock, caught
    gc.collect()  # a task that was forgotten would warn now, and warnings are errors
