"""The graph of a program: tensors, the nodes that make them, and contexts of control flow.

A context is a branch of a `cond` or the body of a `while_loop`. A tensor from outside that is used
in one is captured: in a branch through a Switch of its own, in a loop through an Enter that hands
it to every iteration. A node is built in the graph that is open (``with flow.FlowGraph():``).

Source: Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (2018), Section 4.2.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeAlias, cast

import numpy as np

from ampsim.constant import is_held, unmasked
from ampsim.dataflow import operator as op
from ampsim.errors import GraphError, OptionError
from ampsim.ir import Direction
from ampsim.text import shown
from ampsim.user_code import Place, is_own


def _infix(name: str, *, is_reflected: bool = False) -> Callable[[Tensor, Operand], Tensor]:
    """Return the special method of `Tensor` that applies an operator to it and an operand."""

    def built(self: Tensor, other: Operand) -> Tensor:
        return apply(name, other, self) if is_reflected else apply(name, self, other)

    return built


@dataclass(eq=False, slots=True, repr=False)
class Tensor:
    """An output of a node.

    Attributes:
        node, output: what makes it, and which of its outputs it is.
        shape: its static shape; None where not even the number of axes is known.
        dtype: the type of its elements.
        context: where it can be used.
        captured_from: the tensor outside that it stands for; None where it is no capture.
    """

    node: Node
    output: int
    shape: op.Shape | None
    dtype: np.dtype[Any]
    context: Context
    captured_from: Tensor | None = None

    def __repr__(self) -> str:
        return f"Tensor({self.node.name!r}, {self.dtype}, {self.shape})"

    @property
    def is_float(self) -> bool:
        """Whether its elements are floating-point numbers, which alone have gradients."""
        return self.dtype.kind == "f"

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """Its shape where every length is known before it runs; else None."""
        shape = self.shape
        if shape is None or None in shape:
            return None
        return tuple(length for length in shape if length is not None)

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self.node.told}: a tensor has no truth value while the graph is built; use "
            "flow.cond(tensor, ...) in place of if, and flow.while_loop in place of while"
        )

    def __iter__(self) -> Any:
        raise GraphError(
            f"{self.node.told}: a tensor has no elements while the graph is built; use "
            "flow.map_fn, or flow.TensorArray"
        )

    __add__, __radd__ = _infix("add"), _infix("add", is_reflected=True)
    __sub__, __rsub__ = _infix("subtract"), _infix("subtract", is_reflected=True)
    __mul__, __rmul__ = _infix("multiply"), _infix("multiply", is_reflected=True)
    __truediv__, __rtruediv__ = _infix("divide"), _infix("divide", is_reflected=True)
    __floordiv__, __mod__ = _infix("floor_divide"), _infix("remainder")
    __matmul__ = _infix("matmul")
    __lt__, __le__ = _infix("less"), _infix("less_equal")
    __gt__, __ge__ = _infix("greater"), _infix("greater_equal")

    __array_ufunc__ = None  # an array leaves `array * tensor` to the tensor
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        raise GraphError(
            f"{self.node.told}: tensors have no == and != while the graph is built; use "
            "flow.equal(x, y) or flow.not_equal(x, y)"
        )

    def __neg__(self) -> Tensor:
        return apply("negative", self)


Operand: TypeAlias = "Tensor | np.ndarray | float | int | bool"


class Node:
    """One use of an operator."""

    __slots__ = (
        "attributes", "awaited", "context", "controls", "device", "direction", "index", "inputs",
        "name", "operator", "outputs", "place",
    )  # fmt: skip

    def __init__(
        self, operator: op.Operator, inputs: list[Tensor], attributes: dict[str, Any],
        graph: FlowGraph, *, like: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.operator, self.inputs = operator, inputs
        self.attributes = attributes  # what else the operator is told
        self.controls: list[Tensor] = []  # must have come before it runs, and are not read
        self.awaited: list[Tensor] = []  # run, too: it may wait for them, if along no edge
        self.context: Context = graph.context
        self.outputs: list[Tensor] = []  # what it makes; two of a Switch, one of all others
        self.device = graph.placed  # where the user has it; None where nothing is said
        self.direction = graph.direction if like is None else like.node.direction
        self.place = _user_place() if like is None else like.node.place  # the line that built it
        self.index, self.name = graph.number(self)

    @property
    def told(self) -> str:
        """Its name and the user's line, for messages."""
        return f"{self.name} ({self.place})" if self.place else self.name


