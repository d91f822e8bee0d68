"""Lower an exported program, operation by operation, to values, names, weights and calls.

An operator's rule (`ampsim.interop.operators`) asks for the wires of what it reads, and adds calls.
Shapes are PyTorch's all the way; an extent that follows from the batch is None, or "rows".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim import nodes
from ampsim.errors import AmpsimError, GraphError
from ampsim.interop.loops import LoopSteps
from ampsim.interop.parameters import (
    WRAPPED,
    Layout,
    Learned,
    Way,
    held_in,
    places_in,
    specs_of,
)
from ampsim.interop.plan import Call, GraphPlan, Port, Ref, Spec
from ampsim.ir import Node
from ampsim.user_code import is_own

EXAMPLE_ROWS: Final = 2
"""Items of the batch with which a module is recorded; PyTorch takes an extent of 1 for fixed."""

FIXED_BYTES_MAX: Final = 1 << 26  # of an array in a graph (chosen; more is data, not a model)


@dataclass(frozen=True, eq=False)
class Repeated:
    """Numbers that are the same for each item of a batch; along its axis the extent is 1 here."""

    values: np.ndarray
    axis: int = 0
    times: int = 1  # items for each of the batch, as where sequences lie below each other


@dataclass(frozen=True)
class Stacked:
    """The last states of several layers, (rows, hidden) each, along a new first axis."""

    values: tuple[Ref, ...]
    hidden: int


@dataclass(frozen=True)
class Unread:
    """A value that no operation may read: what doing so is, and what to try."""

    what: str
    remedy: str


LOSS: Final = Unread(
    "the loss is scaled, or added to",
    "let a cross-entropy or a squared error be all of it; a factor belongs into the learning rate, "
    "decay of weights into the optimizer; heads of as many classes go into one cross-entropy, "
    "F.cross_entropy(torch.stack(outputs, 2), targets)",
)
PLACES_IN_BATCH: Final = Unread("numbers follow from the place in the batch", "make them an input")
EXTENT: Final = Unread(
    "how many items a batch has is calculated with", "leave that to the loss, or make it an input"
)
NOTHING: Final = Unread(
    "something is read that has no node, such as the places of a maximum", "take its values"
)

Value: TypeAlias = Any
"""What an operation of the exported program gave: a `Ref`, an array that is the same for every
batch, one of the classes above, or several of these."""

OWN_NODE: Final = "write that part as a node of your own (docs/own-node.md)"

CALCULATING: Final = (
    nodes.Affine, nodes.Difference, nodes.Mean, nodes.Pointwise, nodes.Product, nodes.Sum,
)  # fmt: skip
"""What calculates in floating-point numbers only."""


def repeated(made: np.ndarray, axis: int) -> Repeated | Unread:
    """Numbers for as many items as the example has, along an axis: once, if all have the same."""
    first, (times, more) = made.take([0], axis=axis), divmod(made.shape[axis], EXAMPLE_ROWS)
    is_same = not more and (made == first).all()
    return Repeated(first, axis, times) if is_same else PLACES_IN_BATCH


class Refusal(GraphError):
    """A module holds what cannot become a graph; `from_torch` puts the module's name before it."""

    def __init__(self, what: str, remedy: str = "", place: str = "") -> None:
        super().__init__(f"{what}{place and f' ({place})'}{remedy and f'; {remedy}'}")


class MissingRule(Refusal):
    """A module holds an operation that the table lacks; what it is made of may stand there."""


