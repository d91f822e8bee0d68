"""Random numbers of a program: a generator is a resource that goes on from one run to the next.

What is drawn follows from the generator's seed and name, how many runs drew from it before, which
of its draws this is in the order of building, and the iterations in which it runs. So the bits are
the same on any device and with any window, whichever draw comes first, and whatever is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Node, Operand, Tensor, apply, open_graph, output_of, tensors_of
from ampsim.dataflow.variable import Held
from ampsim.errors import GraphError, OptionError
from ampsim.ir import Work
from ampsim.rng import stream

Place: TypeAlias = "tuple[int, tuple[tuple[str, int], ...]]"
"""Where a draw runs: (number of the node, path of the tag)."""


class DrawnRuns(Held):
    """How many runs drew from a generator."""

    __slots__ = ()

    def commit(self) -> None:
        """Count a run."""
        assert self.value is not None, "a generator has drawn in some number of runs"
        self.value = self.value + 1


def _stream(place: Place, seed: Any, runs: Any, held: Held, draw: int) -> np.random.Generator:
    _node, path = place
    return stream(int(seed), held.name, int(runs), draw, *(iteration for _loop, iteration in path))


def _random(
    place: Place, seed: Any, runs: Any, *, held: Held, draw: int, shape: tuple[int, ...]
) -> np.ndarray:  # fmt: skip
    return np.asarray(_stream(place, seed, runs, held, draw).random(shape))


def _integers(
    place: Place, seed: Any, runs: Any, high: Any, *, held: Held, draw: int, shape: tuple[int, ...]
) -> np.ndarray:  # fmt: skip
    return np.asarray(_stream(place, seed, runs, held, draw).integers(high, size=shape))


def _written(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return op.moved((), output, itemsize)


def _drawn_shape(*shapes: op.Shape, shape: tuple[int, ...], **attributes: Any) -> op.Shape:
    if any(shapes):
        raise ValueError("single numbers are expected")
    return shape


op.register(op.Operator("random", _random, _drawn_shape, op.number, _written, needs_tag=True))
op.register(
    op.Operator("integers", _integers, _drawn_shape, op.integer, op.no_work, needs_tag=True)
)


class Generator:
    """Random numbers, drawn by the names of `numpy.random.Generator`.

    Of one name there is one in a graph.

    Args:
        name: of the generator, and of the variable that counts the runs that drew from it.
        seed: a whole number >= 0, which may be fed.

    Raises:
        GraphError: the seed is not one whole number.
        OptionError: an input or a variable has that name.
    """

    def __init__(self, name: str, seed: Operand = 0) -> None:
        graph = open_graph()
        (self._seed,) = tensors_of([seed])
        if self._seed.dtype != op.INT or self._seed.shape != ():
            raise GraphError(
                f"generator {name!r}: the seed must be one whole number, got {self._seed.dtype} of "
                f"shape {self._seed.shape}"
            )
        known = graph.given.get(name)
        if known is None:
            with graph.inside(graph.root):
                held = DrawnRuns(name, np.array(0))
                known = Node(op.VARIABLE, [], {"name": name, "held": held}, graph)
            output_of(known, (), op.INT, graph.root)
        if not isinstance(known.attributes.get("held"), DrawnRuns):
            raise OptionError(
                f"generator {name!r} cannot be made: {known.told} is there already; give another "
                "name"
            )
        self._runs = known

    def random(self, shape: Sequence[int] = ()) -> Tensor:
        """Numbers from 0 to below 1, all alike likely."""
        return self._drawn("random", (), shape)

    def integers(self, high: Operand, shape: Sequence[int] = ()) -> Tensor:
        """Whole numbers from 0 to below `high`, all alike likely."""
        return self._drawn("integers", (high,), shape)

    def _drawn(self, what: str, told: Sequence[Operand], shape: Sequence[int]) -> Tensor:
        runs, held = self._runs.outputs[0], self._runs.attributes["held"]
        draw = open_graph().count(f"draws of {held.name}")
        return apply(
            what, self._seed, runs, *told, held=held, draw=draw, shape=tuple(shape)
        )  # fmt: skip
