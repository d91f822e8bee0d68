"""A forecast that was interrupted, whatever by, goes on where it was; what it gives is the same."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.cli import main
from ampsim.errors import OptionError
from ampsim.exploring import search
from ampsim.exploring.axes import setup_of
from ampsim.exploring.making import Query
from ampsim.forecasting.making import RunMaker, entries_of
from ampsim.model_parallel import Settled
from ampsim.runs import store
from ampsim.runs.store import FOLDER, NUMBERS, RunCache
from ampsim.runs.task import RunPlan
from ampsim.study.simulation import RunOptions

METHODS = multiprocessing.get_all_start_methods()
RUNS = [("sequential", 1), ("sequential", 2), ("amp", 1), ("amp", 2)]
WORDS = (
    "forecast", "rnn", "--set", "hidden=4", "--set", "replicas=1", "--instances", "200", "--seed",
    "1", "--schedule", "sequential,amp", "--repeats", "3", "--max-epochs", "4", "--jobs", "2",
    "--workers", "2", "--quiet", "--out", "out",
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> ampsim.Model:
    return ampsim.load_model("rnn", hidden=4, replicas=1)


def make(
    model: ampsim.Model, keeping: RunCache | None, on_progress: Any = None, **options: Any
) -> ampsim.Forecast:
    return ampsim.forecast(
        model,
        ampsim.load_cluster("tflops-1", workers=4, latency_s=1e-6),  # so that there are transfers
        [ampsim.Sequential(), ampsim.Amp(4)],
        **{"repeats": 2, "instances": 200, "max_epochs": 1, "seed": 3, **options},
        placement="paper",
        on_progress=on_progress,
        keeping=keeping,
    )


@pytest.fixture(scope="module")
def whole(model: ampsim.Model) -> ampsim.Forecast:
    """What `make` gives where nothing is kept."""
    return make(model, None)


@pytest.fixture(scope="module")
def finished(model: ampsim.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with its finished runs, to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    make(model, RunCache(folder))
    return folder


class Counted:
    """Which runs were made to their end; at one that has `count` before it, it does something."""

    def __init__(self, count: int | None = None, act: Any = None) -> None:
        self.made: list[tuple[str, int]] = []
        self._count, self._act = count, act

    def __call__(self, progress: Any) -> None:
        if progress.is_epoch_end:
            self.made.append((progress.schedule, progress.repeat))
        elif len(self.made) == self._count:
            self._act()


def is_same(one: ampsim.Forecast, other: ampsim.Forecast) -> bool:
    """Whether two forecasts are the same to the bit, in everything that their pages show."""
    pd.testing.assert_frame_equal(one.table, other.table, check_exact=True)
    assert one.manifest == other.manifest
    for first, second in zip(one.runs, other.runs, strict=True):
        for name in ("epochs", "spans", "transfers", "staleness", "time_by_node"):
            pd.testing.assert_frame_equal(
                getattr(first, name), getattr(second, name), check_exact=True
            )
        assert (first.schedule, first.repeat, first.seed) == (
            second.schedule, second.repeat, second.seed
        )  # fmt: skip
    return True


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise LookupError("mine")


def refuse() -> None:
    raise OptionError("a run cannot go on, and says so")


@pytest.mark.slow
@pytest.mark.parametrize(("act", "count"), [(interrupt, 0), (interrupt, 3), (fail, 1), (refuse, 2)])
def test_exactly_what_had_not_finished_is_made_when_a_forecast_goes_on(
    model, whole, act, count, tmp_path
):
    try:
        before = make(model, RunCache(tmp_path), Counted(count, act))
        assert before.interrupted == (
            f"interrupted: {4 - count} of 4 runs did not finish "
            f"({'amp' if count > 1 else 'sequential, amp'})"
        )
    except (LookupError, OptionError):
        assert act is not interrupt
    said, counted = list[str](), Counted()
    assert is_same(make(model, RunCache(tmp_path, say=said.append), counted), whole)
    assert counted.made == RUNS[count:]
    assert said == [f"{name}, seed {2 + repeat}: kept from before" for name, repeat in RUNS[:count]]
    again = Counted()  # each run lies under its own key by now, whoever was made when
    assert is_same(make(model, RunCache(tmp_path), again), whole)
    assert again.made == []


class KilledOnce:
    """A pump that kills its process, once: in a second epoch, which no witness comes to."""

    def __init__(self, pump: Any, mark: Path) -> None:
        self._pump, self._mark = pump, mark

    def __call__(self, instance: int, batch: Any) -> Any:
        if instance == 25 and not self._mark.exists():
            self._mark.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return self._pump(instance, batch)


@pytest.mark.slow
@pytest.mark.skipif("fork" not in METHODS, reason="this system cannot fork")
def test_a_process_that_dies_costs_its_own_run_and_no_other(model, tmp_path):
    fatal = model.told_by_config(pump=KilledOnce(model.pump, tmp_path / "mark"))
    first = make(fatal, RunCache(tmp_path / "kept"), jobs=2, repeats=3, max_epochs=2)
    assert 1 <= len(first.lost) <= 2  # another may begin before the mark is made
    again = Counted()
    whole = make(model, RunCache(tmp_path / "kept"), again, repeats=3, max_epochs=2)
    assert len(again.made) == 2 * len(first.lost)
    assert is_same(whole, make(model, None, repeats=3, max_epochs=2))


@pytest.mark.slow
def test_a_kept_run_that_was_edited_is_refused_and_made_again(model, whole, finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    for place in (tmp_path / FOLDER).glob(f"*/{NUMBERS}"):
        content = json.loads(place.read_text())
        content["numbers"]["utilisation"] = 0.99
        place.write_text(json.dumps(content))
    said, counted = list[str](), Counted()
    assert is_same(make(model, RunCache(tmp_path, say=said.append), counted), whole)
    assert counted.made == RUNS
    assert len(said) == 4
    assert all("it is run again: numbers.json is not as it was written" in line for line in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [{"seed": 9}, {"max_epochs": 2}, {"mode": "sleep"}],
)
def test_a_run_of_other_options_is_never_taken(model, finished, other, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    said = list[str]()
    assert is_same(
        make(model, RunCache(tmp_path, say=said.append), **other), make(model, None, **other)
    )
    assert said == []


@pytest.mark.slow
def test_a_run_of_other_code_is_never_taken(model, finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    for place, own in enumerate(store.about()):  # of ampsim, Python, NumPy, kernels
        other = [*store.about()]
        other[place] = "another"
        said, counted = list[str](), Counted()
        with monkeypatch.context() as patch:
            patch.setattr(store, "about", lambda other=other: (*other,))
            make(model, RunCache(tmp_path, say=said.append), counted, repeats=1)
        assert (said, counted.made) == ([], [("sequential", 1), ("amp", 1)]), own


@pytest.mark.slow
def test_runs_that_failed_are_kept_only_where_they_are_wanted(tmp_path):
    model = ampsim.load_model("rnn", hidden=4, replicas=1, learning_rate=1e30)
    for with_failures, count in ((False, 0), (True, 4)):
        first = make(model, RunCache(tmp_path, with_failures=with_failures))
        assert len(first.failures) == 4
        said = list[str]()
        keeping = RunCache(tmp_path, with_failures=with_failures, say=said.append)
        assert make(model, keeping).failures == first.failures
        assert len(said) == count
    keeping.forget()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_is_forgotten_are_a_forecasts_own_runs(model, tmp_path):
    make(model, RunCache(tmp_path), repeats=1, seed=5)
    keeping, said = RunCache(tmp_path), list[str]()
    make(model, keeping, repeats=1)
    keeping.forget()
    for seed in (3, 5):
        make(model, RunCache(tmp_path, say=said.append), repeats=1, seed=seed)
    assert said == ["sequential, seed 5: kept from before", "amp, seed 5: kept from before"]


def test_a_model_that_no_file_holds_cannot_be_kept(model, tmp_path):
    for other in (
        dataclasses.replace(model, optimizer=ampsim.optim.sgd(1e-6)),
        dataclasses.replace(model, dtype="float64"),
        model.set_parameters(model.parameters()),
    ):
        with pytest.raises(OptionError, match=r"^finished runs are kept of models that load_"):
            make(other, RunCache(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_a_result_unless_it_is_kept(model, tmp_path):
    assert make(model, None).runs[0].result.messages
    with pytest.raises(OptionError, match=r"^sequential, seed 3: a run that is kept in a "):
        _ = make(model, RunCache(tmp_path)).runs[0].result


def command(folder: Path) -> None:
    """What a process does: the command, which says nothing on standard output."""
    os.chdir(folder)
    for name, stream in (("/dev/null", 1), ("../err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    main(WORDS)


def start(folder: Path) -> Any:
    """Begin the command in a copy of this process, which has imported what it needs."""
    folder.mkdir(exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=command, args=(folder,))
    process.start()
    return process


def ended(process: Any, folder: Path) -> tuple[int, str]:
    """The exit code of a command, and what it said on standard error."""
    process.join(120)
    return process.exitcode, (folder.parent / "err").read_text("utf-8")


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}


@pytest.mark.slow(8)
@pytest.mark.skipif("fork" not in METHODS, reason="this system cannot fork")
@pytest.mark.usefixtures("undrawn")
def test_a_forecast_that_was_killed_is_finished_to_the_bit_by_the_same_command(tmp_path):
    whole = tmp_path / "whole"
    assert ended(start(whole), whole) == (0, "")
    folder = tmp_path / "killed"
    for name in ("TERM", "KILL"):
        before = len(list(folder.glob(f"out/.runs/*/{NUMBERS}")))
        process = start(folder)
        while process.is_alive():
            if len(list(folder.glob(f"out/.runs/*/{NUMBERS}"))) > before:
                os.kill(process.pid, signal.Signals[f"SIG{name}"])
                break
            time.sleep(0.005)
        code, err = ended(process, folder)
        number = signal.Signals[f"SIG{name}"].value
        assert code == (-number if name == "KILL" else 128 + number), err
        assert err.count("\n") == (name != "KILL")
    kept = {path: path.stat().st_mtime_ns for path in folder.glob(f"out/.runs/*/{NUMBERS}")}
    assert len(kept) >= 2
    last = start(folder)
    while last.is_alive():
        for path, time_ns in kept.items():
            if path.exists():
                assert path.stat().st_mtime_ns == time_ns
        time.sleep(0.02)
    assert ended(last, folder) == (0, "")
    assert content_of(folder) == content_of(whole)


OWN = """
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import ampsim
from own_parts import count


