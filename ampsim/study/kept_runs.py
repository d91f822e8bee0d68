"""Runs that are made once: taken from a folder where they are there, else made and kept in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ampsim.errors import FileFormatError
from ampsim.metric import Goal
from ampsim.study.job_pool import Listeners, OnLoss
from ampsim.study.jobs import Task, run_all
from ampsim.study.outline import Outline
from ampsim.study.progress import OnProgress
from ampsim.study.result import Result
from ampsim.study.row_plan import Row
from ampsim.study.run_store import FOLDER, RunStore, keys_of
from ampsim.study.tiny_run import condensed, tiny_task
from ampsim.study.witness import Witness

OnOutline: TypeAlias = Callable[[int, Outline, str | None], None]
"""``on_outline(place, outline, failure)`` takes what one of the tasks gave, now or before."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a run is known by: its key, and the witness of its row."""

    key: str
    witness: Witness


@dataclass(slots=True)
class Keeping:
    """Where finished runs are kept, and taken from.

    Args:
        folder: that of the report or forecast; the runs lie in a hidden folder within.
        is_fresh: make every run, also those that are there.
        with_failures: also keep runs that ended early.
        say: told in a line of each run that is taken, or refused.
    """

    folder: Path
    is_fresh: bool = False
    with_failures: bool = True
    say: Callable[[str], None] = lambda line: None
    _used: set[str] = field(default_factory=set[str], init=False)

    @property
    def store(self) -> RunStore:
        """The folder of runs."""
        return RunStore(self.folder / FOLDER)

    def take(self, task: Task, known: Known) -> tuple[Outline, str | None] | None:
        """A run from the store, if it is there and may be taken."""
        self._used.add(known.key)
        if self.is_fresh:
            return None
        name = f"{task.label}, seed {task.seed}"
        try:
            kept = self.store.get(known.key, known.witness)
        except FileFormatError as error:
            self.say(f"{name}: its kept run is not taken, it is run again: {error}")
            return None
        if kept is not None:
            self.say(f"{name}: kept from before")
        return kept

    def put(self, known: Known, outline: Outline, failure: str | None) -> None:
        """Keep a run that was made.

        Raises:
            OutputError: the folder cannot be written.
        """
        if failure is None or self.with_failures:
            self.store.put(known.key, outline, failure, known.witness)

    def forget(self) -> None:
        """Remove the runs that were asked for: what they were kept for is written."""
        self.store.remove(self._used)


def witnesses_of(
    rows: Sequence[Row], goal: Goal, seed: int, jobs: int, on_loss: OnLoss
) -> dict[str, Witness]:
    """The witness of each row, by its label.

    Args:
        rows: what is to be run.
        goal: what is measured.
        seed: of the tiny runs.
        jobs: tiny runs to make at a time.
        on_loss: told of those whose process died; they have no witness.

    Raises:
        MissingDataError: a data file that a model reads is not there.
    """
    made: dict[str, Witness] = {}

    def keep(place: int, result: Result, failure: str | None) -> None:
        made[rows[place].label] = condensed(rows[place], goal, result, failure).witness

    run_all([tiny_task(row, seed) for row in rows], jobs, Listeners(keep, on_loss))
    return made


def known_by(row: Row, seeds: Sequence[int], witness: Witness, **more: Any) -> list[Known]:
    """What the runs of a row are known by, one for each seed.

    Args:
        row: what is run.
        seeds: of the runs.
        witness: of the row.
        more: what else decides the runs, as plain values.
    """
    return [Known(key, witness) for key in keys_of({**row.decided_by, **more}, witness, seeds)]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Who is told of what: as `Listeners`, but of outlines."""

    on_outline: OnOutline
    on_loss: OnLoss
    on_progress: OnProgress | None = None


def take_or_make(
    tasks: Sequence[Task],
    known: Sequence[Known | None],
    keeping: Keeping,
    jobs: int,
    callbacks: Callbacks,
) -> None:
    """Take what is kept, make the rest, and keep each run as soon as it has ended.

    Args:
        tasks: what is wanted.
        known: what each is known by; where two are the same, one is made. None is not kept.
        keeping: where runs are kept.
        jobs: runs to make at a time.
        callbacks: told of every run, those that are kept first.

    Raises:
        AmpsimError: what a run raised; what was handed over before is kept.
        KeyboardInterrupt: likewise.
    """
    places: dict[str | int, list[int]] = {}
    for place, one in enumerate(known):
        places.setdefault(place if one is None else one.key, []).append(place)
    left: list[list[int]] = []
    for alike in places.values():
        one = known[alike[0]]
        kept = None if one is None else keeping.take(tasks[alike[0]], one)
        if kept is None:
            left.append(alike)
            continue
        for place in alike:
            callbacks.on_outline(place, *kept)

    def keep(index: int, result: Result, failure: str | None) -> None:
        outline, one = result.outline(), known[left[index][0]]
        if one is not None:
            keeping.put(one, outline, failure)
        for place in left[index]:
            callbacks.on_outline(place, outline, failure)

    def lose(index: int, sentence: str) -> None:
        for place in left[index]:
            callbacks.on_loss(place, sentence)

    earlier = len(tasks) - sum(map(len, left))
    listeners = Listeners(keep, lose, callbacks.on_progress, earlier)
    run_all([tasks[alike[0]] for alike in left], jobs, listeners)
