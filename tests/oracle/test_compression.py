"""Top-k with error feedback, against plain loops that share no code with it, and closed forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_solvers import async_loop, problem
from solver_cases import FREE, Points, cluster, model, stacked, watched, weights
from test_solvers_times import LATENCY_S, RATE, SLOW, unlike

import ampsim
from ampsim.data_parallel.top_k import ErrorFeedback

SHARES = {0.1: (1, 10), 0.3: (3, 10), 0.625: (5, 8), 1.0: (1, 1)}
"""The same shares as fractions."""

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
    """Synchronous SGD with a memory for each rank and layer; a rank counts by its rows."""
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
                    sums[layer] += len(batch[0]) / rows * memories[rank][layer].sent(gradient)
            thetas = [step(*one) for step, *one in zip(steps, thetas, sums, strict=True)]
    return thetas


def drawn(seed: int, rows: int, batch: int, **options: Any) -> ampsim.Model:
    """A linear model on data of its own, from weights of its own."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(rows, 3)), random.normal(size=(rows, 2))
    made = replace(
        model(rows, batch, **options), make_data=lambda _seed, _count: Points(x, y, batch)
    )
    start = {name: 0.5 * random.normal(size=one.shape) for name, one in made.parameters().items()}
    return made.set_parameters(start)


def found_layers(result: ampsim.Result, layers: int) -> np.ndarray:
    return np.concatenate([one.ravel() for one in layers_of(result.model, layers)])


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.625])
@pytest.mark.parametrize(("seed", "ranks"), [(0, 1), (1, 2), (2, 3), (3, 5)])
def test_sync_sgd_is_a_plain_loop_with_a_memory_for_each_rank_and_layer(
    seed, ranks, share, optimizer
):
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
    """A mean of means by rows is the mean of all; each copy has the same batches and memory."""
    if isinstance(chosen, ampsim.LocalSGD):
        pair = ampsim.SyncSGD(2, inner=ampsim.SyncSGD(2, compression=0.3))
        chosen = replace(chosen, inner=pair)
    made = drawn(7, 40, 2, layers=2)
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
        lambda _at, _staleness: 0.05, lambda rank, gradient: memories[rank].sent(gradient),
    )  # fmt: skip
    assert merges["staleness"].tolist() == stale
    np.testing.assert_allclose(stacked(result.model), theta, rtol=1e-12, atol=1e-13)


# times


def first_step(ranks: int, share: float, as_messages: bool, **options: Any) -> ampsim.Result:
    speeds = [1e8 * (2 + one) for one in range(ranks)]
    hosts = cluster(speeds, link=SLOW)
    chosen = ampsim.SyncSGD(ranks=ranks, compression=share, **options)
    made = model(ranks * 6, 6, layers=2)
    return ampsim.simulate(made, unlike(hosts) if as_messages else hosts, chosen, mode="sleep")


@pytest.mark.parametrize("as_messages", [False, True], ids=["event", "messages"])
@pytest.mark.parametrize("bucket_bytes", [None, 0])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_a_step_takes_its_closed_form_and_the_entries_of_all_ranks(
    ranks, share, bucket_bytes, as_messages
):
    """Two layers, of 12 and 8 parameters; the slowest rank makes 2e8 FLOP/s (Appendix C)."""
    found = first_step(ranks, share, as_messages, bucket_bytes=bucket_bytes)
    top, bottom = SHARES[share]
    sizes, products = [12, 8], [2 * 6 * 9, 2 * 6 * 6]
    counts = [max(1, math.ceil(top * size / bottom)) for size in sizes]
    last_s = (2 * products[0] + 3 * products[1] + 5 * sum(sizes)) / 2e8
    gather_s = 0.0
    messages = [sum(counts)] if bucket_bytes is None else counts[::-1]
    for count in messages:
        gather_s += (ranks - 1) * (LATENCY_S + count * (8 + 4) / RATE)
    collectives = found.collectives
    assert set(collectives["is_event"]) == {not as_messages}
    assert collectives["bytes"].tolist() == [12 * one for one in messages]
    assert collectives["start_s"].min() == pytest.approx(last_s, rel=1e-9)
    took_s = collectives["end_s"].max() - collectives["start_s"].min()
    assert took_s == pytest.approx(gather_s, rel=1e-9)
    updates = found.spans[(found.spans["direction"] == "update") & (found.spans["worker"] == 0)]
    added = updates.iloc[2:4]
    assert added["flop"].tolist() == [ranks * one for one in counts]
    update = updates.iloc[4:6]["flop"].sum()
    whole_s = last_s + gather_s + (ranks * sum(counts) + update) / 2e8
    assert found.makespan_s == pytest.approx(whole_s, rel=1e-9)
    if as_messages:
        transfers = found.transfers
        sent = transfers.groupby("source_worker")["bytes"].sum()
        assert (sent == (ranks - 1) * 12 * sum(counts)).all()


def test_a_selection_and_an_addition_pass_over_memory_as_often_as_they_say():
    """On a device that is bound by its memory: ten arrays, k entries and k zeros; then one array
    of zeros, P k entries, and as many values read and written."""
    hosts = cluster([1e12] * 3, link=SLOW)
    bound = [one.model_copy(update={"memory_bandwidth_bytes_per_s": 1e9}) for one in hosts.devices]
    hosts = hosts.model_copy(update={"devices": tuple(bound)})
    for dtype, item in (("float64", 8), ("float32", 4)):
        chosen = ampsim.SyncSGD(ranks=3, compression=0.3)
        spans = ampsim.simulate(model(9, 3, dtype=dtype), hosts, chosen, mode="sleep").spans
        own = spans[(spans["worker"] == 1) & (spans["direction"] == "update")].iloc[:2]
        moved = [10 * 8 * item + 3 * (2 * item + 4), 8 * item + 3 * 3 * (3 * item + 4)]
        assert own["bytes"].tolist() == moved
        took_s = (own["end_s"] - own["start_s"]).tolist()
        assert took_s == pytest.approx([one / 1e9 for one in moved], rel=1e-9)
        assert own["operations"].tolist() == [5, 4]


