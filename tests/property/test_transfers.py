"""Which way messages go over links: along edges of the graph, or between a node and the host."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from short_runs import PAIRS, schedule_of, small_model

from ampsim import Sequential, load_cluster, load_model, simulate
from ampsim.errors import OptionError, SimulationError
from ampsim.hardware import Link
from ampsim.ir import Evaluated, Graph, Payload, State
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.model_parallel.placements.registry import PLACEMENTS
from ampsim.nodes import Linear, SoftmaxCrossEntropy

WORKERS = (1, 2, 4, 7)
LINKS = {
    "latency": Link(latency_s=1e-6),
    "bandwidth": Link(bandwidth_bytes_per_s=1e9),
    "both": Link(latency_s=1e-7, bandwidth_bytes_per_s=1e10),
}


@cache
def edges_of(name: str) -> set[frozenset[str]]:
    graph = small_model(name).graph().to_networkx()
    return {frozenset(edge) for edge in graph.edges()}


def ways_of(model: str, schedule: Any, placement: str, workers: int, link: Link) -> set[Any]:
    """Every (source, target) of which a run has a transfer."""
    ways = {"latency_s": link.latency_s, "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s}
    cluster = load_cluster("tflops-1", workers=workers, **ways)
    options: dict[str, Any] = {"mode": "sleep", "placement": placement}
    sent = simulate(small_model(model), cluster, schedule, **options).transfers
    return set(zip(sent["source"], sent["target"], strict=True))


def is_way(model: str, way: tuple[str, str]) -> bool:
    """Whether it is one of the controller's, or an edge's in one of its two directions."""
    if "controller" in way:
        return way[0] != way[1]
    return frozenset(way) in edges_of(model)


@pytest.mark.parametrize(("pair", "schedule", "model"), [(at, *of) for at, of in enumerate(PAIRS)])
def test_a_transfer_joins_two_nodes_that_an_edge_joins_or_the_controller(pair, schedule, model):
    """Each placement; links and numbers of workers take turns with it and with the pair."""
    others = [name for name in PLACEMENTS if name != "search"]  # which tries these, at length
    for place, placement in enumerate(others):
        link = [*LINKS][(place + pair) % len(LINKS)]
        workers = WORKERS[(place + pair // len(LINKS)) % len(WORKERS)]
        if needs_chain(SCHEDULES[schedule]()):
            workers = 4
        try:
            ways = ways_of(model, schedule_of(schedule), placement, workers, LINKS[link])
        except OptionError as error:  # stages of unequal cost need not have a worker each
            if placement == "paper" or "take the placement 'paper'" not in str(error):
                raise
            continue
        strays = {way for way in ways if not is_way(model, way)}
        assert ways and not strays, f"{placement}, {workers} workers, {link}"


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_a_validated_instance_takes_the_ways_from_host_to_host(workers):
    """Latency L, p stages on p workers: host to first, p - 1 between, last to host: (p + 1) L.

    A trained one takes the way there and the way back, 2 p L, and its update's there and back 2 L.
    """
    latency_s, batches = 1.0, 5
    model = load_model("mlp", hidden=8, layers=workers, data="synthetic")
    cluster = load_cluster("tflops-1", workers=workers, latency_s=latency_s)
    result = simulate(model, cluster, Sequential(), instances=100, mode="sleep")
    epoch = result.epochs.iloc[0]
    assert epoch["valid_instances"] == 100 * batches
    assert epoch["valid_s"] == pytest.approx(batches * (workers + 1) * latency_s, rel=1e-4)
    assert epoch["train_s"] == pytest.approx((2 * workers + 2) * latency_s, rel=1e-4)


def test_without_latency_the_way_back_takes_no_time_and_leaves_no_record():
    model = load_model("mlp", hidden=8, data="synthetic")
    result = simulate(model, load_cluster("tflops-1", workers=4), Sequential(), instances=100)
    assert result.transfers.empty
    assert result.spans["end_s"].max() == result.epochs["time_s"].iloc[-1]


class Stray(SoftmaxCrossEntropy):
    """A loss that sends a gradient to an input that it does not have."""

    def evaluate(self, port: int, state: State, payload: Payload) -> Evaluated | None:
        """Send what came, one port further."""
        evaluated = super().evaluate(port, state, payload)
        if evaluated is None:
            return None
        sends = [(port + 1, state, payload) for port, state, payload in evaluated.gradients]
        return evaluated._replace(gradients=sends)


def test_a_loss_cannot_end_an_instance_by_the_controllers_route():
    def graph() -> Graph:
        made = Graph("stray")
        image, label = made.controller(image=("rows", 784), label=("rows",))
        made.end(Stray("loss"), made.add(Linear("linear-1", 784, 10), image), label)
        return made

    model = replace(load_model("mlp", data="synthetic"), make_graph=graph)
    text = r"loss \(Stray\) failed at .* s serving forward .*expected a port below 2, got 2"
    with pytest.raises(SimulationError, match=text):
        simulate(model, load_cluster("tflops-1", workers=1), Sequential(), instances=100)