@dataclass(frozen=True)
class Config:
    numbers: str = ""
    extra: Any = None
    plain: int | None = None


def build(config):
    return replace(ampsim.load_model("rnn", hidden=count(), replicas=1), config=config)
"""


@dataclasses.dataclass(frozen=True)
class One:
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Other:
    rate: float = 0.1


def schedule_with(in_flight: int) -> Any:
    """A schedule of one's own, whose options do not say what it admits."""

    @dataclasses.dataclass(frozen=True)
    class Own(ampsim.Amp):
        @property
        def admission(self) -> Any:
            return dataclasses.replace(ampsim.Amp().admission, in_flight_max=in_flight)

    return Own(4)


def placement_on(worker: int) -> Any:
    """A placement of one's own, whose origin does not say where it puts nodes."""

    class Own:
        origin = {"name": "own"}  # noqa: RUF012 - as a user writes it

        def place(self, situation: Any) -> list[int]:
            return [-1, *[worker] * (len(situation.graph.nodes) - 1)]

    return Own()


def key_of(path: Path, schedule: Any = None, placement: Any = None, **options: Any) -> str:
    """The key of a run of a model of one's own."""
    plan = RunPlan(
        ampsim.load_model(path, **options),
        ampsim.load_cluster("tflops-1", workers=2),
        RunOptions(placement=placement),
    )
    (row,) = entries_of(plan, [schedule or schedule_with(4)])
    maker: Any = RunMaker
    return maker(None, None, None).known(row.task(0)).key


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_parts.py").write_text(
        "from own_base import FOUR\n\ndef count():\n    return FOUR\n"
    )
    (tmp_path / "own_base.py").write_text("FOUR = 4\n")
    (tmp_path / "numbers.txt").write_text("1\n")
    path = tmp_path / "own.py"
    path.write_text(OWN)
    yield path
    for name in ("own_parts", "own_base"):
        sys.modules.pop(name, None)


