"""How long exchanges take, and where elastic averaging is stable, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from solver_cases import FREE, cluster, draw_exponential, memoryless, model, stacked

import ampsim
from ampsim.data_parallel import COLLECTIVES
from ampsim.hardware import Cluster, Link
from ampsim.hardware.topology import Ports
from ampsim.trace import DIRECTIONS

LATENCY_S, RATE = 1e-6, 1e8
SLOW = Link(latency_s=LATENCY_S, bandwidth_bytes_per_s=RATE)
BYTES = 8 * 8  # of a linear node of 3 x 2 weights and 2 biases in float64


def formula_s(name: str, ranks: int, group: int, size_bytes: float) -> float:
    """Textbook times, for powers of two; n bytes over links of a and B."""
    a, n, b = LATENCY_S, size_bytes, RATE
    up = math.log2(ranks)
    groups = ranks // group
    return {
        "ring": 2 * (ranks - 1) * (a + n / (ranks * b)),
        "tree": 2 * up * (a + n / b),
        "halving-doubling": 2 * a * up + 2 * (ranks - 1) / ranks * n / b,
        "hierarchical": 2 * math.log2(group) * (a + n / b)
        + 2 * (groups - 1) * (a + n / (groups * b)),
        "star": 2 * (a + n / b),
    }[name]


def with_ports(hosts: Cluster, rate: float) -> Cluster:
    """The same with a port of this rate at each worker, first come, first served."""
    ports = Ports(ingress_bytes_per_s=rate, egress_bytes_per_s=rate)
    return hosts.model_copy(update={"ports": ports, "sharing": "first-come"})


def unlike(hosts: Cluster) -> Cluster:
    """The same with one link that is longer by next to nothing, so that messages are sent."""
    first = hosts.links[0]
    longer = first.link.model_copy(update={"latency_s": LATENCY_S * (1 + 1e-13)})
    return hosts.model_copy(
        update={"links": (first.model_copy(update={"link": longer}), *hosts.links[1:])}
    )


def summed(name: str, ranks: int, hosts: Any) -> ampsim.Result:
    options: dict[str, Any] = {"ranks_per_group": 2} if name == "hierarchical" else {}
    chosen = ampsim.SyncSGD(ranks=ranks, collective=name, **options)
    return ampsim.simulate(model(ranks, 1), hosts, chosen, mode="sleep")


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_takes_what_the_textbook_says_as_one_event_and_as_messages(name, ranks):
    event = summed(name, ranks, cluster([1e9] * ranks, link=SLOW)).collectives.iloc[0]
    sent = summed(name, ranks, unlike(cluster([1e9] * ranks, link=SLOW)))
    messages = sent.collectives.iloc[0]
    expected = formula_s(name, ranks, 2, BYTES)
    assert bool(event["is_event"])
    assert not messages["is_event"]
    assert event["end_s"] - event["start_s"] == pytest.approx(expected, rel=1e-9)
    assert messages["end_s"] - messages["start_s"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ranks", [3, 5, 6, 7])
@pytest.mark.parametrize("name", ["ring", "tree", "star"])
def test_event_and_messages_agree_for_any_number_of_ranks(name, ranks):
    event = summed(name, ranks, cluster([1e9] * ranks, link=SLOW))
    messages = summed(name, ranks, unlike(cluster([1e9] * ranks, link=SLOW)))
    lasting = [
        (one.collectives["end_s"] - one.collectives["start_s"]).iloc[0] for one in (event, messages)
    ]
    assert lasting[0] == pytest.approx(lasting[1], rel=1e-9)


def test_a_rank_of_a_ring_sends_its_share_twice_but_for_its_own():
    ranks = 4
    hosts = unlike(cluster([1e9] * ranks, link=SLOW))
    transfers = summed("ring", ranks, hosts).transfers
    between = transfers[transfers["source_worker"] >= 0]
    between = between[between["target_worker"] >= 0]
    sent = between.groupby("source_worker")["bytes"].sum()
    assert sent.tolist() == [2 * (ranks - 1) * BYTES // ranks] * ranks


def test_a_ring_over_links_that_differ_goes_as_messages_at_the_pace_of_the_slowest():
    hosts = cluster([1e9] * 4, link=SLOW)
    slow = Link(latency_s=5e-5, bandwidth_bytes_per_s=RATE)
    links = tuple(
        one.model_copy(update={"link": slow}) if (one.source, one.target) == (1, 2) else one
        for one in hosts.links
    )
    found = summed("ring", 4, hosts.model_copy(update={"links": links})).collectives.iloc[0]
    assert not found["is_event"]
    twice_s = 2 * 5e-5 + 4 * LATENCY_S  # each part goes 6 hops, the slow one at most twice
    expected = twice_s + 6 * BYTES / 4 / RATE
    assert found["end_s"] - found["start_s"] == pytest.approx(expected, rel=1e-9)


def test_a_star_at_one_port_takes_as_many_times_as_there_are_ranks():
    """2 a + 2 (P - 1) n / B."""
    ranks = 8
    found = summed("star", ranks, with_ports(cluster([1e9] * ranks, link=SLOW), RATE))
    lasting = (found.collectives["end_s"] - found.collectives["start_s"]).iloc[0]
    assert lasting == pytest.approx(2 * LATENCY_S + 2 * (ranks - 1) * BYTES / RATE, rel=1e-9)


def rate_of(result: ampsim.Result, *, skip: int) -> float:
    """Exchanges per second after the first `skip`."""
    ends = np.sort(result.exchanges["merge_end_s"].to_numpy())
    return (len(ends) - skip - 1) / (ends[-1] - ends[skip])


def seconds_of(result: ampsim.Result) -> tuple[float, float]:
    """What a batch takes its rank, and a merge its server."""
    spans = result.spans
    spans = spans.assign(lasting=spans["end_s"] - spans["start_s"])
    merge = spans.loc[spans["node"] == "centre", "lasting"].iloc[0]
    of_rank = spans[(spans["worker"] == 0)]
    return float(of_rank.groupby("instance")["lasting"].sum().iloc[0]), float(merge)


@pytest.mark.parametrize("speed", [2e8, 2e7, 2e6])
def test_a_server_that_locks_the_update_saturates_at_one_merge_after_the_other(speed):
    made, ranks = model(300, 1), 4
    result = ampsim.simulate(
        made, cluster([*[1e8] * ranks, speed]), ampsim.AsyncSGD(ranks=ranks), mode="sleep"
    )
    compute_s, merge_s = seconds_of(result)
    expected = min(ranks / (compute_s + merge_s), 1 / merge_s)
    assert rate_of(result, skip=20) == pytest.approx(expected, rel=1e-3 + 2 / 300)


@pytest.mark.parametrize("link", [FREE, SLOW])
def test_round_robin_goes_at_the_pace_of_the_slower_of_ranks_and_exchanges(link):
    made, ranks = model(300, 1), 3
    result = ampsim.simulate(
        made, cluster([1e8, 1e8, 1e7, 2e8], link=link), ampsim.EASGD(ranks=ranks), mode="sleep"
    )
    spans = result.spans.assign(lasting=result.spans["end_s"] - result.spans["start_s"])
    merge_s = float(spans.loc[spans["node"] == "centre", "lasting"].iloc[0])
    slowest = spans[spans["worker"] == 2]
    once = [slowest.loc[slowest["direction"] == way, "lasting"].max() for way in DIRECTIONS]
    slowest_s = float(sum(once))
    way_s = 0.0 if link.is_free else 2 * (LATENCY_S + BYTES / RATE)
    exchange_s = way_s + merge_s
    expected = ranks / max(slowest_s + exchange_s, ranks * exchange_s)
    assert rate_of(result, skip=12) == pytest.approx(expected, rel=0.02)
    order = result.exchanges.sort_values("merge_start_s")["rank"].tolist()
    assert order == [number % ranks for number in range(len(order))]


def test_one_port_of_a_server_bounds_what_ranks_push_through_it():
    made, ranks, rate = model(400, 1), 6, 1e7
    hosts = with_ports(cluster([1e12] * (ranks + 1)), rate)
    result = ampsim.simulate(made, hosts, ampsim.AsyncSGD(ranks=ranks), mode="sleep")
    transfers = result.transfers
    is_entering = (transfers["target_worker"] == ranks) & (transfers["end_s"] <= result.makespan_s)
    entering = transfers[is_entering]
    assert entering["bytes"].sum() <= rate * result.makespan_s
    assert rate_of(result, skip=20) <= rate / BYTES * (1 + 1e-9)
    assert len(entering) >= len(result.exchanges)


def repairman_per_s(ranks: int, compute_s: float, merge_s: float) -> float:
    """The machine repairman: X = (1 - p0) / S with exponential C and S."""
    terms = [
        math.factorial(ranks) / math.factorial(ranks - k) * (merge_s / compute_s) ** k
        for k in range(ranks + 1)
    ]
    return (1 - 1 / sum(terms)) / merge_s


@pytest.fixture
def exponential(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitter of cv 1 makes a step's time exponential; of cv 0.5 every other step's, else none."""
    draw_exponential(monkeypatch, {1.0: (1,), 0.5: (1, 0)})


