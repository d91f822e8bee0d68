"""Places where operations run: devices and the host, with their lanes and memory.

A device whose file names `dispatch_s` issues its operations one by one, each when all its variables
have given it its turn; so it never waits for that while it has work (docs/decisions/0014).
"""

from __future__ import annotations

from array import array
from dataclasses import fields
from functools import partial
from heapq import heappop, heappush
from numbers import Integral
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ampsim.arguments import as_float
from ampsim.clock import Clock
from ampsim.dependency.lane import (
    Computing,
    Copying,
    Entry,
    Gate,
    Runner,
    ThreadLane,
    entry,
    gated,
)
from ampsim.dependency.operation import Cost, Operation
from ampsim.dependency.policies import LaneKind, Policy, Pool
from ampsim.dependency.refusals import COUNT_MAX
from ampsim.errors import OptionError
from ampsim.hardware import HOST, Cluster, Device, occupancy_s
from ampsim.ir.work import Work
from ampsim.machine import Begun, Fabric, Instant, Memory, NothingFree, Processor, paced
from ampsim.machine.pace import has_outages
from ampsim.text import shown
from ampsim.trace import Recorder


class IssuedLane(NothingFree, ThreadLane):
    """A lane that computes, whose operations are issued one by one before they wait for a thread.

    It is the `Tasks` of the processor that issues them, the most urgent first.

    Attributes:
        queues: operations that wait until they are issued.
    """

    __slots__ = (
        "_clock", "_dispatch_s", "_issuer", "_records", "_row", "_runs", "_unissued", "queues",
    )  # fmt: skip

    def begin_issuing(
        self, issuer: Processor, dispatch_s: float, clock: Clock, *, runs: Runner, row: int,
        records: array[float], gate: Gate | None,
    ) -> None:  # fmt: skip
        """Issue with a processor from now on, as the thread of a row, where a gate lets it.

        `records` gets (operation, row, start in s, end in s) of each, one after the other.
        """
        self._issuer, self._dispatch_s, self._clock = issuer, dispatch_s, clock
        self._runs, self._row, self._records = runs, row, records
        self._unissued: list[Entry] = []
        self.queues: dict[Any, Any] = {0: gated(self._unissued, gate)}

    def put(self, operation: Operation) -> None:
        """Take an operation that is ready; what takes no time needs not be issued."""
        if operation.cost.seconds:
            heappush(self._unissued, entry(operation))
            self._issuer.wake()
        else:
            super().put(operation)

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Issue the most urgent; one that will be skipped takes no time."""
        operation = heappop(self._unissued)[3]
        seconds = 0.0 if self._runs.will_skip(operation) else self._dispatch_s
        return seconds, (operation, self._clock.now)

    def end(self, task: Begun) -> None:
        """Let it wait for a thread."""
        operation, start_s = task[1]
        if task[0]:
            self._records.extend((operation.number, self._row, start_s, self._clock.now))
        super().put(operation)


Place: TypeAlias = int | Literal["host"]
"""Where an operation runs: a worker's index, or the host, which is "host" or -1."""

CATEGORIES: Final = ("arrays", "workspace")
"""What bytes in a place's memory are counted as."""

ARRAYS, WORKSPACE = range(len(CATEGORIES))

_COSTS_MAX: Final = 1 << 14
"""How many costs are known at a time (chosen: more than a program repeats)."""

_WORK_FIELDS: Final = tuple(one.name for one in fields(Work))
_counts_of: Final = attrgetter(*_WORK_FIELDS)


def _of_python(count: Any) -> Any:
    return count if count is None or type(count) in (int, float) else as_float(count)


class Thread(NamedTuple):
    """One thread: a row of a chart."""

    place: int
    kind: str
    thread: int


