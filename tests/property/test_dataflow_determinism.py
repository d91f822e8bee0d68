"""A run of a graph is the same in another process, under another hash seed, and with jitter."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from ampsim import flow
from ampsim.hardware import Cluster, Device

PROGRAM = """
import hashlib, numpy as np
from ampsim import flow
from ampsim.hardware import Cluster, Device
with flow.FlowGraph():
    x, w = flow.input("x", (3, 3)), flow.input("w", (3, 3))
    def body(i, y):
        z = flow.cond(i % 2 > 0, lambda: flow.tanh(flow.matmul(y, w)), lambda: y * w)
        return i + 1, flow.scan(lambda a, e: a + e * 0.5, z, w_row) + z
    w_row = flow.pick(w, 0)
    y = flow.while_loop(lambda i, y: i < 4, body, (0, x), shapes=[(), (None, 3)])[1]
    asked = [y, *flow.gradients(flow.sum(y), [x, w])]
device = Device(name="d", flop_per_s=1e9, dispatch_s=1e-7, jitter_cv=0.2)
feeds = {"x": np.eye(3), "w": np.arange(9.0).reshape(3, 3) / 9}
result = flow.run(asked, feeds, cluster=Cluster(name="c", devices=(device,)), seed=3)
digest = hashlib.sha256(b"".join(one.tobytes() for one in result.values))
digest.update(result.spans.to_csv().encode())
print(digest.hexdigest(), result.makespan_s)
"""


SWAPPING = """
import hashlib, numpy as np
from ampsim import flow
from ampsim.hardware import Cluster, Device
with flow.FlowGraph():
    x, w = flow.input("x", (20, 20)), flow.input("w", (20, 20))
    body = lambda i, y: (i + 1, flow.tanh(flow.matmul(y, w)) * y)
    y = flow.while_loop(lambda i, y: i < 9, body, (0, x))[1]
    asked = flow.gradients(flow.sum(y), [x, w])
device = Device(name="d", flop_per_s=1e9, memory_bytes=90_000, copy_bandwidth_bytes_per_s=1e9)
feeds = {"x": np.eye(20), "w": np.eye(20)}
result = flow.run(asked, feeds, cluster=Cluster(name="c", devices=(device,)), swap_memory=True)
assert result.swapped_out_bytes
told = result.spans.to_csv() + result.memory.to_csv()
print(hashlib.sha256(told.encode()).hexdigest(), result.makespan_s)
"""


DEVICES = """
import hashlib, numpy as np
from ampsim import flow
from ampsim.hardware import Cluster, Device, Link
with flow.FlowGraph():
    x, w = flow.input("x", (3, 3)), flow.input("w", (3, 3))
    def body(i, y):
        def deep():
            with flow.device(2):
                return flow.tanh(flow.matmul(y, w))
        with flow.device(1):
            half = flow.cond(i % 2 > 0, deep, lambda: y * 0.5)
        return i + 1, half + y
    y = flow.while_loop(lambda i, y: i < 5, body, (0, x))[1]
    asked = [y, *flow.gradients(flow.sum(y), [x, w])]
devices = (Device(name="d", flop_per_s=1e9, dispatch_s=1e-7, jitter_cv=0.2),) * 3
link = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)
feeds = {"x": np.eye(3), "w": np.eye(3)}
result = flow.run(asked, feeds, cluster=Cluster(name="c", devices=devices, link=link), seed=3)
assert result.sent["dead"]
told = result.spans.to_csv() + result.transfers.to_csv() + str(result.sent)
print(hashlib.sha256(told.encode()).hexdigest(), result.makespan_s)
"""

DECIDING = """
import ampsim
for name in ("moe_rnn", "act_rnn"):
    model = ampsim.load_model(name, hidden=6, batch=5, devices=2)
    cluster = ampsim.load_cluster("p100", workers=2, latency_s=1e-6)
    print(ampsim.simulate(model, cluster, "dataflow", instances=20).digest)
model = ampsim.load_model("dqn", hidden=6, batch=5, learn_from=5)
print(ampsim.simulate(model, "p100", "dataflow", instances=20).digest)
"""

RUNS = (PROGRAM, SWAPPING, DEVICES, DECIDING)
"""One after the other in a process, for to start one takes longer than a run."""


@pytest.mark.slow
def test_no_run_depends_on_the_hash_seed():
    told = [
        subprocess.run(
            [sys.executable, "-c", "".join(RUNS)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        for seed in ("0", "1", "77")
    ]  # fmt: skip
    assert [len(one) for one in told] == [6, 6, 6]
    assert told[0] == told[1] == told[2]


def test_jitter_changes_times_and_no_value():
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))
        body = lambda i, y: (i + 1, flow.matmul(y, y))  # noqa: E731  # as users write it
        y = flow.while_loop(lambda i, y: i < 5, body, (0, x))[1]
    runs = []
    for cv in (0.0, 0.5):
        device = Device(name="d", flop_per_s=16.0, jitter_cv=cv)
        cluster = Cluster(name="c", devices=(device,))
        runs.append(flow.run(y, {"x": np.eye(2)}, cluster=cluster))
    assert np.array_equal(runs[0].values[0], runs[1].values[0])
    assert runs[0].makespan_s == pytest.approx(5.0)
    assert runs[1].makespan_s != runs[0].makespan_s
