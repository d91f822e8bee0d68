"""Every dispatch, kernel and message of random programs, as a machine of tokens in time has it."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dataflow_programs import built, feeds_of, placed, programs
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from timed_machine import TimedMachine, Times

from ampsim import flow
from ampsim.dataflow.partition import Cut, NodePlaces
from ampsim.dataflow.plan import needed
from ampsim.hardware import Cluster, Device, Link
from ampsim.hardware.topology import Route

TICK_S = 2.0**-20
"""All times are so many of it, and sums of them exact, but for the clock's rounding."""


def ticks(*seconds: float) -> list[float]:
    return [round(one / TICK_S) * TICK_S for one in seconds]


KERNEL_S, DISPATCH_S = (
    ticks(1.1283792, 0.7310585, 1.4142135),
    ticks(0.2718281, 0.3141592, 0.1618033),
)
LATENCY_S = ticks(0.5772156, 0.9159655, 1.2020569, 0.2614972, 2.6854520, 0.6434105)
WAYS = dict(zip(itertools.permutations(range(3), 2), LATENCY_S, strict=True))
BYTES_PER_S = 8.0


def cluster(times: Times, workers: int, memory_bytes: int | None) -> Cluster:
    devices = tuple(
        Device(
            name=f"d{number}", flop_per_s=1e24, step_overhead_s=times.kernel_s[number],
            dispatch_s=times.dispatch_s[number], memory_bytes=memory_bytes,
        )
        for number in range(workers)
    )  # fmt: skip
    links = tuple(
        Route(
            source=s, target=t, link=Link(latency_s=one, bandwidth_bytes_per_s=times.bytes_per_s)
        )
        for (s, t), one in times.latency_s.items()
    )  # fmt: skip
    return Cluster(name="drawn", devices=devices, link=Link(), links=links)


def check(
    block: Any, seed: int, workers: int, dispatches: bool, memory_bytes: int | None, **options: Any
) -> None:
    """A memory with an end, and room for all, changes nothing."""
    asked = built(block)
    feeds = feeds_of(asked)
    ways = {(s, t): one for (s, t), one in WAYS.items() if max(s, t) < workers}
    times = Times(DISPATCH_S if dispatches else [0.0] * 3, KERNEL_S, ways, BYTES_PER_S)
    place, run_on = placed(asked, workers, seed), cluster(times, workers, memory_bytes)
    window = {"parallel_iterations": options["window"]}
    told = {key: options[key] for key in ("run_ahead", "broadcast_dead")}
    result = flow.run(asked, feeds, cluster=run_on, placement=place, **window, **told)
    assume(len(set(met := ends(result.spans, result.transfers))) == len(met))
    nodes = needed(asked)
    cut = Cut(asked, NodePlaces(nodes, run_on, place), nodes)
    machine = TimedMachine(asked, cut, feeds, times, **options)
    machine.run()
    assert [machine.found[number] for number in range(len(asked))] == result.values
    tags = result.spans["state"].str.removeprefix("tag").str.strip()
    spans = result.spans.assign(tag=tags, lane=result.spans.get("lane", "compute"))
    agree(machine.spans, spans, "lane worker node tag start_s end_s")
    sent = "source source_worker target_worker bytes sent_s start_s held_s end_s"
    agree(machine.transfers, result.transfers, sent)
    agree(machine.iterations, result.frames, "tag iteration worker opened_s over_s")


def ends(spans: pd.DataFrame, transfers: pd.DataFrame) -> list[tuple[int, int]]:
    """Where and when something ends or arrives: of two at once, rounding says which is first."""
    took = spans[spans["end_s"] > spans["start_s"]]
    seconds = [*took["end_s"], *transfers["end_s"]]
    workers = [*took["worker"], *transfers["target_worker"]]
    return [(worker, round(one / TICK_S)) for worker, one in zip(workers, seconds, strict=True)]


def agree(expected: list[Any], table: pd.DataFrame, names: str) -> None:
    found = table[names.split()].itertuples(index=False)
    wanted, got = (Counter(map(in_ticks, rows)) for rows in (expected, found))
    assert wanted == got, (sorted((wanted - got).elements()), sorted((got - wanted).elements()))


def in_ticks(row: Any) -> tuple[Any, ...]:
    return tuple(round(one / TICK_S) if isinstance(one, float) else one for one in row)


