"""Top-k with error feedback, against plain loops that share no code with it, and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from covering import pairwise
from plain_solvers import SHARES, async_loop, drawn, problem
from solver_cases import cluster, stacked, weights
from test_solvers_times import SLOW

import ampsim

Step = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Memory:
    """What is kept back of one vector: the largest by a sort, ties by place."""

    def __init__(self, share: float) -> None:
        self.top, self.bottom = SHARES[share]
        self.kept: Any = 0.0

    def sent(self, gradient: np.ndarray) -> np.ndarray:
        whole = (self.kept + gradient).ravel()
        count = max(1, -(-self.top * whole.size // self.bottom))
        order = sorted(range(whole.size), key=lambda at: (-abs(whole[at]), at))
        sent = np.zeros(whole.size)
        sent[order[:count]] = whole[order[:count]]
        self.kept = (whole - sent).reshape(gradient.shape)
        return sent.reshape(gradient.shape)


def stepper(name: str, rate: float) -> Step:
    """An optimizer of one array, written down once more."""
    first: Any = 0.0
    second: Any = 0.0
    count = 0

    def step(theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        nonlocal first, second, count
        count += 1
        if name == "sgd":
            return theta - rate * gradient
        if name == "momentum":
            first = 0.9 * first + gradient
            return theta - rate * first
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean, square = first / (1 - 0.9**count), second / (1 - 0.999**count)
        return theta - rate * mean / (np.sqrt(square) + 1e-8)

    return step


def layers_of(made: ampsim.Model, layers: int) -> list[np.ndarray]:
    """The parameters of each layer: weights, and the bias as the last row."""
    parts = made.parameters()
    return [
        np.vstack([parts[f"linear-{one}.weight"], parts[f"linear-{one}.bias"]])
        for one in range(1, layers + 1)
    ]


def gradients_of(
    thetas: list[np.ndarray], batch: tuple[np.ndarray, np.ndarray]
) -> list[np.ndarray]:
    """Of half the squared error, the mean over rows, of linear layers one after the other."""
    inputs, (value, target) = [], batch
    for theta in thetas:
        inputs.append(np.hstack([value, np.ones((len(value), 1))]))
        value = inputs[-1] @ theta
    behind = (value - target) / len(target)
    found: list[np.ndarray] = []
    for theta, one in zip(reversed(thetas), reversed(inputs), strict=True):
        found.append(one.T @ behind)
        behind = behind @ theta[:-1].T
    return found[::-1]


def sync_loop(
    made: ampsim.Model, ranks: int, share: float, *, optimizer: str, layers: int, epochs: int
) -> list[np.ndarray]:
    """Synchronous SGD with a memory for each rank and layer, of its part of each mean by rows."""
    data: Any = made.make_data(0, None)
    thetas = layers_of(made, layers)
    memories = [[Memory(share) for _ in thetas] for _ in range(ranks)]
    steps = [stepper(optimizer, 0.05) for _ in thetas]
    for _epoch in range(epochs):
        batches = [(one.x, one.y) for one in data.batches("train", epoch=0, seed=0)]
        for first in range(0, len(batches), ranks):
            of_round = batches[first : first + ranks]
            rows = sum(len(x) for x, _y in of_round)
            sums = [np.zeros_like(theta) for theta in thetas]
            for rank, batch in enumerate(of_round):
                for layer, gradient in enumerate(gradients_of(thetas, batch)):
                    sums[layer] += memories[rank][layer].sent(len(batch[0]) / rows * gradient)
            thetas = [step(*one) for step, *one in zip(steps, thetas, sums, strict=True)]
    return thetas


def found_layers(result: ampsim.Result, layers: int) -> np.ndarray:
    return np.concatenate([one.ravel() for one in layers_of(result.model, layers)])


RANKS = [(0, 1), (1, 2), (2, 3), (3, 5)]
"""Seeds, each with a number of ranks."""


@pytest.mark.parametrize(
    ("at", "share", "optimizer"), pairwise(RANKS, [0.1, 0.3, 0.625], ["sgd", "momentum", "adam"])
)
def test_sync_sgd_is_a_plain_loop_with_a_memory_for_each_rank_and_layer(at, share, optimizer):
    seed, ranks = at
    layers = 1 + seed % 2
    made = drawn(seed, 31, 2, optimizer=optimizer, layers=layers)
    hosts = cluster([1e9, 3e9, 2e9, 5e8, 1e9][:ranks], link=SLOW, jitter_cv=0.4)
    chosen = ampsim.SyncSGD(ranks=ranks, compression=share)
    result = ampsim.simulate(made, hosts, chosen, epochs=5, seed=seed)
    expected = sync_loop(made, ranks, share, optimizer=optimizer, layers=layers, epochs=5)
    flat = np.concatenate([one.ravel() for one in expected])
    np.testing.assert_allclose(found_layers(result, layers), flat, rtol=1e-12, atol=1e-13)
    plain = ampsim.simulate(made, hosts, replace(chosen, compression=None), epochs=5, seed=seed)
    assert np.abs(found_layers(plain, layers) - flat).max() > 1e-4


@pytest.mark.parametrize(
    "chosen",
    [
        ampsim.SyncSGD(4, compression=0.3, bucket_bytes=0),
        ampsim.SyncSGD(2, inner=ampsim.SyncSGD(2, compression=0.3)),
        ampsim.LocalSGD(1, period=1, inner="sync-sgd:2/sync-sgd:2"),
        ampsim.DiLoCo(
            1,
            period=1,
            outer_rate=1.0,
            outer_momentum=0.0,
            inner=ampsim.SyncSGD(4, compression=0.3),
        ),
    ],
    ids=["buckets", "groups", "local", "diloco"],
)
def test_groups_and_buckets_learn_what_ranks_of_one_level_learn(chosen):
    """A mean of means by rows is the mean of all; each copy has the same batches and memory.

    The last round of an epoch has batches of 2, 2 and 1 rows, in two groups or one.
    """
    if isinstance(chosen, ampsim.LocalSGD):
        pair = ampsim.SyncSGD(2, inner=ampsim.SyncSGD(2, compression=0.3))
        chosen = replace(chosen, inner=pair)
    made = drawn(7, 37, 2, layers=2)
    hosts = cluster([1e9, 3e9, 2e9, 5e8], link=SLOW)
    result = ampsim.simulate(made, hosts, chosen, epochs=3)
    expected = sync_loop(made, 4, 0.3, optimizer="sgd", layers=2, epochs=3)
    flat = np.concatenate([one.ravel() for one in expected])
    np.testing.assert_allclose(found_layers(result, 2), flat, rtol=1e-12, atol=1e-13)


def test_a_pipeline_inside_sends_entries_of_the_gradient_of_all_that_it_took():
    made = drawn(5, 36, 3, layers=2)
    hosts = cluster([1e9, 2e9, 5e8, 1e9], link=SLOW)
    chosen = ampsim.SyncSGD(2, workers_per_rank=2, inner=ampsim.Pipeline(2), compression=0.3)
    result = ampsim.simulate(made, hosts, chosen, epochs=3)
    whole = replace(made, make_data=lambda *at: replace(made.make_data(*at), batch=6))  # pyright: ignore[reportArgumentType]  # `Points`
    expected = sync_loop(whole, 2, 0.3, optimizer="sgd", layers=2, epochs=3)
    flat = np.concatenate([one.ravel() for one in expected])
    np.testing.assert_allclose(found_layers(result, 2), flat, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_async_sgd_is_an_event_loop_with_a_memory_for_each_rank(seed, share):
    """By a heap; a rank is done 5 FLOP an entry later, and the server adds k entries."""
    random = np.random.default_rng(seed)
    speeds = random.uniform(0.3e9, 3e9, int(random.integers(3, 6))).tolist()
    made, hosts = drawn(seed, 60, 3), cluster([*speeds, 4e8])
    chosen = ampsim.AsyncSGD(ranks=len(speeds), compression=share)
    result = ampsim.simulate(made, hosts, chosen, epochs=3)
    dense = ampsim.simulate(made, hosts, replace(chosen, compression=None), epochs=1)
    spans, before = result.spans, dense.spans
    linear = before[before["node"] == "linear-1"].drop_duplicates("direction")
    selection = spans[(spans["node"] == "linear-1") & (spans["direction"] == "update")]
    assert set(linear["direction"]) == {"forward", "backward"}
    assert set(selection["flop"]) == {5 * 8}
    flop = int(linear["flop"].sum()) + 5 * 8
    top, bottom = SHARES[share]
    merges = spans[spans["node"] == "centre"]
    merge = int(before[before["node"] == "centre"]["flop"].iloc[0]) - (-top * 8 // bottom)
    assert set(merges["flop"]) == {merge}
    memories = [Memory(share) for _ in speeds]
    theta, stale = async_loop(
        problem(made), [flop / one for one in speeds], merge / 4e8, len(merges),
        lambda _at, _staleness: 0.05,
        sent_of=lambda rank, gradient: memories[rank].sent(gradient),
    )  # fmt: skip
    assert merges["staleness"].tolist() == stale
    np.testing.assert_allclose(stacked(result.model), theta, rtol=1e-12, atol=1e-13)


def test_without_a_lock_or_with_a_bound_that_never_binds_it_is_async_sgd():
    """Of one node, no merge interleaves with another."""
    made, hosts = drawn(4, 61, 3), cluster([1e9, 3e9, 2e9, 4e8], link=SLOW, jitter_cv=0.3)
    options: dict[str, Any] = {"ranks": 3, "compression": 0.3}
    one = ampsim.simulate(made, hosts, ampsim.AsyncSGD(**options), epochs=3)
    for chosen in (ampsim.Hogwild(**options), ampsim.SSP(staleness_bound=10**6, **options)):
        other = ampsim.simulate(made, hosts, chosen, epochs=3)
        assert weights(other).tobytes() == weights(one).tobytes()
        assert other.spans.equals(one.spans)
