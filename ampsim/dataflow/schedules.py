"""Schedules of a program: dataflow in the graph, unrolled, or driven by a client from outside.

All three train one instance after the other, with an update of every variable at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ampsim.arguments import check_fields
from ampsim.dataflow.memory import SWAP_THRESHOLD
from ampsim.dataflow.session import PARALLEL_ITERATIONS, Running, Share
from ampsim.model_parallel import Admission, Order
from ampsim.model_parallel.schedules.values import AT_DRAIN, LATEST
from ampsim.options import Count, Seconds

ROUND_TRIP_S: Final = 2e-4
"""Of a client that decides (chosen: a call there and back on one machine)."""


@dataclass(frozen=True)
class OfProgram:
    """A schedule of programs; the four decisions are those of one instance at a time."""

    name: ClassVar[str]
    _fixed: ClassVar[dict[str, Any]] = {}  # how programs run under it, beside what its options say
    admission = Admission(in_flight_max=1, drains=True)
    order = Order()
    updates = AT_DRAIN
    weights = LATEST

    def __post_init__(self) -> None:
        check_fields(self)
        _ = self.running  # which says what has no effect

    @property
    def running(self) -> Running:
        """Return how programs run under it."""
        return Running(**self._fixed, **vars(self))


@dataclass(frozen=True)
class Dataflow(OfProgram):
    """The program decides for itself, in the graph (Yu et al. 2018).

    Args:
        parallel_iterations: iterations of a loop under way at a time.
        swap_memory: whether what lies on stacks moves to the host where memory runs short.
        swap_threshold: the share of the memory above which it does.
        broadcast_dead: whether a branch that is not taken is told once to each worker that waits
            for it, in place of once for each tensor.

    Raises:
        OptionError: an option is out of its range, or has no effect beside the others.
    """

    name: ClassVar[str] = "dataflow"
    parallel_iterations: Count = PARALLEL_ITERATIONS
    swap_memory: bool = False
    swap_threshold: Share = SWAP_THRESHOLD
    broadcast_dead: bool = False


@dataclass(frozen=True)
class Unrolled(OfProgram):
    """Every loop as copies of its body, as many as the instance needs: no control flow is left."""

    name: ClassVar[str] = "unrolled"
    _fixed: ClassVar[dict[str, Any]] = {"parallel_iterations": None}


@dataclass(frozen=True)
class OutOfGraph(OfProgram):
    """A client makes each decision: it waits for the predicate's value, and starts what follows.

    It makes one after the other, and an iteration begins when the one before has been computed.

    Args:
        round_trip_s: from the value of a predicate, computed, to the start of what it decides.

    Raises:
        OptionError: it is no time.
    """

    name: ClassVar[str] = "out-of-graph"
    _fixed: ClassVar[dict[str, Any]] = {"parallel_iterations": 1, "run_ahead": False}
    round_trip_s: Seconds = ROUND_TRIP_S
