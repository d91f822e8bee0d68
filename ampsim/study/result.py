"""The result of a run: tables, the numbers read off them, and the trained model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from ampsim.data_parallel import Solver
from ampsim.dataflow import OfProgram
from ampsim.model_parallel import Schedule
from ampsim.study.bound_words import nodes_at
from ampsim.study.model import Model
from ampsim.study.outages import never_met, no_outages, wait_share, waits_of
from ampsim.study.read_off import Occupation, ReadOff, histogram, path_frame, path_parts, timeline
from ampsim.text import html_table
from ampsim.trace import (
    DIRECTIONS,
    Bounds,
    Columns,
    Crossings,
    Path,
    Recorder,
    bounds_of,
    critical_path,
    own_frame,
)
from ampsim.trace.recorder import VALIDATION_COLUMNS
from ampsim.trace.summary import Summary
from ampsim.units import (
    UNKNOWN,
    format_bytes,
    format_count,
    format_percent,
    format_rate,
    format_seconds,
)


def _rate_text(per_s: float | None) -> str:
    """A rate whose unit stands in the heading."""
    return format_rate(per_s).removesuffix("/s").rstrip()


def _count_text(value: float | None) -> str:
    """A whole number with all its digits, another one with three."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return format_count(value) if value % 1 else f"{value:,.0f}"


_OUTAGES: Any = own_frame(lambda _result: no_outages())


