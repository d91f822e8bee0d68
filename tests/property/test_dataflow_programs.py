"""Random nested programs: as plain Python runs them, and as a machine of tokens does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from dataflow_programs import Built, Dual, Plain, interpret, programs
from hypothesis import given, settings
from hypothesis import strategies as st
from token_machine import Fired, TokenMachine, needed

from ampsim import flow, load_cluster
from ampsim.dataflow import session
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.operator import ASKED

FEEDS: dict[str, Any] = {"a": 0.75, "b": -0.5, "k": 3}
CLUSTER = load_cluster("tflops-1")
"""The default, read once."""


class Recording(Executor):
    """An executor that keeps what it ran."""

    log: list[Fired]

    def run(self, step: Any, iteration: Any) -> None:
        if step.node.operator is not ASKED:  # what gathers the answers is no node of the program
            is_dead = bool(iteration.is_dead[step.number])
            Recording.log.append(Fired(step.node.name, iteration.path, is_dead))
        super().run(step, iteration)


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(session, "Executor", Recording)


def built(block: Any, *, has_gradients: bool = False) -> list[flow.Tensor]:
    with flow.FlowGraph():
        inputs = tuple(flow.input(name, (), "float64") for name in "ab")
        state = interpret(block, [(*inputs, flow.input("k", (), "int64"))], Built())
        asked = [flow.identity(one) for one in state]
        if has_gradients:
            asked += flow.gradients(asked[0] + asked[1] * 2.0, inputs)
        return asked


def fed(asked: list[flow.Tensor]) -> dict[str, Any]:
    names = {node.name for node in needed(asked)}
    return {name: np.asarray(value) for name, value in FEEDS.items() if name in names}


def ran(asked: list[flow.Tensor], **options: Any) -> tuple[list[Any], Counter[Fired]]:
    Recording.log = []
    values = flow.run(asked, fed(asked), cluster=CLUSTER, **options).values
    return values, Counter(Recording.log)


def plain(block: Any) -> list[float]:
    return [float(one) for one in interpret(block, [tuple(FEEDS.values())], Plain())]


def slopes(block: Any) -> tuple[float, ...]:
    """The gradients of what is asked, carried forward."""
    a, b, k = FEEDS.values()
    state = interpret(block, [(Dual(a, 1.0, 0.0), Dual(b, 0.0, 1.0), k)], Plain())
    return (state[0] + state[1] * 2.0).slopes


@settings(max_examples=100, deadline=None)
@given(block=programs(), window=st.integers(0, 3))
def test_a_program_computes_what_plain_python_does(block, window):
    asked = built(block)
    values, fired = ran(asked, parallel_iterations=window)
    assert [float(one) for one in values] == plain(block)
    assert max(fired.values(), default=0) <= 1


@pytest.mark.slow(20)
@settings(max_examples=1000, deadline=None)
@given(block=programs(), seed=st.integers(0, 9), window=st.integers(0, 3))
def test_what_fires_does_not_depend_on_the_order_of_firing(block, seed, window):
    """Values are those of plain Python and, gradients included, of any order, as is what fires.

    Gradients are those that are carried forward, too.
    """
    asked = built(block, has_gradients=True)
    values, fired = ran(asked, parallel_iterations=window)
    machine = TokenMachine(asked, fed(asked), seed)
    assert [float(one) for one in values[:3]] == plain(block)
    assert [float(one) for one in machine.run()] == [float(one) for one in values]
    assert machine.fired == fired
    np.testing.assert_allclose([float(one) for one in values[3:]], slopes(block), 1e-10, 1e-10)


@settings(max_examples=30, deadline=None)
@given(block=programs(reads_floats=False), window=st.integers(0, 3))
def test_sleep_and_numeric_runs_have_one_trace(block, window):
    asked = built(block, has_gradients=True)
    Recording.log = []
    numeric = flow.run(asked, fed(asked), parallel_iterations=window)
    asleep = flow.run(asked, fed(asked), parallel_iterations=window, mode="sleep")
    assert numeric.spans.equals(asleep.spans)
    assert numeric.frames.equals(asleep.frames)
    assert numeric.decisions.equals(asleep.decisions)
    assert numeric.evaluations.equals(asleep.evaluations)
    assert int(numeric.values[2]) == int(asleep.values[2])
    assert [one.shape for one in asleep.values] == [one.shape for one in numeric.values]