def test_whatever_of_a_users_own_decides_a_run_is_in_its_key(own):
    """Code that its file imports, files that options name, what options hold, and own classes."""
    numbers = str(own.parent / "numbers.txt")
    settled = [Settled({"one": worker}, {"name": "own"}) for worker in (0, 1)]
    made: list[dict[str, Any]] = [
        {}, {"numbers": numbers}, {"extra": One()}, {"extra": Other()},
        {"extra": np.zeros(2000)}, {"extra": np.eye(1, 2000, 999)[0]},
        {"schedule": schedule_with(2)}, {"placement": placement_on(0)},
        {"placement": placement_on(1)}, *({"placement": one} for one in settled),
    ]  # fmt: skip
    keys = [key_of(own, **one) for one in made]
    assert [key_of(own, **one) for one in made] == keys
    assert len({*keys}) == len(keys)
    (own.parent / "numbers.txt").write_text("2\n")
    assert key_of(own, numbers=numbers) not in keys
    (own.parent / "own_base.py").write_text("FOUR = 2 + 2\n")
    assert key_of(own) == keys[0]  # by what runs here
    for name in ("own_parts", "own_base"):
        sys.modules.pop(name)
    assert key_of(own) not in keys


def test_trials_of_other_data_are_no_trials_of_a_search_also_where_a_value_names_them(own):
    pytest.importorskip("optuna", reason="optuna is not installed")
    files = [own.parent / name for name in ("numbers.txt", "others.txt")]
    untyped: Any = search

    def name() -> str:
        setup = setup_of(own, "tflops-1", "amp")
        over, aim = {"model.numbers": [*map(str, files)]}, untyped.Aim(("epoch_s",), (), range(1))
        varied = untyped.axes.axes_over(over, setup)
        return untyped._Searcher(varied, Query(setup=setup), aim).proposals("random", 1)._name

    before, _file = name(), files[1].write_text("1\n")
    named = name()
    assert named != before
    assert name() == named
    files[1].write_text("2\n")
    assert name() not in (before, named)


def test_what_an_own_model_learned_of_other_files_is_not_found(own):
    """Neither what it imports nor where its data lie shows in the first batch."""

    def digest() -> str | None:
        return ampsim.simulate(
            ampsim.load_model(own), "tflops-1", "amp", instances=20
        ).learning_digest

    before = digest()
    assert digest() == before
    (own.parent / "own_base.py").write_text("FOUR = 2 + 2\n")
    for name in ("own_parts", "own_base"):
        sys.modules.pop(name)
    assert digest() != before