def test_with_all_entries_ranks_learn_what_they_learn_without_indices_in_another_time():
    made, hosts = drawn(3, 41, 3, layers=2), cluster([1e9, 3e9, 2e9], link=SLOW)
    for chosen in (ampsim.SyncSGD(3), ampsim.AsyncSGD(2)):
        one = ampsim.simulate(made, hosts, chosen, epochs=1)
        all_of_it = ampsim.simulate(made, hosts, replace(chosen, compression=1.0), epochs=1)
        if isinstance(chosen, ampsim.SyncSGD):
            np.testing.assert_allclose(weights(all_of_it), weights(one), rtol=1e-12)
        assert all_of_it.makespan_s > one.makespan_s
        assert all_of_it.exchanges["bytes"].iloc[0] == 12 * 20
        assert one.exchanges["bytes"].iloc[0] == 8 * 20


# what is kept


class Noted(ErrorFeedback):
    """Keeps what it was given and what it sent."""

    every: list[Noted]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.given: list[list[np.ndarray]] = [[] for _ in names]
        self.gone: list[list[np.ndarray]] = [[] for _ in names]
        self.every.append(self)

    def sent(self, place: int, gradient: np.ndarray, count: int, now_s: float) -> np.ndarray:
        self.given[place].append(gradient.copy())
        sent = super().sent(place, gradient, count, now_s)
        self.gone[place].append(sent.copy())
        assert np.count_nonzero(sent) <= count
        return sent


@pytest.mark.parametrize(
    "chosen",
    [ampsim.SyncSGD(3, compression=0.1), ampsim.AsyncSGD(2, compression=0.3),
     ampsim.Hogwild(2, compression=0.1), ampsim.SSP(2, compression=0.1)],
    ids=lambda one: one.name,
)  # fmt: skip
def test_what_was_sent_and_what_is_kept_are_all_gradients(chosen, monkeypatch):
    monkeypatch.setattr(Noted, "every", [], raising=False)
    monkeypatch.setattr("ampsim.data_parallel.model_copy.ErrorFeedback", Noted)
    made, hosts = drawn(11, 61, 3, layers=2), cluster([1e9, 3e9, 2e9], link=SLOW, jitter_cv=0.2)
    ampsim.simulate(made, hosts, chosen, epochs=6)
    assert len(Noted.every) == chosen.ranks
    for rank, place in itertools.product(Noted.every, (0, 1)):
        kept = rank.kept[place]
        assert kept is not None
        assert np.abs(kept).max() > 0
        assert len(rank.given[place]) >= 6 * 21 // 4
        whole = np.sum(rank.given[place], axis=0)
        np.testing.assert_allclose(np.sum(rank.gone[place], axis=0) + kept, whole, rtol=1e-12)


def test_the_server_merges_what_ranks_have_sent_and_nothing_else(monkeypatch):
    monkeypatch.setattr(Noted, "every", [], raising=False)
    monkeypatch.setattr("ampsim.data_parallel.model_copy.ErrorFeedback", Noted)
    chosen, seen = watched(ampsim.AsyncSGD, ranks=1, compression=0.3)
    ampsim.simulate(drawn(2, 30, 3), cluster([1e9, 1e9]), chosen, epochs=2)
    (rank,) = Noted.every
    for (_centre, parcel), sent in zip(seen, rank.gone[0], strict=False):
        assert parcel.tobytes() == sent.tobytes()
    assert len(seen) == 20


class Forgetful(ErrorFeedback):
    """Loses what it does not send."""

    def sent(self, place: int, gradient: np.ndarray, count: int, now_s: float) -> np.ndarray:
        sent = super().sent(place, gradient, count, now_s)
        self.kept[place] = None
        return sent


def tug() -> ampsim.Model:
    """Two batches, of inputs that are zero, pull one bias by 10 apart; both want 1 of the other."""
    y = np.tile([[10.0, 1.0], [-10.0, 1.0]], (50, 1))
    made = model(100, 1, rate=0.005)
    made = replace(made, make_data=lambda _seed, _count: Points(np.zeros((100, 3)), y, 1))
    return made.set_parameters({name: 0 * one for name, one in made.parameters().items()})


def second_bias(chosen: Any) -> float:
    result = ampsim.simulate(tug(), cluster([1e9] * 2, link=FREE), chosen, epochs=20)
    return float(result.model.parameters()["linear-1.bias"][1])


def test_the_largest_entry_alone_stalls_without_a_memory_and_converges_with_it(monkeypatch):
    """The largest entries of the two ranks cancel, and nothing else is ever sent."""
    chosen = ampsim.SyncSGD(ranks=2, compression=0.125)
    assert abs(second_bias(ampsim.SyncSGD(ranks=2)) - 1) < 0.01
    assert abs(second_bias(chosen) - 1) < 0.06
    monkeypatch.setattr("ampsim.data_parallel.model_copy.ErrorFeedback", Forgetful)
    assert second_bias(chosen) == 0