class Places:
    """The places of one engine.

    Args:
        host: what the host computes on; None where that takes no time.
        policy: how many threads there are.
        seed: of what varies.

    Raises:
        OptionError: several threads share a device that varies, or a file has a key that means
            nothing here.

    Attributes:
        rows: every thread; that of the host that pushes is the first, that of the engine itself,
            for what needs no thread, the second.
        engine: the lane of deletions and waits.
        memories: by place.
        recorder: takes the transfers.
        dispatches: (operation, thread, start in s, end in s) of each that was issued, one after the
            other.
        instant: shared by all processors.
    """

    def __init__(
        self, cluster: Cluster, host: Device | None, policy: Policy, clock: Clock, *, seed: int
    ) -> None:
        _require_meaning(cluster, host)
        _require_one_thread(cluster, host, policy)
        self._cluster, self._host, self._policy = cluster, host, policy
        self._varying = cluster.model_copy(update={"host": host})
        self._clock, self._seed = clock, seed
        self.instant = Instant(clock)
        self.rows: list[Thread] = [Thread(HOST, "push", 0)]
        self.recorder = Recorder((), cluster.workers)
        self.fabric = Fabric(
            cluster, clock, self.recorder, self.instant.settle, seed=seed, by_lane=True
        )
        self.memories = {place: self._memory(place) for place in (*range(cluster.workers), HOST)}
        self._compute: dict[Any, ThreadLane] = {}
        self._copies: dict[tuple[int, LaneKind], ThreadLane] = {}
        self._costs: dict[Any, Cost] = {}
        self.dispatches = array("d")

    def wire(self, runs: Runner, pool: Pool | None) -> None:
        """Make the lanes and start their threads; these wait until a pool has given."""
        self._pool = pool
        self.engine = self._lane(HOST, "engine", 1, runs)
        for place in self.memories:
            is_host = place == HOST
            threads = self._policy.threads_of("compute", is_host=is_host)
            self._compute[place] = self._lane(place, "compute", threads, runs)
            for kind in () if is_host else _COPIES:
                threads = self._policy.threads_of(kind, is_host=False)
                self._copies[place, kind] = self._lane(place, kind, threads, runs)
        self._compute["host"] = self._compute[HOST]

    def compute_lane(self, on: object) -> ThreadLane:
        """The lane that computes at a place.

        Raises:
            OptionError: there is no such place.
        """
        lane = self._compute.get(on) if on.__class__ is int else None
        return self._compute[self.index(on, "on")] if lane is None else lane

    def index(self, on: object, word: str) -> int:
        """A place as a worker's index or `HOST`.

        Raises:
            OptionError: there is no such place; the message calls it `word`.
        """
        if not isinstance(on, bool) and isinstance(on, str | Integral):
            lane = self._compute.get(on)
            if lane is not None:
                return lane.place
        raise OptionError(
            f"{word} must be 'host' or a worker from 0 to {self._cluster.workers - 1}, "
            f"got {shown(on)}"
        )

    def copy_lane(self, source: int, target: int) -> ThreadLane:
        """The lane of copies from one place to another: the sender's, of the host's the taker's."""
        if source == HOST:
            return self._copies[target, "copy-in"]
        return self._copies[source, "copy-out"]

    def cost(self, work: Work, place: int, *product: Any) -> Cost:
        """The cost of work at a place; of a product by rows, matrix elements and `is_backward`.

        Raises:
            OptionError: the work, or one of these, is none.
        """
        if work.__class__ is not Work:
            self._seconds(work, place, *product)
        # the fields one by one: a dataclass takes longer to be hashed
        key = (*_counts_of(work), place, *product)
        try:
            known = self._costs.get(key)
        except TypeError:
            known = None
        if known is None:
            known = Cost(self._seconds(work, place, *product), int(work.flop), int(work.bytes))
            if len(self._costs) >= _COSTS_MAX:
                self._costs.clear()
            self._costs[key] = known
        return known

    def _seconds(
        self, work: object, place: int, rows: Any, matrix_elements: Any, is_backward: Any
    ) -> float:
        if not isinstance(work, Work):
            raise OptionError(f"work must be an ampsim.Work or None, got {shown(work)}")
        for name in _WORK_FIELDS:
            value = as_float(getattr(work, name))
            if not 0 <= value <= COUNT_MAX:
                raise OptionError(
                    f"work: {name} must be a number from 0 to {COUNT_MAX:g}, "
                    f"got {shown(getattr(work, name))}"
                )
        for name, count in (("rows", rows), ("matrix_elements", matrix_elements)):
            if count is not None and not as_float(count) >= 1:
                raise OptionError(f"{name} must be a number >= 1 or None, got {shown(count)}")
        if not isinstance(is_backward, bool):
            raise OptionError(f"is_backward must be True or False, got {shown(is_backward)}")
        device = self._device(place)
        if device is None:
            return 0.0
        # NumPy's numbers would go on in their own precision
        rows, matrix_elements = _of_python(rows), _of_python(matrix_elements)
        work = Work(*map(_of_python, _counts_of(work)))
        return occupancy_s(
            device, work, is_light=not work.flop, rows=rows, matrix_elements=matrix_elements,
            is_backward=is_backward,
        )  # fmt: skip

    def _memory(self, place: int) -> Memory:
        device, name = self._device(place), "the host" if place == HOST else f"worker {place}"
        capacity = None if device is None else device.memory_bytes
        return Memory(name, CATEGORIES, self._clock, capacity)

    def _lane(self, place: int, kind: str, threads: int, runs: Runner) -> ThreadLane:
        first = len(self.rows)
        self.rows += [Thread(place, kind, thread) for thread in range(threads)]
        device = self._device(place) if kind == "compute" else None
        is_issued = device is not None and device.dispatch_s > 0
        lane = (IssuedLane if is_issued else ThreadLane)(place, kind, first, self.instant)
        is_copying = kind in _COPIES
        for row in range(first, first + (1 if is_copying else threads)):
            processor = Processor(place, self._clock, self.instant)
            lane.processors.append(processor)
            if is_copying:
                tasks: Any = Copying(lane, threads, runs, processor, self._gate(processor))
            else:
                tasks = Computing(lane, row, runs, self._gate(processor))
            if kind == "compute":
                tasks = paced(tasks, processor, self._clock, self._varying, seed=self._seed)
            self._clock.start(processor.work(tasks), f"{kind} {place}")
        if device is not None and isinstance(lane, IssuedLane):
            self._issue(lane, device.dispatch_s, runs)
        return lane

    def _issue(self, lane: IssuedLane, dispatch_s: float, runs: Runner) -> None:
        issuer, row = Processor(lane.place, self._clock, self.instant), len(self.rows)
        lane.begin_issuing(
            issuer, dispatch_s, self._clock, runs=runs, row=row, records=self.dispatches,
            gate=self._gate(issuer),
        )  # fmt: skip
        self.rows.append(Thread(lane.place, "dispatch", 0))
        tasks = paced(lane, issuer, self._clock, self._varying, seed=self._seed, computes=False)
        self._clock.start(issuer.work(tasks), f"dispatch {lane.place}")

    def _gate(self, processor: Processor) -> Gate | None:
        """Whether a pool has given all that it can, as a processor asks; None without one."""
        return None if self._pool is None else partial(self._pool.has_given, processor)

    def _device(self, place: int) -> Device | None:
        return self._host if place == HOST else self._cluster.devices[place]