class Lowering:
    """The calls so far, and what each operation of the exported program gave."""

    def __init__(self, module: Any, program: Any) -> None:
        self.name = type(module).__name__
        self.dtype = str(next(module.parameters()).dtype).removeprefix("torch.")
        self.values: dict[str, Value] = {**held_in(module, program)}  # by the operations' names
        self._parameters = places_in(module)
        self.layouts: Layout = {}  # of nodes' parameters in the module's, by names here
        self.messages: dict[str, int] = {}  # how often a batch meets each node with parameters
        self.classes = 0  # that the loss tells apart; 0 of a regression
        self.plan = GraphPlan(self.name, (), ())  # once all operations were looked at
        self.current: Any = None  # the operation of the exported program that is looked at
        self.said = ""  # its name as the user knows it
        self.loss_place = ""  # where the loss is defined, if that is the user's code
        self._calls: list[Call] = []
        self._ports: list[Port] = []
        self._names: set[str] = {"controller"}
        self._used: dict[Any, tuple[Spec, int]] = {}
        self._specs: dict[str, Spec] = {}
        self._origins: dict[Ref, tuple[Spec, tuple[Ref, ...]]] = {}
        self._made: dict[Any, tuple[Value, Ref]] = {}
        self._learning: set[str] = set()

    def finish(self) -> None:
        """Plan the calls that something reads; forget what is known of parameters of others.

        Raises:
            GraphError: shapes do not fit, or different nodes would have one parameter.
        """
        calls, read = list[Call](), set[Ref]()
        for call in reversed(self._calls):
            given = [Ref(call.name, port) for port in range(call.outputs)]
            if call.part == "use":
                given = [Ref(*call.arguments[:2])]
            if not (call.part or call.outputs) or not read.isdisjoint(given):
                calls.append(call)
                read |= {*call.feeds}
        uses = Counter(one.arguments[0] for one in calls if one.part == "use")
        calls = [made for call in reversed(calls) for made in self._counted(call, uses)]
        places = {one.name: one.place for one in calls}
        self.messages = {
            node: uses[node] or count for node, count in self.messages.items() if node in places
        }
        self.layouts = {
            name: lies for name, lies in self.layouts.items() if name.rpartition(".")[0] in places
        }
        self._require_apart(places)
        ports = tuple(one for one in self._ports if Ref(one.name) in read)
        self.plan = GraphPlan(self.name, ports, tuple(calls))
        try:
            self.plan().verify()
        except GraphError as error:
            said, remedy = str(error).removeprefix(f"{self.name}: "), ""
            name = max(filter(said.startswith, places), key=len, default="")
            if " (Phi) " in said:
                said = f"{name} is used on tensors of several shapes"
                remedy = "pad them to one, or give each a layer of its own"
            raise Refusal(said, remedy, places.get(name, "")) from None

    def _counted(self, call: Call, uses: Mapping[str, int]) -> list[Call]:
        """A call, now that it is known how often a node is used: once it stands by itself."""
        if call.part != "use":
            return [call]
        node, number, *feeds = call.arguments
        spec, count = self._specs[node], uses[node]
        if count == 1:
            return [Call(node, "", (spec, *feeds), 1, call.place)]
        shared = Call(node, "shared", (spec, count), count, call.place)
        return [call] if number else [shared, call]

    def _require_apart(self, lines: Mapping[str, str]) -> None:
        """Refuse parameters that several nodes have, or of which none has a part.

        `lines` are the user's of each call, in order.
        """
        taken = np.zeros(sum(one.size for one in self._parameters.values()), bool)
        for node, line in lines.items():
            for name, mine in self.layouts.items():
                if name.rpartition(".")[0] == node:
                    if taken[mine].any():
                        raise Refusal(*self._tied(mine), line)
                    taken[mine] = True
        for name, places in self._parameters.items():
            if 0 < taken[places].sum() < places.size:
                raise Refusal(f"a part of {name} has no effect on the loss", "make it smaller")

    def _tied(self, places: np.ndarray) -> tuple[str, str]:
        """Tell what is wrong with a parameter of several nodes, and what to try."""
        first = places.flat[0]
        name = next(name for name, own in self._parameters.items() if first in own)
        return (
            f"{name} is used by several operations that cannot be one node",
            "ampsim ties no weights of different layers; give each a parameter of its own",
        )

    def refused(self, what: str, remedy: str = "", kind: type[Refusal] = Refusal) -> Refusal:
        """Say in a line that an operation cannot be, where it stands, and what to try."""
        is_of_loss = not any(path.startswith("module") for path in modules_of(self.current))
        part = module_of(self.current)
        place = place_of(self.current) or (self.loss_place if is_of_loss else part and f"in {part}")
        return kind(what, remedy, place)

    def free(self, wanted: str) -> str:
        """A name like `wanted` that no call has."""
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}-{number}"
        self._names.add(name)
        return name

    def _light_name(self, kind: str) -> str:
        """A name for a node without parameters: where in the module it stands, and what it is."""
        path = module_of(self.current)
        return self.free(f"{path}.{kind}" if path else kind)

    def port(self, name: str, shape: tuple[int | str, ...], **source: Any) -> Ref:
        """Have the controller pump something; the name is free."""
        self._ports.append(Port(name, shape, **source))
        return Ref(name)

    def call(self, *arguments: Any, part: str = "", outputs: int = 1) -> Ref:
        """Add a call, of a node or of a name first; return the first of its outputs."""
        subject = arguments[0]
        name = subject.name if isinstance(subject, Spec) else self.free(f"{subject}-{part}")
        made = Call(name, part, arguments, outputs, place_of(self.current))
        if isinstance(subject, Spec):
            self._tried(subject)
            self._origins[Ref(name)] = subject, (*made.feeds,)
        if any(map(self.learns, made.feeds)):
            self._learning.add(name)
        self._calls.append(made)
        return Ref(name)

    def origin(self, wire: Value, kind: type[Node]) -> tuple[dict[str, Any], tuple[Ref, ...]]:
        """Options and feeds of the node of that kind that a wire comes from; none of another."""
        spec, feeds = self._origins.get(wire, (None, ())) if isinstance(wire, Ref) else (None, ())
        return (spec.options, feeds) if spec is not None and spec.kind is kind else ({}, ())

    def light(self, kind: Any, *feeds: Ref, named: str = "", **options: Any) -> Ref:
        """Add a node without parameters; views of views are one."""
        before, source = self.origin(feeds[0], kind)
        if source and kind in (nodes.Permute, nodes.Reshape):
            feeds = source
            if kind is nodes.Permute:
                options["axes"] = tuple(before["axes"][axis] for axis in options["axes"])
                if options["axes"] == tuple(range(len(options["axes"]))):
                    return feeds[0]
        if kind in CALCULATING and dtype_of(self.current).startswith(("bool", "int", "uint")):
            remedy = "do that before, in the data; of a mask take mask.float(), or leave expand out"
            raise self.refused("whole numbers are calculated with", remedy)
        return self.call(
            Spec(kind, self._light_name(named or kind.__name__.lower()), options), *feeds
        )

    def permuted(self, wire: Ref, axes: Sequence[int]) -> Ref:
        """The axes in another order, if it is another."""
        is_same = list(axes) == list(range(len(axes)))
        return wire if is_same else self.light(nodes.Permute, wire, axes=tuple(axes))

    def joined(self, wires: Sequence[Ref], widths: Sequence[Any], axis: int, axes: int) -> Ref:
        """Beside each other along an axis, which is the last as long as that takes."""
        if len(wires) == 1:
            return wires[0]
        swapped = list(range(axes))
        swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
        turned = [self.permuted(wire, swapped) for wire in wires]
        return self.permuted(self.light(nodes.Concat, *turned, widths=tuple(widths)), swapped)

    def stacked(self, wires: Sequence[Ref], shape: Sequence[int], axis: int = 0) -> Ref:
        """Along a new axis; `shape` is that of one, with the new axis."""
        parts = [self.light(nodes.Reshape, wire, shape=tuple(shape)) for wire in wires]
        return self.joined(parts, [1] * len(parts), axis, len(shape))

    def learning(
        self, spec: Spec, layout: Layout, *feeds: Ref, steps: LoopSteps | None = None
    ) -> Any:
        """Add a node with parameters, or another use of one that was added already.

        It is named as `spec` if that is free. A loop over the node's `steps` is its only use.

        Returns:
            The wire of the use; of a loop, the states at all steps but one, and at that one.
        """
        parts = [(part, places.tobytes()) for part, places in layout.items()]
        key = (spec.kind, steps is None, *parts)
        if key not in self._used:
            made = replace(spec, name=self.free(spec.name))
            self._tried(made)
            self._specs[made.name] = made
            self._learning.add(made.name)
            self.layouts |= {f"{made.name}.{part}": places for part, places in layout.items()}
            self.messages[made.name] = 0 if steps is None else steps.length
            self._used[key] = made, 0
        made, number = self._used[key]
        self._used[key] = made, number + 1
        if steps is not None and number:
            raise self.refused(
                f"{made.name} reads several sequences",
                "give them as one input, (rows, sequences, steps), and view(-1, steps) before it",
            )
        if made.options != spec.options:
            raise self.refused(*self._tied(next(iter(layout.values()))))
        if steps is not None:
            first = self.call(made, *feeds, steps, part="loop", outputs=2)
            return first, Ref(first.call, 1)
        self.call(made.name, number, *feeds, part="use", outputs=0)
        return Ref(made.name, number)

    def _tried(self, spec: Spec) -> None:
        """Make a node once, and refuse the operation if it cannot be."""
        try:
            spec.node()
        except AmpsimError as error:
            raise self.refused(str(error)) from None

    def learns(self, wire: Ref) -> bool:
        """Tell whether parameters have a part in what a wire brings."""
        return wire.call in self._learning

    def wire(self, value: Value) -> Ref:
        """The output that brings a value."""
        if isinstance(value, Ref):
            return value
        key = value if isinstance(value, Stacked) else id(value)
        if key not in self._made:
            self._made[key] = (value, self._wired(value))  # kept, so that its id stays its own
        return self._made[key][1]

    def _wired(self, value: Value) -> Ref:
        match value:
            case np.ndarray():
                array = cast("np.ndarray[Any, np.dtype[Any]]", value)
                return self._fixed(array, array.shape)
            case Repeated():
                first = np.moveaxis(value.values, value.axis, 0)
                each = first if value.times == 1 else np.repeat(first[:, None], value.times, axis=1)
                made = self._fixed(each, ("rows", *each.shape[1:]))
                if value.times > 1:
                    made = self.light(nodes.Reshape, made, shape=(-1, *first.shape[1:]))
                axes = [*range(1, first.ndim)]
                axes.insert(value.axis, 0)
                return self.permuted(made, axes)
            case Learned():
                return self._looked_up(value) if value.wired is None else value.wired()
            case Stacked():
                return self.stacked([self.wire(one) for one in value.values], (1, -1, value.hidden))
            case _:
                is_extent = hasattr(value, "meta") and not is_tensor(value)
                unread = value if isinstance(value, Unread) else EXTENT if is_extent else NOTHING
                raise self.refused(unread.what, unread.remedy)

    def _fixed(self, array: np.ndarray, shape: tuple[int | str, ...]) -> Ref:
        if array.nbytes > FIXED_BYTES_MAX:
            raise self.refused("a fixed array is larger than 64 MiB", "make it an input")
        array = array.astype(self.dtype) if array.dtype.kind == "f" else array
        return self.port(self._light_name("fixed" if array.any() else "zeros"), shape, values=array)

    def _looked_up(self, learned: Learned) -> Ref:
        """An array that learns is a table all of whose rows are looked up."""
        shape = learned.places.shape or (1,)
        rows = shape[:-1] or (1,)
        places = np.arange(int(np.prod(rows))).reshape(rows)
        index = self.port(self._light_name("places"), rows, values=places)
        options = {"vocabulary": places.size, "width": shape[-1]}
        spec = Spec(nodes.Embedding, node_name(learned.name), options)
        return self.learning(spec, {"weight": learned.places}, index)


