"""Random nested programs on a small memory: the same bits, an empty account, and a counted peak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dataflow_programs import Built, interpret, programs
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from live_tensors import peak_bytes, reads_all_that_it_pops

from ampsim import flow
from ampsim.dataflow.graph import apply
from ampsim.dataflow.plan import needed
from ampsim.errors import OutOfMemoryError
from ampsim.hardware import Cluster, Device, Link

ELEMENTS = 300
"""Of a vector, which takes 2400 bytes: enough to be swapped."""

FEEDS: dict[str, Any] = {
    "a": np.linspace(0.5, 1.0, ELEMENTS), "b": np.linspace(-0.5, 0.25, ELEMENTS), "k": 3,
}  # fmt: skip

cases = st.fixed_dictionaries(
    {"parallel_iterations": st.integers(0, 3), "run_ahead": st.booleans()}
)


def built(block: Any) -> tuple[list[flow.Tensor], dict[str, Any]]:
    """What a program five times over and its gradients give, and what they are fed."""
    with flow.FlowGraph():
        inputs = tuple(flow.input(name, (ELEMENTS,), "float64") for name in "ab")
        product = ("float", 0, "multiply", (0, 0), (0, 1))  # its gradient needs both factors
        block = [("while", 5, False, [*block, product])]
        state = interpret(block, [(*inputs, flow.input("k", (), "int64"))], Built())
        asked = [flow.identity(one) for one in state]
        asked += flow.gradients(flow.sum(asked[0] + asked[1] * 2.0), inputs)
    names = {node.name for node in needed(asked)}
    return asked, {name: np.asarray(value) for name, value in FEEDS.items() if name in names}


def cluster_of(memory_bytes: int | None, dispatch_s: float = 0.0, copy_s: float = 0.5) -> Cluster:
    """A device on which an operator takes a second, and a copy half of that."""
    device = Device(
        name="test", flop_per_s=1.0, memory_bytes=memory_bytes, dispatch_s=dispatch_s,
        operation_overhead_s=0.0 if dispatch_s else 1.0,
        copy_bandwidth_bytes_per_s=8 * ELEMENTS / copy_s,
    )  # fmt: skip
    return Cluster(name="test", devices=(device,))


shares = st.sampled_from([1.0, 0.9, 0.8, 0.7])


@pytest.mark.slow(6)
@settings(max_examples=100, deadline=None)
@given(
    block=programs(reads_floats=False), share=shares, dispatch_s=st.sampled_from([0.0, 0.25]),
    options=cases,
)  # fmt: skip
def test_swapping_changes_no_bit_of_a_program(block, share, dispatch_s, options):
    """The account is empty at the end of every run, or `flow.run` fails."""
    asked, feeds = built(block)
    free = flow.run(asked, feeds, cluster=cluster_of(None, dispatch_s), **options)
    whole = flow.run(asked, feeds, cluster=cluster_of(10**9, dispatch_s), **options)
    runs = [whole]
    assert np.isclose(whole.makespan_s, free.makespan_s, rtol=1e-12)
    room = max(1, int(share * whole.peak_bytes[0]))
    for mode in ("numeric", "sleep"):
        small = cluster_of(room, dispatch_s)
        options = {**options, "mode": mode, "swap_memory": True, "swap_threshold": 0.0}
        try:
            runs.append(flow.run(asked, feeds, cluster=small, **options))
        except OutOfMemoryError:
            event("out of memory")
            assert share < 1
    for result in runs[:2]:
        for one, other in zip(result.values, free.values, strict=True):
            assert one.tobytes() == other.tobytes()
    if len(runs) == 3:
        event("swapped" if runs[1].swapped_out_bytes else "not swapped")
        assert runs[1].spans.equals(runs[2].spans)
        assert runs[1].memory.equals(runs[2].memory)
        assert runs[1].swapped_in_bytes <= runs[1].swapped_out_bytes
        assert runs[1].peak_bytes[0] <= room


@pytest.mark.slow(8)
@settings(max_examples=25, deadline=None)
@given(block=programs(reads_floats=False), window=st.integers(0, 3))
def test_the_peak_of_a_program_is_what_spans_and_readers_say(block, window):
    asked, feeds = built(block)
    assume(reads_all_that_it_pops(asked, feeds))
    result = flow.run(asked, feeds, cluster=cluster_of(10**9), parallel_iterations=window)
    assert result.peak_bytes.tolist() == [peak_bytes(asked, feeds, result.spans)]


def test_what_comes_back_waits_for_no_dispatch_when_a_message_makes_room():
    """It is popped long before the message arrives, which is its cause, in the midst of one."""
    with flow.FlowGraph():
        a, b, handle = flow.input("a", (ELEMENTS,)), flow.input("b", (ELEMENTS,)), apply("stack")
        kept, leaving = apply("push", handle, a * b), flow.tanh(a)
        with flow.device(1):
            elsewhere = flow.exp(leaving)
        chain = [flow.input("k", (), "int64")]
        for _ in range(40):
            chain.append(chain[-1] + 1)
        popped = apply("pop", handle, static=a.shape, dtype=a.dtype)
        popped.node.controls += [kept, chain[10]]
        asked = popped * b
        asked.node.controls.append(chain[-1])
    (small,) = cluster_of(10 * 8 * ELEMENTS, dispatch_s=1.0, copy_s=0.125).devices
    (large,) = cluster_of(10**9).devices
    link = Link(bandwidth_bytes_per_s=8 * ELEMENTS / 20.5)
    two = Cluster(name="two", devices=(small, large), link=link)
    how: Any = {"swap_memory": True, "swap_threshold": 0.35}
    result = flow.run([asked, elsewhere], FEEDS, cluster=two, **how)
    (back,) = result.spans.query("lane == 'copy-in'").itertuples()
    (sent,) = result.transfers.itertuples()
    assert (back.start_s, back.cause) == (pytest.approx(sent.end_s, rel=1e-9), -2)
