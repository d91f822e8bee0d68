"""A run that cannot go on says which nodes wait for what, and which messages for their turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim import simulate
from ampsim.errors import StuckError
from ampsim.ir import Bcast, Direction, Join, Node, Partition
from ampsim.model_parallel import OneFOneB
from ampsim.model_parallel.faults import LENGTH_MAX, PARTS_TOLD, why_stuck
from ampsim.model_parallel.schedules.turns import Admitted, Turn, WorkerStages
from ampsim.model_parallel.schedules.values import Order
from ampsim.nodes import (
    BranchLSTM,
    Collect,
    Concat,
    Difference,
    Distribute,
    Group,
    GRUCell,
    Linear,
    Product,
    Replicate,
    SoftmaxCrossEntropy,
    Split,
    SquaredError,
    Sum,
    Ungroup,
)


class Part(NamedTuple):
    instance: int
    number: int = 0


TWO = np.ones((2, 2))
BACKWARD = "the backward message"


def numbered(state: Part, number: int) -> Part:
    return Part(state.instance, number)


def after(node: Any, *payloads: Any, back: int | None = None) -> Any:
    """The node after forward messages at its first ports, and a gradient of output `back`."""
    if node.is_parameterized:
        node.adopt(node.initialise(np.random.default_rng(0)))
    for port, payload in enumerate(payloads):
        node.forward(port, Part(0), payload)
    if back is not None:
        node.backward(back, Part(0), np.ones((2, 1)))
    return node


def members(count: int) -> Group:
    return Group("n", lambda state: (Part(state.instance), state.number, count))


def halves() -> Distribute:
    return Distribute("n", 2)


CASES: dict[str, tuple[Any, str]] = {
    "Linear": (lambda: after(Linear("n", 2, 2), TWO), BACKWARD),
    "GRUCell": (lambda: after(GRUCell("n", 2, 2), TWO), "input state (has input)"),
    "GRUCell, full": (lambda: after(GRUCell("n", 2, 2), TWO, TWO), BACKWARD),
    "BranchLSTM": (lambda: after(BranchLSTM("n", 1), TWO), "input right (has left)"),
    "BranchLSTM, full": (lambda: after(BranchLSTM("n", 1), TWO, TWO), BACKWARD),
    "Sum": (lambda: after(Sum("n", 3), TWO), "input operand-1, operand-2 (has operand-0)"),
    "Difference": (lambda: after(Difference("n"), TWO), "input operand-1 (has operand-0)"),
    "Product": (lambda: after(Product("n", 2), TWO), "input operand-1 (has operand-0)"),
    "Product, full": (lambda: after(Product("n", 2), TWO, TWO), BACKWARD),
    "Concat": (lambda: after(Concat("n", (2, 2)), TWO), "input part-1 (has part-0)"),
    "Split": (
        lambda: after(Split("n", (1, 1)), TWO, back=1),
        "gradient of part-0 (has part-1)",
    ),
    "Bcast": (lambda: after(Bcast("n", 2), TWO, back=0), "gradient of copy-1 (has copy-0)"),
    "Group": (lambda: after(members(3), TWO), "2 of 3 members"),
    "Group, full": (lambda: after(members(1), TWO), BACKWARD),
    "Ungroup": (lambda: after(Ungroup("n", numbered), TWO), "2 more gradients"),
    "Replicate": (lambda: after(Replicate("n", numbered, lambda _s: 3), TWO), "3 more gradients"),
    "loss": (lambda: after(SoftmaxCrossEntropy("n"), TWO), "input label (has prediction)"),
    "SquaredError": (lambda: after(SquaredError("n"), TWO), "input target (has prediction)"),
    "Distribute": (lambda: after(halves(), TWO), "input control (has input)"),
    "Distribute, full": (lambda: after(halves(), TWO, Partition([[0], [1]], 2)), BACKWARD),
    "Distribute, back": (
        lambda: after(halves(), TWO, Partition([[0], [1]], 2), back=1),
        "gradient of part-0 (has part-1)",
    ),
    "Collect": (lambda: after(Collect("n", 2), TWO), "input part-1, control (has part-0)"),
}


@pytest.mark.parametrize("kind", list(CASES))
def test_a_node_says_what_a_state_waits_for(kind):
    make, expected = CASES[kind]
    node = make()
    assert {node.awaits(state) for state in node.pending()} == {expected}
    text = f"^instances \\[0\\] are unfinished: n \\(.*\\) waits for {re.escape(expected)} of "
    assert re.match(text, why_stuck([node], [], [0]) or "")


def test_of_many_ports_a_few_are_named():
    join = Join(20)
    join.put(3, "s", None)
    names = [f"p{i}" for i in range(20)]
    assert join.lacks("s", "input", names) == "input p0, p1, p2, p4 and 15 more (has p3)"
    assert join.lacks("t", "input", names) == ""


class Holds(Node):
    """A node that never lets go of what it is told to hold."""

    def __init__(self, name: str, states: list[Any], awaited: str) -> None:
        super().__init__(name)
        self._states, self._awaited = states, awaited

    def forward(self, port: int, state: Any, payload: Any) -> Any:
        return ()

    def backward(self, port: int, state: Any, gradient: Any) -> Any:
        return ()

    def check(self, shapes: Any) -> Any:
        return shapes

    def pending(self) -> Any:
        return self._states

    def awaits(self, state: Any) -> str:
        return self._awaited


def test_what_is_said_is_one_line_and_bounded():
    nodes = [Holds(f"n{i}", [Part(j) for j in range(99)], "x\n" * 999) for i in range(99)]
    said = why_stuck(nodes, [], list(range(99))) or ""
    assert "\n" not in said and len(said) < (PARTS_TOLD + 1) * (LENGTH_MAX + 2) + 200
    assert said.startswith("instances [0, 1, 2, 3, 4] are unfinished: n0 (Holds) waits for x x")
    assert said.endswith("...; and 91 more; a node swallowed a message or changed its state")
    few = why_stuck([Holds("n", [Part(j) for j in range(9)], "y")], [], []) or ""
    states = ", ".join(f"Part(instance={j}, number=0)" for j in range(3))
    assert few.startswith(f"caches remain: n (Holds) waits for y of {states} and 6 more; ")


def test_what_waits_for_an_input_is_said_first():
    nodes = [Holds("a", [Part(0)], BACKWARD), Holds("b", [Part(0)], "input x (has y)")]
    said = why_stuck(nodes, [], []) or ""
    assert said.index("b (Holds)") < said.index("a (Holds)")


def test_where_nothing_is_held_that_is_said_and_where_nothing_is_left_nothing():
    node = Holds("a", [], "")
    assert why_stuck([node], [], [7]) == (
        "instances [7] are unfinished; no node holds anything of them"
    )
    assert why_stuck([node], [], []) is None


class Always:
    """The same turn, whatever comes; None: nobody's, ever."""

    def __init__(self, turn: Turn | None) -> None:
        self._turn = turn

    def next(self) -> Turn | None:
        return self._turn

    def served(self) -> None:
        raise AssertionError("nothing is ever handed out")


