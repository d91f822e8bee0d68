"""`cond` and `while_loop`, compiled into the five primitives; `map_fn`, folds and `scan` of these.

Source: Yu et al. (2018), Sections 2.1 and 4.2, Figures 2 and 4. Every captured tensor and every
loop variable has primitives of its own, so that none waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ampsim.arguments import checked
from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import (
    Branch,
    Conditional,
    FlowGraph,
    Loop,
    Node,
    Operand,
    Predicate,
    Tensor,
    apply,
    open_graph,
    output_of,
    tensors_of,
)
from ampsim.dataflow.operator import BOOL, Shape
from ampsim.dataflow.structure import TensorArray, leaves_of, rebuilt, require_alike
from ampsim.errors import GraphError, OptionError
from ampsim.options import Count
from ampsim.text import shown


@checked
def device(device: int | str | None) -> Any:
    """Build nodes that run on a worker of a number, or on the one whose device has a name.

    With None they run where they would without.
    """
    return open_graph().building(placed=device)


@checked
def input_tensor(name: str, shape: Sequence[int | None] = (), dtype: Any = "float64") -> Tensor:
    """A tensor whose value is given when the graph runs.

    Raises:
        OptionError: the name is taken.
    """
    graph = open_graph()
    node = graph.given.get(name)
    if node is not None and (graph.known is None or node.operator is op.VARIABLE):
        raise OptionError(f"input {name!r} is there already; give another name")
    if node is not None:
        return node.outputs[0]
    return graph.source(op.INPUT, shape, dtype, name=name)


@checked
def cond(predicate: Operand, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Build both branches, of which a run computes the one that `predicate` chooses.

    Args:
        predicate: one truth value.
        true_fn: builds one branch: a tensor, a `TensorArray`, or a tuple or list of these.
        false_fn: builds the other one, of the same form.

    Raises:
        GraphError: the branches give structures of different forms or tensors of different types.
    """
    graph = open_graph()
    (tensor,) = tensors_of([predicate])
    _require_predicate(tensor, "the predicate of cond")
    known = None if graph.known is None else graph.known.value(tensor)
    if known is not None:
        given = true_fn() if known else false_fn()
        return rebuilt(given, leaves_of(given, f"cond of {tensor.node.told}"))
    built: list[Any] = []
    branches: list[Branch] = []
    for side, function in ((False, false_fn), (True, true_fn)):
        branch = Branch(graph.context, tensor, side=side)
        with graph.building(context=branch):
            given = function()
            branch.outputs = leaves_of(given, f"cond of {tensor.node.told}: {branch.told}")
        built.append(given)
        branches.append(branch)
    require_alike(
        built[1], built[0], f"cond of {tensor.node.told}: both branches must give one structure"
    )
    merges = [
        _merged(graph, tensor, pair)
        for pair in zip(branches[0].outputs, branches[1].outputs, strict=True)
    ]
    graph.context.units.append(Conditional((branches[0], branches[1]), merges))
    return rebuilt(built[1], merges)


def _merged(graph: FlowGraph, predicate: Tensor, pair: tuple[Tensor, Tensor]) -> Tensor:
    false, true = pair
    if false.dtype != true.dtype:
        raise GraphError(
            f"cond of {predicate.node.told}: both branches must give one type, got {true.dtype} "
            f"of {true.node.told} and {false.dtype} of {false.node.told}; use flow.cast"
        )
    shape, other = false.shape, true.shape
    if shape is None or other is None or len(shape) != len(other):
        shape = None
    else:
        shape = tuple(one if one == two else None for one, two in zip(shape, other, strict=True))
    return output_of(graph.add(op.MERGE, [false, true]), shape, true.dtype, graph.context)


