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

from ampsim.clock import Clock
from ampsim.ir import Direction, Sends, State
from ampsim.model_parallel.schedules.values import Order
from ampsim.model_parallel.site import WAITS, Entry, Extents, Needed, Price, Site
from ampsim.model_parallel.worker import NO_STALENESS, Begun, Worker
from ampsim.trace import START, Cause, Recorder
from ampsim.user_code import OURS_TO_PASS

_Part: TypeAlias = "tuple[float, float, int, int, int]"
"""Of a step: (start in seconds, end, FLOP, bytes, operations)."""


class _Member(NamedTuple):
    """A step of a group: whose it is, what it is charged for, what it returned."""

    state: State
    shape: Extents
    needed: Needed
    sends: Sends
    staleness: int
    cause: Cause


class _Group(NamedTuple):
    """A step of all `members`: what it costs together, and the FLOP of each alone."""

    site: Site
    direction: Direction
    members: list[_Member]
    own_flop: list[int]
    start_s: float
    price: Price


class Grouping:
    """Serves the queues of a worker group by group; takes the place of its `begin` and `end`.

    A message that only has to wait for others at its node costs nothing and is no member.

    Args:
        worker: whose queues.
        clock: whose time passes.
        recorder: takes a span for each member, and counts the sizes of groups.
        order: says how many members a group has at most, and how long to wait for them.
    """

    def __init__(self, worker: Worker, clock: Clock, recorder: Recorder, order: Order) -> None:
        self._worker = worker
        self._clock = clock
        self._recorder = recorder
        self._size_max = order.max_group
        self._wait_s = order.group_wait_s
        self._has_waited = False
        self._begin_alone, self._end_alone = worker.begin, worker.end
        worker.begin, worker.end = self.begin, self.end

    def begin(self, direction: Direction, queue: deque[Entry]) -> Begun:
        """Run the steps of a group from the head of `queue`, or wait once for more to come."""
        if direction is Direction.UPDATE:
            return self._begin_alone(direction, queue)
        if self._wait_s and not self._has_waited and self._is_short(queue):
            self._has_waited = True
            return self._wait_s, None
        site, start_s = queue[0][0], self._clock.now
        members = self._taken(direction, queue)
        if not members:
            return 0.0, None
        self._has_waited = False
        try:
            shapes, needed = zip(*((one.shape, one.needed) for one in members), strict=True)
            price = site.price_of_group(direction, shapes, needed)
            own_flop = [self._own_flop(site, direction, member) for member in members]
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self._worker.failed(site, direction, members[0].state, error) from error
        if price[0]:
            self._worker.is_busy = True
        return price[0], _Group(site, direction, members, own_flop, start_s, price)

    def end(self, step: Begun) -> None:
        """Record the members of a group whose time has passed, and send what they returned."""
        seconds, group = step
        if isinstance(group, _Group):
            self._end_group(seconds, group)
        elif group is not None:
            self._end_alone(step)

    def _end_group(self, seconds: float, group: _Group) -> None:
        worker, site, members, number = self._worker, group.site, group.members, START
        worker.is_busy = False
        end_s = self._clock.now if seconds else group.start_s
        self._recorder.summary.count_group(site.index, len(members))
        _seconds, flop, moved, _kind, operations = group.price
        whole = (group.start_s, end_s, flop, moved, operations)
        parts = _side_by_side(whole, group.own_flop)
        for member, part in zip(members, parts, strict=True):
            number = self._record(site, group.direction, member, part)
        for member in members:  # all leave when the last part ends
            worker.send_on(site, group.direction, member.state, member.sends, number)
        learned = [member.state for member in members if member.staleness >= 0]
        if learned and site.learner is not None and site.learner.is_update_due:
            worker.queues[Direction.UPDATE].append((site, 0, learned[-1], None, number))

    def _own_flop(self, site: Site, direction: Direction, member: _Member) -> int:
        """FLOP that a member would be charged for alone."""
        site.needed = member.needed
        return site.price(direction, member.shape)[1]

    def _is_short(self, queue: deque[Entry]) -> bool:
        """Whether fewer messages than a group may have wait for the node at the head."""
        site = queue[0][0]
        return sum(entry[0] is site for entry in queue) < self._size_max

    def _taken(self, direction: Direction, queue: deque[Entry]) -> list[_Member]:
        """Run the steps of a group; what waits for other nodes stays in `queue` as it was.

        No group forms behind a message that only has to wait: another may be the most urgent then.
        """
        site = queue[0][0]
        members = self._run(direction, queue.popleft())
        others: list[Entry] = []
        while members and queue and len(members) < self._size_max:
            entry = queue.popleft()
            if entry[0] is site:
                members += self._run(direction, entry)
            else:
                others.append(entry)
        queue.extendleft(reversed(others))
        return members

    def _run(self, direction: Direction, entry: Entry) -> list[_Member]:
        """Run a node's step, a member of the group; none if it only waits, which is recorded."""
        worker, (site, _port, state, payload, cause) = self._worker, entry
        sends = worker.step(direction, entry)
        try:
            shape = site.charged(payload, sends)
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise worker.failed(site, direction, state, error) from error
        staleness = NO_STALENESS
        if direction is Direction.BACKWARD and site.learner is not None:
            staleness = site.learner.last_staleness
        member = _Member(state, shape, site.needed, sends, staleness, cause)
        if shape is not WAITS:
            return [member]
        number = self._record(site, direction, member, (self._clock.now, self._clock.now, 0, 0, 0))
        worker.send_on(site, direction, state, sends, number)
        return []

    def _record(self, site: Site, direction: Direction, member: _Member, part: _Part) -> int:
        """Record a member's part of a step; return its number."""
        start_s, end_s, *charged = part
        kind = site.kind(direction, *charged)
        row = (kind, start_s, end_s, member.staleness, member.state, member.cause)
        self._recorder.spans.append(row)
        return self._recorder.span_number()


def merge_groups(workers: Sequence[Worker], clock: Clock, recorder: Recorder, order: Order) -> None:
    """Let `workers` merge messages, where `order` asks for groups of more than one."""
    if order.max_group > 1:
        for worker in workers:
            Grouping(worker, clock, recorder, order)


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
