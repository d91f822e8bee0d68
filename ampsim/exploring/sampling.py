"""Which points a search tries: asked of Optuna, told back in the order of asking.

Each trial is asked with random numbers of its own, drawn from the search's seed and the trial's
number. So what it proposes depends on nothing but what was told before, and a search that was
killed proposes what it would have proposed. Trials stand in a journal, an append-only file.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ampsim.errors import OptionError
from ampsim.exploring.axes import Axis, Setup, Value, setup_at
from ampsim.exploring.trials import Trial
from ampsim.rng import stream
from ampsim.study.schedule_names import option_names

SamplerName: TypeAlias = Literal["tpe", "random"]

JOURNAL: Final = "search.journal"
_TRIAL: Final = "ampsim"
_SEEDS: Final = 2**31


def optuna_here() -> Any:
    """Optuna, as far as it is installed.

    Raises:
        OptionError: it is not.
    """
    try:
        import optuna
    except ImportError:
        raise OptionError(
            "search needs optuna, which is not installed; pip install 'ampsim[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Space:
    """What may vary, and over which values; options only under schedules that take them.

    Args:
        axes: what varies; the axis "schedule" comes first, if there is one.
        setup: around which.
    """

    def __init__(self, axes: Sequence[Axis], setup: Setup) -> None:
        """Check nothing: axes are."""
        self.axes = sorted(axes, key=lambda axis: axis.key != "schedule")
        self._setup = setup

    def point(self, trial: Any) -> dict[str, Value]:
        """The point that a trial of Optuna proposes."""
        found: dict[str, Value] = {}
        for axis in self.axes:
            if self._has(axis.key, found):
                found[axis.key] = _suggested(trial, axis)
        return found

    def has(self, point: Mapping[str, Value]) -> bool:
        """Whether a point is one of this space."""
        wanted: dict[str, Value] = {}
        for axis in self.axes:
            if axis.key in point and _is_on(axis, point[axis.key]):
                wanted[axis.key] = point[axis.key]
        needed = [axis.key for axis in self.axes if self._has(axis.key, wanted)]
        return sorted(needed) == sorted(point) == sorted(wanted)

    def _has(self, key: str, point: Mapping[str, Value]) -> bool:
        """Whether a key varies anything at a point."""
        if key not in option_names():
            return True
        of = {"schedule": point["schedule"]} if "schedule" in point else {}
        schedules: Any = setup_at(self._setup, of).schedules
        return any(key in [one.name for one in fields(schedule)] for schedule in schedules)


def _is_on(axis: Axis, value: Any) -> bool:
    if not axis.is_range:
        return value in axis.values
    return not isinstance(value, str) and axis.low <= value <= axis.high


def _suggested(trial: Any, axis: Axis) -> Value:
    if axis.is_range and axis.is_whole:
        return trial.suggest_int(axis.key, int(axis.low), int(axis.high), log=axis.is_log)
    if axis.is_range:
        return trial.suggest_float(axis.key, axis.low, axis.high, log=axis.is_log)
    return trial.suggest_categorical(axis.key, list(axis.values))


class Trials:
    """The trials of one search, in a journal or in memory.

    Args:
        name: of the search: another one has other trials, in the same journal.
        space: of the points.
        objectives: how many there are.
        journal: the file; None for memory.
    """

    def __init__(self, name: str, space: Space, objectives: int, journal: Path | None) -> None:
        """Find those of an earlier call."""
        self._optuna, self._space = optuna_here(), space
        storages = self._optuna.storages
        self._storage = storages.InMemoryStorage()
        if journal is not None:
            journal.parent.mkdir(parents=True, exist_ok=True)
            file = storages.journal.JournalFileBackend(str(journal))
            self._storage = storages.JournalStorage(file)
        self._study = self._optuna.create_study(
            storage=self._storage, study_name=name, load_if_exists=True,
            directions=["minimize"] * objectives,
        )  # fmt: skip

    def all(self) -> Iterator[tuple[int, dict[str, Value], Trial | None]]:
        """Each trial: number, point, and what came of it; None where it was not told yet."""
        for frozen in self._begun():
            told = frozen.user_attrs.get(_TRIAL)
            is_told = frozen.state.is_finished()
            yield frozen.number, dict(frozen.params), _trial(told) if is_told else None

    def _begun(self) -> list[Any]:
        """The trials that were asked for."""
        waiting = self._optuna.trial.TrialState.WAITING
        trials: list[Any] = self._study.get_trials(deepcopy=False)
        return [one for one in trials if one.state != waiting]

    def start_from_others(self, most: int) -> None:
        """Let the first points be those that other searches in the journal completed.

        A search that has trials has begun already.
        """
        if self._study.get_trials(deepcopy=False):
            return
        points: dict[str, dict[str, Value]] = {}
        for one in self._optuna.get_all_study_summaries(storage=self._storage):
            other = self._optuna.load_study(storage=self._storage, study_name=one.study_name)
            for frozen in other.get_trials(deepcopy=False):
                told = frozen.user_attrs.get(_TRIAL)
                is_known = told is not None and _trial(told).outcome == "complete"
                if is_known and self._space.has(frozen.params):
                    points[json.dumps(frozen.params, sort_keys=True)] = dict(frozen.params)
        for point in list(points.values())[:most]:
            self._study.enqueue_trial(point)

    def ask(self, sampler: SamplerName, seed: int) -> tuple[int, dict[str, Value]]:
        """Number and point of the next trial."""
        number = len(self._begun())
        self._study.sampler = self._sampler(sampler, seed, number)
        with _quiet():
            asked = self._study.ask()
            return asked.number, self._space.point(asked)

    def again(self, number: int, sampler: SamplerName, seed: int) -> dict[str, Value]:
        """The point of a trial that an earlier call asked for, also if that was cut off."""
        self._study.sampler = self._sampler(sampler, seed, number)
        with _quiet():
            return self._space.point(self._asked(number))

    def tell(self, number: int, trial: Trial) -> None:
        """Say what came of a trial."""
        asked = self._asked(number)
        asked.set_user_attr(_TRIAL, json.dumps(asdict(trial)))
        asked.set_constraint("holds", trial.violation)
        failed = self._optuna.trial.TrialState.FAIL
        if trial.outcome == "failed":
            self._study.tell(number, state=failed)
        else:
            self._study.tell(number, list(trial.values))

    def _asked(self, number: int) -> Any:
        trials = self._study.get_trials(deepcopy=False)
        return self._optuna.trial.Trial(self._study, trials[number]._trial_id)

    def _sampler(self, name: SamplerName, seed: int, number: int) -> Any:
        own = int(stream(seed, f"trial {number} of a search").integers(_SEEDS))
        if name == "random":
            return self._optuna.samplers.RandomSampler(seed=own)
        with _quiet():
            return self._optuna.samplers.TPESampler(seed=own, multivariate=True, group=True)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without Optuna's warnings that an option of its own is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _trial(text: Any) -> Trial:
    if text is None:
        return Trial("failed", (), note="it was told by something else than ampsim")
    content: dict[str, Any] = json.loads(text)
    content["values"] = tuple(content["values"])
    return Trial(**content)
