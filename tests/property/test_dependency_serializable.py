"""Whatever runs in parallel, a program comes to what it comes to in push order (E1)."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from dependency_programs import Program, check
from hypothesis import given, settings
from hypothesis import strategies as st

import ampsim
from ampsim.dependency import POLICIES


@pytest.mark.slow(8)
@settings(max_examples=500, derandomize=True, deadline=None)
@given(st.integers(0, 2**40))
def test_random_programs_come_to_what_push_order_gives(seed):
    check(seed)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_program_runs_the_same_way_twice(name):
    digests = set()
    for _ in range(2):
        cluster = ampsim.load_cluster("tflops-1", workers=2, bandwidth_bytes_per_s=1e12)
        engine = ampsim.DependencyEngine(cluster, POLICIES[name](), push_s=1e-12)
        digests.add(Program(7, engine).run(60).digest)
    assert len(digests) == 1


@pytest.mark.slow
def test_a_program_runs_the_same_way_in_every_process():
    code = (
        "from dependency_programs import Program\n"
        "print([Program(seed).run(40).digest for seed in range(8)])"
    )
    told = {f"{[Program(seed).run(40).digest for seed in range(8)]}\n"}  # by a seed of its own
    for hash_seed in ("1", "4711"):
        environment = {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(Path(ampsim.__file__).parents[1]),
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True, env=environment,
            cwd=Path(__file__).parent,
        )  # fmt: skip
        told.add(done.stdout)
    assert len(told) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_reference_in_which_two_that_conflict_are_exchanged_is_found(seed):
    """Of any two next to each other that both mutate something: no sum hides their order."""
    program = Program(seed)
    steps = [program.steps.get(name) for name in program.run().operations["name"]]
    steps = [one for one in steps if one is not None and one.mutates]

    def values(order):
        found = dict.fromkeys(program.values, "")
        for one in order:
            one.apply(found)
        return found

    exchanged = 0
    for place, (first, second) in enumerate(pairwise(steps)):
        shared = {*first.reads, *first.mutates} & {*second.reads, *second.mutates}
        if shared & {*first.mutates, *second.mutates}:
            exchanged += 1
            order = [*steps[:place], second, first, *steps[place + 2 :]]
            assert values(order) != values(steps), (first.name, second.name)
    assert exchanged