def extents(shape: Sequence[int | None]) -> tuple[int, ...]:
    """A shape for `Reshape`, in which -1 follows from the batch."""
    return tuple(-1 if one is None else one for one in shape)


def node_name(parameter: str) -> str:
    """The name of a node that has a parameter of that name in the module.

    >>> node_name("encoder.attention.in_proj_weight"), node_name("fc.weight"), node_name("start")
    ('encoder.attention.in_proj', 'fc', 'start')
    """
    return parameter.removesuffix(".weight").removesuffix("_weight")


def modules_of(operation: Any) -> list[str]:
    """The modules that an operation is in, by their paths in what is exported."""
    stack: dict[str, tuple[str, str]] = operation.meta.get("nn_module_stack") or {}
    return [path for path, _kind in stack.values()]


def module_of(operation: Any) -> str:
    """Return the path of an operation's module, such as "features.0"; "" at its top."""
    last = ["", *modules_of(operation)][-1]
    return last.removeprefix("module").removeprefix(".") if last.startswith("module") else ""


_FRAME: Final = re.compile(r'^ *File "([^"]*)", line (\d+).*\n?(?! *File ") *(.*)$', re.MULTILINE)


def place_of(operation: Any) -> str:
    """The user's line that an operation came from, with its text; "" where it is unknown."""
    meta: dict[str, str] = getattr(operation, "meta", None) or {}
    frames = _FRAME.findall(meta.get("stack_trace") or "")
    own = [(path, line, said.strip()) for path, line, said in frames if is_own(path)]
    return "".join(f"{path}, line {line}{said and f': {said}'}" for path, line, said in own[-1:])


