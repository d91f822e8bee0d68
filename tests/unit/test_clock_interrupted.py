"""Ctrl-C while a run is on the wall: it comes between steps, and what was recorded is whole."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import ampsim
from ampsim.cli.run import _kept_time
from ampsim.clock import WallClock, interrupted_after
from ampsim.hardware import Cluster, Device, Link, Ports, Topology
from ampsim.runs.folder import run_to_keep
from ampsim.study.simulation import RunOptions

BYTES: dict[str, Any] = {"latency_s": 1e-6, "bandwidth_bytes_per_s": 2e5}
FABRICS: dict[str, dict[str, Any]] = {
    "links": {"link": Link(**BYTES)},
    "fair ring": {"topology": Topology(kind="ring", **BYTES), "link": Link(**BYTES)},
    "ring": {"topology": Topology(kind="ring", **BYTES), "sharing": "first-come"},
    "fair ports": {"ports": Ports(egress_bytes_per_s=2e5)},
}
SCHEDULES = {
    "amp": ampsim.Amp(3),
    "gpipe": ampsim.GPipe(3),
    "sync-sgd": ampsim.SyncSGD(ranks=3),
    "async-sgd": ampsim.AsyncSGD(ranks=2),
}


@dataclass
class Quiet:
    """What an event loop says of tasks that nobody looked after."""

    said: list[Any]


@pytest.fixture
def quiet() -> Quiet:
    """Nothing was said yet; `gc.collect()` looks at what this test made, and at nothing older."""
    gc.freeze()
    return Quiet([])


def clock_of(quiet: Quiet) -> WallClock:
    clock = WallClock(1.0)
    clock.loop.set_exception_handler(lambda _loop, context: quiet.said.append(context))
    return clock


MOMENTS = {
    (name, fabric): (one + other) % 4
    for one, name in enumerate(SCHEDULES)
    for other, fabric in enumerate(FABRICS)
}
"""For each pair one of four moments; each schedule, and each fabric, meets all of them."""


@pytest.mark.parametrize(("schedule", "fabric"), MOMENTS)
def test_an_interrupted_run_is_whole_and_its_times_make_sense(chain, quiet, schedule, fabric):
    """Each moment some events later than the last: in an event, or while the next is waited for."""
    cluster = Cluster(
        name="test", devices=(Device(name="d", flop_per_s=1e5),) * 3, **FABRICS[fabric]
    )
    model = chain(((10, 20, 3),) * 3, instances=500).model()
    clock, moment = clock_of(quiet), MOMENTS[schedule, fabric]

    def interrupt(_simulation: Any) -> None:
        press = threading.Timer(0.03 * moment, os.kill, (os.getpid(), signal.SIGINT))
        clock.call_later(1e-3 * (1 + 7 * moment), press.run if moment % 2 else press.start)

    options = RunOptions(mode="sleep", clock=clock, on_start=interrupt, placement="paper")
    outcome = run_to_keep(model, cluster, SCHEDULES[schedule], options)
    clock.close()
    assert outcome.is_interrupted
    assert clock.elapsed_s >= clock.now > 0
    said = _kept_time(clock)
    assert said.startswith("on the wall: ") and "-" not in said.split("; events")[0]
    path = outcome.result.critical_path
    assert path["start_s"].iloc[1:].tolist() == path["end_s"].iloc[:-1].tolist()
    assert path["end_s"].iloc[-1] == outcome.result.makespan_s
    caused = outcome.result.spans["cause"].to_numpy()
    sent = -(caused[(caused <= -2) & (caused % 2 == 0)] + 2) // 2
    assert (sent < len(outcome.result.transfers)).all()
    gc.collect()
    assert not quiet.said


@pytest.mark.parametrize("in_notebook", [False, True])
def test_an_interruption_ends_run_soon_and_no_event_comes_after_it(quiet, in_notebook):
    """Also where a loop runs already, as in a notebook."""
    clock, seen = clock_of(quiet), list[float]()

    async def sleeper() -> None:
        while True:
            await clock.sleep(1e-3)
            seen.append(clock.now)

    async def notebook() -> None:
        clock.run()

    clock.start(sleeper(), "sleeper")
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    other = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        other.run_until_complete(notebook()) if in_notebook else clock.run()
    other.close()
    count = len(seen)
    clock.close()
    gc.collect()
    assert count == len(seen) > 10
    assert not quiet.said
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_comes_through_at_once(quiet):
    """A function of the user's that never ends is ended by pressing twice."""
    clock, seen = clock_of(quiet), list[int]()

    def hang() -> None:
        for press in (1, 2, 3):
            signal.raise_signal(signal.SIGINT)
            seen.append(press)

    clock.call_later(0.0, hang)
    with pytest.raises(KeyboardInterrupt):
        clock.run()
    clock.close()
    assert seen == [1]


def test_a_handler_that_raises_nothing_stops_nothing():
    clock, came = WallClock(), list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        clock.call_later(0.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        clock.call_later(0.05, lambda: came.append(0))
        clock.run()
    finally:
        signal.signal(signal.SIGINT, before)
    clock.close()
    assert came == [signal.SIGINT, 0]


def test_a_block_is_interrupted_when_its_time_is_over_and_not_after_it():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.01):
        threading.Event().wait(60)
    with interrupted_after(None):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with interrupted_after(3600.0):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
