"""What an exported program becomes, operation by operation: values, names and calls.

An operator's rule (`ampsim.interop.operators`) asks for the wires of what it reads, and adds calls.
Shapes and layouts are PyTorch's all the way; an extent that follows from the batch is "rows".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.errors import AmpsimError, GraphError
from ampsim.interop.loops import LoopSteps, loop, shared, use
from ampsim.interop.plan import Call, GraphPlan, Port, Ref, Spec
from ampsim.interop.weights import Laid, Layout
from ampsim.nodes import (
    Affine,
    Columns,
    Concat,
    Difference,
    Embedding,
    Permute,
    Product,
    Reshape,
    Sum,
)
from ampsim.user_code import is_own

EXAMPLE_ROWS: Final = 2
"""Items of the batch with which a module is recorded; PyTorch takes an extent of 1 for fixed."""

FIXED_BYTES_MAX: Final = 1 << 26
"""Bytes of an array that a graph may hold (chosen: 64 MiB; more is data, not a model)."""


@dataclass(frozen=True)
class Learned:
    """A parameter as the exported program names it, with its first values."""

    name: str
    values: np.ndarray


@dataclass(frozen=True)
class Zeros:
    """Zeros with a row for each item of the batch somewhere in their shape."""

    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class HalfState:
    """h or c of the state [h | c] of an LSTM."""

    state: Ref
    hidden: int
    is_cell: bool


@dataclass(frozen=True)
class Stacked:
    """The last states of several layers, (rows, hidden) each, along a new first axis."""

    values: tuple[Any, ...]
    hidden: int


@dataclass(frozen=True)
class LossValue:
    """What a loss gave."""


@dataclass(frozen=True)
class LogSoftmax:
    """The logarithm of a softmax, which only a loss takes."""

    of: Any


Value: TypeAlias = Any
"""What an operation of the exported program gave: a `Ref`, an array that is the same for every
batch, one of the classes above, or several of these."""


class Refusal(GraphError):
    """A module holds what cannot become a graph."""


class MissingRule(Refusal):
    """A module holds an operation that the table lacks; what it is made of may stand there."""


class Lowering:
    """The calls so far, and what each operation of the exported program gave.

    Attributes:
        values: by the operations' names.
        layouts: how parameters of nodes lie in those of the module, by their names here.
        messages: how often a batch meets each node with parameters.
        current: which operation of the exported program is looked at.
        classes: how many the loss tells apart; 0 of a regression, or as long as there is none.
    """

    def __init__(self, name: str, uses: dict[tuple[str, ...], int]) -> None:
        self.name = name
        self.values: dict[str, Value] = {}
        self.layouts: dict[str, Laid] = {}
        self.messages: dict[str, int] = {}
        self.classes = 0
        self._calls: list[Call] = []
        self._ports: list[Port] = []
        self._names: set[str] = {"controller"}
        self._uses = uses
        self._used: dict[tuple[str, ...], tuple[str, int]] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._views: dict[Ref, tuple[Any, Ref, Any]] = {}
        self._made: dict[Any, tuple[Value, Ref]] = {}
        self._learning: set[str] = set()
        self.current: Any = None

    def finish(self) -> None:
        """Leave out calls that nothing reads, and what is known of their parameters."""
        read, kept = set[str](), list[Call]()
        for call in reversed(self._calls):
            if call.name in read or not call.outputs:
                kept.append(call)
                read |= {ref.call for ref in call.feeds}
        self._calls = kept[::-1]
        self._ports = [one for one in self._ports if one.name in read]
        made = {one.name for one in kept}
        self.messages = {node: count for node, count in self.messages.items() if node in made}
        self.layouts = {
            name: laid for name, laid in self.layouts.items() if name.rpartition(".")[0] in made
        }

    def plan(self) -> GraphPlan:
        """The calls, as a graph is made of them."""
        return GraphPlan(self.name, tuple(self._ports), tuple(self._calls))

    def refused(self, what: str, remedy: str = "", kind: type[Refusal] = Refusal) -> Refusal:
        """Say in a line that an operation cannot be, where it stands, and what to try."""
        place = place_of(self.current)
        where = f" ({place})" if place else ""
        return kind(f"{self.name}: {what}{where}{remedy and f'; {remedy}'}")

    def free(self, wanted: str) -> str:
        """A name like `wanted` that no call has."""
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}-{number}"
        self._names.add(name)
        return name

    def light_name(self, kind: str) -> str:
        """A name for a node without parameters: where in the module it stands, and what it is."""
        path = module_of(self.current)
        return self.free(f"{path}.{kind}" if path else kind)

    def port(self, name: str, shape: tuple[int | str, ...], **source: Any) -> Ref:
        """Have the controller pump something; the name is free."""
        made = Port(name, shape, **source)
        self._ports.append(made)
        return Ref(made.name)

    def call(
        self, subject: Spec | str, *feeds: Ref, part: Any = None, more: Any = (), outputs: int = 1
    ) -> Ref:
        """Add a call; return the first of its outputs."""
        word = getattr(part, "__name__", "")
        name = subject.name if isinstance(subject, Spec) else self.free(f"{subject}-{word}")
        place = place_of(self.current)
        try:
            if isinstance(subject, Spec):
                subject.node()
        except AmpsimError as error:
            raise self.refused(str(error)) from None
        if any(ref.call in self._learning for ref in feeds):
            self._learning.add(name)
        self._calls.append(Call(name, subject, feeds, part, tuple(more), outputs, place))
        return Ref(name)

    def light(self, kind: Any, *feeds: Ref, named: str = "", **options: Any) -> Ref:
        """Add a node without parameters; views of views are one."""
        before = self._views.get(feeds[0]) if len(feeds) == 1 else None
        if before is not None and before[0] is kind:
            feeds = (before[1],)
            if kind is Permute:
                options["axes"] = tuple(before[2][axis] for axis in options["axes"])
                if options["axes"] == tuple(range(len(options["axes"]))):
                    return feeds[0]
        if kind in (Affine, Difference, Product, Sum) and self._is_whole():
            raise self.refused("whole numbers are calculated with", "do that before, in the data")
        name = self.light_name(named or kind.__name__.lower())
        made = self.call(Spec(kind, name, options), *feeds)
        if kind in (Permute, Reshape):
            self._views[made] = (kind, feeds[0], options.get("axes"))
        return made

    def permuted(self, wire: Ref, axes: Sequence[int]) -> Ref:
        """The axes in another order, if it is another."""
        is_same = list(axes) == list(range(len(axes)))
        return wire if is_same else self.light(Permute, wire, axes=tuple(axes))

    def joined(self, wires: Sequence[Ref], widths: Sequence[Any], axis: int, axes: int) -> Ref:
        """Beside each other along an axis, which is the last as long as that takes."""
        if len(wires) == 1:
            return wires[0]
        swapped = list(range(axes))
        swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
        turned = [self.permuted(wire, swapped) for wire in wires]
        return self.permuted(self.light(Concat, *turned, widths=tuple(widths)), swapped)

    def stacked(self, wires: Sequence[Ref], shape: Sequence[int], axis: int = 0) -> Ref:
        """Along a new axis; `shape` is that of one, with the new axis."""
        parts = [self.light(Reshape, wire, shape=tuple(shape)) for wire in wires]
        return self.joined(parts, [1] * len(parts), axis, len(shape))

    def _is_whole(self) -> bool:
        """Whether the current operation gives whole numbers."""
        found = getattr(self.current.meta.get("val"), "dtype", None)
        return found is not None and not found.is_floating_point

    def learning(self, spec: Spec, layout: Layout, *feeds: Ref) -> Ref:
        """Add a node with parameters, or another use of one that was added already."""
        key = _parameters(layout)
        uses = self._uses.get(key, 1)
        if key not in self._used:
            spec = self._claim(spec, layout, uses)
            if uses == 1:
                return self.call(spec, *feeds)
            self.call(spec, part=shared, more=(uses,), outputs=uses)
        name, number = self._used[key]
        if number == uses:
            raise self._tied(key[0])
        self._used[key] = (name, number + 1)
        self.call(name, *feeds, part=use, more=(number,), outputs=0)
        return Ref(name, number)

    def learns(self, wire: Ref) -> bool:
        """Whether parameters have a part in what a wire brings."""
        return wire.call in self._learning

    def looping(self, spec: Spec, layout: Layout, *feeds: Ref, steps: LoopSteps) -> tuple[Ref, Ref]:
        """Add a loop over a cell; return its states at all steps but one, and at that one."""
        key = _parameters(layout)
        if key in self._used:
            raise self._tied(key[0])
        spec = self._claim(spec, layout, steps.length)
        self._used[key] = (spec.name, 1)
        first = self.call(spec, *feeds, part=loop, more=(steps,), outputs=2)
        return first, Ref(first.call, 1)

    def _claim(self, spec: Spec, layout: Layout, messages: int) -> Spec:
        key = _parameters(layout)
        for one in key:
            if self._owners.setdefault(one, key) != key:
                raise self._tied(one)
        name = self.free(spec.name)
        self._learning.add(name)
        self.layouts |= {f"{name}.{part}": laid for part, laid in layout.items()}
        self.messages[name] = messages
        self._used[key] = (name, 0 if messages > 1 else 1)
        return replace(spec, name=name)

    def _tied(self, parameter: str) -> Refusal:
        return self.refused(
            f"{parameter} is used by several operations that cannot be one node",
            "ampsim does not tie weights; give each a parameter of its own",
        )

    def wire(self, value: Value) -> Ref:
        """The output that brings a value."""
        if isinstance(value, Ref):
            return value
        key = value if isinstance(value, HalfState | Zeros | Stacked) else id(value)
        if key not in self._made:
            self._made[key] = (value, self._wired(value))  # kept, so that its id stays its own
        return self._made[key][1]

    def _wired(self, value: Value) -> Ref:
        match value:
            case HalfState():
                first = value.hidden * value.is_cell
                half = {"width": 2 * value.hidden, "start": first, "stop": first + value.hidden}
                return self.light(Columns, value.state, named="c" if value.is_cell else "h", **half)
            case np.ndarray():
                array = cast("np.ndarray[Any, np.dtype[Any]]", value)
                if array.nbytes > FIXED_BYTES_MAX:
                    raise self.refused("a fixed array is larger than 64 MiB", "make it an input")
                return self.port(self.light_name("fixed"), array.shape, values=array)
            case Learned():
                return self._looked_up(value)
            case Stacked():
                return self.stacked([self.wire(one) for one in value.values], (1, -1, value.hidden))
            case Zeros() if value.shape.count(None) == 1:
                return self._zeros(value.shape)
            case Zeros():
                what, remedy = "zeros without a row for each item are read", "leave them out"
            case LogSoftmax():
                what = "log_softmax is no loss's input"
                remedy = "give the loss nn.CrossEntropyLoss() the logits, or nn.NLLLoss() this"
            case LossValue():
                what = "the loss is scaled, or added to"
                remedy = (
                    "let a cross-entropy or a squared error be all of it; a factor belongs into "
                    "the learning rate, decay of weights into the optimizer"
                )
            case _:
                what = "something is read that has no node, such as the places of a maximum"
                remedy = "take its values"
        raise self.refused(what, remedy)

    def _zeros(self, shape: tuple[int | None, ...]) -> Ref:
        width = math.prod(one for one in shape if one is not None)
        made = self.port(self.light_name("zeros"), ("rows", width), width=width)
        if shape == (None, width):
            return made
        return self.light(Reshape, made, shape=extents(shape))

    def _looked_up(self, learned: Learned) -> Ref:
        """An array that learns is a table all of whose rows are looked up."""
        shape = learned.values.shape or (1,)
        rows = shape[:-1] or (1,)
        places = np.arange(int(np.prod(rows))).reshape(rows)
        index = self.port(self.light_name("places"), rows, values=places)
        spec = Spec(
            Embedding, node_name(learned.name), {"vocabulary": places.size, "width": shape[-1]}
        )
        layout = {"weight": Laid("reshaped", (learned.name,))}
        return self.learning(spec, layout, index)


def extents(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """A shape for `Reshape`, in which -1 follows from the batch."""
    return tuple(-1 if one is None else one for one in shape)


def _parameters(layout: Layout) -> tuple[str, ...]:
    """All parameters of the module that are in a node."""
    return tuple(sorted(name for laid in layout.values() for name in laid.names))


def node_name(parameter: str) -> str:
    """The name of a node that has a parameter of that name in the module.

    >>> node_name("encoder.attention.in_proj_weight"), node_name("fc.weight"), node_name("start")
    ('encoder.attention.in_proj', 'fc', 'start')
    """
    for ending in (".weight", "_weight"):
        if parameter.endswith(ending):
            return parameter.removesuffix(ending)
    return parameter


def module_of(operation: Any) -> str:
    """Where in the module an operation stands, such as "features.0"; "" at its top."""
    stack: dict[str, tuple[str, str]] = operation.meta.get("nn_module_stack") or {}
    paths = [path for path, _kind in stack.values()]
    last = paths[-1] if paths else ""
    return last.removeprefix("module").removeprefix(".") if last.startswith("module") else ""


def place_of(operation: Any) -> str:
    """The user's line that an operation came from, with its text; "" where it is unknown."""
    meta: dict[str, str] = getattr(operation, "meta", None) or {}
    lines = (meta.get("stack_trace") or "").splitlines()
    found = ""
    for line, code in zip(lines, [*lines, ""][1:], strict=True):
        words = line.strip().split('"')
        if line.strip().startswith('File "') and len(words) > 2 and is_own(words[1]):
            number = words[2].split("line ")[-1].split(",")[0]
            said = "" if code.strip().startswith('File "') else code.strip()
            found = f"{words[1]}, line {number}" + (f": {said}" if said else "")
    return found