def _require_meaning(cluster: Cluster, host: Device | None) -> None:
    """Require that no file has a key of which the engine would make nothing.

    Raises:
        OptionError: one has.
    """
    for worker, device in enumerate(cluster.devices):
        for key, value in device.message_numbers.items():
            raise OptionError(
                f"worker {worker}: {key} of {value:g} is of steps "
                "that take and send messages, and operations of a dependency engine do neither; "
                "give push_s, copy_latency_s or a link's latency_s instead"
            )
    if cluster.checkpoints is not None:
        raise OptionError(
            "checkpoints are of a model's weights; a dependency engine has none, so leave them out"
        )
    if cluster.memory is not None:
        raise OptionError(
            f"memory.remedy {cluster.memory.remedy!r} is of models; on a dependency engine push "
            "copies and deletions, and leave the remedy out of the cluster"
        )
    if host is not None and host.copy_bandwidth_bytes_per_s is not None:
        raise OptionError(
            "host: copy_bandwidth_bytes_per_s is the rate of a worker's lanes to the host; leave "
            "it out of the host's device"
        )


def _require_one_thread(cluster: Cluster, host: Device | None, policy: Policy) -> None:
    """Require one thread where a device varies; several would each draw its jitter.

    Raises:
        OptionError: several threads share a device that varies.
    """
    threads = policy.threads_of("compute", is_host=True)
    if threads > 1 and host is not None and host.jitter_cv:
        raise OptionError(
            f"policy: the host, whose time varies (jitter), must have one thread, got {threads}; "
            "try PerDevice(threads=1)"
        )
    threads = policy.threads_of("compute", is_host=False)
    for worker, device in enumerate(cluster.devices):
        if threads > 1 and (device.jitter_cv or has_outages(cluster, worker)):
            raise OptionError(
                f"policy: worker {worker}, whose time varies (jitter, events or failures), must "
                f"have one thread, got {threads}; try PerDevice(threads=1)"
            )


_COPIES: Final[tuple[LaneKind, ...]] = ("copy-in", "copy-out")
