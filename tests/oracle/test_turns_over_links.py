"""Fixed turns over links of their own: every step's start and end, and the memory, by a recursion.

The recursion knows an order of steps for each stage, and that a link takes one message after the
other; it shares no code with the engine.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import InterleavedOneFOneB, OneFOneB, PipeDream, ZeroBubbleH1, simulate
from ampsim.hardware import Link

BYTES = 2 * 8  # of a row of two numbers

Step = tuple[str, int, int]
"""Forward, backward or weight ("f", "b", "w"), micro-batch, stage."""


def one_f_one_b(stage: int, stages: int, m: int) -> list[Step]:
    """Forwards until one of each stage below is under way; then one backward, one forward."""
    warm = stages - stage
    lines = [(2 * max(k - warm, -1) + 1, k, "f") for k in range(m)]
    return _in_order(lines + [(2 * k, k, "b") for k in range(m)], stage)


def zb_h1(stage: int, stages: int, m: int) -> list[Step]:
    """1F1B; weight gradient k comes right after backward step k + s (Qi et al., 2024, Fig. 2)."""
    warm = stages - stage
    lines = [(3 * max(k - warm, -1) + 2, k, "f") for k in range(m)]
    lines += [(3 * k, k, "b") for k in range(m)]
    return _in_order(lines + [(3 * (k + stage) + 1, k, "w") for k in range(m)], stage)


def _in_order(lines: list[tuple[int, int, str]], stage: int) -> list[Step]:
    return [(kind, micro, stage) for _when, micro, kind in sorted(lines)]


Way = tuple[float, float]
"""Seconds of a byte and of latency."""


def played(
    orders: list[list[Step]], seconds: list[dict[str, float]], ways: dict[tuple[int, int], Way],
    begin_s: float,
) -> tuple[dict[Step, tuple[float, float]], dict[Step, tuple[float, float]]]:  # fmt: skip
    """When each step begins and ends, and when what it sends leaves and arrives elsewhere.

    A step is of the worker whose order it is in; stage s is with worker s mod W.
    """
    workers, last = len(orders), len(seconds) - 1
    came: dict[Step, float] = {}
    times: dict[Step, tuple[float, float]] = {}
    flights: dict[Step, tuple[float, float]] = {}
    free_s, link_free_s = [begin_s] * workers, dict.fromkeys(ways, begin_s)
    left = [list(order) for order in orders]
    while any(left):
        ready = []
        for worker, order in enumerate(left):
            if order:
                kind, k, s = order[0]
                if (kind == "f" and s == 0) or kind == "w":
                    ready.append((free_s[worker], worker))
                elif order[0] in came:
                    ready.append((max(free_s[worker], came[order[0]]), worker))
        start_s, worker = min(ready)
        kind, k, s = step = left[worker].pop(0)
        end_s = free_s[worker] = start_s + seconds[s][kind]
        if kind == "b":
            free_s[worker] += seconds[s].get("update", 0.0)
        times[step] = start_s, end_s
        to = {"f": s + 1, "b": s - 1}.get(kind, -1)
        if kind == "f" and s == last:
            came["b", k, s] = end_s
        elif 0 <= to <= last:
            link = worker, to % workers
            byte_s, latency_s = ways.get(link, (0.0, 0.0))
            left_s = max(end_s, link_free_s.get(link, 0.0)) + BYTES * byte_s
            link_free_s[link] = left_s
            came[kind, k, to] = left_s + latency_s
            if link in ways:
                flights[step] = end_s, left_s + latency_s
    return times, flights


@st.composite
def machines(draw: Any, stages: Any, most: int = 1) -> Any:
    """Workers, their links each with a latency and a bandwidth, costs of stages, m and groups."""
    workers, of_one = draw(stages), draw(st.integers(1, most))
    numbers = st.integers(1, 999)
    ways = {
        (s, t): (draw(numbers) / 1e3 / BYTES, draw(numbers) / 999)
        for s in range(workers)
        for t in range(workers)
        if s != t and workers > 1
    }
    costs = tuple(
        (draw(st.integers(1, 7)), draw(st.integers(3, 14)), draw(st.integers(0, 3)))
        for _ in range(workers * of_one)
    )
    return workers, ways, costs


def interleaved(worker: int, workers: int, of_one: int, m: int) -> list[Step]:
    """Virtual micro-batch i is of stage i / W mod v of the worker (SC 2021, Figure 4).

    With one stage a worker it is plain 1F1B.
    """
    if of_one == 1:
        return one_f_one_b(worker, workers, m)
    count = -(-m // workers) * workers * of_one
    warm = 2 * (workers - 1 - worker) + (of_one - 1) * workers

    def step(kind: str, i: int) -> Step:
        chunk = i // workers % of_one
        chunk = of_one - 1 - chunk if kind == "b" else chunk
        return (kind, i // (workers * of_one) * workers + i % workers, chunk * workers + worker)

    lines = [(2 * max(i - warm, -1), step("f", i)) for i in range(count)]
    lines += [(2 * max(i, 0) + 1, step("b", i)) for i in range(count)]
    lines.sort(key=lambda line: line[0])
    return [one for _when, one in lines if one[1] < m]


def expected_of(orders_of: Any, machine: Any, m: int, n: int) -> tuple[Any, Any, float]:
    """Times of all steps of n instances in mini-batches of m, with updates between."""
    workers, ways, costs = machine
    times: dict[Step, tuple[float, float]] = {}
    flights: dict[Step, tuple[float, float]] = {}
    begin_s = 0.0
    for first in range(0, n, m):
        orders = orders_of(min(m, n - first))
        split = {kind for kind, _k, _s in orders[0]} >= {"w"}
        seconds = [
            {"f": f, "b": b - b // 3 if split else b, "w": b // 3} for f, b, _update in costs
        ]
        group, sent = played(orders, seconds, ways, begin_s)
        for found, into in ((group, times), (sent, flights)):
            into.update({(kind, k + first, s): one for (kind, k, s), one in found.items()})
        drained_s = max(end_s for _start_s, end_s in group.values())
        updates = [
            sum(costs[s][2] for s in range(worker, len(costs), workers))
            for worker in range(workers)
        ]
        begin_s = drained_s + max(updates)
    return times, flights, begin_s


def run_of(chain: Any, make_cluster: Any, machine: Any, schedule: Any, n: int, **keys: Any) -> Any:
    workers, ways, costs = machine
    links = {
        pair: Link(latency_s=latency_s, bandwidth_bytes_per_s=1 / byte_s)
        for pair, (byte_s, latency_s) in ways.items()
    }
    cluster = make_cluster(workers, links=links)
    return simulate(chain(costs, instances=n).model(), cluster, schedule, mode="sleep", **keys)


def found_of(result: Any) -> dict[Step, tuple[float, float]]:
    """Start and end of each step of training of a stage."""
    spans = result.spans
    spans = spans[spans["node"].str.startswith("stage") & (spans["direction"] != "update")]
    found: dict[Step, tuple[float, float]] = {}
    for one in spans.itertuples():
        kind = "f" if one.direction == "forward" else "b"
        key = (kind, one.instance, int(one.node.removeprefix("stage-")) - 1)
        if key in found:
            key = ("w", *key[1:])
        found[key] = one.start_s, one.end_s
    return found


def check(result: Any, times: Any, flights: Any, end_s: float) -> None:
    found = found_of(result)
    assert found.keys() == times.keys()
    for step, pair in times.items():
        assert found[step] == pytest.approx(pair, rel=1e-9), step
    sent = result.transfers
    got = sorted(zip(sent["sent_s"], sent["end_s"], strict=True))
    for one, other in zip(got, sorted(flights.values()), strict=True):
        assert one == pytest.approx(other, rel=1e-9)
    assert (sent["bytes"] == BYTES).all()
    assert result.makespan_s == pytest.approx(end_s, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(machine=machines(st.integers(1, 5)), m=st.integers(1, 9), n=st.integers(1, 20))
@pytest.mark.parametrize(("kind", "order"), [(OneFOneB, one_f_one_b), (ZeroBubbleH1, zb_h1)])
def test_every_step_of_uneven_stages_begins_and_ends_as_a_recursion_says(
    chain, make_cluster, kind, order, *, machine, m, n
):
    workers = machine[0]

    def orders(size: int) -> list[list[Step]]:
        return [order(stage, workers, size) for stage in range(workers)]

    check(run_of(chain, make_cluster, machine, kind(m), n), *expected_of(orders, machine, m, n))


@settings(max_examples=60, deadline=None)
@given(
    machine=machines(st.integers(1, 4), most=3), m=st.integers(1, 9),
    n=st.integers(1, 20),
)  # fmt: skip
def test_every_interleaved_step_begins_and_ends_as_a_recursion_says(
    chain, make_cluster, machine, m, n
):
    workers, costs = machine[0], machine[2]

    def orders(size: int) -> list[list[Step]]:
        each = len(costs) // workers
        return [interleaved(worker, workers, each, size) for worker in range(workers)]

    result = run_of(chain, make_cluster, machine, InterleavedOneFOneB(m), n)
    check(result, *expected_of(orders, machine, m, n))


@pytest.mark.parametrize(("kind", "order"), [(OneFOneB, one_f_one_b), (ZeroBubbleH1, zb_h1)])
@pytest.mark.parametrize("seed", range(12))
def test_a_worker_holds_at_most_what_it_keeps_and_what_lies_there(
    chain, make_cluster, kind, order, seed
):
    """An input from its arrival, what a step sends until it has arrived, what weights ask for.

    Under zb-h1 the output's gradient lies there until the weight's is formed. Costs are drawn so
    that nothing happens at one instant by chance.
    """
    draw = random.Random(seed)
    p, m = draw.randint(1, 5), draw.randint(1, 9)
    pairs = itertools.permutations(range(p), 2)
    ways = {pair: (draw.random() * 1e5 / BYTES, draw.random() * 1e5) for pair in pairs}
    costs = tuple((draw.randint(1, 10**5), draw.randint(3, 10**5), 0) for _ in range(p))
    machine = p, ways, costs

    def orders(size: int) -> list[list[Step]]:
        return [order(stage, p, size) for stage in range(p)]

    result = run_of(chain, make_cluster, machine, kind(m), m, counts_memory=True)
    times, flights, _end_s = expected_of(orders, machine, m, m)
    found = result.peak_memory.set_index("worker")
    for s in range(p):
        lies: list[tuple[float, float, int]] = []
        for k in range(m):
            forward_s, backward_s = times["f", k, s][1], times["b", k, s][1]
            freed_s = times.get(("w", k, s), times["b", k, s])[1]
            lies += [(forward_s, freed_s, BYTES), (backward_s, freed_s, BYTES)]
            lies.append((flights["f", k, s - 1][1] if s else 0.0, forward_s, BYTES))
            if s:
                lies.append((*flights["b", k, s], BYTES))
            if s < p - 1:
                lies.append((*flights["f", k, s], BYTES))
            else:  # a label waits at the loss, which has it and the prediction at one instant
                lies.append((0.0, forward_s + 1e-3, 8))
            came_s = flights["b", k, s + 1][1] if s < p - 1 else forward_s
            lies.append((came_s, backward_s, BYTES))
        lies = [one for one in lies if one[0] < one[1]]
        changes = sorted(
            [(start_s, 1, size) for start_s, _end, size in lies]
            + [(end_s, 0, -size) for _start, end_s, size in lies]
        )
        most = max(itertools.accumulate(size for _when, _first, size in changes))
        assert found.loc[s, "bytes"] == 2 * 6 * 8 + most, (p, m, s)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(machine=machines(st.integers(1, 5)), n=st.integers(1, 20))
def test_every_step_of_a_pipeline_that_never_drains_begins_and_ends_as_a_recursion_says(
    chain, make_cluster, machine, n
):
    """An update follows each backward step at once, before the next step of the stage."""
    workers, ways, costs = machine
    orders = [one_f_one_b(stage, workers, n) for stage in range(workers)]
    seconds = [{"f": f, "b": b, "update": update} for f, b, update in costs]
    times, flights = played(orders, seconds, ways, 0.0)
    last_s = max(times["b", n - 1, s][1] + costs[s][2] for s in range(workers))
    for is_same in (False, True):
        schedule = PipeDream(vertical_sync=is_same)
        check(run_of(chain, make_cluster, machine, schedule, n), times, flights, last_s)
