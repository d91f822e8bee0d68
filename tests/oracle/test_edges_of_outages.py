"""What begins or ends as a step does: times against exact sums that know no clock and no device.

A device does steps one after the other. Outages, and checkpoints, begin and end before, at and
after the ends of these steps. What begins as the last step ends takes no part of the time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from ampsim import DependencyEngine, Sequential, Work, simulate
from ampsim.hardware import Checkpoints, Cluster, Device, Event

QUARTER = Fraction(1, 4)
DEVICE = Device(name="test", flop_per_s=1.0)
FACTORS: dict[str, dict[str, float]] = {"pause": {}, "stop": {}, "slow": {"factor": 2.0}}
NEAR_S = 2**-20
"""Before and after an end; exact in binary."""


@dataclass(frozen=True)
class Window:
    """When a device is not as usual."""

    kind: str
    from_s: Fraction
    until_s: Fraction

    def event(self) -> Event:
        kind: Any = self.kind
        times = {"from_s": float(self.from_s), "until_s": float(self.until_s)}
        return Event(kind=kind, worker=0, **times, **FACTORS[self.kind])


def end_of(start_s: Fraction, work_s: Fraction, windows: Sequence[Window]) -> Fraction:
    """When a step ends that could begin then: it does so when the device is up."""
    at_s, left_s, has_begun = start_s, work_s, False
    while True:
        active = [one for one in windows if one.from_s <= at_s < one.until_s]
        edges = [edge for one in windows for edge in (one.from_s, one.until_s) if edge > at_s]
        next_s = min(edges, default=None)
        if any(one.kind != "slow" for one in active):
            if has_begun and any(one.kind == "stop" for one in active):
                left_s = work_s
            assert next_s is not None
            at_s = next_s
            continue
        has_begun = True
        slowness = 2 ** len(active)
        if next_s is None or at_s + left_s * slowness <= next_s:
            return at_s + left_s * slowness
        left_s -= (next_s - at_s) / slowness
        at_s = next_s


def ends_of(works: Sequence[int], windows: Sequence[Window]) -> list[Fraction]:
    at_s, ends = Fraction(0), list[Fraction]()
    for work in works:
        at_s = end_of(at_s, Fraction(work), windows)
        ends.append(at_s)
    return ends


def around(works: Sequence[int], kinds: Sequence[str]) -> list[list[Window]]:
    """One window of each kind that begins, or ends, before, at and after the end of each step."""
    ends = ends_of(works, [])
    found: list[list[Window]] = []
    for kind in kinds:
        for end_s in ends:
            for off in (-Fraction(NEAR_S), Fraction(0), Fraction(NEAR_S)):
                found.append([Window(kind, end_s + off, end_s + off + 100)])
                found.append([Window(kind, max(end_s + off - QUARTER, Fraction(0)), end_s + off)])
    return found


def at_random(works: Sequence[int], count: int) -> list[list[Window]]:
    """Windows, one after the other, on a grid of quarters of a second."""
    chosen, found = random.Random(5), list[list[Window]]()
    for _ in range(count):
        windows, at_s = list[Window](), Fraction(0)
        for _ in range(chosen.randint(1, 4)):
            start_s = at_s + chosen.randint(0, 2 * sum(works)) * QUARTER
            at_s = start_s + chosen.randint(1, 12) * QUARTER
            windows.append(Window(chosen.choice(list(FACTORS)), start_s, at_s))
        found.append(windows)
    return found


STEPS = (2, 3, 1)
CASES = [*around(STEPS, list(FACTORS)), *at_random(STEPS, 60)]


def cluster_of(windows: Sequence[Window], **keys: Any) -> Cluster:
    return Cluster(
        name="test", devices=(DEVICE,) * 2, events=tuple(one.event() for one in windows), **keys
    )


@pytest.mark.parametrize("dispatch_s", [0.0, 2**-30])
def test_the_engine_of_dependencies_ends_with_its_last_operation(dispatch_s):
    """Also where operations are issued: a lane that is down with its device waits for nothing."""
    for windows in CASES if not dispatch_s else CASES[:12]:
        cluster = cluster_of(windows)
        issuing = DEVICE.model_copy(update={"dispatch_s": dispatch_s})
        engine = DependencyEngine(cluster.model_copy(update={"devices": (issuing, DEVICE)}))
        variable = engine.new_variable("a")
        for flop in STEPS:
            engine.push(None, mutates=[variable], on=0, work=Work(flop=flop))
        engine.wait_for_all()
        assert engine.now_s == engine.result.makespan_s, windows
        ends_s = engine.result.operations["end_s"].tolist()
        if not dispatch_s:
            expected = [float(end_s) for end_s in ends_of(STEPS, windows)]
            assert ends_s == pytest.approx(expected, rel=1e-12), windows


def test_an_operation_that_takes_no_time_waits_until_its_device_is_up():
    engine = DependencyEngine(cluster_of([Window("pause", Fraction(1), Fraction(100))]))
    variable = engine.new_variable("a")
    engine.push(None, mutates=[variable], on=0, work=Work(flop=1))
    engine.push(None, reads=[variable], on=0)
    engine.push(None, reads=[variable], on=1)
    engine.wait_for_all()
    assert engine.result.operations["end_s"].tolist() == pytest.approx([1.0, 100.0, 1.0], rel=1e-12)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_pass_ends_with_its_last_step(chain, epochs):
    """One stage, one instance after the other: forward, backward, update."""
    model = chain((STEPS,), instances=1).model()
    for windows in around(STEPS * epochs, list(FACTORS)) + at_random(STEPS * epochs, 30):
        result = simulate(model, cluster_of(windows), Sequential(), epochs=epochs, mode="sleep")
        expected = [float(end_s) for end_s in ends_of(STEPS * epochs, windows)]
        assert result.epochs["time_s"].tolist() == pytest.approx(expected[2::3]), windows
        assert result.makespan_s == pytest.approx(expected[-1], rel=1e-12), windows


def with_checkpoints(steps: Sequence[int], every_s: Fraction, takes_s: Fraction) -> Fraction:
    """When the last step ends: a checkpoint that is due comes before the next step.

    It is left out where nothing was updated since the last; every third step is an update.
    """
    at_s, due, has_changed = Fraction(0), 1, False
    for number, work in enumerate(steps):
        if due * every_s <= at_s:
            due = math.floor(at_s / every_s) + 1
            if has_changed:
                at_s, has_changed = at_s + takes_s, False
        at_s += work
        has_changed |= number % 3 == 2
    return at_s


@pytest.mark.parametrize("instances", [1, 2, 5])
def test_checkpoints_take_time_between_steps_only(chain, instances):
    """Periods at which steps end, and a little before and after; the last one is for nobody."""
    model = chain((STEPS,), instances=instances).model()
    steps, takes_s = STEPS * instances, Fraction(7, 8)
    for period in range(1, sum(steps) + 2):
        for off in (-Fraction(NEAR_S), Fraction(0), Fraction(NEAR_S)):
            every_s = period + off
            checkpoints = Checkpoints(every_s=float(every_s), takes_s=float(takes_s))
            cluster = cluster_of([], checkpoints=checkpoints)
            result = simulate(model, cluster, Sequential(), mode="sleep")
            expected = float(with_checkpoints(steps, every_s, takes_s))
            assert result.makespan_s == pytest.approx(expected, rel=1e-12), every_s
            assert result.epochs["time_s"].tolist() == pytest.approx([expected], rel=1e-12)