OPTIONS: dict[str, Any] = {
    "block": programs(), "seed": st.integers(0, 99), "workers": st.integers(1, 3),
    "dispatches": st.booleans(), "memory_bytes": st.sampled_from([None, 10**6]),
    "window": st.integers(0, 3), "run_ahead": st.booleans(), "broadcast_dead": st.booleans(),
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(**OPTIONS)
def test_every_dispatch_kernel_and_message_is_when_the_rules_say(**drawn):
    check(**drawn)


@pytest.mark.thorough
@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(**OPTIONS)
def test_of_many_programs_every_dispatch_kernel_and_message_is_when_the_rules_say(**drawn):
    check(**drawn)


AT_ONE_INSTANT: dict[str, Any] = {
    **OPTIONS, "workers": st.integers(2, 3), "dispatches": st.just(False),
    "run_ahead": st.just(False),
    "takes_time": st.just([True] * 3) | st.lists(st.booleans(), min_size=3, max_size=3),
}  # fmt: skip
"""With these, most is sent at one instant, and goes in an order: one of 15 programs tells."""


@settings(max_examples=100, deadline=None)
@given(**AT_ONE_INSTANT)
def test_a_memory_with_room_for_all_moves_nothing_also_where_kernels_take_no_time(**drawn):
    asked, workers = built(drawn["block"]), drawn["workers"]
    ways = {(s, t): one for (s, t), one in WAYS.items() if max(s, t) < workers}
    pairs = zip(KERNEL_S, drawn["takes_time"], strict=True)
    times = Times([0.0] * 3, [one * is_taken for one, is_taken in pairs], ways, BYTES_PER_S)
    how = {
        "placement": placed(asked, workers, drawn["seed"]),
        "parallel_iterations": drawn["window"],
        **{key: drawn[key] for key in ("run_ahead", "broadcast_dead")},
    }
    assert_room_moves_nothing(asked, feeds_of(asked), times, workers, how)


def assert_room_moves_nothing(
    asked: list[flow.Tensor], feeds: Any, times: Times, workers: int, how: dict[str, Any]
) -> None:
    found: list[Any] = []
    for end in (None, 10**6):
        result = flow.run(asked, feeds, cluster=cluster(times, workers, end), **how)
        rows = [result.spans.drop(columns="lane", errors="ignore"), result.transfers]
        found.append([sorted(map(str, one.itertuples(index=False))) for one in rows])
    assert found[0] == found[1]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 99), workers=st.integers(2, 3), dispatches=st.booleans(),
    run_ahead=st.booleans(), window=st.integers(0, 3), is_far=st.booleans(),
    trips=st.integers(1, 2),
)  # fmt: skip
@example(
    seed=15, workers=3, dispatches=False, run_ahead=True, window=1, is_far=False, trips=1
)  # fmt: skip
def test_a_memory_with_room_for_all_moves_nothing_of_arrays(**drawn):
    """Their flows go from worker to worker; where links take no time, much is at one instant."""
    with flow.FlowGraph():
        x, y, z = flow.input("x", (4, 3)), flow.input("y", (3,)), flow.input("z", (3,))
        w, rows = flow.input("w", (3,)), flow.TensorArray(4).unstack(x)

        def body(i: Any, y: Any, z: Any, out: Any) -> tuple[Any, ...]:
            y = y * 0.5 + rows.read((i * 3 + 1) % 4) * w
            return i + 1, y, y * z * 0.25, out.write(i, y)

        state = (0, y, z, flow.TensorArray(0))
        _i, *ends, out = flow.while_loop(lambda i, *_state: i < drawn["trips"], body, state)
        loss = flow.sum(ends[0]) + flow.sum(ends[1]) * 2.0 + flow.sum(flow.square(out.stack()))
        asked = [*map(flow.identity, ends), *flow.gradients(loss, [x, y, z, w])]
    is_far, workers = drawn["is_far"], drawn["workers"]
    ways = {(s, t): one for (s, t), one in WAYS.items() if is_far and max(s, t) < workers}
    dispatch_s = DISPATCH_S if drawn["dispatches"] else [0.0] * 3
    times = Times(dispatch_s, KERNEL_S if is_far else [1.0, 1.1, 1.2], ways, BYTES_PER_S)
    how = {
        "placement": placed(asked, workers, drawn["seed"]),
        "parallel_iterations": drawn["window"],
        "run_ahead": drawn["run_ahead"],
    }
    feeds = {"x": np.ones((4, 3)), **dict.fromkeys("yzw", np.ones(3))}
    assert_room_moves_nothing(asked, feeds, times, workers, how)
