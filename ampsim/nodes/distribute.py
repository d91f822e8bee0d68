"""Distribute and Collect: rows to sub-matrices and back, by control information (Figure 3).

"In backward mode, based on the control information received during the forward pass [Distribute]
re-groups the gradients and sums together those that correspond to the same index. The Collect
operator is essentially symmetric" (Section 4). Both are one gather and one sum by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, Standin, State, standin
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.partition import Partition
from ampsim.ir.shapes import known, require, text
from ampsim.ir.work import NO_WORK, Work, elementwise_work
from ampsim.options import Ports

SMALL_SUM: Final = 40_000  # chosen: the one-hot product is the faster up to about this many entries


class Partitioned(CachingNode):
    """A node with a control input and several parts: the base of Distribute and Collect.

    The control payload is an `ampsim.ir.Partition` with as many parts as the node has; declare its
    port at the controller as (rows,), the rows of the whole.

    Raises:
        GraphError: there is not one part.
    """

    keeps_state = True

    def __init__(self, name: str, parts: Ports) -> None:
        if parts < 1:
            raise GraphError(f"{name}: parts must be >= 1, got {parts}")
        super().__init__(name)
        self._control: dict[State, Partition] = {}
        self._parts = parts
        self._columns: Shape = ()

    def _remember(self, state: State, control: Partition) -> None:
        self.require_parts(control)
        if self.is_training:
            self._control[state] = control

    def require_parts(self, control: Partition) -> None:
        """Require that a control has as many parts as the node.

        Raises:
            GraphError: it has not.
        """
        if len(control.cuts) != self._parts:
            raise GraphError(
                f"{self.describe()} expects a control of {self._parts} parts, got {control}"
            )

    def _gathered(self, control: Partition, whole: Payload) -> list[Payload]:
        """The rows of each part, views into one array."""
        if isinstance(whole, Standin):
            columns, itemsize = whole.shape[1:], whole.itemsize
            return [standin((rows, *columns), itemsize) for rows in control.lengths]
        rows = whole.take(control.rows, axis=0)
        return [rows[cut] for cut in control.cuts]

    def _summed(self, control: Partition, parts: list[Payload]) -> Payload:
        """Sum the rows of all parts by index; a part that is None counts as zeros."""
        lengths = [None if part is None else part.shape[0] for part in parts]
        if lengths == control.lengths and not self.is_abstract:
            return sum_rows(control, np.concatenate(parts))
        real = next((part for part in parts if part is not None), None)
        if real is None:
            return None
        if self.is_abstract:
            return standin((control.size, *real.shape[1:]), real.itemsize)
        return sum_rows(control, np.concatenate(self._filled(control, parts, real)))

    def _filled(
        self, control: Partition, parts: list[Payload], real: np.ndarray
    ) -> list[np.ndarray]:
        self.require_rows(control, [None if part is None else len(part) for part in parts])
        return [
            np.zeros((rows, *real.shape[1:]), real.dtype) if part is None else part
            for rows, part in zip(control.lengths, parts, strict=True)
        ]

    def require_rows(self, control: Partition, lengths: Sequence[int | None]) -> None:
        """Require that parts have as many rows as their control says; None is of a missing one.

        Raises:
            GraphError: they have not.
        """
        for place, (rows, length) in enumerate(zip(control.lengths, lengths, strict=True)):
            if length is not None and length != rows:
                raise GraphError(
                    f"{self.describe()}: part {place} has {length} rows, "
                    f"but its control says {rows}"
                )

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once, by a gather, or by joining parts and a sum.

        The sum is a product, or of many rows a gather, sums of runs, and a scatter into zeros.
        """
        if shape is None:
            return NO_WORK
        columns = (c for c in self._columns if isinstance(c, int))
        size = (shape[0], *columns)
        if (direction is Direction.FORWARD) == isinstance(self, Distribute):
            return elementwise_work(size, self.element_bytes)
        operations = 2 if shape[0] ** 2 <= SMALL_SUM else 5
        return elementwise_work(size, self.element_bytes, operations, passes=2 + operations)

    def pending(self) -> Iterable[State]:
        """States that wait for an input or for a gradient."""
        return [*self._arrived.waiting, *self._control]


