"""The price of a step where its node runs: seconds, FLOP, bytes and operations, by shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial, reduce
from operator import add, attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ampsim.arguments import as_float
from ampsim.errors import SimulationError
from ampsim.hardware import Cluster, Device, occupancy_s
from ampsim.hardware import light_is_free as is_free
from ampsim.ir import Direction, Graph, Node, ParameterizedNode, Payload, Sends, Work
from ampsim.ir.work import NO_WORK
from ampsim.text import shown
from ampsim.trace import Kinds

Extents: TypeAlias = "tuple[int, ...] | None"
"""Shape of the payload that a step is charged for; None where there is none."""

Needed: TypeAlias = "tuple[bool, ...]"
"""For each input port of a node, whether a gradient is to be sent there."""

WorkOf: TypeAlias = "Callable[[Direction, Extents], Work]"
"""``work(direction, shape)`` says what a step on a payload of that shape does."""


class Charge(NamedTuple):
    """Reasons of a charge where no payload's shape is one.

    Args:
        kind: its name; `WorkOfCharge` says what it costs.
        counts: how many of what the step works on, as its kind has them.
        more_arrays: that it passes over, beside weights, gradient and the optimizer's.
    """

    kind: str
    counts: tuple[int, ...] = ()
    more_arrays: int = 0


WAITS: Final = Charge("waits")
"""The step only waited, which costs nothing."""

Charged: TypeAlias = "Extents | Charge"
"""What a step is charged for: a payload of this shape, or something else that has a name."""

WorkOfCharge: TypeAlias = "Callable[[Charge], Work]"
"""``work(charge)`` says what an update does that is charged so."""

UPDATE: Final = Direction.UPDATE  # a name of a module is read faster than that of an Enum

COUNT_MAX: Final = 10**18
"""Most bytes or FLOP of one step: what a column of 64 bits adds up without care (chosen)."""

_COUNTS: Final = tuple(one.name for one in fields(Work))
_counts_of: Final = attrgetter(*_COUNTS)


class Price(NamedTuple):
    """The price of one step."""

    seconds: float  # for which it occupies its device
    flop: int  # its FLOP
    bytes: int  # moved to and from the device's memory
    kind: int  # number of the kind of its span
    operations: int  # issued within the step


def free_products(graph: Graph, cluster: Cluster) -> list[str]:
    """Say which nodes multiply matrices and take no time somewhere; nothing where none does."""
    names = [node.name for node in graph.nodes if node.multiplies]
    free = [name for device, name in cluster.kinds.items() if is_free(device)]
    if not names or not free:
        return []
    who = f"{names[0]} and {len(names) - 1} more take" if names[1:] else f"{names[0]} takes"
    return [
        f"{who} no time on {', '.join(free)}, which names no bandwidth or overhead: there products "
        "of nodes without weights, as of attention, are free, and throughputs too high by them"
    ]


class Prices:
    """The prices of one node's steps on one device; each is worked out once and remembered.

    Args:
        worker: the worker's index; -1 for the host.
        device: whose rates count; None for the host, where nothing costs anything.
        work: what a step does: the node's own method, or what stands for it.
        work_of_charge: what an update does that has a `Charge`; None where none has.
        resident_bytes: weights that the worker hosts; they stay in a cache that has room, and so
            does, of an update, what the optimizer keeps of them.
        light_is_free: whether light steps take no time, whatever the device says.
        recomputes: whether backward steps that bring a gradient do the forward step's work again.
        predicted_arrays: of the parameters' size, which an update that has no `Charge` passes over
            to predict weights.

    Attributes:
        is_free: whether no step of the node ever takes device time.
        free: for each direction, the price of a step that costs nothing.
    """

    __slots__ = (
        "_device", "_elements", "_is_freed", "_kinds", "_node", "_of_validation", "_place",
        "_predicted_arrays", "_prices", "_recomputes", "_resident_bytes", "_work",
        "_work_of_charge", "_worker", "free", "is_free",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        place: int,
        worker: int,
        device: Device | None,
        kinds: Kinds,
        *,
        work: WorkOf,
        work_of_charge: WorkOfCharge | None = None,
        resident_bytes: int = 0,
        light_is_free: bool = False,
        recomputes: bool = False,
        predicted_arrays: int = 0,
    ) -> None:
        self._node, self._place, self._worker, self._device = node, place, worker, device
        self._kinds, self._work, self._resident_bytes = kinds, work, resident_bytes
        self._work_of_charge, self._recomputes = work_of_charge, recomputes
        self._predicted_arrays = predicted_arrays
        is_light = not node.is_parameterized
        self._is_freed = is_light and light_is_free
        self.is_free = device is None or self._is_freed or (is_light and is_free(device))
        self._elements = _matrix_elements(node)
        self.free = tuple(Price(0.0, 0, 0, self.kind(d, 0, 0, 0), 0) for d in Direction)
        self._prices = tuple(dict[Any, Price]() for _ in Direction)
        self._of_validation: dict[Any, Price] = {}  # all are of forward steps

    def kind(self, direction: Direction, flop: int, moved: int, operations: int) -> int:
        """The number of the kind of span of a step that is charged so much."""
        key = (self._worker, self._place, direction, flop, moved, operations)
        return self._kinds.number(key)

    def kind_of_part(self, direction: Direction, charged: Sequence[int], whole: int) -> int:
        """The number of the kind of a part of a merged step, which is priced as the whole is."""
        kind, known = self.kind(direction, *charged), self._kinds.seconds_on
        if whole in known:
            known.setdefault(kind, known[whole])
        return kind

    def price(self, direction: Direction, charged: Charged, needed: Needed | None = None) -> Price:
        """Return the price of a step that is charged for this; nothing, where it only waited.

        Args:
            direction: of the message that it served.
            charged: as `Charged`.
            needed: where it sent gradients; None where a node always sends the same ones.
        """
        node = self._node
        prices = self._prices[direction] if node.is_training else self._of_validation
        key = charged if needed is None else (charged, needed)
        if direction is UPDATE:  # by an optimizer, which may have stages
            assert isinstance(node, ParameterizedNode)
            key = (charged, node.step_calls)
        price = prices.get(key)
        if price is None:
            price = prices[key] = self._work_out(direction, charged, needed)
        return price

    def price_of_group(
        self, direction: Direction, shapes: Sequence[Extents], needed: Sequence[Needed | None]
    ) -> Price:
        """Return the price of one step that is charged for payloads of all these `shapes`.

        Shapes that are equal but for the first axis, the rows, are one payload of all their rows:
        weights are read once, and its operations are issued once. Others are more work in the same
        step, and so are those whose gradients other inputs need; where nothing is computed, nothing
        is. The device is as efficient as with all rows together.
        """
        if len(shapes) == 1:
            return self.price(direction, shapes[0], needed[0])
        alike: dict[Needed | None, list[Extents]] = {}
        for shape, inputs in zip(shapes, needed, strict=True):
            alike.setdefault(inputs, []).append(shape)
        works: list[Work] = []
        again: list[Work] = []
        rows: list[int] = []
        for inputs, group in alike.items():
            whole = _by_rows(group)
            works += [self._required(direction, shape, inputs) for shape in whole]
            again += [self._again(direction, shape) for shape in whole]
            rows += [self._rows(direction, shape) for shape in whole if shape is not None]
        works = [one for one in works if one != NO_WORK] or [NO_WORK]
        more = reduce(add, [one for one in again if one != NO_WORK] or [NO_WORK])
        together = sum(rows) if rows else None
        return self._occupancy(direction, reduce(add, works), together, again=more)

    def _work_out(self, direction: Direction, charged: Charged, needed: Needed | None) -> Price:
        if charged == WAITS:
            return self.free[direction]
        if isinstance(charged, Charge):
            assert self._work_of_charge is not None, f"nobody says what {charged} costs"
            work = required_work(self._node, direction, None, self._work_of_charge(charged))
            return self._occupancy(direction, work, None, charged.more_arrays)
        rows = None
        if direction is not Direction.UPDATE and charged is not None:
            rows = self._rows(direction, charged)
        work, again = self._required(direction, charged, needed), self._again(direction, charged)
        return self._occupancy(direction, work, rows, self._predicted_arrays, again)

    def _again(self, direction: Direction, shape: Extents) -> Work:
        """Return the forward work that a backward step does again."""
        is_again = self._recomputes and direction is Direction.BACKWARD and shape is not None
        return self._required(Direction.FORWARD, shape, None) if is_again else NO_WORK

    def _required(self, direction: Direction, shape: Extents, needed: Needed | None) -> Work:
        """Return the work of a step that sends these gradients, as the node tells it."""
        node = self._node
        usually = node.input_needs_gradient
        node.input_needs_gradient = usually if needed is None else needed
        try:
            return required_work(node, direction, shape, self._work(direction, shape))
        finally:
            node.input_needs_gradient = usually

    def _rows(self, direction: Direction, shape: tuple[int, ...]) -> int:
        return self._node.product_rows(direction, shape) if shape else 1

    def _occupancy(
        self, direction: Direction, work: Work, rows: int | None, more_arrays: int = 0,
        again: Work = NO_WORK,
    ) -> Price:  # fmt: skip
        if self._device is None or self._is_freed:
            return self.free[direction]
        node, updated = self._node, None
        if direction is Direction.UPDATE and isinstance(node, ParameterizedNode):
            arrays = 2 + node.state_arrays + more_arrays
            updated = None if node.is_sparse else arrays * self._resident_bytes
        seconds_on = partial(
            occupancy_s,
            work=work,
            is_light=not node.is_parameterized,
            rows=rows,
            resident_bytes=self._resident_bytes,
            matrix_elements=None if direction is Direction.UPDATE else self._elements,
            is_backward=direction is Direction.BACKWARD,
            updated_bytes=updated,
            again=again,
        )
        work = work if again == NO_WORK else work + again
        flop, moved, operations = work.flop, work.bytes, work.operations
        kind = self.kind(direction, flop, moved, operations)
        self._kinds.seconds_on[kind] = seconds_on
        return Price(seconds_on(self._device), flop, moved, kind, operations)


def required_work(node: Node, direction: Direction, shape: Extents, work: object) -> Work:
    """Return the work that a node says a step does, if that can be.

    Raises:
        SimulationError: it is no `Work`, or has a count that is no number, negative or without end.
    """
    expected, got = "an ampsim.Work", work
    if isinstance(work, Work):
        counts = zip(_COUNTS, _counts_of(work), strict=True)
        wrong = [name for name, count in counts if not 0 <= as_float(count) <= COUNT_MAX]
        if not wrong:
            return work
        expected, got = f"{wrong[0]} from 0 to {COUNT_MAX:g}", getattr(work, wrong[0])
    of = "no payload" if shape is None else f"a payload of shape {shape}"
    raise SimulationError(
        f"{node.describe()}: work of a {direction.name.lower()} step on {of} must give {expected}, "
        f"got {shown(got)}; correct its method work, such as return Work(flop=2 * rows * columns)"
    )


def largest(port: int, payload: Payload, sends: Sends) -> Extents:
    """Shape that a light step is charged for: of the largest payload that it took or sends."""
    payload = max((payload, *(sent for _port, _state, sent in sends)), key=_size)
    return None if payload is None else payload.shape


def largest_but(uncharged: int, port: int, payload: Payload, sends: Sends) -> Extents:
    """Shape of the largest payload not taken from the port `uncharged`, and not sent there."""
    counted = [one for one in sends if one[0] != uncharged]
    return largest(port, None if port == uncharged else payload, counted)


def resident_bytes(nodes: Sequence[Node], placement: Sequence[int]) -> dict[int, int]:
    """Return the bytes that each worker would keep in a cache: all weights placed there.

    Every step of a node reads them, so they stay. Sparse tables are left out, because a step
    touches few of their rows.
    """
    kept = dict.fromkeys(placement, 0)
    for node, worker in zip(nodes, placement, strict=True):
        if isinstance(node, ParameterizedNode) and not node.is_sparse:
            kept[worker] += node.parameter_count * node.theta.itemsize
    return kept


def _matrix_elements(node: Node) -> int | None:
    """Size of the matrix that a node multiplies by; a sparse table is none, its rows are read."""
    if isinstance(node, ParameterizedNode) and not node.is_sparse:
        return node.parameter_count
    return None


def _by_rows(shapes: Sequence[Extents]) -> list[Extents]:
    rows_of: dict[tuple[int, ...], int] = {}
    whole: list[Extents] = []
    for shape in shapes:
        if shape:
            rows_of[shape[1:]] = rows_of.get(shape[1:], 0) + shape[0]
        else:
            whole.append(shape)
    return [*whole, *((rows, *rest) for rest, rows in rows_of.items())]


def _size(payload: Payload) -> int:
    return -1 if payload is None else math.prod(payload.shape)