def require_free(program: Any) -> None:
    """Refuse a batch of one size, a loss that learns, and buffers that change."""
    for operation, spec in specs_of(program):
        if spec.kind.name == "USER_INPUT" and shape_of(operation)[:1] != (None,):
            raise Refusal(
                f"the module's own numbers fix the batch at {shape_of(operation)[0]}",
                "use x.size(0), or -1, instead of a number or len(x)",
            )
        if spec.kind.name == "PARAMETER" and not spec.target.startswith(WRAPPED):
            raise Refusal("the loss has parameters of its own", "keep them in the module")
    for changed in program.graph_signature.buffers_to_mutate.values():
        raise Refusal(
            f"buffer {changed.removeprefix(WRAPPED)} changes with each batch, and to_torch would "
            "give it back as it was",
            "take it out, or count in the training loop",
        )


def short(operation: Any) -> str:
    """The operator's name, such as "conv2d"."""
    return name_of(operation.target).partition(".")[0]


def name_of(target: Any) -> str:
    """An operator's name with its overload, if it has one, such as "mul.Tensor"."""
    return str(target).removeprefix("aten.").removesuffix(".default")


def shape_of(operation: Any) -> tuple[int | None, ...]:
    """The shape of an operation's tensor, of several the first's; None for the batch's extent."""
    value = _value_of(operation)
    (first, *_more) = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
    found = getattr(first, "shape", ())
    return tuple(one if isinstance(one, int | None) else one.node.maybe_as_int() for one in found)


