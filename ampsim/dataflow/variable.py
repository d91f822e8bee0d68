"""Variables: tensors that stay from one run to the next, and steps of an optimizer on them.

A run reads a variable as it was when it began; what is assigned holds from the next run on. So the
order of reads and writes within a run decides nothing, and a variable is captured by branches and
loops as any tensor is. What runs with numbers is the optimizer of `ampsim.optim` itself.

A generator of random numbers goes on from one run to the next, too. What is drawn follows from its
seed and name, how many runs drew from it before, which of its draws this is in the order of
building, and the iterations in which it runs. So the bits are the same on any device and with any
window, whichever draw comes first, and whatever is dead.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.constant import is_held, unmasked
from ampsim.dataflow import operator as op
from ampsim.dataflow.gradient import gradients
from ampsim.dataflow.graph import (
    FlowGraph,
    Operand,
    Tensor,
    apply,
    build,
    constant,
    open_graph,
    tensors_of,
    type_of_numbers,
)
from ampsim.dataflow.plan import Path
from ampsim.errors import LOWER_RATE, GraphError, OptionError, SimulationError, one_of
from ampsim.ir import Direction, Standin, Work
from ampsim.optim import Optimizer, within_epochs
from ampsim.rng import stream
from ampsim.text import shown


@dataclass(slots=True, eq=False, repr=False)
class Held:
    """The state of a variable between runs."""

    name: str
    value: np.ndarray | None  # None while nobody has given one; nobody writes into it
    trainable: bool = False  # whether it is one of the parameters that `minimize` steps
    slots: dict[int, int] = field(default_factory=dict[int, int])  # arrays beside it, by optimizer
    states: dict[int, Any] = field(default_factory=dict[int, Any])  # by the optimizer's `id`
    _assigned: Any = None
    _stepped: Any = None

    def assign(self, value: Any, index: np.ndarray | None = None) -> None:
        """Take what it is to have after the run, or what rows of it are to have.

        Raises:
            IndexError: it has no such rows.
            SimulationError: it has been assigned in this run.
        """
        if index is not None:
            count = 0 if self.value is None else len(self.value)
            if index.min(initial=0) < 0 or index.max(initial=0) >= count:
                raise IndexError(f"rows {index.tolist()} are not within the {count} of {self.name}")
        if self._assigned is not None:
            raise SimulationError(
                f"{self.name} is assigned twice in one run; assign once, or what a loop gives"
            )
        self._assigned = value, index

    def step(self, key: int, state: Any) -> None:
        """Take what an optimizer is to keep of it after the run."""
        self._stepped = key, state

    def forget(self) -> None:
        """Leave what was assigned in a run that failed."""
        self._assigned = self._stepped = None

    def commit(self) -> None:
        """Have what was assigned, after a run."""
        value, index = self._assigned or (None, None)
        if self._stepped is not None:
            self.states.update([self._stepped])
        self.forget()
        if value is None or isinstance(value, Standin):
            return
        if index is None or self.value is None:
            self.have(np.array(value))
        else:
            rows = self.value.copy()  # what was read of it stays
            rows[index] = value
            self.have(rows)

    def have(self, value: np.ndarray) -> None:
        """Have a value, of which runs give views."""
        value.setflags(write=False)
        self.value = value


def array_of(what: str, value: Any, dtype: Any = None) -> np.ndarray:
    """Copy a value into an array, of its own type or of the one that is wanted.

    Raises:
        OptionError: its parts have several shapes, or it is of another kind, or a number that the
            type does not hold; begins with `what`.
    """
    try:
        array = np.asarray(unmasked(what, value))
    except ValueError:
        raise OptionError(f"{what} must have one shape, got {shown(value)}") from None
    if dtype is not None and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise OptionError(f"{what} must be {dtype}, got {shown(value)}")
    with np.errstate(over="ignore"):  # it is refused below
        made = array.astype(dtype or array.dtype)
    if made.dtype != array.dtype and not is_held(array, made):
        raise OptionError(f"{what} must be within {dtype}, got {shown(value)}")
    return made


@checked
def variable(
    name: str, value: Any = None, shape: Sequence[int] | None = None, dtype: Any = None, *,
    trainable: bool = True,
) -> Tensor:  # fmt: skip
    """A tensor that stays from one run to the next.

    Of one name there is one in a graph, as it was made first.

    Args:
        name: such as "linear-1.weight".
        value: what it has before anything is assigned; None where `set_variables` says so later.
        shape: its shape, which follows from a value.
        dtype: its type; None for the value's own, and "float64" without one.
        trainable: whether it is a parameter, which `minimize` steps; one of whole numbers is none.

    Raises:
        OptionError: neither value nor shape is given, or they are no numbers, or do not fit each
            other, or an input or a generator has that name, or a variable of another shape or type.
    """
    graph, what = open_graph(), f"variable {name!r}"
    told = None if dtype is None else type_of_numbers(what, dtype)
    dtype = told or np.dtype("float64")
    if value is not None:
        value = array_of(what, value, told)
        value = value.astype(np.int64) if value.dtype.kind == "i" else value
        if shape is not None and tuple(shape) != value.shape:
            raise OptionError(f"{what} must have shape {tuple(shape)}, got {value.shape}")
        shape, dtype = value.shape, value.dtype
    if shape is None:
        raise OptionError(f"{what} must have a value or a shape; give one of them")
    known = graph.given.get(name)
    if known is not None:
        tensor = known.outputs[0]
        held = known.attributes.get("held")
        is_alike = (tensor.shape, tensor.dtype) == (tuple(shape), dtype)
        if held is None or isinstance(held, DrawnRuns) or not is_alike:
            its = f"{known.operator.name} of {tensor.dtype} and shape {tensor.shape}"
            there = "a generator" if isinstance(held, DrawnRuns) else its
            raise OptionError(
                f"{what} of {dtype} and shape {tuple(shape)} cannot be made: "
                f"{known.told}, {there}, is there already; give another name"
            )
        return tensor
    held = Held(name, None, trainable=trainable and dtype.kind == "f")
    if value is not None:
        held.have(value)
    return graph.source(op.VARIABLE, shape, dtype, name=name, held=held)


def variables(graph: FlowGraph) -> dict[str, np.ndarray]:
    """Copies of what all variables of a graph have, by name."""
    held = [node.attributes["held"] for node in graph.variables]
    return {one.name: one.value.copy() for one in held if one.value is not None}


def set_variables(graph: FlowGraph, values: Mapping[str, Any]) -> None:
    """Give variables of a graph values; what optimizers keep of them starts anew.

    Raises:
        OptionError: there is no such variable, or a type or a shape does not fit.
    """
    known = {node.name: node for node in graph.variables}
    for name, value in values.items():
        if name not in known:
            raise OptionError(one_of("variable", name, known))
        tensor = known[name].outputs[0]
        array = array_of(f"variable {name!r}", value, tensor.dtype)
        if array.shape != tensor.shape:
            raise OptionError(
                f"variable {name!r} must have shape {tensor.shape}, got {array.shape}"
            )
        held = known[name].attributes["held"]
        held.have(array)
        held.states.clear()


# --- what changes them


def _assign(value: Any, *index: np.ndarray, held: Held) -> Any:
    held.assign(value, *index)
    return value


ASSIGN, ASSIGN_ROWS = (
    op.Operator(name, _assign, op.first_shape, op.first_dtype, is_stateful=True)
    for name in ("assign", "assign_rows")
)


@checked
def assign(target: Tensor, value: Operand) -> Tensor:
    """Let a variable have a value from the next run on, if this is run; the value.

    In a branch it is assigned where that is taken. Of a loop, assign what it gives.

    Raises:
        GraphError: the target is no variable, this is in a loop, or type or shape do not fit.
    """
    _require_assignable(target, "assign")
    (tensor,) = tensors_of([value])
    if tensor.dtype != target.dtype or tensor.shape not in (target.shape, None):
        raise GraphError(
            f"assign: {target.node.told} must stay {target.dtype} of shape {target.shape}, got "
            f"{tensor.dtype} of shape {tensor.shape}"
        )
    return _changed(target, ASSIGN, tensor)


@checked
def assign_rows(target: Tensor, index: Operand, value: Operand) -> Tensor:
    """Let rows of a variable have other values from the next run on, as `assign` does; the values.

    Args:
        target: the variable, (rows, ...).
        index: (count,), the places of rows; of a place that is told twice the last value stays.
        value: (count, ...).

    Raises:
        GraphError: the target is no variable, this is in a loop, or types or shapes do not fit.
    """
    _require_assignable(target, "assign_rows")
    places, rows = tensors_of([index, value])
    wanted = (*(places.shape or ()), *(target.shape or ())[1:])
    is_index = places.dtype == op.INT and len(places.shape or ()) == 1
    if not is_index or rows.dtype != target.dtype or rows.shape not in (None, wanted):
        raise GraphError(
            f"assign_rows: {target.node.told} is {target.dtype} of shape {target.shape} and takes "
            f"int64 places (count,) and rows like its own, got {places.dtype} of shape "
            f"{places.shape} and {rows.dtype} of shape {rows.shape}"
        )
    return _changed(target, ASSIGN_ROWS, rows, places)


def _changed(target: Tensor, operator: op.Operator, *given: Tensor) -> Tensor:
    """Build what changes a variable, where that is."""
    with open_graph().building(placed=target.node):
        return build(operator, given, {"held": target.node.attributes["held"]})


def _require_assignable(target: Tensor, what: str) -> None:
    if target.node.operator is not op.VARIABLE:
        raise GraphError(f"{what}: {target.node.told} must be a variable; make one: flow.variable")
    _require_once(f"{what} to {target.node.name}")


def _require_once(what: str) -> None:
    if open_graph().context.loop is not None:
        raise GraphError(
            f"{what}: a loop would do it often; make it a loop variable, and use what the loop "
            "gives"
        )


GROUP = op.Operator(
    "group", op.always(np.True_), op.scalar, op.truth, is_stateful=True, only_waits=True
)


def group(*tensors: Tensor) -> Tensor:
    """A truth value that is there when all of these are, to be asked for in their place.

    What is on another worker is signalled, in a message of one byte, and not sent.
    """
    return build(GROUP, tensors, {})


@checked
def minimize(
    loss: Tensor, optimizer: Optimizer, *, by: Sequence[Tensor] = (), epoch: Operand = 0
) -> Tensor:
    """Step variables down the gradients of a loss; ask for what this gives, and they are stepped.

    Args:
        loss: of what.
        optimizer: such as ``ampsim.optim.adam(1e-3)``.
        by: the variables; by default all trainable ones that there are.
        epoch: of which the learning rate is; the first one unless given.

    Raises:
        GraphError: this is in a loop, or there is no variable.
    """
    graph = open_graph()
    _require_once("minimize")
    wanted = list(by) or [
        node.outputs[0] for node in graph.variables if node.attributes["held"].trainable
    ]
    if not wanted or any(one.node.operator is not op.VARIABLE for one in wanted):
        raise GraphError("minimize needs variables; make them with flow.variable")
    slopes = gradients(loss, wanted)
    number = constant(epoch, "float64") if isinstance(epoch, int | float) else epoch
    if isinstance(number, Tensor) and number.node.operator is op.INPUT:
        number.node.attributes["is_number"] = True  # in `sleep` mode, too: it tells what steps cost
    with graph.building(direction=int(Direction.UPDATE)):
        return group(
            *(
                assign(target, _stepped(target, slope, number, optimizer))
                for target, slope in zip(wanted, slopes, strict=True)
            )
        )


def _stepped(target: Tensor, slope: Tensor, epoch: Any, optimizer: Optimizer) -> Tensor:
    shape, held = target.static_shape, target.node.attributes["held"]
    assert shape is not None, "a variable has a shape"
    held.slots[id(optimizer)] = optimizer.arrays
    kernel = partial(_step, held, method=optimizer.of_tensors([shape]), of=optimizer)
    update = op.Operator(
        op.STEP, kernel, op.first_shape, op.first_dtype, partial(_update_work, optimizer),
        running_update=None if optimizer.first is None else partial(_update_of_stage, optimizer),
    )  # fmt: skip
    with open_graph().building(placed=target.node):
        return build(update, (target, slope, epoch), {})


def _step(
    held: Held, theta: np.ndarray, gradient: np.ndarray, epoch: np.ndarray, *,
    method: Optimizer, of: Optimizer,
) -> np.ndarray:  # fmt: skip
    """Step from theta; what the optimizer keeps of the variable goes on, if the run succeeds.

    Raises:
        DivergenceError: a number would stop being finite.
    """

    def diverged() -> str:
        return f"{held.name} stopped being finite in epoch {number:g}; {LOWER_RATE}"

    number = float(epoch)
    rate = _rate(method, number)
    flat = theta.reshape(-1)
    kept = held.states.get(id(of))
    state = method.init(flat) if kept is None else copy.deepcopy(kept)  # to be written over
    slope = gradient.astype(theta.dtype).reshape(-1)  # which may be written over
    stepped, state = method.step(slope, state, flat, rate, diverged)
    held.step(id(of), state)
    return stepped.reshape(theta.shape)


def _rate(method: Optimizer, epoch: float) -> float:
    return method.rate(epoch if within_epochs(method.rate) else math.floor(epoch))


def _update_of_stage(
    optimizer: Optimizer, _theta: Any, _gradient: Any, epoch: Any
) -> tuple[op.WorkRule, int]:
    """Work and arrays of an epoch's stage; of the last one where `sleep` mode has no epoch."""
    is_known = not isinstance(epoch, Standin)
    stage = optimizer.stage(_rate(optimizer, float(epoch))) if is_known else optimizer
    return partial(_update_work, stage), stage.arrays


