"""What many spans have in common, said once: where, what, and what it cost."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

Kind: TypeAlias = tuple[int, int, int, int, int, int]
"""(worker, node, direction, FLOP, bytes, operations)."""

LANES: Final = ("compute", "dispatch", "copy-out", "copy-in")
"""Names of the codes of a span's lane: what a device does beside each other. It computes; its
driver issues steps; and two engines copy, to the host and from it."""

COMPUTE_LANE, DISPATCH_LANE, COPY_OUT_LANE, COPY_IN_LANE = range(len(LANES))

KIND_SCHEMA: Final = {
    "worker": np.int32,
    "node": np.int32,
    "direction": np.int8,
    "flop": np.int64,
    "bytes": np.int64,
    "operations": np.int64,
    "lane": np.int8,
}


class Kinds:
    """Numbers the kinds of span in the order of their coming.

    A run has few: nodes, directions, and shapes. A row that names its kind by number is half as
    long as one that spells it out, and becomes columns in half the time.
    """

    def __init__(self) -> None:
        """Start with no kind known."""
        self._numbers: dict[tuple[int, ...], int] = {}

    def number(self, kind: Kind, lane: int = COMPUTE_LANE) -> int:
        """Return the number of a kind on a lane, a new one if it is new."""
        return self._numbers.setdefault((*kind, lane), len(self._numbers))

    @property
    def all(self) -> list[tuple[int, ...]]:
        """The kinds by their numbers, each with its lane."""
        return list(self._numbers)

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Spell out the kinds of these numbers, a column for each field."""
        fields = zip(*self._numbers, strict=True)
        return {
            name: np.array(values, dtype)[numbers]
            for (name, dtype), values in zip(KIND_SCHEMA.items(), fields, strict=True)
        }
