"""What a schedule decides: whom to admit, in what order to serve, when to update.

Every published schedule is a few choices of these (design, section 6). Each lives in its own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol, cast

from ampsim.errors import OptionError, one_of
from ampsim.ir import Direction

BACKWARD_FIRST: Final = (Direction.UPDATE, Direction.BACKWARD, Direction.FORWARD)
"""Update before backward before forward, then first come (paper, Appendix A)."""


class Schedule(Protocol):
    """The decisions of one schedule.

    Attributes:
        name: as on the command line.
        drains: whether all in flight must finish, and all nodes be updated, before it admits more.
            The controller then says when nodes update; otherwise they update themselves.
        order: which kind of message a worker serves first.
    """

    name: ClassVar[str]
    drains: ClassVar[bool]
    order: ClassVar[tuple[Direction, ...]]

    @property
    def max_active_keys(self) -> int:
        """Admits an instance only while fewer than this are in flight."""
        ...

    def update_interval(self, node: str, preferred: int) -> int | None:
        """Gradients after which `node` updates itself; None where the controller decides.

        Args:
            node: the node's name.
            preferred: what the model asks for.
        """
        ...


def interval_of(intervals: int | Mapping[str, int] | None, node: str, preferred: int) -> int:
    """Choose a node's interval: one number for all, one by node, or what the model prefers."""
    if intervals is None:
        return preferred
    if isinstance(intervals, Mapping):
        return intervals.get(node, preferred)
    return intervals


def require_known_nodes(schedule: Schedule, nodes: list[str]) -> None:
    """Check that a schedule's intervals by node name nodes that there are.

    Raises:
        OptionError: one of them names no node of `nodes`, the nodes that learn.
    """
    intervals: Any = getattr(schedule, "min_update_interval", None)
    for name in cast("Mapping[str, int]", intervals) if isinstance(intervals, Mapping) else ():
        if name not in nodes:
            raise OptionError(f"min_update_interval: {one_of('node that learns', name, nodes)}")
