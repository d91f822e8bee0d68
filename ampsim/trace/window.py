"""The part of a trace that is looked at: from the start of a run to some moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ampsim.trace.table import Columns

HOST: Final = -1
NOWHERE: Final = -2
"""The place of a node that served nothing."""

_CONTROLLER: Final = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Records of the time from 0 to `end_s`.

    Args:
        spans: those that ended by then, as coded columns.
        transfers: those that started before, as coded columns.
        workers: how many workers there were.
        nodes: how many nodes.
        end_s: where the window ends.
    """

    spans: Columns
    transfers: Columns
    workers: int
    nodes: int
    end_s: float

    @property
    def seconds(self) -> np.ndarray:
        """How long each span took."""
        return self.spans["end_s"] - self.spans["start_s"]

    @property
    def transfer_s(self) -> np.ndarray:
        """How long each transfer took once its link was free: held, and under way."""
        return self.transfers["end_s"] - self.transfers["start_s"]

    @property
    def places(self) -> np.ndarray:
        """The worker of each node; `HOST` for the controller, `NOWHERE` for a node never served."""
        found = np.full(max(self.nodes, 1), NOWHERE)
        found[self.spans["node"]] = self.spans["worker"]
        found[_CONTROLLER] = HOST
        return found

    @property
    def pump_s(self) -> float:
        """The least that a message took from the host."""
        return _least(self.transfer_s[self.transfers["source"] == _CONTROLLER])

    @property
    def return_s(self) -> float:
        """The least that a message took to the host."""
        return _least(self.transfer_s[self.transfers["target"] == _CONTROLLER])


def window_of(
    spans: Columns, transfers: Columns, *, workers: int, nodes: int, end_s: float
) -> Window:
    """Cut out the time from 0 to `end_s`."""
    return Window(
        _where(spans, spans["end_s"] <= end_s),
        _where(transfers, transfers["start_s"] < end_s),
        workers,
        nodes,
        end_s,
    )


def _where(columns: Columns, is_in: np.ndarray) -> Columns:
    return {name: column[is_in] for name, column in columns.items()}


def _least(seconds: np.ndarray) -> float:
    return float(seconds.min()) if len(seconds) else 0.0