def _update_work(
    optimizer: Optimizer, inputs: op.Sizes, shape: tuple[int, ...], itemsize: int
) -> Work:
    """The work of an optimizer's step: Appendix C's FLOP of a matrix."""
    size, calls = math.prod(shape), optimizer.calls
    return Work(
        size if len(shape) > 1 else 0,
        (3 + 2 * optimizer.arrays) * size * itemsize,
        calls.operations,
        pass_bytes=calls.passes * size * itemsize,
        functions=calls.functions * size,
    )


class DrawnRuns(Held):
    """The number of runs that drew from a generator; those that measure count for themselves."""

    __slots__ = ("_others",)

    def __init__(self, name: str) -> None:
        super().__init__(name, np.array(0))
        self._others = np.array(1 << 32)  # chosen: no run that learns is so late

    def swap(self) -> None:
        """Go over to runs that measure, or back to those that learn."""
        assert self.value is not None, "a generator has drawn in some number of runs"
        self.value, self._others = self._others, self.value

    def learn(self) -> None:
        """Let runs that learn begin; those so far measured, as may be where unrolled."""
        self._others, self.value = self._others + self.value, np.array(0)

    def commit(self) -> None:
        """Count a run."""
        assert self.value is not None, "a generator has drawn in some number of runs"
        self.value = self.value + 1


