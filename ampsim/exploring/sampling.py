"""The points that a search tries: asked of Optuna, told back in the order of asking.

Each trial is asked with random numbers of its own, drawn from the search's seed and the trial's
number. So what it proposes depends on nothing but what was told before, and a search that was
killed proposes what it would have proposed. Trials stand in a journal, an append-only file.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np

from ampsim.errors import FileFormatError, OptionError
from ampsim.exploring.axes import Axis, Setup, Value, setup_at, takes
from ampsim.exploring.trials import PointOutcome, Values
from ampsim.files import appending, prepare_folder
from ampsim.rng import stream
from ampsim.study.schedule_names import option_types
from ampsim.user_code import told

SamplerName: TypeAlias = Literal["tpe", "random"]

JOURNAL: Final = "search.journal"
_TRIAL: Final = "ampsim"
_STARTS: Final = "starts"
IMPORTANCES_MIN: Final = 30  # complete trials (chosen: three of them are the best tenth)


def optuna_here() -> Any:
    """Optuna; an OptionError where it is not installed."""
    try:
        import optuna
    except ImportError:
        told = "search needs optuna, which is not installed; pip install 'ampsim[search]'"
        raise OptionError(told) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@dataclass(frozen=True, slots=True)
class Space:
    """The keys that vary, and their values; options only under schedules that take them."""

    axes: Sequence[Axis]  # "schedule" comes first, if it varies
    setup: Setup  # around which

    def point(self, trial: Any) -> dict[str, Value]:
        """The point that a trial of Optuna proposes."""
        found: dict[str, Value] = {}
        for axis in self.axes:
            if self._has(axis.key, found):
                found[axis.key] = _suggested(trial, axis)
        return found

    def points(self, most: int) -> list[dict[str, Value]]:
        """All of its points, where these are no more than so many; none of a range."""
        found: list[dict[str, Value]] = [{}]
        for axis in self.axes:
            if axis.is_range or len(found) > most:
                return []
            each = [{axis.key: one} for one in axis.values]
            found = [a | b for a in found for b in (each if self._has(axis.key, a) else [{}])]
        return found if len(found) <= most else []

    def has(self, point: Mapping[str, Value]) -> bool:
        """Tell whether a point is one of this space."""
        on = {axis.key for axis in self.axes if point.get(axis.key) in axis}
        return on == set(point) == {one.key for one in self.axes if self._has(one.key, point)}

    def _has(self, key: str, point: Mapping[str, Value]) -> bool:
        """Tell whether a key varies anything at a point."""
        if key not in option_types():
            return True
        of = {"schedule": point["schedule"]} if "schedule" in point else {}
        return any(takes(schedule, key) for schedule in setup_at(self.setup, of).schedules)


def _suggested(trial: Any, axis: Axis) -> Value:
    if not axis.is_range:
        return trial.suggest_categorical(axis.key, list(axis.values))
    if axis.is_whole:
        return trial.suggest_int(axis.key, int(axis.low), int(axis.high), log=axis.is_log)
    return trial.suggest_float(axis.key, axis.low, axis.high, log=axis.is_log)


Told: TypeAlias = tuple[dict[str, Value], PointOutcome]  # a point, and what came of it


class Proposals:
    """The trials of one sampler, in memory, and in a journal if there is one.

    Points are asked for in memory, and stand in the journal, whole, from then on; so a process may
    end at any moment. Another search has another name, and other trials in the same journal.
    """

    def __init__(
        self, name: str, space: Space, *, objectives: Sequence[str], journal: Path | None,
        sampler: str, seed: int,
    ) -> None:  # fmt: skip
        """Find those of an earlier call; a FileFormatError where the journal is damaged."""
        self._optuna, self._space, self._sampler, self._seed = optuna_here(), space, sampler, seed
        self._name, directions = name, ["minimize"] * len(objectives)
        self._memory = self._optuna.create_study(directions=directions)
        self._kept, self._listed = cast("Any", None), list[dict[str, Value]]()
        if journal is not None:
            prepare_folder(journal.parent)
            try:
                _cut_to_lines(journal)
                self._kept = self._study_in(journal, directions)
                with warnings.catch_warnings(action="ignore"):  # that it is experimental
                    self._kept.set_metric_names(list(objectives))
                self._memory.add_trials(_trials(self._kept))
            except (AssertionError, LookupError, OSError, TypeError, ValueError) as error:
                raise FileFormatError(
                    f"{journal} is not as a search wrote it: {told(error)}; remove it, and the "
                    "search begins again, with the runs that are kept"
                ) from error

    def _study_in(self, journal: Path, directions: list[str]) -> Any:
        """The study of this name in a journal; an OutputError where that cannot be added to."""
        journals = self._optuna.storages.journal
        with appending(journal):
            backend = journals.JournalFileBackend(str(journal))
        add = backend.append_logs

        def added(logs: Any) -> None:
            with appending(journal):
                add(logs)

        backend.append_logs = added
        return self._optuna.create_study(
            storage=journals.JournalStorage(backend), study_name=self._name,
            load_if_exists=True, directions=directions,
        )  # fmt: skip

    @property
    def known(self) -> dict[int, Told]:
        """The trials that were told, by number."""
        told = [one for one in _trials(self._memory) if one.state.is_finished()]
        return {one.number: (dict(one.params), _outcome(one)) for one in told}

    @property
    def front(self) -> set[int]:
        """The complete trials that no other one dominates, by number."""
        return {frozen.number for frozen in self._memory.best_trials}

    def volumes(self, reference: Values) -> list[float]:
        """Return the volumes that the complete ones of its first 1, 2, ... trials dominate."""
        volume_of, end = self._optuna._hypervolume.compute_hypervolume, np.array(reference, float)
        found, complete, volume = list[float](), list[Values](), 0.0
        for _point, one in self.known.values():
            if one.outcome == "complete":
                complete.append(one.values)
                volume = float(volume_of(np.array(complete, float), end))
            found.append(volume)
        return found

    @property
    def importances(self) -> dict[str, float]:
        """Each key's share, of 1, in telling the best tenth of complete trials from all.

        Largest first; empty where too few are complete, or nothing tells them. The best are those
        that others dominate least. Source: Watanabe, Bansal and Hutter, "PED-ANOVA", 2023.
        """
        complete = [one for one in _trials(self._memory) if _outcome(one).outcome == "complete"]
        if len(complete) < IMPORTANCES_MIN:
            return {}
        study = self._optuna.create_study(directions=self._memory.directions)
        study.add_trials(complete)
        with warnings.catch_warnings(action="ignore"):  # that conditional keys are seldom there
            found = self._optuna.importance.PedAnovaImportanceEvaluator().evaluate(study)
        whole = sum(found.values())
        told = [(key, found[key] / whole) for key in sorted(found) if whole]
        return dict(sorted(told, key=lambda pair: -pair[1]))

    def start_from_others(self, most: int) -> int:
        """Let the first points be those that other searches in the journal completed; how many.

        Which these are stands in the journal, too, once the search has begun.
        """
        if self._kept is None:
            return 0
        if _STARTS not in self._kept.user_attrs:
            self._kept.set_user_attr(_STARTS, self._others()[:most])
        for point in self._kept.user_attrs[_STARTS][len(_trials(self._memory)) :]:
            self._memory.enqueue_trial(point)
        return len(self._kept.user_attrs[_STARTS])

    def _others(self) -> list[dict[str, Value]]:
        """Points of this space that other searches completed, each once."""
        storage = self._kept._storage
        names = self._optuna.get_all_study_names(storage=storage)
        others = [self._optuna.load_study(storage=storage, study_name=name) for name in names]
        points = {
            json.dumps(frozen.params, sort_keys=True): dict(frozen.params)
            for other in others
            for frozen in _trials(other)
            if _outcome(frozen).outcome == "complete" and self._space.has(frozen.params)
        }
        return list(points.values())

    def end(self, count: int) -> int:
        """The count of trials after which it ends: once each is tried, if there are no more."""
        self._listed = self._space.points(count)
        return len(_trials(self._memory)) + len(self._untried()) if self._listed else count

    def _untried(self) -> list[dict[str, Value]]:
        """Listed points that no trial is of, nor one that waits."""
        asked: list[Any] = [one.params for one in _trials(self._memory)]
        asked += [] if self._kept is None else self._kept.user_attrs.get(_STARTS, [])
        known = {frozenset(one.items()) for one in asked}
        return [one for one in self._listed if frozenset(one.items()) not in known]

    def batch(self, size: int, most: int) -> tuple[dict[int, dict[str, Value]], list[Told]]:
        """The points of the batch that is not all told yet, by number; fewer at the end.

        Also all that was told of earlier batches, in the order of asking: what a batch finds
        decides nothing within it.
        """
        known, running = self.known, self._optuna.trial.TrialState.RUNNING
        left = {o.number: dict(o.params) for o in _trials(self._memory) if o.state == running}
        first = min(left, default=len(known)) // size * size
        found = {
            number: left.get(number) or self._ask(number)
            for number in range(first, min(first + size, most)) if number not in known
        }  # fmt: skip
        return found, [told for number, told in known.items() if number < first]

    def _ask(self, number: int) -> dict[str, Value]:
        own = int(stream(self._seed, f"trial {number} of a search").integers(2**31))
        samplers, untried = self._optuna.samplers, self._untried()
        if untried and number == len(_trials(self._memory)):  # else one waits that was given
            self._memory.enqueue_trial(untried[own % len(untried)])
        with warnings.catch_warnings(action="ignore"):  # that an option of it is experimental
            self._memory.sampler = (
                samplers.RandomSampler(seed=own) if self._sampler == "random"
                else samplers.TPESampler(seed=own, multivariate=True, group=True)
            )  # fmt: skip
            asked = self._memory.ask()
            assert asked.number == number, "trials are asked for one after the other"
            point = self._space.point(asked)
            if self._kept is not None:
                self._kept.add_trial(_trials(self._memory)[number])
        return point

    def tell(self, number: int, outcome: PointOutcome) -> None:
        """Say what came of a trial; in the journal one with a lost run stays open."""
        kept = None if outcome.is_lost else self._kept
        for study in [one for one in (self._memory, kept) if one is not None]:
            asked = self._optuna.trial.Trial(study, _trials(study)[number]._trial_id)
            asked.set_user_attr(_TRIAL, json.dumps(asdict(outcome)))
            with warnings.catch_warnings(action="ignore"):  # that a killed process has set it
                asked.set_constraint("holds", outcome.violation)
            if outcome.outcome == "failed":
                study.tell(number, state=self._optuna.trial.TrialState.FAIL)
            else:
                study.tell(number, list(outcome.values))


def _cut_to_lines(journal: Path) -> None:
    """Take off a last line that was not written whole, as on a full disk: nothing rests on it."""
    content = journal.read_bytes() if os.path.isfile(journal) else b""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(journal, whole)


def _trials(study: Any) -> Any:
    return study.get_trials(deepcopy=False)


def _outcome(frozen: Any) -> PointOutcome:
    """Read off how a trial ended; it failed where something else than ampsim told it."""
    try:
        content: dict[str, Any] = json.loads(frozen.user_attrs[_TRIAL])
        return PointOutcome(values=tuple(content.pop("values")), **content)
    except (LookupError, TypeError, ValueError):
        return PointOutcome("failed", (), note="it was told by something else than this ampsim")
