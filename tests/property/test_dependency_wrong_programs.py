"""Wrong programs on the dependency engine: each is told in one line, and none hangs."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from dependency_programs import DEVICE, policy_of

import ampsim
from ampsim.dependency import Arrays, CaseStudy, Random, Workspace, fullc_forward, loss_gradient
from ampsim.errors import AmpsimError
from ampsim.hardware import Cluster

PROGRAMS = 500
CLUSTER = Cluster(name="one", devices=(DEVICE,))
JUNK: list[Any] = [
    None, True, -1, 0, 1, 7, 1.5, -0.5, math.nan, math.inf, 10**40, 1j, "", "host", "A", b"x",
    [], [1], (None,), {}, {1: 2}, set(), object(), int, len, np.zeros(3), np.float32(2), "\n",
    lambda: None, lambda a, b: None, ampsim.Work(flop=-5), ampsim.Work(flop="much"),  # pyright: ignore[reportArgumentType]  # junk
    range(3), np.array(["a"]), Exception("x"),
]  # fmt: skip


class Broken:
    """What raises whatever one does with it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __call__(self) -> None:
        raise OSError("disk\nis full")


def fails() -> None:
    raise RuntimeError("two\nlines")


class Wrong:
    """One program with junk in it.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.told: list[str] = []
        self.engine: Any = None
        junk_s = self.perhaps(0.0, 0.1)
        self.attempt(lambda: self.make(junk_s))
        if self.engine is None:
            self.engine = ampsim.DependencyEngine(CLUSTER)
        other = ampsim.DependencyEngine(CLUSTER)
        self.variables: list[Any] = [self.engine.new_variable() for _ in range(4)]
        self.variables.append(other.new_variable("foreign"))

    def make(self, push_s: Any) -> None:
        self.engine = ampsim.DependencyEngine(
            self.perhaps(CLUSTER, 0.1), self.perhaps(policy_of(self.random), 0.1), push_s=push_s
        )

    def perhaps(self, value: Any, chance: float = 0.15) -> Any:
        """The value, or junk."""
        if self.random.random() >= chance:
            return value
        return self.random.choice([*JUNK, Broken(), fails])

    def attempt(self, call: Any) -> None:
        """Make a call; what it refuses is one line."""
        text = None
        try:
            call()
        except AmpsimError as error:
            text = str(error)
        if text is not None:
            assert text.strip()
            assert "\n" not in text, text
            self.told.append(text)

    def some(self) -> Any:
        chosen = [
            self.perhaps(self.random.choice(self.variables))
            for _ in range(self.random.randint(0, 2))
        ]
        return self.perhaps(chosen)

    def call(self) -> None:
        """One call of a public name, right or wrong."""
        engine, perhaps = self.engine, self.perhaps
        function = perhaps(self.random.choice([None, lambda: None, fails, Broken(), self.call]))
        reads, mutates = self.some(), self.some()
        one = perhaps(self.random.choice(self.variables))
        calls = [
            lambda: engine.push(
                function, reads, mutates, on=perhaps(0), work=perhaps(ampsim.Work(flop=5)),
                name=perhaps(None), priority=perhaps(0), rows=perhaps(None),
                matrix_elements=perhaps(None), is_backward=perhaps(False),
            ),
            lambda: engine.push_copy(
                function, reads, mutates, source=perhaps(0), target=perhaps("host"),
                size_bytes=perhaps(8), name=perhaps("copy"), priority=perhaps(1),
            ),
            lambda: engine.delete_variable(one, function),
            lambda: engine.wait_for(one),
            lambda: self.variables.append(engine.new_variable(perhaps("new"))),
            lambda: engine.result.queues_at(perhaps(0.0)),
            lambda: Random(perhaps(engine, 0.05), perhaps(0)).draw(
                perhaps(lambda generator: generator.normal()), perhaps([one])
            ),
            lambda: Workspace(engine, perhaps(0), perhaps(2)).request(perhaps(100)),
            lambda: ampsim.PerDevice(perhaps(1), perhaps(1)),
            lambda: CaseStudy(perhaps((4, 3)), perhaps(1), perhaps(2)).run(engine, 1),
            self.arrays,
        ]  # fmt: skip
        self.attempt(self.random.choice(calls))

    def arrays(self) -> None:
        """Arrays, and expressions of them."""
        perhaps = self.perhaps
        a, b = Arrays(perhaps(self.engine, 0.05), dtype=perhaps("float32")).new("a", "b")
        a[perhaps(0)] = perhaps(np.zeros((4, 3)))
        b["host"] = perhaps(np.zeros((self.random.choice((3, 4)), 3)))
        if self.random.random() < 0.5:
            a[0] = fullc_forward(a[0], b["host"])
            b[0] = loss_gradient(a[0], perhaps(b["host"][0:2]))
        b["host"] = a[0] + b["host"]
        b["host"] -= perhaps(0.5) * a[0]
        a[0].copyto(b["host"], perhaps(b[0]))
        self.attempt(a[0].numpy)
        a[0].delete()


@pytest.mark.parametrize("part", range(5))
def test_wrong_programs_are_told_in_one_line_and_none_hangs(part):
    told = 0
    for seed in range(part * PROGRAMS // 5, (part + 1) * PROGRAMS // 5):
        wrong = Wrong(seed)
        for _ in range(12):
            wrong.call()
        for _ in range(2):
            wrong.attempt(wrong.engine.wait_for_all)
        assert wrong.engine.result.makespan_s >= 0, seed
        told += bool(wrong.told)
    assert told > 0.9 * PROGRAMS / 5
