"""Dynamic grouping: messages that wait for one node become one batched step.

The paper leaves it open (Section B.3: "grouping the branch operations is possible by extending our
IR nodes"); batching what happens to be there is that of Neubig, Goldberg and Dyer (2017), message
by message instead of graph by graph. A worker that takes a message also takes those that wait in
the same queue, of the same direction, for the same node, first come first served, up to a limit. It
runs the node's step for each of them in that order, so that the numbers are those of steps served
one after the other with the weights of the moment, and is charged for one step on all their rows.
What the steps returned leaves when that one ends, and an update falls due after it.
`docs/decisions/0007-grouping.md` has the reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from ampsim.ir import Direction, State
from ampsim.machine import Begun, Processor
from ampsim.model_parallel.placed_node import Message, PlacedNode
from ampsim.model_parallel.price import WAITS, Charge, Extents, Price
from ampsim.model_parallel.step import StepResult
from ampsim.model_parallel.worker import Inbox, Shared, Worker
from ampsim.trace import START, Cause
from ampsim.user_code import OURS_TO_PASS

_Part: TypeAlias = "tuple[float, float, int, int, int]"
"""Of a step: (start in seconds, end, FLOP, bytes, operations)."""


class _Member(NamedTuple):
    """A step of a group: whose it is, what came of it, the shape it is charged for, its cause."""

    state: State
    served: StepResult
    shape: Extents
    cause: Cause


class _Group(NamedTuple):
    """A step of all `members`: what it costs together, and the FLOP of each alone."""

    placed: PlacedNode
    direction: Direction
    members: list[_Member]
    own_flop: list[int]
    start_s: float
    price: Price


class GroupingWorker(Worker):
    """Serves its queues group by group.

    A message that only has to wait for others at its node costs nothing and is no member.

    Args:
        shared: as of `Worker`; its order says how many members a group has at most, and how long
            to wait for them.
    """

    def __init__(self, processor: Processor, inbox: Inbox, shared: Shared) -> None:
        super().__init__(processor, inbox, shared)
        self._summary = shared.recorder.summary
        self._size_max = shared.order.max_group
        self._wait_s = shared.order.group_wait_s
        self._has_waited = False

    def begin(self, kind: Direction, queue: deque[Message]) -> Begun:
        """Run the steps of a group from the head of `queue`, or wait once for more to come."""
        if kind is Direction.UPDATE:
            return super().begin(kind, queue)
        if self._wait_s and not self._has_waited and self._is_short(queue):
            self._has_waited = True
            return self._wait_s, None
        placed, start_s = queue[0][0], self._clock.now
        members = self._taken(kind, queue)
        if not members:
            return 0.0, None
        self._has_waited = False
        try:
            shapes, needed = zip(*((one.shape, one.served.needed) for one in members), strict=True)
            price = placed.prices.price_of_group(kind, shapes, needed)
            own_flop = [self._own_flop(placed, kind, member) for member in members]
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self.failed(placed, kind, members[0].state, error) from error
        return price.seconds, _Group(placed, kind, members, own_flop, start_s, price)

    def end(self, task: Begun) -> None:
        """Record the members of a group whose time has passed, and send what they returned."""
        seconds, group = task
        if isinstance(group, _Group):
            self._end_group(seconds, group)
        elif group is not None:
            super().end(task)

    def _end_group(self, seconds: float, group: _Group) -> None:
        placed, members, price, number = group.placed, group.members, group.price, START
        end_s = self._clock.now if seconds else group.start_s
        whole = (group.start_s, end_s, price.flop, price.bytes, price.operations)
        parts = _side_by_side(whole, group.own_flop)
        place = placed.index, placed.worker, int(group.direction)
        lasting = sum(begin_s < until_s for begin_s, until_s, *_charged in parts)
        self._summary.count_group(place, len(members), lasting)
        for member, (*times_s, flop, moved, operations) in zip(members, parts, strict=True):
            charged = flop, moved, operations
            kind = placed.prices.kind_of_part(group.direction, charged, price.kind)
            number = self._record_part(kind, member, *times_s)
        for member in members:  # all leave when the last part ends
            if member.served.ended is not None and placed.footprint is not None:
                placed.footprint.settle(member.served.ended)
            self.send_on(placed, group.direction, member.state, member.served.sends, number)
        learned = [member.state for member in members if member.served.staleness >= 0]
        if learned:
            self.update_if_due(placed, learned[-1], number)

    def _own_flop(self, placed: PlacedNode, direction: Direction, member: _Member) -> int:
        return placed.prices.price(direction, member.shape, member.served.needed).flop

    def _is_short(self, queue: deque[Message]) -> bool:
        placed = queue[0][0]
        return sum(message[0] is placed for message in queue) < self._size_max

    def _taken(self, direction: Direction, queue: deque[Message]) -> list[_Member]:
        """Run the steps of a group; what waits for other nodes stays in `queue` as it was.

        No group forms behind a message that only has to wait: another may be the most urgent then.
        """
        placed = queue[0][0]
        members = self._run(direction, queue.popleft())
        others: list[Message] = []
        while members and queue and len(members) < self._size_max:
            message = queue.popleft()
            if message[0] is placed:
                members += self._run(direction, message)
            else:
                others.append(message)
        queue.extendleft(reversed(others))
        return members

    def _run(self, direction: Direction, message: Message) -> list[_Member]:
        """Run a node's step, a member of the group; none if it only waits, which is recorded."""
        placed, _port, state, _payload, cause = message
        served = StepResult(*self.served(direction, message))
        if not isinstance(served.charged, Charge):
            return [_Member(state, served, served.charged, cause)]
        assert served.charged is WAITS, f"a group cannot be charged for {served.charged}"
        now, member = self._clock.now, _Member(state, served, None, cause)
        number = self._record_part(placed.prices.kind(direction, 0, 0, 0), member, now, now)
        self.send_on(placed, direction, state, served.sends, number)
        return []

    def _record_part(self, kind: int, member: _Member, start_s: float, end_s: float) -> int:
        self._record((kind, start_s, end_s, member.served.staleness, member.state, member.cause))
        return self._number()


def _side_by_side(step: _Part, own_flop: Sequence[int]) -> list[_Part]:
    """Cut a step into one part for each member, in proportion to its own FLOP, or into equal ones.

    Times join; FLOP, bytes and operations add up without a rest.

    >>> _side_by_side((1.0, 2.0, 10, 100, 2), [0, 0, 0, 0])[1:3]
    [(1.25, 1.5, 3, 25, 1), (1.5, 1.75, 2, 25, 0)]
    """
    start_s, end_s, flop, moved, operations = step
    weights = own_flop if any(own_flop) else [1] * len(own_flop)
    *before, total = accumulate(weights, initial=0)
    cuts = [
        (
            min(end_s, start_s + (end_s - start_s) * (part / total)),
            flop * part // total,
            moved * part // total,
            operations * part // total,
        )
        for part in before
    ]
    cuts.append((end_s, flop, moved, operations))
    return [
        (left[0], right[0], right[1] - left[1], right[2] - left[2], right[3] - left[3])
        for left, right in pairwise(cuts)
    ]
