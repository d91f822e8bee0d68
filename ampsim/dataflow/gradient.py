"""Gradients as a graph: what a reverse traversal of the forward graph builds.

Each context of the forward graph has its twin in the gradient graph: a branch another branch of the
same predicate, a loop another loop that runs as often, backward. What a gradient reads of a forward
iteration was pushed onto a stack there and is popped here. A constant of a loop is captured again,
never pushed; its gradient is summed up as the iterations come. Everything nests, because a handle
of a stack or the count of a loop is itself a value of the forward iteration around it. What is
built for a node is placed with it.

Source: Yu et al. (2018), Section 5.1, Figures 7 to 9; what the text leaves open is settled as in
TensorFlow's `control_flow_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.dataflow import operator as op
from ampsim.dataflow.construct import begun, cond, is_left, leave, repeat, while_loop
from ampsim.dataflow.graph import (
    Branch,
    Conditional,
    Context,
    FlowGraph,
    Loop,
    Node,
    Tensor,
    Unit,
    apply,
    open_graph,
    tensors_of,
)
from ampsim.dataflow.operator import INT, Shape
from ampsim.dataflow.operators.elements import add_n
from ampsim.dataflow.operators.shape import broadcast_to, filled, shape_of, sum_to
from ampsim.errors import GraphError
from ampsim.ir import Direction


@checked
def gradients(y: Tensor, xs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the sum of y's elements by each of `xs`, as tensors of the graph.

    Args:
        y: of what.
        xs: by what; zeros where y does not depend on it.

    Raises:
        GraphError: one is no floating-point tensor, or cannot be used here, y was made outside of
            the branch or loop that this is in, an operator between them has no gradient, or y
            follows from other gradients through a branch or loop.
    """
    graph = open_graph()
    context = graph.context
    for one in (y, *xs):
        if not one.is_float:
            raise GraphError(
                f"gradients: {one.node.told} must be a floating-point tensor, got {one.dtype}"
            )
    y, *xs = (graph.resolve(one) for one in (y, *xs))
    if y.captured_from is not None and any(one is not y for one in xs):
        raise GraphError(
            f"gradients: {y.captured_from.node.told} was made outside of {context.told}, in which "
            "nothing leads to it; build it in there, or ask for its gradients outside"
        )
    with graph.building(direction=int(Direction.BACKWARD)):
        builder = _Builder(graph)
        if builder.source > 1:
            _require_first_order(y)
        found = builder.region(context, [(y, builder.filled(y, 1.0))], xs)
        return list(map(builder.or_zeros, found, xs))


def _require_first_order(y: Tensor) -> None:
    """Nothing that other gradients have saved of a branch or loop leads to y.

    What is popped, or taken from the twin of a branch, comes along no edge that is gone back over.
    """
    found, left = set[Tensor](), [y]
    while left:
        one = left.pop()
        node = one.node
        if one in found or not one.is_float or node.operator is op.OPERATORS["stop_gradient"]:
            continue
        found.add(one)
        twin = node.context.twin
        is_of_twin = twin is not None and any(taken.context is twin for taken in node.inputs)
        if is_of_twin or node.operator is op.OPERATORS["pop"]:
            raise GraphError(
                f"gradients: {y.node.told} follows from gradients through a cond or while_loop, of "
                "which there are none; use flow.stop_gradient"
            )
        left += node.inputs


class Differentiated:
    """A forward node, as its gradient builder sees it."""

    def __init__(self, node: Node, wanted: set[Tensor], builder: _Builder) -> None:
        self.node, self._wanted, self._builder = node, wanted, builder
        self.source = builder.source  # numbers the call of `gradients`

    def is_wanted(self, place: int) -> bool:
        """Tell whether anybody asks for the gradient of an input."""
        return self.node.inputs[place] in self._wanted

    def input(self, place: int) -> Tensor:
        """The value of an input."""
        return self._builder.available(self.node.inputs[place])

    def output(self) -> Tensor:
        """The value of the output."""
        return self._builder.available(self.node.outputs[0])

    def shape(self, place: int) -> Tensor:
        """The shape of an input."""
        return self._builder.shape(self.node.inputs[place])

    def reduced(self, gradient: Tensor, place: int) -> Tensor:
        """A gradient summed over what was broadcast of an input."""
        taken = self.node.inputs[place]
        if taken.static_shape is not None and gradient.shape == taken.shape:
            return gradient
        return sum_to(gradient, self.shape(place), taken.shape)

    def spread(self, gradient: Tensor, place: int) -> Tensor:
        """A gradient broadcast to the shape of an input."""
        return broadcast_to(gradient, self.shape(place), self.node.inputs[place].shape)

    def formed(self, gradient: Tensor, place: int) -> Tensor:
        """A gradient in the shape of an input that has as many elements."""
        static = self.node.inputs[place].shape
        return apply("reshape_to", gradient, self.shape(place), static=static)


