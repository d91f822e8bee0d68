"""A run that is to be made, and the row of a table that it is made for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ampsim.errors import LOWER_RATE, Failure, OptionError, SimulationError
from ampsim.hardware import Cluster, light_is_free
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule
from ampsim.study.apart import DEFAULT_APART, LostLearningError
from ampsim.study.learning_rates import Rate
from ampsim.study.model import Model
from ampsim.study.placement_trials import DEFAULT
from ampsim.study.progress import OnProgress, Tracker
from ampsim.study.provenance import cluster_origin, model_origin, schedule_origin
from ampsim.study.result import Result
from ampsim.study.simulation import RunOptions, Simulation, run_epochs

SPANS_KEPT: Final = 20_000  # chosen: the leading instances of each run, for its Gantt chart

CHECKED_OF: Final = 100
"""Of so many runs that found their learning, one learns it again, live; chosen."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The part of a task that the runs of one schedule share."""

    model: Model
    cluster: Cluster
    options: RunOptions
    rate: Rate = field(default_factory=Rate)

    @property
    def epochs(self) -> int:
        """The most epochs of a run; 1 in mode "sleep", which measures nothing."""
        return self.options.epochs if self.options.mode == "numeric" else 1

    @property
    def goal(self) -> Goal:
        """The metric of validation, and its value that ends a run."""
        return Goal(self.model.measure, self.options.target)

    @property
    def epochs_differ(self) -> bool:
        """Tell whether later epochs may take another time, as where a stage's updates do."""
        has_stages = self.model.optimizer.first is not None
        is_free = all(map(light_is_free, self.cluster.devices))
        return self.cluster.epochs_differ or (has_stages and not is_free)

    def having(self, **options: Any) -> RunPlan:
        """The plan with other options."""
        return replace(self, options=replace(self.options, **options))


@dataclass(frozen=True, slots=True)
class Task:
    """One run that is to be made: that of its row with number `repeat`, from 1, of `repeats`."""

    plan: RunPlan
    schedule: Schedule
    seed: int
    label: str
    repeat: int
    repeats: int
    key: str = ""  # by which whoever makes it knows it; empty where nobody else has it made

    def having(self, **options: Any) -> Task:
        """The run with other options of its plan."""
        return replace(self, plan=self.plan.having(**options))

    def learning_in(self, folder: Path, key: str = "") -> Task:
        """Give the run that keeps in a folder what it learns, and finds what others learned."""
        chosen = self.plan.options.learning
        learning = DEFAULT_APART if chosen == "live" else chosen
        made = self.having(learning=learning, learnings=folder, repeats_passes=True)
        return replace(made, key=key)

    def simulation(self, tracker: Tracker) -> Simulation:
        """The run before its first epoch.

        Raises:
            OptionError: an option has a value that it cannot have.
            GraphError: the model's graph breaks a rule.
        """
        tracker.start()
        plan = self.plan
        options = replace(
            plan.options, seed=self.seed, spans_kept=plan.options.spans_kept or SPANS_KEPT,
            on_items=tracker.on_items, counts_memory=True if plan.options.is_explained else None,
        )  # fmt: skip
        model = plan.rate.applied(plan.model)
        simulation = Simulation(model, plan.cluster, self.schedule, options)
        if options.mode == "sleep" and simulation.batches_grow:
            raise OptionError(
                "mode 'sleep' runs the first epoch alone, of which batches are smaller than of "
                "later ones; leave the warm-up of the batch out, or take mode 'numeric' where it "
                "can be chosen"
            )
        return simulation

    def run(self, on_progress: OnProgress | None) -> tuple[Result, str | None]:
        """Run it here; return its result, and why it ended early if it did.

        Raises:
            OptionError, GraphError: as of `simulation`.
        """
        plan, metric = self.plan, self.plan.model.measure
        tracker = Tracker(on_progress, self.label, self.repeat, self.repeats, metric=metric)
        if plan.options.learning != "live" and (made := self._learned_apart(tracker)) is not None:
            return made, None
        simulation = self.having(learning="live").simulation(tracker)
        try:
            run_epochs(simulation, plan.epochs, plan.goal, tracker)
        except SimulationError as error:
            why = plan.rate.why_high(plan.model) if LOWER_RATE in str(error) else ""
            return simulation.result(), Failure.of(error, why)
        return simulation.result(), None

    def _learned_apart(self, tracker: Tracker) -> Result | None:
        """Its result; None where it failed: live it tells when, and what else ran then.

        Raises:
            SimulationError: as of `_require_true`.
        """
        simulation = self.simulation(tracker)
        try:
            run_epochs(simulation, self.plan.epochs, self.plan.goal, tracker)
            result = simulation.result()
        except LostLearningError:  # alone it needs none; live it would have another arithmetic
            return self.having(learnings=None)._learned_apart(tracker)
        except SimulationError:
            return None
        if simulation.learnings_found:
            self._require_true(result)
        return result

    def _require_true(self, result: Result) -> None:
        """Make one in a hundred runs that found their learning again; live, but what was batched.

        Raises:
            SimulationError: it gave something else.
        """
        named = f"{result.learning_digest} {self.plan.cluster.digest}".encode()
        if int.from_bytes(hashlib.sha256(named).digest()[:4], "big") % CHECKED_OF:
            return
        learning = "batched" if result.origin["arithmetic"] == "batched" else "live"
        tracker = Tracker(None, "")
        simulation = self.having(learning=learning, learnings=None).simulation(tracker)
        run_epochs(simulation, self.plan.epochs, self.plan.goal, tracker)
        if not _same_learning(simulation.result(), result):
            raise SimulationError(
                f"{self.schedule.name}, seed {self.seed}: what was found under learning digest "
                f"{result.learning_digest} is not what the run learns; this is a fault of ampsim, "
                "please report it, remove the folder .runs of its output, and run again"
            )