class Distribute(Partitioned):
    """Sends each successor the rows that the control names for it, none where it names none.

    A row may go to several successors, or to none; its gradient is the sum of what comes back.
    Inputs: ``input``, (rows, columns) or a list (rows,), whose rows are single numbers, and
    ``control``, a `Partition` of the rows. The input may be integers, such as words' indices.
    """

    inputs = ("input", "control")

    @checked
    def __init__(self, name: str, parts: Ports) -> None:
        self.outputs = tuple(f"part-{i}" for i in range(parts))
        super().__init__(name, parts)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for input and control, then send the rows of each part.

        Raises:
            GraphError: the control has other parts, or is of another number of rows.
        """
        arrived = self._arrived.put(port, state, payload)
        if arrived is None:
            return ()
        whole, control = arrived
        self.require_whole(whole.shape, control)
        self._remember(state, control)
        parts = self._gathered(control, whole)
        return [(place, state, part) for place, part in enumerate(parts)]

    def require_whole(self, shape: tuple[int, ...], control: Partition) -> None:
        """Require that a control is of as many rows as the input has.

        Raises:
            GraphError: it is not.
        """
        if shape[0] != control.size:
            raise GraphError(
                f"{self.describe()} got an input of shape {text(shape)}, "
                f"but a control of size {control.size}"
            )

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient until all have come back, then send their sum by row."""
        parts = self._returned.put(port, state, gradient)
        if parts is None:
            return ()
        control = self._control.pop(state)
        is_needed = self.input_needs_gradient[0]
        return ((0, state, self._summed(control, parts) if is_needed else None), (1, state, None))

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, columns) or (rows,), and (rows,); return rows[i] for rows of part i."""
        whole, control = known(shapes)
        fits = len(whole) in (1, 2) and control == whole[:1]
        require(fits, self, "(rows, columns) or (rows,), and (rows,)", whole, control)
        self._columns = whole[1:]
        return tuple((f"{whole[0]}[{i}]", *self._columns) for i in range(self._parts))


class Collect(Partitioned):
    """Sums the rows of all parts into the rows of a whole that the control names for them.

    A row that no part names is 0. Inputs: ``part-0``, ``part-1``, … (rows, columns) or (rows,), and
    last ``control``, a `Partition` of the whole.
    """

    @checked
    def __init__(self, name: str, parts: Ports) -> None:
        self.inputs = (*(f"part-{i}" for i in range(parts)), "control")
        super().__init__(name, parts)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for all parts and the control, then send the whole.

        Raises:
            GraphError: the control has other parts, or a part has other rows than it says.
        """
        arrived = self._arrived.put(port, state, payload)
        if arrived is None:
            return ()
        *parts, control = arrived
        self._remember(state, control)
        return ((0, state, self._summed(control, parts)),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each part its rows of the gradient."""
        control = self._control.pop(state)
        if gradient is None:
            return [(place, state, None) for place in range(self._parts + 1)]
        parts = self._gathered(control, gradient)
        needed = self.input_needs_gradient
        sends = [(i, state, part if needed[i] else None) for i, part in enumerate(parts)]
        return [*sends, (self._parts, state, None)]

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows[i], columns) or (rows[i],) of every part, and (rows,); return the whole."""
        *parts, control = known(shapes)
        columns = {shape[1:] for shape in parts}
        fits = len(columns) == 1 and len(parts[0]) in (1, 2) and len(control) == 1
        require(fits, self, "parts of equal columns and a control (rows,)", *parts, control)
        self._columns = parts[0][1:]
        return ((control[0], *self._columns),)


def sum_rows(control: Partition, values: np.ndarray) -> np.ndarray:
    """Sum the rows of `values` into zeros, each into the row that the control names.

    Few rows are one product with a one-hot matrix, many are sums of runs of equal indices;
    `np.add.at` takes up to ten times as long (`tests/benchmark/bench_cells.py`).
    """
    if not control.is_one_to_one and control.size * len(values) <= SMALL_SUM:
        return control.one_hot(values.dtype) @ values
    total = np.zeros((control.size, *values.shape[1:]), values.dtype)
    if control.is_one_to_one:
        total[control.rows] = values
    else:
        order, names, starts = control.runs()
        total[names] = np.add.reduceat(values[order], starts, axis=0)
    return total