class _Builder:
    """Builds the gradients of one call.

    For each loop, forward and backward, there is what fires when all pushes or pops of an iteration
    are done. It takes what comes once for each iteration, for which they wait; the next one of that
    waits for it.
    """

    def __init__(self, graph: FlowGraph) -> None:
        self._graph = graph
        # for each context of the forward graph the one that holds its gradients
        self.twins: dict[Context, Context] = {graph.context: graph.context}
        self.source = graph.count("gradients")
        self._saved: dict[Tensor, Tensor] = {}
        self._shapes: dict[Tensor, Tensor] = {}
        self._pushed: dict[Loop, Node] = {}
        self._popped: dict[Loop, Node] = {}

    # --- reverse traversal

    def region(
        self, context: Context, seeds: Iterable[tuple[Tensor, Tensor]], xs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradients by `xs` of what has the gradients `seeds`, all of one context."""
        wanted = _reached_from(context, xs)
        parts: dict[Tensor, list[Tensor]] = {}
        for tensor, gradient in seeds:
            parts.setdefault(tensor, []).append(self._of_type(gradient, tensor))
        for unit in reversed(list(context.units)):
            given = [self._sum(parts, one) for one in unit.outputs]
            if not any(one in wanted for one in unit.inputs):
                continue
            if all(one is None for one in given):
                continue
            for tensor, gradient in zip(unit.inputs, self._back(unit, given, wanted), strict=False):
                if gradient is not None and tensor in wanted:
                    parts.setdefault(tensor, []).append(self._of_type(gradient, tensor))
        return [self._sum(parts, one) for one in xs]

    def _of_type(self, gradient: Tensor, tensor: Tensor) -> Tensor:
        """A gradient in the type of its tensor, beside which there may have been a wider one."""
        if gradient.dtype == tensor.dtype:
            return gradient
        with self._graph.building(placed=tensor.node):
            return apply("cast", gradient, dtype=tensor.dtype)

    def _sum(self, parts: dict[Tensor, list[Tensor]], tensor: Tensor) -> Tensor | None:
        """The whole gradient of a tensor, summed up in the order of the graph."""
        found = parts.get(tensor)
        if not found:
            return None
        if len(found) > 1:
            with self._graph.building(placed=tensor.node):
                parts[tensor] = found = [add_n(*found)]
        return found[0]

    def _back(
        self, unit: Unit, given: list[Tensor | None], wanted: set[Tensor]
    ) -> Sequence[Tensor | None]:
        """The gradients of a unit's inputs, in their order."""
        if isinstance(unit, Conditional):
            return self._conditional(unit, given, wanted)
        if isinstance(unit, Loop):
            return self._while_loop(unit, given, wanted)
        if unit.operator.gradient is None:
            raise GraphError(f"gradients: {unit.told} has no gradient; use flow.stop_gradient")
        with self._graph.building(placed=unit):
            return unit.operator.gradient(Differentiated(unit, wanted, self), given[0])

    # --- constructs

    def _conditional(
        self, unit: Conditional, given: list[Tensor | None], wanted: set[Tensor]
    ) -> Sequence[Tensor | None]:
        """A `cond` on the same predicate, of the gradients of each branch."""
        inputs = unit.inputs  # what follows may capture more
        seeded = [(place, one) for place, one in enumerate(given) if one is not None]
        seen = _inputs_of(unit, {unit.outputs[place] for place, _one in seeded})
        asked = [one for one in seen if one in wanted]

        def side(branch: Branch) -> Callable[[], Any]:
            def build() -> Any:
                twin = self._graph.context
                self.twins[branch], twin.twin = twin, branch
                seeds = [(branch.outputs[place], gradient) for place, gradient in seeded]
                inner = {one: branch.captures[one] for one in asked if one in branch.captures}
                found = dict(zip(inner, self.region(branch, seeds, [*inner.values()]), strict=True))
                return tuple(self.or_zeros(found.get(one), one) for one in asked)

            return build

        false, true = unit.branches
        found = dict(
            zip(asked, cond(self.available(unit.predicate), side(true), side(false)), strict=True)
        )
        return [found.get(one) for one in inputs]

    def _while_loop(
        self, loop: Loop, given: list[Tensor | None], wanted: set[Tensor]
    ) -> Sequence[Tensor | None]:
        """A loop that runs as often, backward."""
        variables, constants = _relevant(loop, given, wanted)
        if not variables:
            return ()
        total = self._count(loop)
        outputs = [loop.outputs[number] for number in variables]
        first = [self.or_zeros(given[one], loop.outputs[one]) for one in variables]
        first += [self.filled(one, 0.0) for one in constants]
        with self._graph.building(placed=loop.predicate.node):
            _left, *found = while_loop(
                is_left,
                partial(self._iteration, loop, variables, constants),
                (self.available(total), *first),
                parallel_iterations=loop.window,
                shapes=[(), *(one.shape for one in (*outputs, *constants))],
                name=f"{loop.name}-gradient",
            )
        by_variable = dict(zip(variables, found, strict=False))
        by_constant = dict(zip(constants, found[len(variables) :], strict=True))
        return [
            *(by_variable.get(number) for number in range(len(loop.first))),
            *(by_constant.get(one) for one in loop.captures),
        ]

    def _iteration(
        self, loop: Loop, variables: list[int], constants: list[Tensor], left: Tensor,
        *carried: Tensor,
    ) -> Any:  # fmt: skip
        """An iteration of a backward loop: gradients of the variables, sums of those of others."""
        graph = self._graph
        self.twins[loop] = graph.context
        ordered = graph.forward(op.TRIGGER, left, graph.context)
        self._popped[loop] = ordered.node
        given = [loop.given[number] for number in variables]
        taken = [loop.taken[number] for number in variables]
        inner = [loop.captures[one] for one in constants]
        found = self.region(loop, zip(given, carried, strict=False), [*taken, *inner])
        gradients = list(map(self.or_zeros, found, taken))
        sums = zip(constants, carried[len(taken) :], found[len(taken) :], strict=True)
        for constant, total, gradient in sums:
            with graph.building(placed=constant.node):
                gradients.append(total if gradient is None else total + gradient)
        after = left - 1
        after.node.controls.append(ordered)
        outer = [*(loop.outputs[number] for number in variables), *constants]
        return (after, *map(self._of_shape, gradients, (one.shape for one in outer)))

    def _count(self, loop: Loop) -> Tensor:
        """Build a counter of a forward loop's iterations; the gradient loop runs as often."""
        assert loop.outer is not None, "a loop has a context around it"
        graph = self._graph
        with graph.building(context=loop.outer, placed=loop.predicate.node):
            (zero,) = tensors_of([0])
            merge = begun(graph, loop, zero, ())
            switch = graph.switch(merge, loop.predicate, within=loop)
            index = switch.outputs[True]
            with graph.building(context=loop):
                ordered = graph.forward(op.TRIGGER, index, loop)
                after = index + 1
            after.node.controls.append(ordered)
            repeat(graph, loop, after, merge)
        self._pushed[loop] = ordered.node
        with graph.building(context=loop.outer):
            return leave(graph, loop, switch)

    # --- values of the forward graph

    def available(self, tensor: Tensor) -> Tensor:
        """The value that a forward tensor had when what is now gone back over was computed."""
        if tensor.captured_from is not None:
            return self.available(tensor.captured_from)
        if tensor.context in self.twins and self.twins[tensor.context] is tensor.context:
            return tensor
        loop = tensor.context.loop
        if loop is None or loop not in self._pushed:
            return tensor
        if tensor not in self._saved:
            self._saved[tensor] = self._save(tensor, loop)
        return self._saved[tensor]

    def _save(self, tensor: Tensor, loop: Loop) -> Tensor:
        """Push a value in each forward iteration, and pop it in the backward one."""
        assert loop.outer is not None, "a loop has a context around it"
        graph = self._graph
        with graph.building(context=loop.outer):
            handle = apply("stack")
        with graph.building(context=tensor.context):
            pushed = apply("push", handle, tensor)
        saved = self.available(handle)
        with graph.building(context=self.twins[tensor.context]):
            popped = apply("pop", saved, static=tensor.shape, dtype=tensor.dtype)
        for one, trigger in ((pushed, self._pushed[loop]), (popped, self._popped[loop])):
            one.node.controls.append(trigger.inputs[0])
            trigger.controls.append(one)
        return popped

    def shape(self, tensor: Tensor) -> Tensor:
        """The shape of a forward tensor; where it is not static, that is saved, not the tensor."""
        while tensor.captured_from is not None:
            tensor = tensor.captured_from
        if tensor.static_shape is not None:
            return self._graph.constant(np.array(tensor.static_shape, INT))
        if tensor not in self._shapes:
            with self._graph.building(context=tensor.context, placed=tensor.node):
                self._shapes[tensor] = shape_of(tensor)
        return self.available(self._shapes[tensor])

    def filled(self, tensor: Tensor, value: float) -> Tensor:
        """A tensor of one value, of the shape and type of a forward tensor."""
        shape = self.shape(tensor)
        with self._graph.building(placed=tensor.node):
            return filled(shape, value, tensor.dtype, tensor.shape)

    def or_zeros(self, gradient: Tensor | None, tensor: Tensor) -> Tensor:
        """A gradient of a tensor, or zeros where there is none."""
        return self.filled(tensor, 0.0) if gradient is None else gradient

    def _of_shape(self, tensor: Tensor, shape: Shape | None) -> Tensor:
        """A tensor of which it is known that it has a shape."""
        if op.fits(tensor.shape, shape):
            return tensor
        with self._graph.building(placed=tensor.node):
            known = apply("identity", tensor)
        known.shape = shape
        return known


def _reached_from(context: Context, xs: Iterable[Tensor]) -> set[Tensor]:
    """Floating-point tensors of a context that depend on some of `xs`, and these."""
    reached = {x for x in xs if x.is_float}
    for unit in context.units:
        if any(one in reached for one in unit.inputs):
            reached.update(one for one in unit.outputs if one.is_float)
    return reached


def _leads_to(context: Context, ys: Iterable[Tensor]) -> set[Tensor]:
    """Tensors of a context on which some of `ys` depend, and these."""
    reached = set(ys)
    for unit in reversed(context.units):
        if any(one in reached for one in unit.outputs):
            reached.update(_inputs_of(unit, reached))
    return reached


def _inputs_of(unit: Unit, outputs: set[Tensor]) -> Sequence[Tensor]:
    """The inputs of a unit along which gradients of some of its outputs go."""
    if isinstance(unit, Node):
        return unit.inputs
    places = [place for place, one in enumerate(unit.outputs) if one in outputs]
    if isinstance(unit, Loop):
        numbers = _grown({*places}, partial(_feeding, unit))
        within = _leads_to(unit, [unit.given[one] for one in numbers])
        constants = [one for one, inner in unit.captures.items() if inner in within]
        return [*(unit.first[one] for one in numbers), *constants]
    leading = set[Tensor | None]()
    for branch in unit.branches:
        leading |= _leads_to(branch, [branch.outputs[place] for place in places])
    return [
        one for one in unit.inputs
        if any(branch.captures.get(one) in leading for branch in unit.branches)
    ]  # fmt: skip


def _relevant(
    loop: Loop, given: list[Tensor | None], wanted: set[Tensor]
) -> tuple[list[int], list[Tensor]]:
    """The variables of a loop, by their numbers, and the constants along which gradients go."""
    count = len(loop.first)
    constants = [one for one in loop.captures if one in wanted]
    inner = [loop.captures[one] for one in constants]

    def fed_by(numbers: set[int]) -> set[int]:
        reached = _reached_from(loop, [*inner, *(loop.taken[one] for one in numbers)])
        return {number for number in range(count) if loop.given[number] in reached}

    def feeding(numbers: set[int]) -> set[int]:
        return dependent & _feeding(loop, numbers)

    dependent = _grown({number for number in range(count) if loop.first[number] in wanted}, fed_by)
    needed = _grown({number for number in dependent if given[number] is not None}, feeding)
    leading = _leads_to(loop, [loop.given[one] for one in needed])
    constants = [one for one in constants if loop.captures[one] in leading]
    return sorted(needed), constants


def _feeding(loop: Loop, numbers: set[int]) -> set[int]:
    """The variables that these follow from, one iteration before."""
    leading = _leads_to(loop, [loop.given[one] for one in numbers])
    return {number for number, one in enumerate(loop.taken) if one in leading}


def _grown(numbers: set[int], more_of: Callable[[set[int]], set[int]]) -> set[int]:
    """Numbers with all that follows from them, over any number of iterations."""
    while not (more := more_of(numbers)) <= numbers:
        numbers = numbers | more
    return numbers