@pytest.mark.slow
@pytest.mark.usefixtures("exponential")
def test_memoryless_ranks_have_a_staleness_that_falls_geometrically():
    """P(l) = (1 / P) (1 - 1 / P)^l."""
    ranks, count = 8, 20_000
    chosen = ampsim.AsyncSGD(ranks=ranks)
    result = ampsim.simulate(model(count, 1), memoryless(ranks, 1e15, 0), chosen, mode="sleep")
    stale = result.exchanges["staleness"].to_numpy()
    for lag in range(6):
        expected = (1 - 1 / ranks) ** lag / ranks
        error = math.sqrt(expected * (1 - expected) / count)
        assert abs((stale == lag).mean() - expected) < 5 * error, lag


@pytest.mark.slow
@pytest.mark.usefixtures("exponential")
@pytest.mark.parametrize(("ranks", "share", "count"), [(4, 0.353, 20_000), (16, 0.978, 12_000)])
def test_exponential_ranks_at_an_exponential_server_are_a_machine_repairman(ranks, share, count):
    """Share: the server's utilisation at C = 10 S, worked out elsewhere."""
    forward_flop, merge_flop = steps_flop()
    speed = 1e8 * merge_flop / (forward_flop / 10)
    hosts = memoryless(ranks, speed, 1.0)
    chosen = ampsim.AsyncSGD(ranks=ranks)
    result = ampsim.simulate(model(count, 1), hosts, chosen, mode="sleep")
    compute_s, merge_s = forward_flop / 1e8, merge_flop / speed
    expected = repairman_per_s(ranks, compute_s, merge_s)
    assert expected * merge_s == pytest.approx(share, abs=1e-3)
    assert rate_of(result, skip=200) == pytest.approx(expected, rel=0.01)


