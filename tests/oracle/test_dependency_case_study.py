"""The case study: its numbers are one device's, its times those of a recursion (E7)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.dependency import Arrays, CaseStudy, fullc_backward, fullc_forward, loss_gradient
from ampsim.hardware import FREE_LINK, HOST, Cluster, Device, Link
from ampsim.hardware.topology import Route

POLICIES = [ampsim.Naive(), ampsim.Pooled(2), ampsim.PerDevice(), ampsim.PerDevice(1, 2)]


def cluster_of(gpus: int, rates: Any = (1e12,), links: Any = (FREE_LINK,)) -> Cluster:
    """GPUs of these rates, each with links of its own from and to the host."""
    devices = tuple(
        Device(name=f"gpu{one}", flop_per_s=rates[one % len(rates)]) for one in range(gpus)
    )
    pairs = [pair for gpu in range(gpus) for pair in ((HOST, gpu), (gpu, HOST))]
    routes = tuple(
        Route(source=source, target=target, link=links[index % len(links)])
        for index, (source, target) in enumerate(pairs)
    )
    return Cluster(name="gpus", devices=devices, links=routes)


def one_device(study: CaseStudy, iterations: int) -> list[np.ndarray]:
    """The same training on the whole batch, in a plain loop."""
    weights = [weight.copy() for weight in study.first_weights()]
    for iteration in range(iterations):
        data, label = study.data(iteration)
        layers = [data]
        for weight in weights:
            layers.append(layers[-1] @ weight)
        gradient = np.exp(layers[-1] - layers[-1].max(axis=1, keepdims=True))
        gradient /= gradient.sum(axis=1, keepdims=True)
        gradient[np.arange(len(label)), label.astype(int)] -= 1
        steps = []
        for weight, before in zip(reversed(weights), reversed(layers[:-1]), strict=True):
            steps.append(before.T @ gradient)
            gradient = gradient @ weight.T
        pairs = zip(weights, reversed(steps), strict=True)
        weights = [weight - study.learning_rate * step for weight, step in pairs]
    return weights


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("has_overlap", [True, False])
@pytest.mark.parametrize(("gpus", "widths"), [(1, (7, 5)), (2, (8, 6, 4)), (4, (9, 8, 7, 3))])
def test_weights_are_those_of_one_device_on_the_whole_batch(policy, has_overlap, gpus, widths):
    links = [Link(latency_s=1e-9), Link(bandwidth_bytes_per_s=1e11)]
    engine = ampsim.DependencyEngine(
        cluster_of(gpus, (1e12, 3e11), links), policy, host=Device(name="cpu", flop_per_s=1e10)
    )
    study = CaseStudy(widths, gpus=gpus, batch=12, learning_rate=0.05, has_overlap=has_overlap)
    for found, expected in zip(study.run(engine, 4), one_device(study, 4), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("classes", [2_000, 3_000, 40_000])
def test_labels_are_those_of_the_data_in_every_precision(dtype, classes):
    """Half precision has no 2049: a label became its neighbour."""
    seen = []

    class Seen(CaseStudy):
        def first_weights(self) -> list[np.ndarray]:
            return [np.zeros(pair) for pair in zip(self.widths[:-1], self.widths[1:], strict=True)]

        def data(self, iteration: int) -> tuple[np.ndarray, np.ndarray]:
            rows, label = super().data(iteration)
            seen.append(label)
            return np.ones_like(rows), label

    study = Seen((1, classes), gpus=1, batch=20, learning_rate=1.0, dtype=dtype)
    (weight,) = study.run(ampsim.DependencyEngine(cluster_of(1)), 1)
    assert {*np.flatnonzero(weight[0] > 0)} == {*seen[0].astype(int)}


def test_with_the_gradient_of_one_gpu_as_printed_they_are_not():
    engine = ampsim.DependencyEngine(cluster_of(2))
    study = CaseStudy((8, 6, 4), batch=12, learning_rate=0.05, uses_sum=False)
    found = study.run(engine, 1)
    assert not np.allclose(found[0], one_device(study, 1)[0], atol=1e-6)


def test_the_program_runs_as_it_is_printed():
    """Statement by statement as in the source, with the sum in the update; once per batch."""
    study = CaseStudy((8, 6, 4), learning_rate=0.05)
    engine = ampsim.DependencyEngine(cluster_of(2))
    gpu0, gpu1, cpu, lr = 0, 1, "host", study.learning_rate
    names = "data label fc1 fc2 fc1_weight fc2_weight fc1_ograd fc2_ograd fc1_wgrad fc2_wgrad"
    (
        data, label, fc1, fc2, fc1_weight, fc2_weight, fc1_ograd, fc2_ograd, fc1_wgrad, fc2_wgrad
    ) = Arrays(engine).new(*names.split())  # fmt: skip
    for weight, first in zip((fc1_weight, fc2_weight), study.first_weights(), strict=True):
        weight[cpu] = first
        weight[cpu].copyto(weight[gpu0], weight[gpu1])
    for iteration in range(3):
        data[cpu], label[cpu] = study.data(iteration)
        data[gpu0].copyfrom(data[0:50])
        data[gpu1].copyfrom(data[50:100])
        for gpu, rows in ((gpu0, slice(0, 50)), (gpu1, slice(50, 100))):
            fc1[gpu] = fullc_forward(data[gpu], fc1_weight[gpu])
            fc2[gpu] = fullc_forward(fc1[gpu], fc2_weight[gpu])
            fc2_ograd[gpu] = loss_gradient(fc2[gpu], label[rows])
            fc1_ograd[gpu], fc2_wgrad[gpu] = fullc_backward(fc2_ograd[gpu], fc2_weight[gpu])
            _, fc1_wgrad[gpu] = fullc_backward(fc1_ograd[gpu], fc1_weight[gpu])
        fc1_wgrad[cpu] = fc1_wgrad[gpu0] + fc1_wgrad[gpu1]
        fc2_wgrad[cpu] = fc2_wgrad[gpu0] + fc2_wgrad[gpu1]
        fc1_weight[cpu] -= lr * fc1_wgrad[cpu]
        fc2_weight[cpu] -= lr * fc2_wgrad[cpu]
        fc1_weight[cpu].copyto(fc1_weight[gpu0], fc1_weight[gpu1])
        fc2_weight[cpu].copyto(fc2_weight[gpu0], fc2_weight[gpu1])
    expected = one_device(study, 3)
    np.testing.assert_allclose(fc1_weight[cpu].numpy(), expected[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(fc2_weight[gpu1].numpy(), expected[1], rtol=1e-12, atol=1e-13)


class Resources:
    """GPUs, a CPU and a link each way: each does one task at a time, the first ready first."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, float, list[int]]] = []

    def add(self, resource: str, seconds: float, *after: int) -> int:
        self.tasks.append((resource, seconds, list(after)))
        return len(self.tasks) - 1

    def add_passes(
        self, gpu: str, costs: list[float], inputs: tuple[int, int], weights: Any, sent: Any
    ) -> tuple[int, list[int]]:
        """Forward and backward on one GPU: the loss, and each layer's gradient."""
        last, label = inputs
        for cost, weight in zip(costs, weights, strict=True):
            last = self.add(gpu, cost, last, weight)
        loss = last = self.add(gpu, 0.0, last, label)
        gradients = [0] * len(costs)
        for layer in reversed(range(len(costs))):
            before = last
            if layer:
                last = self.add(gpu, costs[layer], before)
            gradients[layer] = self.add(gpu, costs[layer], before, *sent[layer])
        return loss, gradients

    def ends(self) -> list[float]:
        """Ends of all tasks: again and again the task that can start first is given its time."""
        end_s: list[float | None] = [None] * len(self.tasks)
        free_s: dict[str, float] = {}
        for _ in self.tasks:
            best: tuple[float, float, int] | None = None
            for number, (resource, _seconds, after) in enumerate(self.tasks):
                ends = [end_s[one] for one in after]
                if end_s[number] is None and None not in ends:
                    ready_s = max((one for one in ends if one is not None), default=0.0)
                    start_s = max(ready_s, free_s.get(resource, 0.0))
                    best = min(best or (np.inf, 0.0, 0), (start_s, ready_s, number))
            assert best is not None
            start_s, _ready_s, number = best
            resource, seconds, _after = self.tasks[number]
            end_s[number] = free_s[resource] = start_s + seconds
        return [one for one in end_s if one is not None]


