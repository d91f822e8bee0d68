"""The epochs of a run, one after the other, until there are enough or the goal is reached."""

from __future__ import annotations

from typing import Protocol

from ampsim.metric import Goal
from ampsim.study.progress import Tracker


class EpochByEpoch(Protocol):
    """What can be trained epoch by epoch, as a `Simulation`.

    Attributes:
        epoch: epochs that have ended.
        train_count: training items of an epoch.
        valid_count: validation items of an epoch.
        scores: what each validation of the latest epoch measured; the last is that at its end.
    """

    epoch: int
    train_count: int
    valid_count: int
    scores: list[float]

    def run_epoch(self) -> float:
        """Train and validate once; return what validation measured."""
        ...


def run_epochs(run: EpochByEpoch, epochs: int, goal: Goal, tracker: Tracker | None = None) -> None:
    """Run until `epochs` have ended, or one in which a value reaches the goal.

    Args:
        run: what is trained; what it raises is raised.
        epochs: how many at most, those that have ended among them.
        goal: what validation measures, and the value that ends the run.
        tracker: told of each epoch, and of how many items one has.
    """
    if tracker is not None:
        tracker.items_total = run.train_count + run.valid_count
    while run.epoch < epochs:
        score = run.run_epoch()
        if tracker is not None:
            tracker.on_epoch(score)
        if goal.reached_by(run.scores) is not None:
            return