@dataclass(frozen=True)
class NeverFits(OneFOneB):
    """The second stage waits for a backward message of the first."""

    turn: Turn | None = (Direction.BACKWARD, 1)

    @property
    def order(self) -> Order:
        usual: Any = super().order.turns

        def turns(placed: WorkerStages, admitted: Admitted) -> Any:
            return Always(self.turn) if placed.own == (1,) else usual(placed, admitted)

        return Order(turns=turns)


@pytest.mark.parametrize(
    ("turn", "whose"),
    [
        ((Direction.BACKWARD, 1), r"the turn of backward of stage-2 \(Stage\), stage 1"),
        (None, "nobody's turn"),
    ],
)
def test_turns_that_never_fit_are_told_with_what_waits_for_them(chain, make_cluster, turn, whose):
    model = chain(((1, 1, 1),) * 2).model()
    text = (
        rf"^chain: nothing is left to do at 2 s, but instances \[0, 1\] are unfinished: "
        rf"worker 1 has {whose}, but holds forward of stage-2 \(Stage\), stage 1: "
        r"One\(instance=0\) and 1 more; loss \(SoftmaxCrossEntropy\) waits for input prediction "
        r"\(has label\) of One\(instance=0\), One\(instance=1\); stage-1 \(Stage\) waits for the "
        r"backward message of One\(instance=0\), One\(instance=1\); the schedule's turns do not "
        r"fit what comes, or a node swallowed a message or changed its state$"
    )
    with pytest.raises(StuckError, match=text):
        simulate(model, make_cluster(2), NeverFits(2, turn=turn))