def recursion(study: CaseStudy, iterations: int, rates: Any, cpu: float, bandwidths: Any) -> float:
    """Makespan of the case study over its resources, written down from the statements' costs."""
    gpus, k, rows = range(study.gpus), study.layers, study.batch // study.gpus
    sizes = [one * other for one, other in zip(study.widths, study.widths[1:], strict=False)]
    at = Resources()

    def link(way: str, gpu: int, elements: float, *after: int) -> int:
        seconds = 8 * elements / bandwidths[2 * gpu + (way == "up")]
        return at.add(f"{way} {gpu}", seconds, *after)

    weights = [[link("down", gpu, size) for size in sizes] for gpu in gpus]
    data_free: list[tuple[int, ...]] = [()] * study.gpus
    label_free: list[tuple[int, ...]] = [()] * study.gpus
    staged: dict[Any, list[int]] = {}
    barrier: list[int] = []
    for _ in range(iterations):
        data = [
            link("down", gpu, rows * study.widths[0], *data_free[gpu], *barrier) for gpu in gpus
        ]
        gradients: dict[Any, int] = {}
        data_free, label_free = [()] * study.gpus, list(label_free)
        for gpu in gpus:
            label = link("down", gpu, rows, *label_free[gpu], *barrier)
            costs = [2 * rows * size / rates[gpu] for size in sizes]
            sent = [staged.get((gpu, layer), []) for layer in range(k)]
            last, found = at.add_passes(f"gpu {gpu}", costs, (data[gpu], label), weights[gpu], sent)
            gradients.update({(gpu, layer): one for layer, one in enumerate(found)})
            label_free[gpu], data_free[gpu] = (last,), (found[0],)
        if not study.has_overlap:
            barrier = list(gradients.values())
        costs = [(size, (study.gpus - 1) * size / cpu, 2 * size / cpu) for size in sizes]
        for layer in range(k - 1, -1, -1):
            size, sum_s, update_s = costs[layer]
            sent = [link("up", gpu, size, gradients[gpu, layer], *barrier) for gpu in gpus]
            staged.update({(gpu, layer): [sent[gpu]] for gpu in gpus})
            updated = at.add("cpu", update_s, at.add("cpu", sum_s, *sent))
            for gpu in gpus:
                weights[gpu][layer] = link("down", gpu, size, updated)
        barrier = [] if study.has_overlap else [one for each in weights for one in each]
    return max(at.ends())


