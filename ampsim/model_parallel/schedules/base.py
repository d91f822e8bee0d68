"""What a schedule decides: whom to admit, in what order to serve, when to update.

Every published schedule is a few choices of these (design, section 6). Each lives in its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol, TypeAlias, cast, runtime_checkable

from ampsim.errors import OptionError, one_of
from ampsim.ir import Direction
from ampsim.model_parallel.remedies import NONE
from ampsim.model_parallel.schedules.turns import Ledger, Turns, WorkerStages
from ampsim.options import require_amount, require_count

BACKWARD_FIRST: Final = (Direction.UPDATE, Direction.BACKWARD, Direction.FORWARD)
"""Update before backward before forward, then first come (paper, Appendix A)."""


PickVersion: TypeAlias = Callable[[int, int], int]
"""``pick(instance, latest)`` gives the version of the weights that a forward step reads."""


class Schedule(Protocol):
    """The decisions of one schedule.

    Attributes:
        name: as on the command line.
        drains: whether all in flight must finish, and all nodes be updated, before it admits more.
            The controller then says when nodes update; otherwise they update themselves.
        averages: whether the instances of one update are a mini-batch, whose mean gradient counts,
            instead of the sum of their messages'.
        order: which kind of message a worker serves first.
        holds_gradients: whether no backward step may start before all forward steps of all in
            flight have ended.
        needs_chain: whether it is a `ChainSchedule`, which knows only chains of stages.
    """

    name: ClassVar[str]
    drains: ClassVar[bool]
    averages: ClassVar[bool]
    order: ClassVar[tuple[Direction, ...]]
    holds_gradients: ClassVar[bool]
    needs_chain: ClassVar[bool]

    @property
    def max_active_keys(self) -> int | None:
        """Admits an instance only while fewer than this are in flight; None: than stages."""
        ...

    @property
    def staleness_budget(self) -> float | None:
        """And only while it expects gradients at most this many updates old; None: no matter.

        That is in training, and of the oldest nodes; see `ampsim.model_parallel.budget.Budget`.
        """
        ...

    @property
    def remedy(self) -> str:
        """Name of what is done about delayed gradients; see `ampsim.model_parallel.remedies`."""
        ...

    def update_interval(self, node: str, preferred: int) -> int | None:
        """Gradients after which `node` updates itself; None where the controller decides.

        Args:
            node: the node's name.
            preferred: what the model asks for.
        """
        ...


class Plain:
    """What most schedules leave alone: they admit by number, and take gradients as they come."""

    @property
    def staleness_budget(self) -> float | None:
        """None."""
        return None

    @property
    def remedy(self) -> str:
        """None either."""
        return NONE


class ChainSchedule(Schedule, Protocol):
    """A schedule of a chain of stages: each has a fixed order of its own, and chooses its weights.

    A stage is a node with parameters; stage s of p is the one after s others along the chain.

    Attributes:
        splits_backward: whether a backward step is two, whose second half, the weight gradient,
            has turns as if it were of stage p + s.
    """

    splits_backward: ClassVar[bool]

    def turns(self, placed: WorkerStages, ledger: Ledger) -> Turns:
        """The order in which a worker serves the stages of `placed`, in training.

        Raises:
            OptionError: the schedule does not fit the number of stages or of workers.
        """
        ...

    def weights(self, stages: int, ledger: Ledger) -> list[PickVersion] | None:
        """Make the rules for which weights a forward step reads, one for each stage in turn.

        None where each step reads the latest. Otherwise the backward step of an instance reads
        what its forward step has read.

        Raises:
            OptionError: the schedule's options do not fit the number of stages.
        """
        ...


@runtime_checkable
class GroupingSchedule(Schedule, Protocol):
    """A schedule whose workers may merge messages for one node into one step.

    No `ChainSchedule`, whose stages take turns. See `ampsim.model_parallel.grouping`.
    """

    @property
    def max_group(self) -> int:
        """Messages that one step serves at most; 1 merges none."""
        ...

    @property
    def group_wait_s(self) -> float:
        """Seconds that a worker waits, once, before it starts a smaller group."""
        ...


def interval_of(intervals: int | Mapping[str, int] | None, node: str, preferred: int) -> int:
    """Choose a node's interval: one number for all, one by node, or what the model prefers."""
    if intervals is None:
        return preferred
    if isinstance(intervals, Mapping):
        return intervals.get(node, preferred)
    return intervals


def require_intervals(intervals: int | Mapping[str, int] | None) -> None:
    """Check an option `min_update_interval`: one number for all nodes, one by node, or None.

    Raises:
        OptionError: a number is below 1.
    """
    if isinstance(intervals, Mapping):
        for node, interval in intervals.items():
            require_count(f"min_update_interval of {node}", interval)
    elif intervals is not None:
        require_count("min_update_interval", intervals)


def require_grouping(max_group: int, group_wait_s: float) -> None:
    """Check the options of a `GroupingSchedule`.

    Raises:
        OptionError: one is out of its range, or they contradict each other.
    """
    require_count("max_group", max_group)
    require_amount("group_wait_s", group_wait_s)
    if group_wait_s and max_group == 1:
        raise OptionError(
            f"group_wait_s = {group_wait_s!r} waits for a group, but max_group = 1 forms none; "
            "take max_group=2 or more, or group_wait_s=0"
        )


def require_known_nodes(schedule: Schedule, nodes: list[str]) -> None:
    """Check that a schedule's intervals by node name nodes that there are.

    Raises:
        OptionError: one of them names no node of `nodes`, the nodes that learn.
    """
    intervals: Any = getattr(schedule, "min_update_interval", None)
    for name in cast("Mapping[str, int]", intervals) if isinstance(intervals, Mapping) else ():
        if name not in nodes:
            raise OptionError(f"min_update_interval: {one_of('node that learns', name, nodes)}")
