"""Random programs of branches and loops, nested at will, and interpreters that run them.

A program maps (a, b, k), two floats and an integer, to another such triple. What an inner block
computes may read the variables of every block around it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ampsim import flow
from ampsim.dataflow.plan import needed

FEEDS: dict[str, Any] = {"a": 0.75, "b": -0.5, "k": 3}
WITHOUT_PLACE = ("constant", "enter", "enter-constant", "next-iteration")
FLOATS = ("add", "subtract", "multiply", "halve")
Block = list[Any]


def operands() -> st.SearchStrategy[Any]:
    return st.tuples(st.integers(0, 3), st.integers(0, 1))


def statements(blocks: st.SearchStrategy[Block], *, reads_floats: bool) -> Any:
    kinds = ["even", "more"] + (["greater"] if reads_floats else [])
    return st.one_of(
        st.tuples(
            st.just("float"), st.integers(0, 1), st.sampled_from(FLOATS), operands(), operands()
        ),
        st.tuples(st.just("integer"), st.integers(1, 3), st.integers(0, 5)),
        st.tuples(st.just("if"), st.sampled_from(kinds), st.integers(0, 4), blocks, blocks),
        st.tuples(st.just("while"), st.integers(0, 3), st.booleans(), blocks),
        st.tuples(st.just("swap"), st.just(0)),
    )


def programs(*, reads_floats: bool = True) -> st.SearchStrategy[Block]:
    leaf = st.lists(statements(st.just([]), reads_floats=reads_floats), min_size=0, max_size=2)
    return st.recursive(
        leaf,
        lambda blocks: st.lists(
            statements(blocks, reads_floats=reads_floats), min_size=1, max_size=3
        ),
        max_leaves=6,
    )


class Plain:
    """Branches and loops as Python has them."""

    @staticmethod
    def cond(predicate: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any:
        return true() if predicate else false()

    @staticmethod
    def loop(predicate: Any, body: Any, inits: Any) -> Any:
        state = inits
        while predicate(*state):
            state = body(*state)
        return state


class Built:
    """The same as a graph."""

    @staticmethod
    def cond(predicate: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any:
        return flow.cond(predicate, true, false)

    @staticmethod
    def loop(predicate: Any, body: Any, inits: Any) -> Any:
        return flow.while_loop(predicate, body, inits)


class Dual:
    """A number with its derivatives by a and b: gradients without a graph, carried forward."""

    def __init__(self, value: float, *slopes: float) -> None:
        self.value, self.slopes = value, slopes or (0.0, 0.0)

    def __add__(self, other: Dual) -> Dual:
        return Dual(
            self.value + other.value, *map(sum, zip(self.slopes, other.slopes, strict=True))
        )

    def __sub__(self, other: Dual) -> Dual:
        return self + other * -1.0

    def __mul__(self, other: Dual | float) -> Dual:
        if not isinstance(other, Dual):
            other = Dual(other)
        pairs = zip(self.slopes, other.slopes, strict=True)
        slopes = (one * other.value + self.value * two for one, two in pairs)
        return Dual(self.value * other.value, *slopes)

    def __gt__(self, other: Dual) -> bool:
        return self.value > other.value


def interpret(block: Block, scopes: list[tuple[Any, ...]], f: Any) -> tuple[Any, ...]:
    """The variables after a block; the innermost scope has them before it."""
    state = scopes[-1]
    outer = scopes[:-1]
    for kind, *rest in block:
        run: Any = {
            "float": _float, "integer": _integer, "if": _if, "while": _while, "swap": _swap,
        }[kind]  # fmt: skip
        state = run(rest, [*outer, state], f)
    return state


def _read(scopes: list[tuple[Any, ...]], operand: tuple[int, int]) -> Any:
    depth, name = operand
    return scopes[-1 - depth % len(scopes)][name]


def _float(rest: Any, scopes: list[Any], f: Any) -> tuple[Any, ...]:
    target, name, first, second = rest
    x, y = _read(scopes, first), _read(scopes, second)
    if name == "add":
        value = x + y
    elif name == "subtract":
        value = x - y
    else:
        value = x * y * 0.25 if name == "multiply" else x * 0.5
    state = list(scopes[-1])
    state[target] = value
    return tuple(state)


def _integer(rest: Any, scopes: list[Any], f: Any) -> tuple[Any, ...]:
    factor, more = rest
    a, b, k = scopes[-1]
    return a, b, (k * factor + more) % 7


def _swap(rest: Any, scopes: list[Any], f: Any) -> tuple[Any, ...]:
    a, b, k = scopes[-1]
    return b, a, k


def _if(rest: Any, scopes: list[Any], f: Any) -> tuple[Any, ...]:
    kind, bound, true, false = rest
    a, b, k = scopes[-1]
    predicate = a > b if kind == "greater" else (k > bound if kind == "more" else k % 2 < 1)
    return f.cond(
        predicate,
        lambda: interpret(true, [*scopes, scopes[-1]], f),
        lambda: interpret(false, [*scopes, scopes[-1]], f),
    )


def _while(rest: Any, scopes: list[Any], f: Any) -> tuple[Any, ...]:
    trips, depends, block = rest
    k = scopes[-1][2]
    count = k % 4 if depends else trips

    def body(i: Any, *state: Any) -> Any:
        return (i + 1, *interpret(block, [*scopes, state], f))

    _i, *state = f.loop(lambda i, *state: i < count, body, (0, *scopes[-1]))
    return tuple(state)


def built(block: Any) -> list[flow.Tensor]:
    """A program, and the gradients of what it gives."""
    with flow.FlowGraph():
        inputs = tuple(flow.input(name, (), "float64") for name in "ab")
        state = interpret(block, [(*inputs, flow.input("k", (), "int64"))], Built())
        asked = [flow.identity(one) for one in state]
        return asked + flow.gradients(asked[0] + asked[1] * 2.0, inputs)


def feeds_of(asked: list[flow.Tensor]) -> dict[str, Any]:
    names = {node.name for node in needed(asked)}
    return {name: value for name, value in FEEDS.items() if name in names}


def placed(asked: list[flow.Tensor], workers: int, seed: int) -> dict[str, int]:
    """Every operator that has a place, anywhere."""
    places = random.Random(seed)
    found: dict[str, int] = {}
    for node in needed(asked):
        if node.operator.name not in WITHOUT_PLACE:
            found[node.name] = places.randrange(workers)
    return found
