"""When a worker waits for a group, and what of grouping is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from ampsim import Amp, simulate
from ampsim.errors import OptionError, SimulationError
from ampsim.hardware import HOST, Cluster, Device, Link
from ampsim.ir import Direction, Graph, Node, Work
from ampsim.model_parallel import OneFOneB
from ampsim.model_parallel.schedules.values import Order
from ampsim.nodes import Linear, SoftmaxCrossEntropy

LEARN_LATE = 10**9


def staggered(chain: Any, make_cluster: Any, wait_s: float) -> Any:
    """Two instances over a link of 1.6 bytes/s: values of 16 bytes come at 10 and 25 s.

    Labels of 8 bytes come at 15 and 30 s.
    """
    cluster = make_cluster(1, links={(HOST, 0): Link(bandwidth_bytes_per_s=1.6)})
    model = chain(((8, 8, 0),), instances=2).model()
    schedule = Amp(2, LEARN_LATE, max_group=2, group_wait_s=wait_s)
    spans = simulate(model, cluster, schedule).spans
    return spans[(spans["node"] == "stage-1") & (spans["direction"] == "forward")]


@pytest.mark.parametrize(
    ("wait_s", "starts_s"),
    [
        (0.0, [10.0, 26.0]),  # the first goes to 18 s and comes back till 26
        (5.0, [15.0, 41.0]),  # to 23, waits and comes back from 28 to 36; the second waits to 41
        (20.0, [30.0, 34.0]),  # both are there for one step of 8 s
    ],
)
def test_a_worker_waits_once_and_then_takes_what_is_there(chain, make_cluster, wait_s, starts_s):
    assert staggered(chain, make_cluster, wait_s)["start_s"].tolist() == pytest.approx(starts_s)


def test_nobody_waits_where_a_group_is_full(chain, make_cluster):
    model = chain(((8, 8, 0),), instances=2).model()
    schedule = Amp(2, LEARN_LATE, max_group=2, group_wait_s=100.0)
    result = simulate(model, make_cluster(1), schedule)
    assert result.spans["start_s"].min() == 0.0 and result.makespan_s == 16.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_group": 0}, "max_group must be a whole number >= 1, got 0"),
        (
            {"max_group": 2, "group_wait_s": -1.0},
            r"group_wait_s must be a number >= 0, got -1\.0",
        ),
        (
            {"max_group": 2, "group_wait_s": math.inf},
            "group_wait_s must be a finite number >= 0, got inf",
        ),
        (
            {"max_group": 2, "group_wait_s": 1e308},
            r"group_wait_s must be at most 1,000,000,000, got",
        ),
        ({"max_group": 2, "group_wait_s": "1"}, "group_wait_s must be a number >= 0, got '1'"),
        (
            {"group_wait_s": 1e-6},
            r"^group_wait_s = 1e-06 waits for a group, but max_group = 1 forms none; take "
            r"max_group=2 or more, or group_wait_s=0$",
        ),
    ],
)
def test_options_out_of_their_range_are_refused(options, text):
    with pytest.raises(OptionError, match=text):
        Amp(**options)


def test_an_order_with_turns_merges_nothing():
    with pytest.raises(OptionError, match=r"merges none, got max_group = 2; take max_group=1$"):
        Order(turns=OneFOneB().order.turns, max_group=2)


class Broken(Node):
    """Sends what is no payload."""

    def forward(self, port: int, state: Any, payload: Any) -> Any:
        return ((0, state, [1, 2]),)

    def backward(self, port: int, state: Any, gradient: Any) -> Any:
        return ((0, state, gradient),)

    def check(self, shapes: Any) -> Any:
        return (shapes[0],)


class NoWork(Linear):
    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        raise LookupError("no work")


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (
            lambda: Broken("n"),
            r"^n \(Broken\) failed at 0 s serving forward One\(instance=0\): AttributeError: ",
        ),
        (
            lambda: NoWork("n", 2, 2),
            r"^n \(NoWork\) failed at 0 s serving forward One\(instance=0\): "
            r"LookupError: no work \(.*, line \d+\)$",
        ),
    ],
)
def test_what_fails_in_a_group_is_told_with_its_node_and_time(chain, layer, text):
    device = Device(name="d", flop_per_s=1.0, operation_overhead_s=1.0)

    def graph() -> Graph:
        made = Graph("g")
        values, label = made.controller(values=("rows", 2), label=("rows",))
        made.end(SoftmaxCrossEntropy("loss"), made.add(layer(), values), label)
        return made

    model = replace(chain(((1, 1, 1),)).model(), make_graph=graph)
    with pytest.raises(SimulationError, match=text):
        simulate(model, Cluster(name="c", devices=(device,)), Amp(3, max_group=3))
