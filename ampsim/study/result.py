"""The result of a run: its trace as DataFrames, the numbers read off it, and the trained model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ampsim.runtime import Schedule
from ampsim.study.model import Model
from ampsim.trace import Recorder


@dataclass(frozen=True)
class Result:
    """What `simulate` returns; all times are virtual seconds.

    Attributes:
        model: the model with the parameters at the end of the run.
        schedule: the schedule that ran.
        workers: how many workers there were.
        origin: command, seed, versions, hashes and what the costs rest on.
        recorder: the trace in typed columns.
    """

    model: Model
    schedule: Schedule
    workers: int
    origin: dict[str, Any] = field(repr=False)
    recorder: Recorder = field(repr=False)

    @cached_property
    def spans(self) -> pd.DataFrame:
        """One row a message served: worker, node, direction, instance, start_s, end_s, flop, bytes.

        `flop` and `bytes` are what was charged; steps that took no device time have start_s ==
        end_s. `staleness` is that of the gradient, −1 where the step made none.
        """
        return self.recorder.frame("spans")

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """One row a message that waited for a link: source, target, bytes, start_s, end_s."""
        return self.recorder.frame("transfers")

    @cached_property
    def updates(self) -> pd.DataFrame:
        """One row an update: node, time_s, gradient_count, staleness (mean), staleness_max."""
        return self.recorder.frame("updates")

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch, at the end of its validation pass.

        time_s, loss (mean of training), accuracy (of validation), instances (training items),
        train_accuracy, valid_loss, valid_instances, train_s, valid_s. Unknown is NaN.
        """
        return self.recorder.frame("epochs")

    @cached_property
    def makespan_s(self) -> float:
        """End of the last span."""
        self.recorder.flush()
        return self.recorder.summary.end_s

    @property
    def train_per_s(self) -> float:
        """Training items per virtual second of training; NaN where there was none."""
        return _rate(self.epochs["instances"], self.epochs["train_s"])

    @property
    def valid_per_s(self) -> float:
        """Validation items per virtual second of validation; NaN where there was none."""
        return _rate(self.epochs["valid_instances"], self.epochs["valid_s"])

    @property
    def utilisation(self) -> float:
        """Seconds of service over workers times makespan; NaN where no time passed."""
        available_s = self.workers * self.makespan_s
        return float(self.recorder.summary.busy_s.sum()) / available_s if available_s else np.nan

    @property
    def staleness_mean(self) -> float:
        """Mean over all gradients; NaN where there was none."""
        self.recorder.flush()
        return self.recorder.summary.staleness_mean

    @property
    def staleness_max(self) -> int | None:
        """Largest of any gradient; None where there was none."""
        self.recorder.flush()
        return self.recorder.summary.staleness_max

    @cached_property
    def staleness(self) -> pd.DataFrame:
        """The histogram: node, staleness, count of gradients."""
        self.recorder.flush()
        rows = [
            (self.recorder.nodes[node], staleness, count)
            for node, counts in sorted(self.recorder.summary.staleness.items())
            for staleness, count in sorted(counts.items())
        ]
        return pd.DataFrame(rows, columns=["node", "staleness", "count"])

    @property
    def peak_in_flight(self) -> dict[str, int]:
        """Per node with parameters: the most activations that it stashed at once.

        One is stashed from a forward step of training to its backward step.
        """
        nodes = self.recorder.nodes
        return {nodes[i]: most for i, most in self.recorder.summary.in_flight_max.items()}

    @property
    def stashed_bytes_max(self) -> dict[str, int]:
        """Per node with parameters: the most bytes that old versions of its weights took at once.

        They come on top of the latest, which every node has.
        """
        nodes = self.recorder.nodes
        return {nodes[i]: most for i, most in self.recorder.summary.stashed_bytes_max.items()}

    @property
    def messages(self) -> int:
        """Messages served, updates among them."""
        self.recorder.flush()
        return self.recorder.summary.messages

    @property
    def digest(self) -> str:
        """SHA-256 over trace and final weights: equal runs, equal digest."""
        hasher = hashlib.sha256()
        for table in ("spans", "transfers", "updates", "epochs"):
            for name, column in self.recorder.columns(table).items():
                hasher.update(name.encode())
                hasher.update(np.ascontiguousarray(column).tobytes())
        for name, array in self.model.parameters().items():
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(array).tobytes())
        return hasher.hexdigest()

    def __repr__(self) -> str:
        """Name what ran and how far it came."""
        return (
            f"Result({self.model.name}, {self.schedule}, workers={self.workers}, "
            f"epochs={len(self.epochs)}, makespan_s={self.makespan_s:.6g})"
        )


def _rate(items: pd.Series[Any], seconds: pd.Series[Any]) -> float:
    total_s = float(seconds.sum())
    return float(items.sum()) / total_s if total_s else float("nan")