def _same_learning(one: Result, other: Result) -> bool:
    """Whether two results learned the same, to the bit, at times that are the same but for digits.

    A pass that was not run again (`ampsim.model_parallel.repeat`) has times of another rounding.
    """
    own, weights = one.model.parameters(), other.model.parameters()
    return (
        one.learning_digest == other.learning_digest
        and all(np.array_equal(weights[key], part) for key, part in own.items())
        and np.allclose(one.validations, other.validations, rtol=1e-12, atol=0, equal_nan=True)
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a forecast or report, ready to run."""

    label: str
    schedule: Schedule
    plan: RunPlan
    settings: dict[str, Any] = field(default_factory=dict[str, Any])  # its own, of the model
    data: tuple[dict[str, str], ...] = ()  # the files that the model reads, with their hashes
    code: str = ""  # a hash of what the model's file says
    has_own_cluster: bool = False  # and not that of other rows

    def task(self, seed: int, repeat: int = 1, repeats: int = 1) -> Task:
        """One of its runs."""
        return Task(self.plan, self.schedule, seed, self.label, repeat, repeats)

    def at(self, rate: Rate) -> Row:
        """The row at another learning rate."""
        return replace(self, plan=replace(self.plan, rate=rate))

    @property
    def epochs_differ(self) -> bool:
        """Tell whether later epochs may take another time, also as ranks meet in some alone."""
        return self.plan.epochs_differ or getattr(self.schedule, "assignments_per_exchange", 1) > 1

    @property
    def origin(self) -> dict[str, Any]:
        """Return as plain values what ran."""
        schedule = schedule_origin(self.schedule)
        own: dict[str, Any] = {"set": self.settings} if self.settings else {}
        placement = self.plan.options.placed.origin
        if placement["name"] != DEFAULT:
            own["placement"] = placement
        if self.has_own_cluster:
            own["cluster"] = cluster_origin(self.plan.cluster)
        return {"label": self.label, **schedule, "mode": self.plan.options.mode, **own}

    @property
    def decided_by(self) -> dict[str, Any]:
        """Everything that its runs depend on but seed and ampsim itself, as plain values."""
        origin, options, rate = model_origin(self.plan.model), self.plan.options, self.plan.rate
        seldom = {
            "rate_factor": (rate.factor, 1.0),
            "rate_decay": (rate.decay, 1.0),
            "validate_every": (options.validate_every, None),
            "times_validation": (options.times_validation, True),
            "light_is_free": (options.light_is_free, False),
            "is_explained": (options.is_explained, True),
        }
        if origin["config"].get("data") in {one["file"].partition("/")[0] for one in self.data}:
            origin["config"].pop("folder", None)  # they say what lies there
        origin["sha256"] = self.code
        return {
            "numpy": np.__version__, "model": origin, "cluster": self.plan.cluster.digest,
            "schedule": schedule_origin(self.schedule), "placement": options.placed.origin,
            "mode": options.mode, "instances": options.instances, "epochs": options.epochs,
            "stop_at": options.target, "data": self.data,
            **{name: value for name, (value, usual) in seldom.items() if value != usual},
        }  # fmt: skip
