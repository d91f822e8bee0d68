"""What a run leaves behind: spans, transfers, updates, stashes, epochs; no statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.trace.states import States
from ampsim.trace.summary import DIRECTIONS, Summary
from ampsim.trace.table import Columns, Kept, Sink, Table

SPAN_SCHEMA: Final[dict[str, Any]] = {
    "worker": np.int32,
    "node": np.int32,
    "direction": np.int8,
    "instance": np.int64,
    "start_s": np.float64,
    "end_s": np.float64,
    "flop": np.int64,
    "bytes": np.int64,
    "staleness": np.int32,
    "state": np.int32,
}
TRANSFER_SCHEMA: Final[dict[str, Any]] = {
    "source": np.int32,
    "target": np.int32,
    "bytes": np.int64,
    "start_s": np.float64,
    "end_s": np.float64,
}
UPDATE_SCHEMA: Final[dict[str, Any]] = {
    "node": np.int32,
    "time_s": np.float64,
    "gradient_count": np.int64,
    "staleness": np.float64,
    "staleness_max": np.int64,
}
STASH_SCHEMA: Final[dict[str, Any]] = {
    "node": np.int32,
    "time_s": np.float64,
    "bytes": np.int64,
}
LIMIT_SCHEMA: Final[dict[str, Any]] = {"time_s": np.float64, "in_flight": np.int64}
EPOCH_SCHEMA: Final[dict[str, Any]] = {
    "epoch": np.int64,
    "time_s": np.float64,
    "loss": np.float64,
    "accuracy": np.float64,
    "instances": np.int64,
    "train_accuracy": np.float64,
    "valid_loss": np.float64,
    "valid_instances": np.int64,
    "train_s": np.float64,
    "valid_s": np.float64,
    "error": np.float64,
    "train_error": np.float64,
}
NODE_COLUMNS: Final = ("node", "source", "target")


class Recorder:
    """Six tables that grow during a run, and a summary of the spans that needs none of them.

    `limits` has a row whenever the number of instances that may be in flight changes.

    Args:
        nodes: node names; records hold a node's place in them.
        workers: how many workers there are.
        spans_kept: how many spans stay in memory, from the first; None for all.
        span_sinks: whoever else wants the chunks of spans, such as a file.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        workers: int,
        spans_kept: int | None = None,
        span_sinks: tuple[Sink, ...] = (),
    ) -> None:
        """Start with nothing recorded."""
        self.nodes = tuple(nodes)
        self.states = States()
        self.summary = Summary(len(self.nodes), workers)
        self._kept = {
            "spans": Kept(SPAN_SCHEMA, spans_kept),
            "transfers": Kept(TRANSFER_SCHEMA, spans_kept),
            "updates": Kept(UPDATE_SCHEMA, spans_kept),
            "stashes": Kept(STASH_SCHEMA, spans_kept),
            "epochs": Kept(EPOCH_SCHEMA),
            "limits": Kept(LIMIT_SCHEMA, spans_kept),
        }
        sinks = (self._kept["spans"], self.summary, *span_sinks)
        self.spans = Table(SPAN_SCHEMA, sinks, {"state": self.states.codes})
        self.transfers = Table(TRANSFER_SCHEMA, (self._kept["transfers"],))
        self.updates = Table(UPDATE_SCHEMA, (self._kept["updates"], self.summary.take_updates))
        self.stashes = Table(STASH_SCHEMA, (self._kept["stashes"],))
        self.epochs = Table(EPOCH_SCHEMA, (self._kept["epochs"],))
        self.limits = Table(LIMIT_SCHEMA, (self._kept["limits"],))

    def flush_if_full(self) -> None:
        """Turn waiting rows into columns where enough wait."""
        self.spans.flush_if_full()
        self.transfers.flush_if_full()
        self.updates.flush_if_full()
        self.stashes.flush_if_full()
        self.limits.flush_if_full()

    def flush(self) -> None:
        """Turn all waiting rows into columns."""
        tables = (self.spans, self.transfers, self.updates, self.stashes, self.epochs, self.limits)
        for table in tables:
            table.flush()

    def columns(self, table: str) -> Columns:
        """Return what is kept of a table; its name is that of the attribute."""
        self.flush()
        return self._kept[table].columns()

    def frame(self, table: str) -> pd.DataFrame:
        """Return the same as a DataFrame, with names instead of codes."""
        return to_frame(self.columns(table), self.nodes, self.states.texts)


def to_frame(columns: Columns, nodes: Sequence[str], states: Sequence[str] = ()) -> pd.DataFrame:
    """Make a DataFrame of coded columns: codes of nodes, directions and states become names."""
    decoded: dict[str, Any] = dict(columns)
    for name in NODE_COLUMNS:
        if name in decoded:
            decoded[name] = _categories(decoded[name], nodes)
    if "direction" in decoded:
        decoded["direction"] = _categories(decoded["direction"], DIRECTIONS)
    if "state" in decoded:
        decoded["state"] = _categories(decoded["state"], states)
    return pd.DataFrame(decoded)


def _categories(codes: np.ndarray, names: Sequence[str]) -> pd.Categorical[Any]:
    return pd.Categorical.from_codes(codes.tolist(), dtype=pd.CategoricalDtype(list(names)))