class Context:
    """The scope of a node: the graph itself, a branch, or a loop."""

    def __init__(self, outer: Context | None, told: str = "the graph itself") -> None:
        self.outer = outer  # the context around it; None of the graph itself
        self.told = told  # what messages call it
        self.captures: dict[Tensor, Tensor] = {}  # of the outer context, and what stands for them
        self.units: list[Unit] = []  # nodes and whole constructs built here, in that order
        # of a loop or its predicate, comes once for each time that this runs; None while the
        # predicate is built
        self.gate: Tensor | None = None
        # the branch of which this one holds the gradients; it runs when that one does, so its
        # tensors can be used here as they are
        self.twin: Context | None = None

    @property
    def loop(self) -> Loop | None:
        """The innermost loop in which it lies."""
        return None if self.outer is None else self.outer.loop


class Branch(Context):
    """One side of a `cond`: it runs when `predicate` is `side`."""

    def __init__(self, outer: Context, predicate: Tensor, *, side: bool) -> None:
        super().__init__(outer, f"the {'true' if side else 'false'} branch of a cond")
        self.predicate, self.side = predicate, side
        self.outputs: list[Tensor] = []


class Loop(Context):
    """A loop: its frame, of that name, and its body."""

    def __init__(
        self, outer: Context, name: str, window: int | None, first: Sequence[Tensor]
    ) -> None:
        super().__init__(outer, f"the loop {name}")
        self.name, self.first = name, first  # what the variables start from
        self.window = window  # iterations under way at a time; None for what the run says
        self.predicate: Tensor
        self.taken: list[Tensor]  # the variables at the start of an iteration, and at its end
        self.given: list[Tensor]
        self.outputs: list[Tensor]  # the Exits

    @property
    def loop(self) -> Loop:
        """Itself."""
        return self

    @property
    def inputs(self) -> list[Tensor]:
        """First values of the loop's variables, then the tensors that it captures."""
        return [*self.first, *self.captures]


