"""Schedules that drain learn the same bits, on whatever machine, as a loop without any clock."""

from __future__ import annotations

import random
from typing import Any

import pytest

import ampsim
from ampsim.ir import Direction, ParameterizedNode
from ampsim.runs.witness import leading
from ampsim.study.process_settings import fixed_settings

SEED, M = 3, 6
EVERY = 10**9
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "mlp, few rows": ("mlp", {"data": "synthetic", "hidden": 12, "layers": 4, "batch": 20}, 260),
    "mlp, many rows": ("mlp", {"data": "synthetic", "hidden": 12, "layers": 4, "batch": 50}, 650),
    "lenet": ("lenet", {"data": "synthetic", "batch": 5}, 65),
    "rnn": ("rnn", {"hidden": 8, "replicas": 2, "batch": 10}, 130),
    "tree_lstm": ("tree_lstm", {"hidden": 6, "embedding": 5, "data": "synthetic"}, 13),
    "ggnn": ("ggnn", {"hidden": 12, "data": "synthetic"}, 13),
    "bilstm_tagger": ("bilstm_tagger", {"data": "synthetic"}, 9),
}
CHAINS = [name for name in CASES if name.startswith(("mlp", "lenet"))]
MACHINES: dict[str, dict[str, Any]] = {
    "four workers": {"workers": 4, "latency_s": 1e-6},
    "far apart": {"workers": 4, "latency_s": 1e-3},
    "five workers": {"workers": 5, "latency_s": 1e-5, "bandwidth_bytes_per_s": 1e8},
}
SCHEDULES = {
    "pipeline": ampsim.Pipeline(M),
    "gpipe": ampsim.GPipe(M),
    "1f1b": ampsim.OneFOneB(M),
    "zb-h1": ampsim.ZeroBubbleH1(M),
}


def walked(graph: Any, sends: list[Any], order: random.Random) -> list[Any]:
    """Serve all messages, whichever `order` draws; return what the losses report."""
    waiting = [(0, Direction.FORWARD, *one) for one in sends]
    reports = []
    while waiting:
        place, direction, port, state, payload = waiting.pop(order.randrange(len(waiting)))
        ends = graph.targets if direction is Direction.FORWARD else graph.sources
        place, port = ends[place][port]
        if place == 0:
            continue
        node = graph.nodes[place]
        if node.is_loss:
            evaluated = node.evaluate(port, state, payload)
            if evaluated is not None:
                reports.append(evaluated.report)
                waiting += [(place, Direction.BACKWARD, *one) for one in evaluated.gradients]
            continue
        if direction is Direction.BACKWARD:
            node.input_needs_gradient = node.gradients_needed(state)
        step = node.forward if direction is Direction.FORWARD else node.backward
        waiting += [(place, direction, *one) for one in step(port, state, payload)]
    return reports


def plainly_learned(model: Any, instances: int) -> dict[str, bytes]:
    """An epoch in mini-batches of `M`: gradients, their mean, a step of the optimizer."""
    graph, optimizer, order = model.graph(SEED), model.optimizer, random.Random(SEED)
    kept: dict[str, Any] = {}
    ports = {name: place for place, name in enumerate(graph.nodes[0].outputs)}
    batches = list(model.data(SEED, instances).batches("train", epoch=0, seed=SEED))
    for first in range(0, len(batches), M):
        together = enumerate(batches[first : first + M], start=first)
        pumped = [
            (ports.get(port, port), state, payload)
            for instance, batch in together
            for port, state, payload in model.pump(instance, batch)
        ]
        walked(graph, pumped, order)
        for node in graph.parameterized:
            if node.gradient_count:
                stepped(node, optimizer, kept)
    for group in graph.replica_groups:
        mean = group[0].theta.copy()
        for replica in group[1:]:
            mean += replica.theta
        mean /= len(group)
        for replica in group:
            replica.adopt(mean)
    return {node.name: node.theta.tobytes() for node in graph.parameterized}


def stepped(node: ParameterizedNode, optimizer: Any, kept: dict[str, Any]) -> None:
    count = node.theta.dtype.type(1 / len(node.instances))
    before = kept.get(node.name) or optimizer.init(node.theta)
    if node.is_sparse:
        taken = node.take_rows()
        assert taken is not None
        rows, values = taken
        width = values.shape[1]
        table = node.theta.reshape(-1, width)
        parts = tuple(
            part.reshape(table.shape)[rows].reshape(-1) if hasattr(part, "reshape") else part
            for part in before
        )
        theta, after = optimizer.update(
            values.reshape(-1) * count, parts, table[rows].reshape(-1), optimizer.rate(0)
        )
        table[rows] = theta.reshape(-1, width)
        for whole, part in zip(before, after, strict=True):
            if hasattr(whole, "reshape"):
                whole.reshape(table.shape)[rows] = part.reshape(-1, width)
        before = tuple(
            whole if hasattr(whole, "reshape") else part
            for whole, part in zip(before, after, strict=True)
        )
    else:
        gradient = node.take_gradient() * count
        theta, before = optimizer.update(gradient, before, node.theta, optimizer.rate(0))
        node.adopt(theta)
    kept[node.name] = before
    node.updated()


def weights(result: Any) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in result.model.parameters().items()}


@pytest.mark.parametrize("case", CASES)
def test_draining_schedules_learn_the_same_bits_on_every_machine(case):
    name, options, instances = CASES[case]
    model = leading(ampsim.load_model(name, **options), EVERY, 4)
    schedules = [one for one in SCHEDULES if case in CHAINS or one in ("pipeline", "gpipe")]
    found, losses = set[Any](), set[tuple[float, ...]]()
    for machine in MACHINES.values():
        cluster = ampsim.load_cluster("tflops-1", **machine)
        for schedule in schedules:
            result = ampsim.simulate(
                model, cluster, SCHEDULES[schedule], seed=SEED, instances=instances
            )
            found.add(tuple(sorted(weights(result).items())))
            losses.add(tuple(result.epochs[["loss", "valid_loss"]].iloc[0]))
    assert (len(found), len(losses)) == (1, 1)
    graph = model.graph(SEED)
    with fixed_settings():  # as a run: one thread, and no flag that OpenBLAS raises of lanes unused
        plain = plainly_learned(model, instances)
    learned = dict(found.pop())
    for node in graph.parameterized:
        parts = [learned[f"{node.name}.{part}"] for part in node.parameter_shapes]
        assert plain[node.name] == b"".join(parts), node.name
