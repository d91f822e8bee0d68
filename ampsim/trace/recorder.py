"""What a run leaves behind: spans, transfers, updates, stashes, epochs; no statistics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.trace.kinds import Kinds
from ampsim.trace.states import States
from ampsim.trace.summary import DIRECTIONS, Summary
from ampsim.trace.table import Columns, Field, Kept, Sink, Table, plain_fields

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

    A row of `spans` is (kind, start, end, staleness, state): the number that `kinds` gives (worker,
    node, direction, FLOP, bytes), seconds, updates, and the message's state. `limits` has a row
    whenever the number of instances that may be in flight changes.

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
        self.kinds = Kinds()
        self.spans = Table(self._span_fields(), sinks, self._spelt_out)
        self.transfers = self._table("transfers", TRANSFER_SCHEMA)
        self.updates = self._table("updates", UPDATE_SCHEMA, self.summary.take_updates)
        self.stashes = self._table("stashes", STASH_SCHEMA)
        self.epochs = self._table("epochs", EPOCH_SCHEMA)
        self.limits = self._table("limits", LIMIT_SCHEMA)

    def _table(self, name: str, schema: dict[str, Any], *sinks: Sink) -> Table:
        return Table(plain_fields(schema), (self._kept[name], *sinks))

    def _span_fields(self) -> dict[str, Field]:
        """The fields of a span's row: (number of its kind, start, end, staleness, state)."""
        return {
            "kind": Field(0, np.int64),
            "start_s": Field(1, SPAN_SCHEMA["start_s"]),
            "end_s": Field(2, SPAN_SCHEMA["end_s"]),
            "staleness": Field(3, SPAN_SCHEMA["staleness"]),
            "instance": Field(4, SPAN_SCHEMA["instance"], partial(map, itemgetter(0))),
            "state": Field(4, SPAN_SCHEMA["state"], self.states.codes),
        }

    def _spelt_out(self, columns: Columns) -> Columns:
        known = {**columns, **self.kinds.columns(columns["kind"])}
        return {name: known[name] for name in SPAN_SCHEMA}

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