class Predicate(Context):
    """The scope of a loop's condition, which runs once more than the body."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, "the predicate of a loop")


@dataclass(eq=False, slots=True)
class Conditional:
    """A whole `cond`, as its outer context has it."""

    branches: tuple[Branch, Branch]  # the false and the true one
    outputs: list[Tensor]  # the Merges

    @property
    def predicate(self) -> Tensor:
        """The tensor that decides which branch is taken."""
        return self.branches[0].predicate

    @property
    def inputs(self) -> list[Tensor]:
        """Tensors that its branches capture."""
        return list(dict.fromkeys([*self.branches[0].captures, *self.branches[1].captures]))


Unit: TypeAlias = Node | Conditional | Loop


class FlowGraph:
    """A program that is being built, or has been.

    Nodes are built in the graph that is open: ``with flow.FlowGraph() as graph: ...``.

    Args:
        first: number of its first node.

    Attributes:
        context: where nodes are built now.
        direction: of nodes that are built now.
        placed: where nodes run that are built now: on the worker of a number, on the one whose
            device has a name, or where another node is; None where nothing is said.
        nodes: all of them, in the order of building.
        given: inputs and variables, by name.
        known: an `ampsim.dataflow.program.KnownInstance`, by which loops are unrolled; None where
            they are not.
    """

    def __init__(self, first: int = 0) -> None:
        self.root = Context(None)
        self._first = first
        self.placed: int | str | Node | None = None
        self.known: Any = None
        self.given: dict[str, Node] = {}
        self.context: Context = self.root
        self.direction: int = int(Direction.FORWARD)
        self.nodes: list[Node] = []
        self._counts: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._constants: dict[Any, Tensor] = {}

    def __enter__(self) -> FlowGraph:
        _OPEN.append(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _OPEN.remove(self)

    @property
    def variables(self) -> list[Node]:
        """Nodes that are variables."""
        return [node for node in self.given.values() if node.operator is op.VARIABLE]

    @property
    def inputs(self) -> set[str]:
        """Names of its inputs."""
        return {name for name, node in self.given.items() if node.operator is op.INPUT}

    @contextlib.contextmanager
    def building(self, **how: Any) -> Generator[None]:
        """Build nodes in another `context`, of another `direction`, or `placed` elsewhere."""
        before = {name: getattr(self, name) for name in how}
        vars(self).update(how)
        try:
            yield
        finally:
            vars(self).update(before)

    def number(self, node: Node) -> tuple[int, str]:
        """List a node; its place in the list, and its name."""
        name = node.operator.name
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self.nodes.append(node)
        told = node.attributes.pop("name", None) or f"{name}-{count}"
        if node.operator in (op.INPUT, op.VARIABLE):
            self.given[told] = node
        return self._first + len(self.nodes) - 1, told

    def count(self, what: str) -> int:
        """Number a call that asks for this."""
        self._calls[what] = count = self._calls.get(what, 0) + 1
        return count

    def begin(self, known: Any) -> None:
        """Build the operators of another instance; inputs, variables and constants stay.

        Calls are numbered anew: what an instance draws follows from no other's operators.
        """
        self.known = known
        self.root.units.clear()
        self._calls.clear()

    def constant(self, value: Any, dtype: np.dtype[Any] | None = None) -> Tensor:
        """A tensor that is always the same; equal ones are one.

        Raises:
            OptionError: it is no array of numbers, or of some that the type does not hold.
        """
        try:
            with np.errstate(over="ignore"):  # it is refused below
                array = np.asarray(unmasked("a constant", value), dtype)
        except (ValueError, TypeError, OverflowError):  # of rows of several lengths, or no number
            array = np.asarray(None)
        if array.dtype.kind not in "fib":
            raise OptionError(f"a constant must be numbers or truth values, got {shown(value)}")
        if dtype is not None and not is_held(np.asarray(value), array):
            raise OptionError(
                f"a constant of {dtype} must hold its value, got {shown(value)}; give numbers that "
                "it holds, or another type"
            )
        array = array.astype(np.int64) if array.dtype.kind == "i" else array.copy()
        array.setflags(write=False)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.source(op.CONSTANT, array.shape, array.dtype, value=array)
        return self._constants[key]

    def source(
        self, operator: op.Operator, shape: Sequence[int | None], dtype: Any, **attributes: Any
    ) -> Tensor:
        """A tensor that waits for nothing, of the graph itself.

        Raises:
            OptionError: its type is none of numbers or truth values, or an extent is below 0.
        """
        found = type_of_numbers(f"{operator.name} {attributes.get('name')!r}", dtype)
        if any(extent is not None and extent < 0 for extent in shape):
            raise OptionError(
                f"{operator.name} {attributes['name']!r} must have extents >= 0, or None where a "
                f"batch decides, got {tuple(shape)}"
            )
        with self.building(context=self.root):
            node = Node(operator, [], attributes, self)
        return output_of(node, tuple(shape), found, self.root)

    def add(
        self, operator: op.Operator, inputs: Sequence[Tensor],
        attributes: dict[str, Any] | None = None, *, within: Context | None = None,
    ) -> Node:  # fmt: skip
        """Build a node without outputs in the present context; its inputs can be used there.

        What would run once more than the body of its loop, for want of an input that comes with
        the iterations, waits for the loop's gate.
        """
        context = within or self.context
        with self.building(context=context):
            node = Node(operator, list(inputs), attributes or {}, self)
        is_constant = all(one.node.operator is op.ENTER_CONSTANT for one in inputs)
        if is_constant and (inputs or operator.is_stateful):
            is_branch = isinstance(context, Branch)
            gate = self.resolve(context.predicate, context) if is_branch else context.gate
            node.controls += [] if gate is None else [gate]
        return node

    def resolve(self, tensor: Tensor, context: Context | None = None) -> Tensor:
        """Return a tensor as a context may read it: itself, or the capture that stands for it.

        Raises:
            GraphError: it was made in a branch or loop around which the context does not lie.
        """
        context = context or self.context
        if tensor.context is context or tensor.context is context.twin:
            return tensor
        if context.outer is None:
            raise GraphError(
                f"{tensor.node.told} was made in {tensor.context.told} and is used outside; "
                "return it from the branch or body, and use what cond or while_loop gives"
            )
        outside = self.resolve(tensor, context.outer)
        if isinstance(context, Predicate):
            return outside
        if outside not in context.captures:
            context.captures[outside] = self._capture(outside, context)
        return context.captures[outside]

    def _capture(self, tensor: Tensor, context: Context) -> Tensor:
        assert context.outer is not None, "the graph itself captures nothing"
        if isinstance(context, Branch):
            node = self.switch(tensor, context.predicate, within=context.outer)
            for output in node.outputs:
                output.context = context
            inside = node.outputs[context.side]
        else:
            assert isinstance(context, Loop), f"{context.told} captures nothing"
            with self.building(context=context.outer):
                inside = self.forward(op.ENTER_CONSTANT, tensor, context, loop=context)
        inside.captured_from = tensor
        return inside

    def switch(self, tensor: Tensor, predicate: Tensor, *, within: Context) -> Node:
        """A Switch; its outputs are the false and the true one, of the same context."""
        node = self.add(op.SWITCH, [tensor, predicate], within=within)
        for _side in (False, True):
            output_of(node, tensor.shape, tensor.dtype, within)
        return node

    def forward(
        self, operator: op.Operator, tensor: Tensor, to: Context, **attributes: Any
    ) -> Tensor:
        """Add a primitive that hands a tensor on into a context, and return its output."""
        node = self.add(operator, [tensor], attributes)
        return output_of(node, tensor.shape, tensor.dtype, to)


_OPEN: Final[list[FlowGraph]] = []
"""Graphs that are open, the innermost last."""


def open_graph() -> FlowGraph:
    """The graph in which nodes are built now.

    Raises:
        GraphError: none is open.
    """
    if not _OPEN:
        raise GraphError("no graph is open; build operators in `with flow.FlowGraph() as graph:`")
    return _OPEN[-1]


def type_of_numbers(what: str, dtype: Any) -> np.dtype[Any]:
    """Return a type as NumPy has it.

    Raises:
        OptionError: it is none of numbers or truth values; begins with `what`.
    """
    try:
        found: Any = np.dtype(dtype)
    except TypeError:  # NumPy has no such type
        found = dtype
    if getattr(found, "kind", None) not in ("f", "i", "b"):
        raise OptionError(f"{what} must be numbers or truth values, got {found}")
    return found


def constant(value: Any, dtype: Any = None) -> Tensor:
    """A tensor that is always the same."""
    told = None if dtype is None else type_of_numbers("a constant", dtype)
    return open_graph().constant(value, told)


def output_of(node: Node, shape: op.Shape | None, dtype: np.dtype[Any], context: Context) -> Tensor:
    """Give a node its next output."""
    tensor = Tensor(node, len(node.outputs), shape, dtype, context)
    node.outputs.append(tensor)
    return tensor


def tensors_of(operands: Sequence[object], *, is_joint: bool = False) -> list[Tensor]:
    """Operands as tensors of the present context: tensors, arrays and numbers.

    If they are joint, numbers take the floating-point type of the tensors beside them.

    Raises:
        GraphError: a tensor cannot be used here.
        OptionError: an operand is no tensor and no number.
    """
    graph = open_graph()
    floats = [one.dtype for one in operands if isinstance(one, Tensor) and one.is_float]

    def tensor_of(one: object) -> Tensor:
        if isinstance(one, Tensor):
            return one
        is_real = isinstance(one, float | int) and not isinstance(one, bool)
        return graph.constant(one, floats[0] if is_joint and is_real and floats else None)

    return [graph.resolve(tensor_of(one)) for one in operands]


def apply(name: str, *operands: object, **attributes: Any) -> Tensor:
    """Build a node of an ordinary operator in the graph that is open.

    Raises:
        GraphError: the operands' shapes or types do not fit it, or one cannot be used here.
    """
    return build(op.OPERATORS[name], operands, attributes)


def build(operator: op.Operator, operands: Sequence[object], attributes: dict[str, Any]) -> Tensor:
    """Build a node of an operator that need not be listed."""
    graph = open_graph()
    inputs = tensors_of(operands, is_joint=operator.shape is op.broadcast)
    node = graph.add(operator, inputs, dict(attributes))
    known = [one.shape for one in inputs if one.shape is not None]
    try:
        dtype = operator.dtype(*(one.dtype for one in inputs), **node.attributes)
        is_known = len(known) == len(inputs)
        shape = operator.shape(*known, **node.attributes) if is_known else None
    except (ValueError, TypeError, IndexError) as error:
        del graph.nodes[node.index]
        shapes = " and ".join(str(one.shape) for one in inputs)
        raise GraphError(f"{node.told}: inputs of shapes {shapes} do not fit: {error}") from error
    graph.context.units.append(node)
    return output_of(node, shape, dtype, graph.context)


Array: TypeAlias = Any
"""What a kernel takes where its operator takes a tensor; its other parameters are attributes."""

_P = ParamSpec("_P")


def listed(
    shape: Callable[..., op.Shape | None], dtype: Callable[..., np.dtype[Any]],
    work: op.WorkRule = op.no_work, gradient: op.GradientRule | None = None, **more: Any,
) -> Callable[[Callable[_P, Any]], Callable[_P, Tensor]]:  # fmt: skip
    """List an operator with the kernel that is decorated, under its name.

    What then has the name builds a node of it: of tensors where the kernel takes an `Array`, and of
    attributes where it takes anything else. All arguments are as of `Operator`.
    """

    def list_kernel(kernel: Callable[_P, Any]) -> Callable[_P, Tensor]:
        operator = op.register(
            op.Operator(kernel.__name__, kernel, shape, dtype, work, gradient, **more)
        )
        signature = inspect.signature(kernel)
        arrays = {
            name: parameter.kind is parameter.VAR_POSITIONAL
            for name, parameter in signature.parameters.items()
            if parameter.annotation == "Array"
        }

        @wraps(kernel)
        def built(*given: _P.args, **told: _P.kwargs) -> Tensor:
            bound = signature.bind(*given, **told)
            bound.apply_defaults()
            attributes, operands = bound.arguments, cast("list[object]", [])
            for name, is_many in arrays.items():
                operand = attributes.pop(name)
                operands += operand if is_many else (operand,)
            return build(operator, operands, attributes)

        told = signature.replace(return_annotation="Tensor")
        built.__signature__ = told  # pyright: ignore[reportAttributeAccessIssue]  # for help()
        return built

    return list_kernel


_is_own = cache(is_own)


def _user_place() -> Place | None:
    """The innermost line of the user's own that is being run."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # the only way in time
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_own(file):
            return Place(file, frame.f_lineno)
        frame = frame.f_back
    return None