def dtype_of(operation: Any) -> str:
    """The type of the numbers of an operation's tensor, as NumPy calls it; "" of none."""
    return str(getattr(_value_of(operation), "dtype", "")).removeprefix("torch.")


def is_tensor(operation: Any) -> bool:
    """Tell whether an operation gives a tensor, and not an extent or several tensors."""
    return hasattr(_value_of(operation), "shape")


def hint(extent: Any) -> Any:
    """An extent as it is in the example."""
    return extent.node.hint if hasattr(extent, "node") else extent


def _value_of(operation: Any) -> Any:
    """Return what PyTorch knows of an operation's value; None of what is no operation."""
    return getattr(operation, "meta", {}).get("val")


class Arguments:
    """The arguments of an operation by their names, with its shape and those of what it reads."""

    def __init__(self, low: Lowering, operation: Any) -> None:
        self.low, self.light, self.refused = low, low.light, low.refused
        self.operation = operation
        self.shape = shape_of(operation)
        self.dtype = dtype_of(operation)
        schema = operation.target._schema.arguments
        given = dict(zip([one.name for one in schema], operation.args, strict=False))
        given |= operation.kwargs
        self._given = {one.name: given.get(one.name, one.default_value) for one in schema}
        self.first, self.second = [*self._given, "", ""][:2]

    def __getitem__(self, name: str) -> Any:
        """A number or a flag, or the value of an operation, or a list of these; None of no such."""
        return self._resolved(self._given.get(name))

    def _resolved(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self._resolved(one) for one in cast("list[Any]", given)]
        return self.low.values.get(given.name, given) if hasattr(given, "meta") else given

    def wire(self, name: str = "") -> Ref:
        """The output that brings an argument, the first if it is not named."""
        return self.low.wire(self[name or self.first])

    def number_wire(self, value: Any) -> Ref:
        """The output that brings a number, or an operand in the type of the operation's tensor."""
        if isinstance(value, int | float | np.ndarray):
            value = np.atleast_1d(np.asarray(value, self.dtype))
        return self.low.wire(value)

    def operand(self, name: str) -> Ref:
        """The output that brings an argument that goes with the operation's tensor, element by one.

        A parameter of one number is looked up as (1, 1), which a tensor of one axis does not take.
        """
        wire = self.number_wire(self[name])
        is_one = len(self.shape) == 1 and self.shape_of(name) in ((), (1,))
        return self.light(nodes.Reshape, wire, shape=(1,)) if is_one else wire

    def axis(self, given: int, what: str, remedy: str) -> int:
        """An axis of the first argument, counted from the first; the batch's is refused."""
        axis = range(len(self.shape_of()))[given]
        if self.shape_of()[axis] is None:
            raise self.refused(what, remedy)
        return axis

    def axes(self, what: str, remedy: str) -> list[int]:
        """Axes of `dim`, or all, in order; the batch's is refused."""
        every = range(len(self.shape_of()))
        dims = np.atleast_1d(every if self["dim"] in (None, []) else self["dim"]).tolist()
        return sorted({self.axis(one, what, remedy) for one in dims})

    def reshaped(self, wire: Ref) -> Ref:
        """The numbers of a wire in the shape of the operation's tensor."""
        shape = self.shape or (1,)
        if shape.count(None) > 1:
            raise self.refused(
                "two extents of a shape follow from the batch", "keep the batch as one axis"
            )
        return self.light(nodes.Reshape, wire, shape=extents(shape))

    def kept(self, wire: Ref) -> Ref:
        """The wire of what axes were taken out of, with these as 1 if `keepdim` says so."""
        return self.reshaped(wire) if self["keepdim"] else wire

    def view(self, way: Way, wired: Callable[[], Ref]) -> Value:
        """A view of the first argument: of a parameter as one, else the output that brings it."""
        value = self[self.first]
        if isinstance(value, Learned):
            return Learned(value.name, way(value.places), wired)
        return wired()

    def rest(self) -> list[Any]:
        """List the arguments after the first."""
        return [self[name] for name in [*self._given][1:]]

    def shape_of(self, name: str = "") -> tuple[int | None, ...]:
        """Return an argument's shape, the first's unless named; None for an extent of the batch."""
        return shape_of(self._given[name or self.first])

    def shapes_of(self, name: str) -> list[tuple[int | None, ...]]:
        """Return the shapes of several values that are one argument."""
        return [*map(shape_of, self._given[name])]

    def dtype_of(self, name: str = "") -> str:
        """Return an argument's type, the first's unless named; "" of no tensor."""
        return dtype_of(self._given[name or self.first])