@pytest.mark.parametrize("has_overlap", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_makespan_is_that_of_a_recursion_over_gpus_cpu_and_links(seed, has_overlap):
    chosen = random.Random(seed)
    gpus = chosen.choice((2, 2, 3))
    widths = [chosen.randint(3, 60) for _ in range(chosen.randint(2, 5) + 1)]
    rates = [chosen.uniform(1e8, 1e9) for _ in range(gpus)]
    cpu = chosen.uniform(1e8, 1e9)
    bandwidths = [chosen.uniform(1e7, 1e9) for _ in range(2 * gpus)]
    links = [Link(bandwidth_bytes_per_s=each) for each in bandwidths]
    study = CaseStudy(widths, gpus=gpus, batch=6 * gpus, has_overlap=has_overlap, is_numeric=False)
    engine = ampsim.DependencyEngine(
        cluster_of(gpus, rates, links), host=Device(name="cpu", flop_per_s=cpu)
    )
    study.run(engine, 3)
    expected = recursion(study, 3, rates, cpu, bandwidths)
    assert engine.result.makespan_s == pytest.approx(expected, rel=1e-9)


def test_without_numbers_all_times_are_the_same():
    tables = []
    for is_numeric in (True, False):
        engine = ampsim.DependencyEngine(
            cluster_of(2, (1e12,), (Link(bandwidth_bytes_per_s=1e10),))
        )
        CaseStudy((20, 10, 5), batch=10, is_numeric=is_numeric).run(engine, 2)
        table = engine.result.operations
        tables.append(table[table["kind"] != "engine"])  # numbers are waited for
    assert tables[0].equals(tables[1])