@dataclass(frozen=True, eq=False)
class Result(ReadOff):
    """The result of `simulate`; all times are virtual seconds.

    The tables of the trace are read-only; change a copy of yours, such as ``result.spans.copy()``.

    Attributes:
        model: the model with the parameters at the end of the run.
        schedule: the schedule that ran.
        workers: how many workers there were.
        origin: command, seed, versions, hashes and what the costs rest on.
        recorder: the trace in typed columns.
        outages: when a device was slow or down: worker, kind ("slow", ...), start_s, end_s. On a
            cluster with checkpoints those that took time are rows of kind "checkpoint", and of a
            stop there are checkpoint_s, when the checkpoint was complete that the device came back
            with, NaN where it kept its weights, and updates_lost, over its nodes.
        crossings: what messages between workers cross; None where each pair of workers has a link
            of its own.
        learning_digest: equal where what was learned is equal: the same model, data and seed, the
            same versions of weights read, and the same gradients in each update. None of solvers
            and programs, whose order is not taken down, and where weights went back to those of a
            checkpoint.
        recount: counts what lay in the memories, where the run did not; None where nobody can.
        is_explained: whether what is kept of it says what bounds it and what its memories held.
    """

    model: Model
    schedule: Schedule
    workers: int
    origin: dict[str, Any] = field(repr=False)
    recorder: Recorder = field(repr=False)
    outages: pd.DataFrame = field(default=_OUTAGES, repr=False)
    crossings: Crossings | None = field(default=None, repr=False)
    learning_digest: str | None = field(default=None, repr=False)
    recount: Callable[[], Columns] | None = field(default=None, repr=False)
    is_explained: bool = field(default=True, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all but the frames, which are made again."""
        self.recorder.flush()  # rows that wait hold states, whose types may be of a model's file
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @own_frame
    def spans(self) -> pd.DataFrame:
        """One row a message served: worker, node, direction, instance, start_s, end_s, flop, bytes.

        `flop`, `bytes` and `operations` are what was charged; steps that took no device time have
        start_s == end_s. `staleness` is that of the gradient, of a merge its stalest node's, −1
        without any. `state` has what the message's state says beside its instance, such as "step 3,
        length 7". Messages that were merged into one step stand side by side, each with its share.
        `lane` says on which of a device's it is: "compute" is a message served; "dispatch" a step
        that is issued; "copy-out" and "copy-in" an activation. The host's worker is -1.
        `cause` says what brought the message: n >= 0 is the span in row n, -1 the start of the run,
        and below that stand, in turn, -2 - 2 n for the transfer and -3 - 2 n for the admission in
        row n.
        """
        return self.recorder.frame("spans")

    @own_frame
    def transfers(self) -> pd.DataFrame:
        """One row a message that took a link: source, target, bytes, start_s, end_s, ...

        `source` and `target` are nodes; `node` is the target. It was sent at `sent_s`, waited until
        `start_s`, held the link until `held_s` and arrived at `end_s`; `source_worker` and
        `target_worker` are the link's ends, -1 for the host. `cause` is what sent it, as in
        `spans`. A collective that is one event has a row, instead of one for each of its messages,
        for each time at which it reaches ranks: from the last rank that came to the next, with the
        bytes of what each rank has.
        """
        return self.recorder.frame("transfers")

    @own_frame
    def admissions(self) -> pd.DataFrame:
        """One row a moment at which the controller let instances in.

        time_s, cause (as in `spans`), is_limited: whether the limit on instances in flight had
        kept them out until then.
        """
        return self.recorder.frame("admissions")

    @own_frame
    def updates(self) -> pd.DataFrame:
        """One row an update: node, time_s, gradient_count, staleness (mean), staleness_max."""
        return self.recorder.frame("updates")

    @own_frame
    def stashes(self) -> pd.DataFrame:
        """One row a change of the bytes that a node's old weights take: node, time_s, bytes.

        Old weights are there from the update that replaces them to the end of the last step that
        reads them. Empty without stashes.
        """
        return self.recorder.frame("stashes")

    @own_frame
    def exchanges(self) -> pd.DataFrame:
        """One row an exchange of a rank with a server, or with all ranks; empty without a solver.

        rank (of a group, its first copy), server (its worker; -1 for all ranks, -2 for several
        servers at once, -3 for all ranks of a group, -4 of a group within it), sends. The rank had
        it ready at `ready_s` and sent it at `start_s`; the merge, or the collective, began at
        `merge_start_s`, of several servers the first, and ended at `merge_end_s`, of them the last;
        the answer came at `end_s`, which without a lock may be before the merge; a merge or answer
        under way when the run ends ends then; the wait for such an answer is not counted.
        `stalled_s` is how long the rank could do nothing for it, `waits_for` what held it up first:
        a lock, of several servers, where the answer that came last waited for one.
        `staleness` is how many merges the centre had made since the rank's last answer, `distance`
        how far its weights were from the centre's, NaN of gradients, `bytes` the size of what it
        sent, and `is_mixed` whether the answer had weights of different versions.
        """
        return self.recorder.frame("exchanges")

    @property
    def sent(self) -> dict[str, int]:
        """Count the messages between the workers of a program; empty of other methods.

        `tensors`; `predicates`, all truth values; `signals` of control edges; `dead` signals.
        """
        return dict(self.recorder.sent)

    @property
    def waits(self) -> pd.DataFrame:
        """When ranks could do nothing for an exchange: worker, kind, start_s, end_s.

        The kind says what held a rank up first: "waits for all", or likewise for "turn",
        "lock", "reply" or "bound". Empty without a solver.
        """
        return waits_of(self.exchanges, self.origin["schedule"], self.origin["seed"])

    @own_frame
    def collectives(self) -> pd.DataFrame:
        """One row a collective: ranks, bytes (of what each has), first_s, start_s, end_s, ...

        The first rank was there at `first_s`, the last one at `start_s`. `formula_s` is what the
        closed form says, NaN where links differ or are shared; `is_event` says whether it was taken
        for the messages themselves.
        """
        return self.recorder.frame("collectives")

    @property
    def wait_share(self) -> float:
        """Share of their time that ranks could do nothing for an exchange; NaN without a solver.

        NaN, too, where the trace has only the first of its exchanges.
        """
        copies, kept = getattr(self.schedule, "copies", None) or 0, self.exchanges
        if len(kept) < self.recorder.exchanges.count:
            return math.nan
        return wait_share(kept, self.origin["schedule"], copies, self.makespan_s)

    @property
    def never_met(self) -> str:
        """Tell which ranks of a solver exchanged with nobody, and why; empty where all did.

        Empty, too, without a solver, and where the trace has only the first of its exchanges.
        """
        kept = self.exchanges
        is_whole = len(kept) == self.recorder.exchanges.count
        if not isinstance(self.schedule, Solver) or not is_whole or not self.makespan_s:
            return ""
        return never_met(kept, self.schedule, self.workers)

    @own_frame
    def memory(self) -> pd.DataFrame:
        """See `ReadOff.memory`."""
        recount = None if self.recorder.memory else self.recount
        return timeline(recount() if recount else self.recorder.columns("memory"))

    @own_frame
    def epochs(self) -> pd.DataFrame:
        """One row an epoch, at the end of its validation pass.

        time_s, loss (mean of training), accuracy (of validation), instances (training items),
        train_accuracy, valid_loss, valid_instances, train_s, valid_s, and, of a regression, error
        and train_error: mean absolute errors in the model's unit. Unknown is NaN.
        """
        return self.recorder.frame("epochs")

    @property
    def validations(self) -> pd.DataFrame:
        """One row a validation: those at the end of an epoch, and those of `validate_every`.

        epochs (those behind it, such as 1.5), time_s (its end), instances (training items behind
        it), valid_loss, accuracy, error, valid_s (how long it took). Unknown is NaN.
        """
        table = pd.DataFrame(self.recorder.validations, columns=list(VALIDATION_COLUMNS))
        return table.astype(float)

    @property
    def _totals(self) -> Summary:
        self.recorder.flush()
        return self.recorder.summary

    @property
    def _nodes(self) -> Sequence[str]:
        return self.recorder.nodes

    def _occupation(self) -> Occupation:
        groups = self.origin.get("cluster", {}).get("groups", ())
        return Occupation(groups, self.outages, lambda: self.recorder.records().computed())

    @property
    def time_by_node(self) -> pd.DataFrame:
        """Time spent in the whole run, one row a node, worker and direction.

        node, worker, direction, steps (that took time; merged: one), busy_s, share (of makespan).
        Nodes stand in the order of the graph, under a solver with a row for each worker that has a
        copy; directions that took no time are left out.
        """
        spent = sorted(self._totals.spent.items(), key=lambda one: (*one[0][:2], -one[0][2]))
        columns = ["node", "worker", "direction", "steps", "busy_s", "share"]
        rows = [
            (self.recorder.nodes[node], worker, DIRECTIONS[code], *took, took[1] / self.makespan_s)
            for (node, worker, code), took in spent
        ]
        return pd.DataFrame(rows, columns=columns)

    @property
    def max_active_keys(self) -> int:
        """Instances in flight at most: the schedule's limit, or as many as there are stages."""
        limit = self.schedule.admission.in_flight_max
        return len(self._learning_nodes) if limit is None else limit

    @property
    def _learning_nodes(self) -> set[str]:
        return {name.rpartition(".")[0] for name in self.model.given}

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the run, by all of its records, also those that are not kept."""
        return bounds_of(self.recorder.records(), self._path, self.crossings)

    @cached_property
    def _path(self) -> Path:
        return critical_path(self.recorder.records())

    @own_frame
    def critical_path_parts(self) -> pd.DataFrame:
        """Time of `critical_path` by kind, node, direction and worker: these, seconds, share.

        One row for all of its parts that agree in these, the longest first; the seconds add up to
        `makespan_s`.
        """
        return path_parts(path_frame(one, self.recorder.nodes) for one in self._path.pieces())

    @property
    def bound_at(self) -> str:
        """The nodes at what bounds the run, those that work for longest first; empty without."""
        name = self.bounds.bound_by
        if name == "critical path":
            parts = self.critical_path_parts
            steps = parts.loc[parts["kind"] == "compute", "node"]
            return ", ".join(dict.fromkeys(str(node) for node in steps))
        busy_s = dict.fromkeys(self.recorder.nodes, 0.0)
        for (node, *_rest), (_steps, seconds) in sorted(self._totals.spent.items()):
            busy_s[self.recorder.nodes[node]] += seconds
        placed = self.origin.get("placement", {}).get("workers", {})
        if isinstance(self.schedule, OfProgram):  # of hundreds of nodes few take time
            placed = {node: at for node, at in self.recorder.placed.items() if busy_s[node]}
        return nodes_at(name or "", placed, busy_s)

    @property
    def critical_path(self) -> pd.DataFrame:
        """The chain of waits from the last step back to time zero: a row each, the earliest first.

        start_s, end_s, kind, node, direction, worker, source_worker, instance. Rows join, from 0 to
        `makespan_s`, whichever records are kept. A `kind` is "compute", a step, or "dispatch" and
        "copy", those of such lanes; "device queue", a wait for one; "transfer", a message on its
        way from `source_worker` to `worker`; "link queue", one that waits for a link; and, of no
        length, "admission" and "limit", where the controller let in an instance, which with "limit"
        the limit on instances in flight had kept out. The host is worker -1.
        """
        return path_frame(self._path.columns(), self.recorder.nodes)

    @property
    def group_sizes(self) -> pd.DataFrame:
        """Sizes of the groups of messages that were merged into one step: node, size, count.

        Empty where the schedule merges none; free steps and updates are neither merged nor counted.
        """
        return histogram(self.recorder.nodes, "size", self.recorder.summary.group_sizes)

    @property
    def group_size_mean(self) -> float:
        """Mean over all steps in `group_sizes`; NaN where the schedule merges none."""
        sizes = self.group_sizes
        steps = int(sizes["count"].sum())
        return float((sizes["size"] * sizes["count"]).sum()) / steps if steps else np.nan

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
    def digest(self) -> str:
        """SHA-256 over trace and final weights: equal runs, equal digest."""
        hasher = hashlib.sha256()
        tables = ["spans", "transfers", "updates", "stashes", "epochs"]
        if self.recorder.exchanges.count:
            tables += ["exchanges", "collectives"]
        columns = chain.from_iterable(self.recorder.columns(table).items() for table in tables)
        for name, array in chain(columns, self.model.parameters().items()):
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(array).tobytes())
        if any(len(getattr(self, one)) < getattr(self.recorder, one).count for one in tables[:2]):
            for chunk in chain(*(log.chunks() for log in self.recorder.records()[:2])):
                hasher.update(chunk.tobytes())  # of what is not kept, causes and times are logged
        return hasher.hexdigest()

    def __repr__(self) -> str:
        """Name what ran and how far it came."""
        return (
            f"Result({self.model.name}, {self.schedule}, workers={self.workers}, "
            f"epochs={len(self.epochs)}, makespan_s={self.makespan_s:.6g})"
        )

    def _repr_html_(self) -> str:
        """The run in a dozen numbers."""
        metric, epochs, items = self.model.measure, self.epochs, self.model.items
        score = float(epochs[metric.kind].iloc[-1]) if len(epochs) else None
        peak = float(self.peak_bytes.max()) if len(self.memory) else None
        rows = [
            ["epochs", str(len(epochs))],
            ["virtual time", format_seconds(self.makespan_s)],
            [f"training ({items}/s)", _rate_text(self.train_per_s)],
            [f"validation ({items}/s)", _rate_text(self.valid_per_s)],
            [f"validation {metric.kind}, last epoch", metric.text(score)],
            ["workers busy", format_percent(self.utilisation)],
            ["staleness, mean", _count_text(self.staleness_mean)],
            ["staleness, max", _count_text(self.staleness_max)],
            ["instances in flight, at most", str(self.max_active_keys)],
            ["messages", f"{self.messages:,}"],
            ["memory of the fullest worker", format_bytes(peak)],
        ]
        workers = f"{self.workers} worker{'' if self.workers == 1 else 's'}"
        caption = f"{self.model.name}, {self.schedule.name}, {workers}"
        return html_table(caption, rows, note="tables: spans, transfers, updates, epochs")

    @cached_property
    def update_interval(self) -> int | None:
        """Gradients between updates, if all nodes that learn have the same; else None."""
        preferred = self.model.update_interval
        intervals = {
            self.schedule.updates.interval_of(name, preferred(name))
            for name in self._learning_nodes
        }
        return intervals.pop() if len(intervals) == 1 else None
