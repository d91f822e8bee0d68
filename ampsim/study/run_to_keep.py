"""One run whose trace is kept whatever happens: Ctrl-C and divergence end it, but lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ampsim.clock import Clock
from ampsim.errors import Failure, SimulationError
from ampsim.hardware import Cluster
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule
from ampsim.options import require_count
from ampsim.study.epochs import run_epochs
from ampsim.study.model import Model
from ampsim.study.placement_advice import warn
from ampsim.study.progress import OnProgress, Tracker
from ampsim.study.result import Result
from ampsim.study.simulation import Mode, PlacementLike, Simulation


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `simulate` takes by the same names.

    Args:
        on_start: called with the run before its first epoch.
    """

    epochs: int = 1
    seed: int = 0
    mode: Mode = "numeric"
    instances: int | None = None
    target: float | None = None
    clock: Clock | None = None
    placement: PlacementLike | None = None
    on_start: Callable[[Simulation], None] | None = None
    validate_every: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Args:
        result: what has happened until then, an unfinished epoch's spans included.
        epochs: how many epochs were asked for.
        failure: why the run could not go on; None where it could.
        is_interrupted: whether Ctrl-C ended it.
    """

    result: Result
    epochs: int
    failure: str | None = None
    is_interrupted: bool = False

    @property
    def ended(self) -> str:
        """How the run ended, in a few words."""
        finished = f"after {len(self.result.epochs)} of {self.epochs} epochs"
        if self.is_interrupted:
            return f"interrupted {finished}"
        return f"failed {finished}: {self.failure}" if self.failure else "finished"


def run_to_keep(
    model: Model,
    cluster: Cluster,
    schedule: Schedule,
    options: RunOptions,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Train `model` on `cluster` under `schedule`, and return what happened however it ended.

    Raises:
        OptionError: an option has a value that it cannot have.
    """
    epochs = require_count("epochs", options.epochs)
    goal = Goal(model.measure, model.measure.require_target(options.target))
    tracker = Tracker(on_progress, schedule.name, metric=model.measure)
    simulation = Simulation(
        model,
        cluster,
        schedule,
        seed=options.seed,
        mode=options.mode,
        instances=options.instances,
        placement=options.placement,
        clock=options.clock,
        on_items=tracker.on_items,
        counts_memory=True,
        validate_every=options.validate_every,
    )
    warn(simulation.advice)
    if options.on_start is not None:
        options.on_start(simulation)
    try:
        run_epochs(simulation, epochs, goal, tracker)
    except SimulationError as error:
        return Outcome(simulation.result(), epochs, failure=Failure.of(error))
    except KeyboardInterrupt:
        return Outcome(simulation.result(), epochs, is_interrupted=True)
    return Outcome(simulation.result(), epochs)
