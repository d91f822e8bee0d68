"""The result of a run: its trace as DataFrames, the numbers read off it, and the trained model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.runtime import Schedule
from ampsim.study.display import result_html
from ampsim.study.model import Model
from ampsim.study.outline import Outline, rate_of
from ampsim.trace import DIRECTIONS, Bounds, Recorder, bounds_of, window_of

BOUND_RECORDS: Final = 20_000
"""Leading spans, and transfers, that `Result.bounds` looks at (chosen: done in half a second)."""


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
        end_s. `staleness` is that of the gradient, −1 where the step made none. `state` has what
        the message's state says beside its instance, such as "step 3, length 7".
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
    def stashes(self) -> pd.DataFrame:
        """One row a change of the bytes that a node's old weights take: node, time_s, bytes.

        They come on top of the latest weights. A change is noticed when the node's next step of
        training starts. Empty where the schedule stashes no weights.
        """
        return self.recorder.frame("stashes")

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch, at the end of its validation pass.

        time_s, loss (mean of training), accuracy (of validation), instances (training items),
        train_accuracy, valid_loss, valid_instances, train_s, valid_s, and, of a regression, error
        and train_error: mean absolute errors in the model's unit. Unknown is NaN.
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
        return rate_of(self.epochs["instances"], self.epochs["train_s"])

    @property
    def valid_per_s(self) -> float:
        """Validation items per virtual second of validation; NaN where there was none."""
        return rate_of(self.epochs["valid_instances"], self.epochs["valid_s"])

    @property
    def utilisation(self) -> float:
        """Seconds of service over workers times makespan; NaN where no time passed."""
        available_s = self.workers * self.makespan_s
        return float(self.recorder.summary.busy_s.sum()) / available_s if available_s else np.nan

    @cached_property
    def utilisation_by_worker(self) -> pd.DataFrame:
        """One row a worker: worker, and the shares of the makespan in update, backward, forward.

        The mean over workers of a row's sum is `utilisation`; NaN where no time passed.
        """
        makespan_s = self.makespan_s or np.nan
        shares = pd.DataFrame(self.recorder.summary.worked_s / makespan_s, columns=list(DIRECTIONS))
        shares.insert(0, "worker", np.arange(self.workers))
        return shares

    @property
    def max_active_keys(self) -> int:
        """Instances in flight at most: the schedule's limit, or as many as there are stages."""
        limit = self.schedule.max_active_keys
        return len(self._learning_nodes) if limit is None else limit

    @property
    def _learning_nodes(self) -> set[str]:
        return {name.rpartition(".")[0] for name in self.model.given}

    @cached_property
    def bounds(self) -> Bounds:
        """What bounds the first training pass, by the leading records of the trace."""
        end_s = float(self.epochs["train_s"].iloc[0]) if len(self.epochs) else self.makespan_s
        spans = self.recorder.columns("spans")
        transfers = self.recorder.columns("transfers")
        first = {name: column[:BOUND_RECORDS] for name, column in spans.items()}
        sent = {name: column[:BOUND_RECORDS] for name, column in transfers.items()}
        if len(first["end_s"]) < self.messages:
            end_s = min(end_s, float(first["end_s"].max(initial=0.0)))
        if len(sent["end_s"]) == BOUND_RECORDS:
            end_s = min(end_s, float(sent["start_s"].max()))
        window = window_of(
            first, sent, workers=self.workers, nodes=len(self.recorder.nodes), end_s=end_s
        )
        limits = self.recorder.columns("limits")
        return bounds_of(window, (limits["time_s"], limits["in_flight"]))

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
        for table in ("spans", "transfers", "updates", "stashes", "epochs"):
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

    def _repr_html_(self) -> str:
        return result_html(self)

    @cached_property
    def update_interval(self) -> int | None:
        """Gradients between updates, if all nodes that learn have the same; else None."""
        preferred = self.model.update_interval
        intervals = {
            self.schedule.update_interval(name, preferred(name)) for name in self._learning_nodes
        }
        return intervals.pop() if len(intervals) == 1 else None

    def outline(self) -> Outline:
        """Return what tables and figures take from this run, without its weights."""
        bounds = self.bounds
        return Outline(
            max_active_keys=self.max_active_keys,
            min_update_interval=self.update_interval,
            replicas=self.model.replicas,
            workers=self.workers,
            utilisation=self.utilisation,
            staleness_mean=self.staleness_mean,
            staleness_max=self.staleness_max,
            messages=self.messages,
            makespan_s=self.makespan_s,
            bound_by=bounds.bound_by,
            worker_share=bounds.worker_share,
            path_share=bounds.path_share,
            link_share=bounds.link_share,
            admission_share=bounds.admission_share,
            epochs=self.epochs,
            spans=self.spans,
            staleness=self.staleness,
            utilisation_by_worker=self.utilisation_by_worker,
        )
