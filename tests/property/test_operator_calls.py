"""A kernel of a program is charged for the calls of NumPy that it makes, and what they pass over.

Each listed operator computes on arrays that count (`watched`), and is run on devices that charge
nothing but calls, or nothing but passes. Calls are as many, and passes within an eighth. Gradients
are built of listed operators. What integers and truth values alone decide is the host's, and free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operator_cases import cases
from watched import plain, watched, watching

from ampsim import flow
from ampsim.dataflow.graph import apply
from ampsim.dataflow.operator import OPERATORS
from ampsim.hardware import Cluster, Device

OFF = 1 / 8  # chosen: numbers of rows are not counted apart, a pass too many is found
MEANT = {
    "numpy_function": "what it calls is its own, and it is charged a pass",
    "random": "the stream of a place is told by its seed, which here takes calls of its own",
}
ONE = {"flop_per_s": 1e24, "memory_bandwidth_bytes_per_s": 1e24}
CALLS = Device(name="calls", operation_overhead_s=1.0, pass_bandwidth_bytes_per_s=1e24, **ONE)
PASSES = Device(name="passes", pass_bandwidth_bytes_per_s=1.0, **ONE)

SMALL = np.float32(2.0)
X, Y = np.random.default_rng(0).normal(size=(2, 60, 80)).astype(np.float32)
MORE = {
    "add, alike": ([X, Y], {}),
    "add, a number": ([X, SMALL], {}),
    "add_n, four": ([X, Y, X + 1, Y + 1], {}),
    "less, alike": ([X, Y], {}),
    "equal, a number": ([X, SMALL], {}),
    "where, alike": ([X > 0, X, Y], {}),
    "where, a number": ([X > 0, X, SMALL], {}),
    "sum, all": ([X], {"axis": None}),
    "sum_to, as it is": ([X, np.array(X.shape)], {"static": None}),
    "pick, of a large table": ([X, np.array([3])], {}),
}
CASES = {**cases(20), **MORE}


def single(value: Any) -> Any:
    return np.float32(value) if np.asarray(value).dtype.kind == "f" else value


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_takes_the_calls_and_passes_that_it_is_charged(name):
    values, attributes = CASES[name]
    operator, values = OPERATORS[name.split(",")[0]], list(map(single, values))
    assert operator.kernel is not None, "a primitive is none of these"
    with flow.FlowGraph():
        feeds = {f"x{place}": np.asarray(one) for place, one in enumerate(values)}
        inputs = [flow.input(one, value.shape, value.dtype) for one, value in feeds.items()]
        asked = apply(operator.name, *inputs, **attributes)
    charged = [
        flow.run(asked, feeds, cluster=Cluster(name="one", devices=(device,))).makespan_s
        for device in (CALLS, PASSES)
    ]
    is_free = not any(one.is_float for one in (*inputs, asked)) or operator.reads_shapes
    with watching() as calls:
        for _again in range(2):  # what is kept for all of a type is there
            calls.clear()
            given = [one if np.asarray(one).dtype.kind == "i" else watched(one) for one in values]
            tag = [(0, ())] * operator.needs_tag
            plain(operator.kernel(*tag, *given, **attributes))
        took = [len(calls), sum(one.bytes for one in calls if not one.is_product)]
    took = [0, 0] if is_free else took
    is_near = round(charged[0], 9) == took[0] and abs(charged[1] - took[1]) <= OFF * took[1] + 1e-9
    assert is_near != (name in MEANT), f"charged {charged}, taken {took}"