def short(operation: Any) -> str:
    """The operator's name, such as "conv2d"."""
    return str(operation.target).removeprefix("aten.").partition(".")[0]


class Arguments:
    """The arguments of an operation by their names, with its shape and those of what it reads."""

    def __init__(self, operation: Any, values: dict[str, Value]) -> None:
        self.operation = operation
        self._values = values
        names = [one.name for one in operation.target._schema.arguments]
        given = dict(zip(names, operation.args, strict=False)) | dict(operation.kwargs)
        usual = {one.name: one.default_value for one in operation.target._schema.arguments}
        self._given = {name: given.get(name, usual[name]) for name in names}
        self.first, self.second = [*names, "", ""][:2]

    def __getitem__(self, name: str) -> Any:
        """A number or a flag, or the value of an operation, or a list of these; None of no such."""
        return self._resolved(self._given.get(name))

    def _resolved(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self._resolved(one) for one in cast("list[Any]", given)]
        return self._values.get(given.name, given) if hasattr(given, "meta") else given

    def unlike(self, usual: dict[str, Any]) -> list[str]:
        """Names of arguments that are not as usual."""
        return [name for name, one in usual.items() if self._given.get(name, one) != one]

    def shape_of(self, name: str) -> tuple[int | None, ...]:
        """Of an argument; None for an extent that follows from the batch."""
        return shape_of(self._given[name])

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Of what the operation gives."""
        return shape_of(self.operation)


def shape_of(operation: Any) -> tuple[int | None, ...]:
    """The shape of an operation's tensor; None for an extent that follows from the batch."""
    found = getattr(operation.meta.get("val"), "shape", ())
    return tuple(one if isinstance(one, int) else one.node.maybe_as_int() for one in found)
