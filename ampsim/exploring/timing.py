"""Exact times of every point: one sleeping epoch of each, kept beside the runs.

A run in mode "sleep" takes the same virtual time as one that learns, to the last bit, and says by
its digest which points learn the same. What is kept of it are a few numbers in a line of a file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ampsim.errors import FileFormatError, SimulationError
from ampsim.files import prepare_folder, read_regular
from ampsim.forecasting.making import RunMaker
from ampsim.runs.run import Run
from ampsim.runs.task import Task
from ampsim.study.result import Result
from ampsim.text import mapping

FILE: Final = "timings.jsonl"


@dataclass(frozen=True, slots=True)
class FirstEpoch:
    """What the first epoch of a run takes.

    Args:
        epoch_s: training and validation, in virtual seconds.
        train_per_s: training items per second of training.
        digest: equal where the epoch learns the same; empty where no order is taken down.
        staleness: mean of each node that learns.
        power_w: of all devices, in the mean over the epoch; None where unknown.
        usd_per_s: likewise, dollars.
        peak_bytes: what lies in the fullest memory at most; None where nobody counted.
    """

    epoch_s: float
    train_per_s: float
    digest: str
    staleness: dict[str, float]
    power_w: float | None = None
    usd_per_s: float | None = None
    peak_bytes: int | None = None


def timed(result: Result | Run, failure: str | None) -> FirstEpoch | str:
    """What a run of one epoch took; why it failed, if it did."""
    if failure is not None:
        return failure
    rows = result.staleness
    sums = (rows["staleness"] * rows["count"]).groupby(rows["node"]).sum()
    counts = rows["count"].groupby(rows["node"]).sum()
    end_s, memory = result.makespan_s, result.peak_memory
    return FirstEpoch(
        epoch_s=float(result.epochs["time_s"].iloc[0]),
        train_per_s=float(result.train_per_s),
        digest=result.learning_digest or "",
        staleness={str(name): float(mean) for name, mean in (sums / counts).items()},
        power_w=_share(result.energy_j, end_s),
        usd_per_s=_share(result.cost_usd, end_s),
        peak_bytes=int(memory["bytes"].max()) if len(memory) else None,
    )


def _share(whole: float, seconds: float) -> float | None:
    return whole / seconds if seconds and whole == whole else None  # not NaN


class Timer:
    """Times tasks, or finds what was timed before.

    Args:
        maker: makes the runs.
        folder: where lines are kept; None for nowhere.
    """

    def __init__(self, maker: RunMaker, folder: Path | None) -> None:
        """Read what is there."""
        self._maker = maker
        self._file = None if folder is None else folder / FILE
        self._known = {} if self._file is None else _read(self._file)

    def time(self, tasks: Sequence[Task], take: Callable[[int, FirstEpoch], None]) -> None:
        """Hand over what each task takes in one epoch, by its place, as soon as it is known.

        Raises:
            SimulationError: a run cannot be timed.
            OptionError: likewise, as mode "sleep" cannot run it.
            KeyboardInterrupt: what was handed over is kept.
        """
        asleep = [_asleep(task) for task in tasks]
        keys = [None if self._file is None else self._maker.key(one) for one in asleep]
        left: list[int] = []
        for place, key in enumerate(keys):
            found = self._known.get(key) if key else None
            left.append(place) if found is None else take(place, found)

        def keep(index: int, made: FirstEpoch | str) -> None:
            if isinstance(made, str):
                raise SimulationError(f"{asleep[left[index]].label}: {made}")
            self._keep(keys[left[index]], made)
            take(left[index], made)

        def lose(_index: int, sentence: str) -> None:
            raise SimulationError(sentence)

        self._maker.make_beside([asleep[place] for place in left], keep, timed, lose)

    def _keep(self, key: str | None, made: FirstEpoch) -> None:
        if self._file is None or key is None:
            return
        self._known[key] = made
        prepare_folder(self._file.parent)
        with self._file.open("a", encoding="utf-8") as lines:
            text = json.dumps({"key": key, **asdict(made)}, allow_nan=False)
            lines.write(f"\n{text}\n")  # the line before may have been cut


def _asleep(task: Task) -> Task:
    plan = task.plan.having(mode="sleep", epochs=1, target=None, validate_every=None)
    return Task(plan, task.schedule, task.seed, task.label, task.repeat, task.repeats)


def _read(file: Path) -> dict[str, FirstEpoch]:
    """Timings by their keys; a line that is not whole is left out."""
    found: dict[str, FirstEpoch] = {}
    with contextlib.suppress(OSError, FileFormatError):
        for line in read_regular(file).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                content: dict[str, Any] = mapping(json.loads(line))
                key = content.pop("key")
                found[key] = FirstEpoch(**content)
    return found
