"""What a solver decides between ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from ampsim.text import shown

Meets: TypeAlias = Literal["all", "server"]

Sends: TypeAlias = Literal["gradient", "weights"]

Locks: TypeAlias = Literal["exchange", "update", "nothing"]

Waits: TypeAlias = str
"""No solver decides this any more; the name goes with the next version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions of a solver between ranks.

    Args:
        meets: who exchanges: "all" ranks in a collective, or each with a "server".
        sends: what goes out: a "gradient", or the "weights" of the rank.
        locks: what a server excludes while a rank is served: other ranks from the whole "exchange",
            in turn, or from the "update" alone, or "nothing".
        period: local steps from one exchange to the next.
        steps_first: whether ranks reduce after their own steps, instead of before.
        is_elastic: whether a rank's step pulls it towards the centre.
        elastic: who takes the difference between the two: the "server", or the "worker", which then
            asks for the centre first.
        overlaps: whether a rank pushes its weights when it takes its batches, beside the gradient.
        reads_values: whether who exchanges what, or when, depends on weights or gradients.
        has_outer_step: whether the centre steps from what a collective gave, by an optimizer of its
            own.
        servers: workers that are servers.
        staleness_bound: how many pushes a rank may be ahead of the slowest; None for any number.
        collective: how ranks add up what they have.
        ranks_per_group: ranks in a group of a hierarchical collective.
        bucket_bytes: how large a message of a collective is at least; None for one of all layers.
        overlap: whether a collective begins while ranks compute gradients of other layers.
        backup_ranks: ranks that a round does not wait for.
        compression: the share of each gradient's entries that is sent; None where all are.
    """

    meets: Meets
    sends: Sends
    locks: Locks = "nothing"
    period: int = 1
    steps_first: bool = False
    is_elastic: bool = False
    elastic: str = "server"
    overlaps: bool = False
    reads_values: bool = False
    has_outer_step: bool = False
    servers: int = 0
    staleness_bound: int | None = None
    collective: str = "ring"
    ranks_per_group: int | None = None
    bucket_bytes: int | None = None
    overlap: bool = False
    backup_ranks: int = 0
    compression: float | None = None

    @property
    def asks_first(self) -> bool:
        """True where a rank asks a server for the centre, and sends what it makes of the answer."""
        return self.elastic == "worker"


DECISIONS: Final = tuple(one.name for one in fields(Decisions))
"""Names of what a solver decides."""

_SERVED: Final = {"meets": ("server",)}
_COLLECTED: Final = {"meets": ("all",)}
_GRADIENT: Final = {"sends": ("gradient",)}
_WEIGHTS: Final = {"sends": ("weights",)}

_NEEDS: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "servers": _SERVED,
    "locks": _SERVED,
    "staleness_bound": {**_SERVED, "locks": ("update", "nothing"), "elastic": ("server",)},
    "period": _WEIGHTS,
    "is_elastic": _WEIGHTS,
    "elastic": _SERVED | _WEIGHTS,
    "overlaps": _SERVED | _WEIGHTS,
    "steps_first": _COLLECTED | _WEIGHTS,
    "has_outer_step": {"steps_first": (True,)},
    "collective": _COLLECTED,
    "bucket_bytes": _COLLECTED,
    "overlap": _COLLECTED | _GRADIENT,
    "backup_ranks": _COLLECTED | _GRADIENT,
    "compression": _GRADIENT,
}
"""For decisions that are not always read, those beside which they are."""


def fault_of(decisions: Decisions) -> str | None:
    """Say which decision is not read beside the others, and what it needs; None if all are."""
    for one in fields(Decisions):
        value = getattr(decisions, one.name)
        if value == one.default:
            continue
        for other, values in _NEEDS.get(one.name, {}).items():
            got = getattr(decisions, other)
            if got not in values:
                needed = " or ".join(map(shown, values))
                return (
                    f"{one.name}={shown(value)} needs {other}={needed}, got {shown(got)}; "
                    f"leave {one.name} out"
                )
    return None
