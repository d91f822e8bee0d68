"""One run of several: to its target, to its last epoch, or to its failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ampsim.errors import Failure, OptionError, SimulationError
from ampsim.hardware import Cluster
from ampsim.metric import Goal
from ampsim.model_parallel import Placement, Schedule
from ampsim.study.epochs import run_epochs
from ampsim.study.learning_rates import Rate, with_rate
from ampsim.study.model import Model
from ampsim.study.progress import OnProgress, Tracker
from ampsim.study.result import Result
from ampsim.study.simulation import Mode, Simulation

SPANS_KEPT: Final = 20_000  # chosen: the leading instances of each run, for its Gantt chart


@dataclass(frozen=True, slots=True)
class Plan:
    """What the runs of one schedule share.

    Args:
        model: what to train.
        cluster: on what.
        max_epochs: end a run by then; in mode "sleep", which measures nothing, after one.
        mode: "numeric" or "sleep".
        instances: training items to use; None for all.
        stop_at: value of the model's metric that ends a run; None for no such value.
        placement: which worker hosts which node.
        rate: the learning rate.
        validate_every: training items after which validation comes within an epoch; None: only at
            its end.
        times_validation: whether validation takes its time on the cluster; under a solver it never
            does.
    """

    model: Model
    cluster: Cluster
    max_epochs: int
    mode: Mode
    instances: int | None
    stop_at: float | None
    placement: Placement
    rate: Rate = field(default_factory=Rate)
    validate_every: int | None = None
    times_validation: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """One run that is to be made.

    Args:
        plan: what it shares with others.
        schedule: what runs.
        seed: its seed.
        label: what its row is called.
        repeat: which of the row's runs, from 1, of how many `repeats`.
    """

    plan: Plan
    schedule: Schedule
    seed: int
    label: str
    repeat: int
    repeats: int

    def run(self, on_progress: OnProgress | None) -> tuple[Result, str | None]:
        """Run it here; return its result, and why it ended early if it did."""
        metric = self.plan.model.measure
        tracker = Tracker(on_progress, self.label, self.repeat, self.repeats, metric=metric)
        return run_task(self.plan, self.schedule, self.seed, tracker)


def run_task(
    plan: Plan, schedule: Schedule, seed: int, tracker: Tracker
) -> tuple[Result, str | None]:
    """Run one schedule once; return its result, and why it ended early if it did.

    Raises:
        OptionError: an option has a value that it cannot have.
        GraphError: the model's graph breaks a rule.
    """
    simulation = simulation_of(plan, schedule, seed, tracker)
    epochs = plan.max_epochs if plan.mode == "numeric" else 1
    try:
        run_epochs(simulation, epochs, Goal(plan.model.measure, plan.stop_at), tracker)
    except SimulationError as error:
        return simulation.result(), Failure.of(error)
    return simulation.result(), None


def simulation_of(plan: Plan, schedule: Schedule, seed: int, tracker: Tracker) -> Simulation:
    """A run before its first epoch.

    Raises:
        OptionError: an option has a value that it cannot have.
        GraphError: the model's graph breaks a rule.
    """
    simulation = Simulation(
        with_rate(plan.model, plan.rate.factor),
        plan.cluster,
        schedule,
        seed=seed,
        mode=plan.mode,
        instances=plan.instances,
        placement=plan.placement,
        spans_kept=SPANS_KEPT,
        on_items=tracker.on_items,
        counts_memory=True,
        validate_every=plan.validate_every,
        times_validation=plan.times_validation,
    )
    if plan.mode == "sleep" and simulation.batches_grow:
        raise OptionError(
            "mode 'sleep' runs the first epoch alone, of which batches are smaller than of later "
            "ones; take mode 'numeric', or leave the warm-up of the batch out"
        )
    return simulation