def steps_flop() -> tuple[int, int]:
    """FLOP of a forward step, and of a merge."""
    chosen = ampsim.AsyncSGD(ranks=1)
    spans = ampsim.simulate(model(3, 1), cluster([1e8] * 2), chosen, mode="sleep").spans
    forward = spans[(spans["direction"] == "forward") & (spans["node"] == "linear-1")]
    return int(forward["flop"].iloc[0]), int(spans[spans["node"] == "centre"]["flop"].iloc[0])


def is_stable(multiply: Any) -> bool:
    """Whether no power of a linear map grows: its largest eigenvalue is at most 1."""
    columns = [multiply(column) for column in np.eye(multiply.size)]
    return bool(np.abs(np.linalg.eigvals(np.array(columns).T)).max() <= 1 + 1e-12)


class Rounds:
    """Elastic averaging on a quadratic of curvature h, by the solvers' own pure functions."""

    def __init__(self, ranks: int, rate: float, alpha: float, *, is_synchronous: bool) -> None:
        self.size = ranks + 1
        self._ranks, self._rate, self._alpha = ranks, rate, alpha
        self._is_synchronous = is_synchronous
        self._solver = ampsim.SyncEASGD() if is_synchronous else ampsim.EASGD()

    def __call__(self, state: np.ndarray) -> np.ndarray:
        ranks, centre = state[:-1].copy(), state[-1:].copy()
        if self._is_synchronous:
            new = self._merged(centre, ranks.mean(keepdims=True), self._alpha * self._ranks)
            return np.concatenate([self._stepped(ranks, centre), new])
        for place in range(self._ranks):
            own = ranks[place : place + 1].copy()
            ranks[place : place + 1] = self._stepped(own, centre)
            centre = self._merged(centre, own, self._alpha)
        return np.concatenate([ranks, centre])

    def _stepped(self, own: np.ndarray, centre: np.ndarray) -> np.ndarray:
        return self._solver.local(own, own, centre, self._alpha, self._step)

    def _merged(self, centre: np.ndarray, parcel: np.ndarray, pull: float) -> np.ndarray:
        return self._solver.merge(centre, parcel, pull, self._step)

    def _step(self, gradient: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return theta - self._rate * gradient


def largest_stable(ranks: int, rate: float, *, is_synchronous: bool) -> float:
    low, high = 0.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        if is_stable(Rounds(ranks, rate, middle, is_synchronous=is_synchronous)):
            low = middle
        else:
            high = middle
    return low


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_one_elastic_rank_is_stable_up_to_the_bound_of_zhang(rate):
    expected = (4 - 2 * rate) / (4 - rate)
    assert largest_stable(1, rate, is_synchronous=False) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("ranks", [3, 5])
def test_elastic_ranks_in_turn_are_stable_up_to_the_same_bound(ranks):
    rate = 0.5
    expected = (4 - 2 * rate) / (4 - rate)
    assert largest_stable(ranks, rate, is_synchronous=False) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_synchronous_elastic_ranks_are_stable_up_to_their_own_bound(ranks):
    rate = 0.5
    expected = (4 - 2 * rate) / (2 + 2 * ranks - ranks * rate)
    assert largest_stable(ranks, rate, is_synchronous=True) == pytest.approx(expected, rel=1e-6)


def test_the_run_itself_makes_the_steps_of_these_rounds():
    """Equations (2) and (3) by hand, on the trace's own order, for one rank in float64."""
    made, alpha, rate = model(12, 4), 0.3, 0.05
    result = ampsim.simulate(made, cluster([1e9] * 2), ampsim.EASGD(ranks=1, moving_rate=alpha))
    theta = stacked(made)
    centre = theta.copy()
    for batch in made.make_data(0, None).batches("train", epoch=0, seed=0):
        full = np.hstack([batch.x, np.ones((len(batch.x), 1))])
        gradient = full.T @ (full @ theta - batch.y) / len(batch.x)
        theta, centre = (
            theta - rate * gradient - alpha * (theta - centre),
            centre + alpha * (theta - centre),
        )
    found = stacked(result.model)
    assert np.allclose(found, centre, rtol=1e-10) or np.abs(found - centre).max() < 1e-10
