"""A model as a program: what one instance does, with the parameters of the model as variables.

A program stands in a model file beside the graph of messages, with the same names of parameters,
and computes and costs the same. `ampsim.dataflow.engine` trains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np

from ampsim.constant import unmasked
from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import FlowGraph, Operand, Tensor, tensors_of
from ampsim.dataflow.operators.elements import sigmoid, tanh
from ampsim.dataflow.operators.rows import matmul
from ampsim.dataflow.operators.shape import concat, cut, pick
from ampsim.dataflow.variable import group, variable
from ampsim.errors import GraphError, SimulationError
from ampsim.hardware import Cluster, load_cluster
from ampsim.text import short
from ampsim.user_code import user_code

Key: TypeAlias = tuple[Any, ...]


class KnownInstance:
    """An instance as its feeds tell before it runs: shapes, and whole numbers of one element."""

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self._feeds = {name: np.asarray(value) for name, value in feeds.items()}
        self._values: dict[Tensor, Any] = {}

    def key(self) -> Key:
        """Equal for instances that need the same graph."""
        return tuple(
            (name, value.shape, int(value) if _is_count(value) else None)
            for name, value in sorted(self._feeds.items())
        )

    def value(self, tensor: Tensor) -> Any:
        """A tensor's value; None where that is not known."""
        if tensor not in self._values:
            self._values[tensor] = self._worked_out(tensor)
        return self._values[tensor]

    def _worked_out(self, tensor: Tensor) -> Any:
        node = tensor.node
        operator = node.operator
        if operator is op.CONSTANT:
            return node.attributes["value"]
        if operator is op.INPUT and node.name in self._feeds:
            value = self._feeds[node.name]
            return value if _is_count(value) else None
        if operator.kernel is None or operator.is_stateful or operator.needs_tag:
            return None
        if operator.reads_shapes:
            given = [self._shaped(one) for one in node.inputs]
        elif tensor.is_float:
            return None
        else:
            given = [self.value(one) for one in node.inputs]
        if any(one is None for one in given):
            return None
        return operator.kernel(*given, **node.attributes)

    def _shaped(self, tensor: Tensor) -> Any:
        """Something of a tensor's shape; None where that is not known."""
        if tensor.node.operator is op.INPUT and tensor.node.name in self._feeds:
            return self._feeds[tensor.node.name]
        shape = tensor.static_shape
        return None if shape is None else np.broadcast_to(np.zeros(()), shape)


def _is_count(value: np.ndarray) -> bool:
    return value.ndim == 0 and value.dtype.kind in "ib"


@dataclass(frozen=True, slots=True)
class Objective:
    """The tensors that a program computes for an instance.

    Args:
        loss: the mean over its rows, which is minimized.
        correct: how many rows are classified rightly; None of what is no classifier.
        rows: how many these rows are; None where they are the instance's items.
        done: what else is run, such as what `flow.minimize` gives; of `Program.train` alone.
    """

    loss: Tensor
    correct: Tensor | None = None
    rows: Tensor | None = None
    done: Tensor | None = None

    @property
    def asked(self) -> list[Tensor]:
        """The tensors that are given."""
        parts = (self.loss, self.correct, self.rows, self.done)
        return [one for one in parts if one is not None]


Minimize: TypeAlias = Callable[[Tensor], Tensor]
"""Steps the parameters down the gradients of a loss where what it gives is run, as the model's
optimizer does."""