@checked
def while_loop(
    predicate: Callable[..., Operand], body: Callable[..., Any], inits: Any, *,
    parallel_iterations: Count | None = None,
    shapes: Sequence[Sequence[int | None] | None] | None = None, name: str = "while",
) -> Any:  # fmt: skip
    """Apply `body` to the loop variables as long as `predicate` of them is true.

    Args:
        predicate: builds one truth value from the variables.
        body: builds the variables of the next iteration from them; of the form of `inits`.
        inits: what they start from: a tuple or list of tensors, numbers and arrays of tensors.
        parallel_iterations: how many may be under way at a time; by default what the run says.
        shapes: static shapes of the variables' tensors, with None for lengths that change from one
            iteration to the next, or None for a whole shape that does; by default those of `inits`.
        name: of the loop's frames.

    Raises:
        GraphError: the body gives another structure, or a variable changes its type, or its shape
            without `shapes` saying so.
        OptionError: an argument is none of these.
    """
    if not isinstance(inits, tuple | list) or not inits:
        raise OptionError(
            "while_loop: inits must be a tuple or list of loop variables, got "
            f"{shown(cast('object', inits))}"
        )
    inits = cast("tuple[Any, ...]", inits)
    graph = open_graph()
    first = leaves_of(inits, "while_loop: inits")
    if graph.known is not None:
        return _unrolled(graph, predicate, body, rebuilt(inits, first))
    loop = Loop(graph.context, f"{name}-{graph.count(name)}", parallel_iterations, first)
    declared = [one.shape for one in first] if shapes is None else _declared(shapes, first)
    merges = [begun(graph, loop, one, shape) for one, shape in zip(first, declared, strict=True)]
    decide(graph, loop, merges, lambda: predicate(*rebuilt(inits, merges)))
    switches = [graph.switch(merge, loop.predicate, within=loop) for merge in merges]
    loop.taken = [switch.outputs[True] for switch in switches]
    loop.gate = loop.taken[0]
    place = merges[0].node.place
    told = f"{loop.name} ({place})" if place else loop.name
    with graph.building(context=loop):
        loop.given = _variables(inits, body(*rebuilt(inits, loop.taken)), told)
    for number, (leaf, merge) in enumerate(zip(loop.given, merges, strict=True)):
        _require_same(leaf, merge, f"{told}: variable {number}")
        repeat(graph, loop, leaf, merge)
    loop.outputs = [leave(graph, loop, switch) for switch in switches]
    graph.context.units.append(loop)
    return rebuilt(inits, loop.outputs)


def _unrolled(
    graph: FlowGraph, predicate: Callable[..., Operand], body: Callable[..., Any], inits: Any
) -> Any:
    """A body after the other, as long as what is known of the instance says so."""
    known, carried = graph.known, inits
    while True:
        (tensor,) = tensors_of([predicate(*carried)])
        goes_on = known.value(_require_predicate(tensor, "the predicate"))
        if goes_on is None:
            raise GraphError(
                f"{tensor.node.told}: the predicate is not known before the program runs, so it "
                "cannot be unrolled; take shapes and single integers that are fed, or run it by "
                "dataflow"
            )
        if not goes_on:
            return carried
        given = _variables(inits, body(*carried), "while_loop")
        values = [None if one.is_float else known.value(one) for one in given]
        pairs = zip(given, values, strict=True)
        carried = rebuilt(
            inits, [one if value is None else graph.constant(value) for one, value in pairs]
        )


def _variables(inits: Any, given: Any, where: str) -> list[Tensor]:
    """The variables of the next iteration, as a body gives them.

    Each comes once an iteration, also where it is a constant of the loop.
    """
    given = cast("Any", given if isinstance(given, tuple | list) else (given,))
    require_alike(inits, given, f"{where}: the body must give its variables")
    leaves = leaves_of(given, where)
    for place, one in enumerate(leaves):
        if one.node.operator is op.ENTER_CONSTANT:
            leaves[place] = again = apply("identity", one)
            if again.node.device is None:
                again.node.device = one.node  # where that is
    return leaves


def begun(graph: FlowGraph, loop: Loop, first: Tensor, shape: Shape | None) -> Tensor:
    """A loop variable at the start of each iteration: Enter, and Merge with what comes back."""
    entered = graph.forward(op.ENTER, first, loop, loop=loop)
    merge = graph.add(op.MERGE, [entered], {"loop": loop}, within=loop)
    return output_of(merge, shape, first.dtype, loop)


def decide(
    graph: FlowGraph, loop: Loop, merges: Sequence[Tensor], predicate: Callable[[], Operand]
) -> None:
    """Build what decides whether a loop goes on."""
    context = Predicate(loop)
    context.gate = merges[0]
    with graph.building(context=context):
        (tensor,) = tensors_of([predicate()])
    loop.predicate = _require_predicate(tensor, f"the predicate of {loop.name}")


def repeat(graph: FlowGraph, loop: Loop, given: Tensor, merge: Tensor) -> None:
    """Hand a variable on to the next iteration."""
    with graph.building(context=loop):
        merge.node.inputs.append(graph.forward(op.NEXT_ITERATION, given, loop))


def leave(graph: FlowGraph, loop: Loop, switch: Node) -> Tensor:
    """A variable after the last iteration, in the present context."""
    around = graph.context
    with graph.building(context=loop):
        return graph.forward(op.EXIT, switch.outputs[False], around, loop=loop)


