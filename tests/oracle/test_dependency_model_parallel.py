"""A chain under `sequential` and `pipeline`, written as pushes, has the same spans (E8)."""

from __future__ import annotations

import random
from typing import Any

import pytest

import ampsim

FORWARD, BACKWARD, UPDATE = range(3)  # also their priorities
WORDS = ("forward", "backward", "update")


def as_pushes(engine: Any, costs: Any, instances: int, in_flight: int) -> dict[Any, Any]:
    """Start and end of each step, by (stage, direction, instance; of an update its group)."""
    stages = range(len(costs))
    weights = [engine.new_variable(f"W{stage}") for stage in stages]
    gradients = [engine.new_variable(f"G{stage}") for stage in stages]
    steps: list[Any] = []

    def push(stage: int, direction: int, number: int, reads: Any, mutates: Any) -> None:
        steps.append((stage, WORDS[direction], number))
        work = ampsim.Work(flop=costs[stage][direction])
        engine.push(
            None, reads, mutates, on=stage, work=work, priority=direction, name=str(steps[-1])
        )

    for first in range(0, instances, in_flight):
        done: list[Any] = []
        for instance in range(first, min(first + in_flight, instances)):
            passed: list[Any] = []
            for stage in stages:
                output = engine.new_variable()
                admitted = [*weights, *passed[-1:]] if stage == 0 else [weights[stage], passed[-1]]
                push(stage, FORWARD, instance, admitted, [output])
                passed.append(output)
            back = passed[-1]
            for stage in reversed(stages):
                output = engine.new_variable()
                own = [one for one in (back, passed[stage]) if one is not output]
                push(stage, BACKWARD, instance, list(dict.fromkeys([weights[stage], *own])),
                     [gradients[stage], output])  # fmt: skip
                back = output
            done.append(back)
        for stage in stages:
            push(stage, UPDATE, first, [*done, gradients[stage]], [weights[stage]])
    engine.wait_for_all()
    table = engine.result.operations
    times = zip(table["start_s"], table["end_s"], strict=True)
    return dict(zip(steps, times, strict=True))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_chain_pushed_step_by_step_has_the_spans_of_the_model_parallel_method(
    chain, make_cluster, seed, in_flight
):
    chosen = random.Random(seed)
    costs = tuple(
        tuple(chosen.randint(1, 9) for _ in range(3)) for _ in range(chosen.randint(1, 4))
    )
    instances = 6
    schedule: Any = (
        ampsim.Sequential() if in_flight == 1 else ampsim.Pipeline(max_active_keys=in_flight)
    )
    cluster = make_cluster(len(costs))
    model = chain(costs, instances=instances).model()
    spans = ampsim.simulate(model, cluster, schedule, mode="sleep").spans
    spans = spans[spans["end_s"] > spans["start_s"]]
    expected = sorted(
        zip(spans["worker"], spans["direction"], spans["start_s"], spans["end_s"], strict=True)
    )
    found = as_pushes(ampsim.DependencyEngine(cluster), costs, instances, in_flight)
    told = sorted((stage, word, *times) for (stage, word, _), times in found.items())
    assert told == expected
    numbered = {
        (worker, direction, instance): (start, end)
        for worker, direction, instance, start, end in zip(
            spans["worker"], spans["direction"], spans["instance"], spans["start_s"],
            spans["end_s"], strict=True,
        )
        if direction != "update"
    }  # fmt: skip
    assert {key: found[key] for key in numbered} == numbered