@dataclass(frozen=True, slots=True)
class Program:
    """A model as an in-graph program: ``make_program=lambda: Program(...)`` in a model file.

    Args:
        build: builds the operators of one instance in the graph that is open.
        feed: values of its inputs from one batch of the data set, by name.
        train: builds what an instance of training does, if that is more than a step down the loss
            of `build`, which is then what validation runs. It is handed `minimize(loss)`, to use it
            where it likes, as in a branch, and returns that in `done`.
    """

    build: Callable[[], Objective]
    feed: Callable[[Any], Mapping[str, Any]]
    train: Callable[[Minimize], Objective] | None = None

    @property
    def cluster(self) -> Cluster:
        """The smallest cluster that has each number and each name in its `flow.device`."""
        with FlowGraph() as graph:
            self.built()
            if self.train is not None:
                self.trained(group)
        on = [one.device for one in graph.nodes]
        count = 1 + max((one for one in on if isinstance(one, int)), default=0)
        names = dict.fromkeys(one for one in on if isinstance(one, str))
        alike = load_cluster("tflops-1", workers=count)
        names = [*(f"worker {number}" for number in range(count)), *names]
        devices = [alike.devices[0].model_copy(update={"name": name}) for name in names]
        return alike.model_copy(update={"devices": tuple(devices)})

    def built(self) -> Objective:
        """Build the operators of one instance, as `build` does.

        Raises:
            GraphError: it failed, or gave something else.
        """
        return _objective("build", self.build)

    def trained(self, minimize: Minimize) -> Objective:
        """Build what an instance of training does, as `train` does, which it must have.

        Raises:
            GraphError: `train` failed, or gave something else.
        """
        assert self.train is not None, "without it training minimises the loss"
        return _objective("train", partial(self.train, minimize))

    def fed(self, batch: Any) -> dict[str, Any]:
        """Values of the inputs from one batch.

        Raises:
            SimulationError: `feed` failed, or gave something else.
        """
        with user_code("feed of a program failed"):
            given: Any = self.feed(batch)
        if not isinstance(given, Mapping):
            raise SimulationError(
                f"feed of a program must return values by the names of inputs, got {short(given)}"
            )
        with user_code("feed of a program gave no arrays"):
            items = cast("Mapping[str, Any]", given).items()
            return {
                name: np.asarray(unmasked(f"feed of a program: input {name!r}", one))
                for name, one in items
            }


def _objective(what: str, make: Callable[[], Any]) -> Objective:
    with user_code(f"{what} of a program failed", GraphError):
        made = make()
    if not isinstance(made, Objective):
        raise GraphError(f"{what} of a program must return a flow.Objective, got {short(made)}")
    return made


def linear(name: str, x: Operand, d_out: int) -> Tensor:
    """X W + b with the variables ``NAME.weight`` and ``NAME.bias``, as the node `Linear`.

    Args:
        name: of the layer; what uses it twice shares it.
        x: (rows, d_in), of which d_in is known.
        d_out: columns of the result.

    Raises:
        GraphError: the columns of x are not known.
    """
    (tensor,) = tensors_of([x])
    shape = tensor.shape
    if shape is None or len(shape) != 2 or shape[1] is None:
        raise GraphError(f"{name}: (rows, d_in) with a known d_in is expected, got {shape}")
    weight = variable(f"{name}.weight", shape=(shape[1], d_out), dtype=tensor.dtype)
    bias = variable(f"{name}.bias", shape=(d_out,), dtype=tensor.dtype)
    return matmul(tensor, weight) + bias


def lstm(name: str, x: Operand, state: tuple[Operand, Operand]) -> tuple[Tensor, Tensor]:
    """A step of an LSTM, as the node `LSTMCell`: [o i f g] = [x h] W + b, then h and c.

    Args:
        name: of the cell, whose variables are ``NAME.weight`` and ``NAME.bias``.
        x: (rows, width).
        state: h and c, each (rows, hidden).

    Returns:
        h and c after the step.

    Raises:
        GraphError: the columns of x or h are not known.
    """
    (h,) = tensors_of([state[0]])
    if h.shape is None or len(h.shape) != 2 or h.shape[1] is None:
        raise GraphError(f"{name}: h must be (rows, hidden) with a known hidden, got {h.shape}")
    hidden = h.shape[1]
    gates = linear(name, concat([x, h]), 4 * hidden)
    o, i, f, g = (cut(gates, place * hidden, (place + 1) * hidden) for place in range(4))
    c = sigmoid(i) * tanh(g) + sigmoid(f) * state[1]
    return sigmoid(o) * tanh(c), c


def embedding(
    name: str, index: Operand, vocabulary: int, width: int, dtype: Any = "float64"
) -> Tensor:
    """Rows of the variable ``NAME.weight``, (vocabulary, width), as the node `Embedding`."""
    return pick(variable(f"{name}.weight", shape=(vocabulary, width), dtype=dtype), index)