def _declared(shapes: Sequence[Any], first: Sequence[Tensor]) -> list[Shape | None]:
    """The shapes of all variables, each of which has it from the start."""
    if len(shapes) != len(first):
        raise OptionError(f"shapes must be of all {len(first)} loop variables, got {len(shapes)}")
    declared = [None if one is None else tuple(one) for one in shapes]
    for number, (one, shape) in enumerate(zip(first, declared, strict=True)):
        if not op.may_be(one.shape, shape):
            raise OptionError(
                f"shapes[{number}] is {shape}, and the variable starts as {one.shape}, "
                f"{one.node.told}; say None of a length that changes"
            )
    return declared


def _require_same(leaf: Tensor, merge: Tensor, where: str) -> None:
    """A variable keeps its type, and the shape that is known of it."""
    if leaf.dtype != merge.dtype:
        raise GraphError(
            f"{where} must stay {merge.dtype}, got {leaf.dtype} of {leaf.node.told}; use flow.cast"
        )
    if not op.fits(leaf.shape, merge.shape):
        raise GraphError(
            f"{where} must keep its shape {merge.shape}, got {leaf.shape} of {leaf.node.told}; "
            "say in shapes= which lengths change, as None"
        )


def _require_predicate(tensor: Tensor, what: str) -> Tensor:
    """A predicate is one truth value.

    Raises:
        GraphError: it is not.
    """
    if tensor.dtype != BOOL or tensor.shape not in ((), None):
        raise GraphError(
            f"{tensor.node.told}: {what} must be one truth value, got {tensor.dtype} of shape "
            f"{tensor.shape}; compare, as in x < y"
        )
    return tensor


def is_left(left: Tensor, *carried: Any) -> Tensor:
    """Tell whether a loop that counts down has iterations left."""
    return left > 0


def map_fn(
    fn: Callable[[Tensor], Tensor], elems: Operand, *, parallel_iterations: int | None = None
) -> Tensor:
    """Apply fn to each row of `elems`, and stack; no row waits for another."""
    rows, count = _rows(elems)

    def body(i: Tensor, given: TensorArray) -> tuple[Any, ...]:
        return i + 1, given.write(i, fn(rows.read(i)))

    return counted("map", count, body, (TensorArray(count),), parallel_iterations)[0].stack()


def foldl(
    fn: Callable[[Tensor, Tensor], Tensor], elems: Operand, init: Operand,
    *, parallel_iterations: int | None = None,
) -> Tensor:  # fmt: skip
    """fn(... fn(fn(init, first row), second row) ..., last row)."""
    rows, count = _rows(elems)

    def body(i: Tensor, a: Tensor) -> tuple[Any, ...]:
        return i + 1, fn(a, rows.read(i))

    return counted("foldl", count, body, (init,), parallel_iterations)[0]


def foldr(
    fn: Callable[[Tensor, Tensor], Tensor], elems: Operand, init: Operand,
    *, parallel_iterations: int | None = None,
) -> Tensor:  # fmt: skip
    """fn(... fn(fn(init, last row), last but one) ..., first row)."""
    rows, count = _rows(elems)

    def body(i: Tensor, a: Tensor) -> tuple[Any, ...]:
        return i - 1, fn(a, rows.read(i - 1))

    told: Any = {"parallel_iterations": parallel_iterations, "name": "foldr"}
    return while_loop(is_left, body, (count, init), **told)[1]


def scan(
    fn: Callable[[Tensor, Tensor], Tensor], elems: Operand, init: Operand,
    *, parallel_iterations: int | None = None,
) -> Tensor:  # fmt: skip
    """fn(init, first row), fn of that and the second row, and so on, stacked."""
    rows, count = _rows(elems)
    (first,) = tensors_of([init])

    def body(i: Tensor, a: Tensor, given: TensorArray) -> tuple[Any, ...]:
        a_out = fn(a, rows.read(i))
        return i + 1, a_out, given.write(i, a_out)

    inits = (first, TensorArray(count, dtype=first.dtype, element_shape=first.shape))
    return counted("scan", count, body, inits, parallel_iterations)[1].stack()


def _rows(elems: Operand) -> tuple[TensorArray, Tensor]:
    (tensor,) = tensors_of([elems])
    rows = TensorArray().unstack(tensor)
    return rows, rows.size()


def counted(
    name: str, count: Operand, body: Callable[..., Any], inits: Sequence[Any],
    window: int | None = None,
) -> Sequence[Any]:  # fmt: skip
    """A `while_loop` whose first variable counts up; the others in the end."""

    def is_before(i: Tensor, *carried: Any) -> Tensor:
        return i < count

    told: Any = {"parallel_iterations": window, "name": name}
    return while_loop(is_before, body, (0, *inits), **told)[1:]