def _draws(
    what: str, place: tuple[int, Path], seed: Any, runs: Any, *high: Any,
    held: Held, draw: int, shape: tuple[int, ...],
) -> np.ndarray:  # fmt: skip
    _node, tag = place  # where it draws
    path = (iteration for _loop, iteration in tag)
    generator = stream(int(seed), held.name, int(runs), draw, *path)
    return np.asarray(getattr(generator, what)(*high, size=shape))


def _written(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return op.moved((), output, itemsize)


def _drawn_shape(*shapes: op.Shape, shape: tuple[int, ...], **attributes: Any) -> op.Shape:
    if any(shapes):
        raise ValueError("single numbers are expected")
    return shape


def _drawn_below(*dtypes: np.dtype[Any], **attributes: Any) -> np.dtype[Any]:
    if dtypes[-1].kind != "i":
        raise TypeError(f"what they are below must be a whole number, got {dtypes[-1]}")
    return op.INT


for _what, _dtype, _work in (
    ("random", op.number, _written),
    ("integers", _drawn_below, op.no_work),
):
    _kernel = partial(_draws, _what)
    op.register(op.Operator(_what, _kernel, _drawn_shape, _dtype, _work, needs_tag=True))


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
            held = DrawnRuns(name)
            known = graph.source(op.VARIABLE, (), op.INT, name=name, held=held).node
        if not isinstance(known.attributes.get("held"), DrawnRuns):
            raise OptionError(
                f"generator {name!r} cannot be made: {known.told} is there already; give another "
                "name"
            )
        self._runs = known

    @checked
    def random(self, shape: Sequence[int] = ()) -> Tensor:
        """Numbers from 0 to below 1, all alike likely."""
        return self._drawn("random", (), shape)

    @checked
    def integers(self, high: Operand, shape: Sequence[int] = ()) -> Tensor:
        """Draw whole numbers from 0 to below `high`, each as likely as another."""
        return self._drawn("integers", (high,), shape)

    def _drawn(self, what: str, told: Sequence[Operand], shape: Sequence[int]) -> Tensor:
        runs, held = self._runs.outputs[0], self._runs.attributes["held"]
        draw = open_graph().count(f"draws of {held.name}")
        return apply(what, self._seed, runs, *told, held=held, draw=draw, shape=tuple(shape))
