"""What nodes that make many messages of one send over links: each message's own bytes."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ampsim
from ampsim.hardware import Cluster, Device, Link
from ampsim.ir import Graph, Partition
from ampsim.nodes import Collect, Distribute, Group, Linear, Replicate, SquaredError
from ampsim.optim import sgd

WIDTH, OUT, COPIES = 3, 2, 4


class Item(NamedTuple):
    instance: int
    copy: int = 0


def graph() -> Graph:
    """A layer, whose rows go to a layer for each part; and copies of what these give."""
    made = Graph("parts")
    x, y, control = made.controller(x=("rows", WIDTH), y=("all", OUT), parts=("rows",))
    hidden = made.add(Linear("below", WIDTH, WIDTH), x)
    wires = made.branch(Distribute("distribute", 2), hidden, control)
    layers = [made.add(Linear(f"part-{n}", WIDTH, OUT), wire) for n, wire in enumerate(wires)]
    whole = made.add(Collect("collect", 2), *layers, control)
    copies = made.add(Replicate("replicate", lambda s, i: s._replace(copy=i), copies_of), whole)
    last = made.add(Linear("above", OUT, OUT), copies)
    made.end(SquaredError("loss"), made.add(Group("group", place, rows="all"), last), y)
    return made


def copies_of(_state: Any) -> int:
    return COPIES


def place(state: Any) -> tuple[Any, int, int]:
    return state._replace(copy=0), state.copy, COPIES


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_message_over_a_link_has_the_bytes_of_its_own_payload(mode, dtype):
    draw, item, rows = random.Random(dtype), np.dtype(dtype).itemsize, 7
    parts = [[draw.randrange(rows) for _ in range(count)] for count in (5, 2)]
    batch = SimpleNamespace(
        rows=rows, x=np.ones((rows, WIDTH), dtype), y=np.ones((COPIES * rows, OUT), dtype)
    )
    data: Any = SimpleNamespace(
        name="ones", description="", batches=lambda *_args, **_keys: iter([batch]),
        count=lambda _split: rows, batch_count=lambda _split: 1,
    )  # fmt: skip
    made = ampsim.Model(
        name="parts", config=None, make_graph=graph, make_data=lambda *_args: data,
        pump=lambda n, one: [
            ("x", Item(n), one.x), ("y", Item(n), one.y), ("parts", Item(n), Partition(parts, rows))
        ],
        optimizer=sgd(0.01), dtype=dtype, metric="error",
    )  # fmt: skip
    hosts = Cluster(
        name="test", devices=(Device(name="d", flop_per_s=1e9),) * 9, link=Link(latency_s=1e-6)
    )
    result = ampsim.simulate(made, hosts, ampsim.Sequential(), mode=mode)
    sent = result.transfers[["source", "target", "bytes"]].itertuples(index=False, name=None)
    found = Counter(one for one in sent if "controller" not in f"{one}")
    way = [("below", "distribute", rows * WIDTH)]
    for n, part in enumerate(parts):
        way += [
            ("distribute", f"part-{n}", len(part) * WIDTH),
            (f"part-{n}", "collect", len(part) * OUT),
        ]
    way += [("collect", "replicate", rows * OUT), ("group", "loss", COPIES * rows * OUT)]
    way += [("replicate", "above", rows * OUT), ("above", "group", rows * OUT)] * COPIES
    expected = Counter((one, other, item * size) for one, other, size in way * 2)  # validated, too
    expected += Counter((other, one, item * size) for one, other, size in way)
    assert found == expected
