"""A search: its front is that of the whole space, of whatever is left out and wherever it stops."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.cli import questions as command
from ampsim.errors import FileFormatError, OptionError, OutputError
from ampsim.exploring import making, sampling
from ampsim.exploring import search as library
from ampsim.exploring.axes import Setup, axes_over, setup_at
from ampsim.exploring.sampling import Proposals, Space
from ampsim.exploring.search import sentences_of
from ampsim.exploring.trials import PointOutcome, dominates, reference_of
from ampsim.runs import RunCache
from ampsim.runs.store import TIMINGS

pytest.importorskip("optuna", reason="optuna is not installed")

OVER: dict[str, Any] = {"workers": [1, 2, 3], "max_active_keys": [1, 2, 4], "latency_s": [0, 1e-6]}
TIMES: dict[str, Any] = {
    "over": OVER, "minimise": "epoch_s,peak_bytes", "instances": 100, "in_flight": 4, "seed": 2,
}  # fmt: skip
LEARNS: dict[str, Any] = {
    "over": OVER, "minimise": "time_s,peak_bytes", "instances": 200, "target": 0.12,
    "max_epochs": 5, "repeats": 3, "sampler": "random", "trials": 10, "in_flight": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def setup() -> Setup:
    model = ampsim.load_model("rnn", hidden=4, replicas=1, batch=20)
    schedules = (ampsim.Pipeline(2), ampsim.Amp(2), ampsim.Sequential())
    return Setup(model, ampsim.load_cluster("tflops-1", workers=2), schedules)


def test_the_reference_is_beyond_every_point():
    assert reference_of([(1.0, 5.0), (3.0, 5.0)]) == pytest.approx((3.2, 5.5))


def whole_front(setup: Setup) -> set[tuple[float, float]]:
    """The front of all points, each simulated by itself."""
    found: list[tuple[float, float]] = []
    for workers, latency_s, schedule in itertools.product(
        OVER["workers"], OVER["latency_s"], setup.schedules
    ):
        for keys in OVER["max_active_keys"] if schedule.name != "sequential" else [None]:
            point = {"workers": workers, "latency_s": latency_s}
            at = setup_at(setup._replace(schedules=(schedule,)), point | (
                {} if keys is None else {"max_active_keys": keys}
            ))  # fmt: skip
            ran = ampsim.simulate(
                at.model, at.cluster, at.schedules[0], mode="sleep", seed=2, instances=100,
                counts_memory=True,
            )  # fmt: skip
            found.append((float(ran.epochs["time_s"].iloc[0]), float(ran.peak_bytes.max())))
    return {one for one in found if not any(dominates(other, one) for other in found)}


def test_the_front_is_that_of_the_whole_space(setup):
    found = ampsim.search(*setup, **TIMES, trials=64, against_random=True)
    values = {tuple(one) for one in found.front[["epoch_s", "peak_bytes"]].to_numpy().tolist()}
    assert values == whole_front(setup)
    (end_s, end_bytes), volume, before_s = found.reference, 0.0, None
    for time_s, size in sorted(values, reverse=True):  # slices, each up to the one after it
        volume += ((before_s or end_s) - time_s) * (end_bytes - size)
        before_s = time_s
    assert found.hypervolume == pytest.approx(volume, rel=1e-12)
    assert found.hypervolume_random is not None
    assert found.hypervolume >= found.hypervolume_random > 0
    assert "as many points at random" in " ".join(found.sentences)
    of_each = found.volumes["tpe"], found.volumes["random"]
    assert [len(of) for of in of_each] == [42, 42]  # all points there are, each once
    assert [of[-1] for of in of_each] == [found.hypervolume, found.hypervolume_random]
    assert all(list(of) == sorted(of) and of[0] < of[-1] for of in of_each)
    first = found.table.loc[0, ["epoch_s", "peak_bytes"]].to_numpy(float)
    alone = math.prod(end - one for end, one in zip(found.reference, first, strict=True))
    assert found.volumes["tpe"][0] == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("told", [29, 30])
def test_what_decides_is_told_from_what_does_nothing_once_there_are_trials_enough(setup, told):
    axes = {"workers": [1, 2, 3, 4], "latency_s": "1e-8..1e-5:log"}
    space = Space(list(axes_over(axes, setup)), setup)
    trials = Proposals(
        "one", space, objectives=("epoch_s",), journal=None, sampler="random", seed=3
    )  # fmt: skip
    for number in range(told + 1):
        (point,) = trials.batch(1, number + 1)[0].values()
        failed = PointOutcome("failed", (math.inf,))
        decided = PointOutcome("complete", (float(point["latency_s"]),))
        trials.tell(number, decided if number else failed)
    found = trials.importances
    assert list(found) == (["latency_s", "workers"] if told == 30 else [])
    if found:
        assert sum(found.values()) == pytest.approx(1.0)
        assert found["latency_s"] > 0.8


def test_what_did_not_end_or_does_not_fit_dominates_nothing(setup):
    """Whatever its values are: a bound, or those of a point that may not be taken."""
    space = Space(list(axes_over({"latency_s": "1e-8..1e-5:log"}, setup)), setup)
    trials = Proposals("one", space, objectives=("s",), journal=None, sampler="random", seed=3)
    outcomes: list[Any] = ["complete", "infeasible", "pruned", "complete"]
    for number, value in enumerate((3.0, 1.0, 2.0, 2.5)):
        trials.batch(1, number + 1)
        trials.tell(number, PointOutcome(outcomes[number], (value,)))
    assert trials.volumes((4.0,)) == [1.0, 1.0, 1.0, 1.5]


def test_an_option_varies_only_under_schedules_that_take_it(setup):
    found = ampsim.search(*setup, **TIMES, trials=30, sampler="random")
    assert found.hypervolume_random is None, "there is nothing else to compare with"
    assert "at random" not in " ".join(found.sentences)
    is_sequential = found.table["schedule"] == "sequential"
    assert is_sequential.any()
    assert (found.table["max_active_keys"].isna() == is_sequential).all()


@pytest.fixture(scope="module")
def learner(setup: Setup) -> Setup:
    """The same in four batches an epoch: most of a run is what each batch takes."""
    return setup._replace(model=ampsim.load_model("rnn", hidden=4, replicas=1, batch=50))


@pytest.fixture(scope="module")
def learned(learner: Setup) -> Any:
    """A search that learns, with pruning, from beginning to end."""
    return ampsim.search(*learner, **LEARNS)


def test_what_is_pruned_is_not_on_the_front_and_the_front_is_the_same(learner, learned):
    whole = ampsim.search(*learner, **LEARNS, prunes=False)
    outcomes = learned.table["outcome"]
    assert (outcomes == "pruned").sum() >= 3
    assert not (whole.table["outcome"] == "pruned").any()
    names = [*OVER, "schedule", "time_to_target_s", "peak_bytes"]
    assert learned.front[names].equals(whole.front[names])
    times = (learned.table["time_to_target_s"], whole.table["time_to_target_s"])
    assert (times[0] <= times[1]).all()
    assert (times[0] == times[1])[outcomes == "complete"].all()


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def whole_search(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a search says that nobody kills."""
    kept = RunCache(tmp_path_factory.mktemp("whole"))
    return ampsim.search(*setup, **TIMES, trials=16, keeping=kept).to_json()


@pytest.mark.parametrize("at", [("ask", 9), ("tell", 5), ("tell", 6), ("point", 8)])
def test_a_search_that_was_killed_goes_on_to_the_same_bytes(
    setup, whole_search, at, tmp_path, monkeypatch
):
    where, after = at
    owner: Any = {"ask": Proposals, "tell": Proposals, "point": making}[where]
    name = {"ask": "_ask", "tell": "tell", "point": "setup_at"}[where]
    usual, calls = getattr(owner, name), itertools.count()

    def cut(*arguments: Any) -> Any:
        if next(calls) == after:
            raise Stopped
        return usual(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut)
        with pytest.raises(Stopped):
            ampsim.search(*setup, **TIMES, trials=16, keeping=RunCache(tmp_path / "cut"))
    later = ampsim.search(*setup, **TIMES, trials=16, keeping=RunCache(tmp_path / "cut"))
    assert later.to_json() == whole_search


def test_a_trial_that_was_cut_off_between_two_of_its_values_gets_the_others(
    setup, tmp_path, monkeypatch
):
    whole = ampsim.search(*setup, **TIMES, trials=8)
    private: Any = sampling
    usual, calls = private._suggested, itertools.count()

    def cut(*arguments: Any) -> Any:
        if next(calls) == 6:
            raise Stopped
        return usual(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "_suggested", cut)
        with pytest.raises(Stopped):
            ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
    later = ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
    assert later.to_json() == whole.to_json()


def test_ctrl_c_keeps_what_finished_and_the_same_call_goes_on(learner, learned, tmp_path):
    left = iter(range(40))

    def stop(progress: Any) -> None:
        if progress.is_epoch_end and next(left, None) is None:
            raise KeyboardInterrupt

    how = {**LEARNS, "keeping": RunCache(tmp_path)}
    part = ampsim.search(*learner, **how, on_progress=stop)
    assert part.is_stopped
    assert (part.interrupted or "").startswith("interrupted: ")
    later = ampsim.search(*learner, **how)
    assert later.to_json() == learned.to_json()


def test_what_stops_before_any_point_is_tried_is_no_answer(setup, tmp_path):
    def stop(_progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ampsim.search(*setup, **LEARNS, keeping=RunCache(tmp_path), on_progress=stop)
    with pytest.raises(OptionError, match=r"budget_s must be enough for a first point, got 1e-06"):
        ampsim.search(*setup, **LEARNS, keeping=RunCache(tmp_path), budget_s=1e-6)


def test_the_journal_is_one_of_optunas_which_its_own_tools_open(setup, tmp_path):
    """With what was minimised, every trial's point and values, and the same front."""
    optuna: Any = pytest.importorskip("optuna")
    found = ampsim.search(*setup, **TIMES, trials=12, keeping=RunCache(tmp_path))
    journal = optuna.storages.journal
    file = journal.JournalFileBackend(str(tmp_path / ".runs" / sampling.JOURNAL))
    (study,) = optuna.study.get_all_study_summaries(journal.JournalStorage(file))
    study = optuna.load_study(study_name=study.study_name, storage=journal.JournalStorage(file))
    assert study.metric_names == list(found.objectives)
    assert {one.state.name for one in study.trials} == {"COMPLETE"}
    table = found.table
    assert [tuple(one.values) for one in study.trials] == [
        *table[[*found.objectives]].itertuples(index=False, name=None)
    ]
    assert [one.params["workers"] for one in study.trials] == table["workers"].tolist()
    assert {one.number for one in study.best_trials} == {*table["trial"][table["is_pareto"]]}


def test_a_journal_that_was_cut_goes_on_and_one_that_was_spoilt_is_a_line(setup, tmp_path):
    found = ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
    journal = tmp_path / ".runs" / sampling.JOURNAL
    whole = journal.read_bytes()
    for end in (len(whole) // 2, len(whole) - 1, 1):
        journal.write_bytes(whole[:end])
        again = ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
        pd.testing.assert_frame_equal(again.table, found.table)
    lines = whole.splitlines(keepends=True)
    for spoilt in (b"garbage\n", b'{"op_code": 0}\n', b"[]\n"):
        journal.write_bytes(b"".join([*lines[:5], spoilt, *lines[6:]]))
        with pytest.raises(FileFormatError, match=r"search\.journal is not as a search wrote it: "):
            ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
    journal.write_bytes(whole.replace(b'\\"note\\"', b'\\"later\\": 1, \\"note\\"', 1))
    again = ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
    assert again.table["note"].tolist().count("it was told by something else than this ampsim") == 1
    journal.unlink()
    journal.mkdir()
    with pytest.raises(FileFormatError, match="a search wrote it: IsADirectoryError: "):
        ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))


@pytest.fixture(scope="module")
def undisturbed(setup: Setup) -> Callable[..., Any]:
    """What a question is answered where nothing is kept, asked once; nobody changes it."""
    return cache(lambda ask: ask(*setup_of(setup, ask), **OF_A_FULL_DISK[ask]))


def setup_of(setup: Setup, ask: Any) -> Setup:
    """One schedule is enough to be asked what-if of."""
    return setup._replace(schedules=setup.schedules[:1]) if ask is ampsim.whatif else setup


OF_A_FULL_DISK: dict[Any, dict[str, Any]] = {
    ampsim.search: {**TIMES, "trials": 8},
    ampsim.whatif: {"instances": 40, "mode": "sleep"},  # what is not asked of Optuna
}


@pytest.mark.parametrize("name", [sampling.JOURNAL, TIMINGS])
@pytest.mark.parametrize("most", [0, 350, 500])
def test_a_disk_that_is_full_is_a_line_and_the_same_call_goes_on(
    setup, undisturbed, tmp_path, name, most
):
    """The files that are added to; `most` bytes of a file are written."""
    resource = pytest.importorskip("resource")
    of_process = resource.getrlimit(resource.RLIMIT_FSIZE)
    ask = ampsim.whatif if name == TIMINGS else ampsim.search
    setup, asked = setup_of(setup, ask), {**OF_A_FULL_DISK[ask], "keeping": RunCache(tmp_path)}
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, of_process[1]))
        with pytest.raises(OutputError, match=r"^cannot write .*: file too large; choose"):
            ask(*setup, **asked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, of_process)
    pd.testing.assert_frame_equal(ask(*setup, **asked).table, undisturbed(ask).table)


def test_another_question_starts_from_the_points_of_the_first(setup, tmp_path):
    first = ampsim.search(*setup, **TIMES, trials=8, keeping=RunCache(tmp_path))
    other = {**TIMES, "minimise": "epoch_s", "seed": 1}
    cache = RunCache(tmp_path)
    beside = ampsim.search(*setup, **other, trials=8, keeping=cache, against_random=True)
    ahead = "The first 4 of these points are of another search, none of those at random."
    assert [ahead in one.sentences for one in (first, beside)] == [False, True]
    second, names = beside.table, [*OVER, "schedule"]
    known = first.table.drop_duplicates(names)[names].reset_index(drop=True).astype(str)
    asked = second[names].astype(str)
    assert len(known) > 4
    assert asked.head(4).equals(known.head(4)), "half of the trials are given"
    assert not asked.head(5).equals(known.head(5)), "and no more"


DEVICE = """flop_per_s = {rate}
[sources]
flop_per_s = {{ kind = "assumed", text = "a test" }}
"""
CLUSTER = """device = [{ file = "mine.toml", count = 2 }]
[link]
"""


@pytest.mark.parametrize("key", ["device", "cluster"])
def test_a_file_that_was_edited_is_another_search(setup, tmp_path, key):
    """Also one that the file of a value names."""
    mine, ring = tmp_path / "mine.toml", tmp_path / "ring.toml"
    ring.write_text(CLUSTER)
    over = {key: [str({"device": mine, "cluster": ring}[key])]}
    for rate in (1e9, 8e9):
        mine.write_text(DEVICE.format(rate=rate))
        new, kept = (
            ampsim.search(*setup, **{**TIMES, "over": over}, trials=1, keeping=keeping).table
            for keeping in (None, RunCache(tmp_path / "kept"))
        )
        pd.testing.assert_frame_equal(kept, new)


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    for part, (name, array) in itertools.product(
        ("train", "t10k"), {"images-idx3": images, "labels-idx1": labels}.items()
    ):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        content = gzip.compress(head + array.astype("u1").tobytes())
        (folder / f"{part}-{name}-ubyte.gz").write_bytes(content)


def test_a_data_set_that_was_replaced_is_another_search(setup, tmp_path):
    images, labels = np.arange(20 * 784).reshape(20, 28, 28) % 251, np.arange(20) % 2
    model = ampsim.load_model("mlp", hidden=4, data="mnist", folder=str(tmp_path), batch=10)
    asked: dict[str, Any] = {
        "over": {"workers": [1]}, "minimise": "epochs", "target": 0.5, "max_epochs": 2,
        "repeats": 1, "trials": 1,
    }  # fmt: skip
    outcomes: list[str] = []
    for wanted in (labels, 9 - np.arange(20) % 10):
        write_mnist(tmp_path / "mnist", images, wanted)
        new, kept = (
            ampsim.search(model, setup.cluster, "sequential", **asked, keeping=keeping).table
            for keeping in (None, RunCache(tmp_path / "kept"))
        )
        pd.testing.assert_frame_equal(kept, new)
        outcomes += new["outcome"].tolist()
    assert outcomes == ["complete", "not reached"]


def test_conditions_hold_of_every_point_on_the_front(setup):
    free = ampsim.search(*setup, **TIMES, trials=24, sampler="random").front
    limit = sorted(free["peak_bytes"])[-1] - 1
    bound = ampsim.search(
        *setup, **TIMES, trials=24, sampler="random", subject_to=f"peak_bytes <= {limit}"
    )
    assert (bound.table["outcome"] == "infeasible").any()
    assert (bound.front["peak_bytes"] <= limit).all()
    assert (bound.table.loc[bound.table["outcome"] == "infeasible", "violation"] > 0).all()


def test_a_condition_on_what_is_learned_is_one_on_the_median_over_seeds():
    model = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    how: dict[str, Any] = {"instances": 100, "target": 0.9, "max_epochs": 3, "repeats": 5}
    made = ampsim.forecast(model, cluster, "sequential", placement="paper", **how)
    *_worse, middle, _better, luckiest = sorted(run.looks["accuracy"].max() for run in made.runs)
    assert middle < luckiest
    outcomes = [
        ampsim.search(
            model, cluster, "sequential", over={"workers": [2]}, minimise="epoch_s",
            subject_to=f"best_accuracy >= {least}", trials=1, **how,
        ).table["outcome"].item()
        for least in (middle, luckiest)
    ]  # fmt: skip
    assert outcomes == ["complete", "infeasible"]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "column": ({"minimise": "time"}, "minimise: no column named 'time'"),
    "twice": ({"minimise": "time_s,time_to_target_s"}, "minimise must name columns that differ"),
    "condition": ({"subject_to": "epoch_s"}, "subject_to must be two sides"),
    "of another": ({"subject_to": "epoch_s(amp) <= 1"}, r"got epoch_s\(amp\); leave \(amp\) out"),
    "no price": ({"minimise": "dollars", "trials": 1}, "cost_to_target_usd is unknown of .*prices"),
    "no power": ({"minimise": "joules", "trials": 1}, "energy_to_target_j is unknown of"),
    "price in a condition": (
        {**LEARNS, "minimise": "epoch_s", "subject_to": "dollars <= 5", "trials": 1, "repeats": 1},
        "subject_to: .* says no cost_to_target_usd; ask for another column",
    ),
    "no such time": (
        {"over": {"schedule": ["sync-sgd:2"]}, "subject_to": "valid_per_s >= 1"},
        "subject_to: .*sync-sgd:2.* says no valid_per_s; ask for another column",
    ),
    "twice said": (
        {"over": {"schedule": ["amp:4", "pipeline:8"], "max_active_keys": [2, 3]}},
        "amp:4 says max_active_keys itself, got 2 besides",
    ),
    "no key": ({"over": {"latency": "1"}}, "nothing named 'latency' can vary"),
    "random twice": (
        {"sampler": "random", "against_random": True},
        "against_random has no effect beside sampler='random'; leave it out",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_in_a_line(setup, name):
    more, said = MISTAKES[name]
    with pytest.raises(OptionError, match=said):
        ampsim.search(*setup, **{**TIMES, **more})


def test_schedules_of_one_name_are_refused(setup):
    with pytest.raises(OptionError, match="schedules must differ in their names, got amp, amp"):
        ampsim.search(setup[0], setup[1], [ampsim.Amp(2), ampsim.Amp(4)], over={"workers": [1, 2]})


def test_without_optuna_it_is_said_what_to_install(setup, monkeypatch, mistake):
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = mistake("search", "rnn", "--for", "workers=1,2")
    assert "search needs optuna, which is not installed; pip install 'ampsim[search]'" in said


def test_points_of_another_space_are_told_from_those_of_this(setup):
    axes = axes_over(
        {"schedule": "amp,sequential", "max_active_keys": [1, 2], "latency_s": "0..1"}, setup
    )
    space = Space(axes, setup)
    assert space.has({"schedule": "amp", "max_active_keys": 2, "latency_s": 0.5})
    assert space.has({"schedule": "sequential", "latency_s": 1.0})
    assert not space.has({"schedule": "amp", "latency_s": 0.5})
    assert not space.has({"schedule": "sequential", "max_active_keys": 2, "latency_s": 0.5})
    assert not space.has({"schedule": "amp", "max_active_keys": 3, "latency_s": 0.5})
    assert not space.has({"schedule": "sequential", "latency_s": 1.5})
    assert not space.has({"schedule": "sequential", "latency_s": 1.0, "workers": 2})


def test_the_command_writes_page_table_and_json(call, tmp_path):
    words = (
        "search", "rnn", "--set", "hidden=4", "--set", "replicas=1", "--for", "workers=1,2",
        "--minimise", "epoch_s,peak_bytes", "--trials", "4", "--instances", "200",
        "--out", str(tmp_path / "found"), "-q", "--json", "-",
    )  # fmt: skip
    ended = call(*words)
    assert ended.code == 0
    told = json.loads(ended.out)
    assert told["objectives"] == ["epoch_s", "peak_bytes"]
    assert [row["trial"] for row in told["rows"]] == [0, 1, 2, 3]
    assert {row["outcome"] for row in told["rows"]} == {"complete"}
    page = (tmp_path / "found" / "index.html").read_text("utf-8")
    assert sentences_in(told) in page
    assert (tmp_path / "found" / ".runs" / "search.journal").exists()


def sentences_in(told: dict[str, Any]) -> str:
    return told["verdict"].partition(". ")[0]


def test_the_command_has_the_defaults_of_the_library():
    assert (command.TRIALS, command.IN_FLIGHT) == (library.TRIALS, library.IN_FLIGHT)


def test_a_condition_may_name_any_column_of_timing(setup):
    how = {**TIMES, "trials": 6, "sampler": "random"}
    free = ampsim.search(*setup, **how).table
    bound = ampsim.search(*setup, **how, subject_to=["utilisation >= 1e-9", "staleness_max < 99"])
    assert list(bound.table["outcome"]) == list(free["outcome"]) == ["complete"] * 6


def test_beside_solvers_validation_takes_no_time_as_in_a_forecast(setup):
    both = [ampsim.Pipeline(2), ampsim.SyncSGD(ranks=2)]
    how: dict[str, Any] = {"instances": 100, "seed": 2}
    found = ampsim.search(
        setup.model, setup.cluster, both, over={"latency_s": [1e-6]}, minimise="epoch_s",
        trials=4, sampler="random", **how,
    ).table  # fmt: skip
    cluster = setup_at(setup, {"latency_s": 1e-6}).cluster
    made = ampsim.forecast(setup.model, cluster, both, mode="sleep", placement="paper", **how)
    times = {run.schedule: run.epochs["time_s"].iloc[0] for run in made.runs}
    assert {*found["schedule"]} == {"pipeline", "sync-sgd"}
    assert all(row["epoch_s"] == times[row["schedule"]] for row in found.to_dict("records"))


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (
            ["not reached"] * 3,
            "None of 3 points tried reaches the target, so that time_s",
        ),
        (
            ["not reached", "infeasible"],
            "None of 2 points tried is complete, so that time_s cannot",
        ),
        (["complete", "not reached"], "1 of 2 points tried is beaten by none in time_s."),
    ],
)
def test_the_first_line_says_plainly_that_no_point_arrives(outcomes, said):
    first, *_rest = sentences_of(told(outcomes, [*range(len(outcomes))]))
    assert first.startswith(said)


@pytest.mark.parametrize("bound", ["epoch_s < 1", "epoch_s < 1e-30"])
def test_a_page_has_a_table_and_points_where_there_are_some(setup, bound):
    how: dict[str, Any] = {"minimise": "epoch_s", "instances": 100, "trials": 2}
    page = ampsim.search(*setup, over={"workers": [2, 4]}, subject_to=bound, **how).page()
    is_met = bound == "epoch_s < 1"
    assert [words in page for words in ("<table", "<h2>All points</h2>")] == [is_met] * 2


def test_what_failed_has_no_numbers_in_the_table(setup):
    """And not infinite ones: unknown is missing."""
    over = {"device.memory_bytes": [100, 10**9]}
    found = ampsim.search(*setup, over=over, minimise="epoch_s", instances=100, trials=6).table
    failed = found["outcome"] == "failed"
    assert failed.any() and not failed.all()
    assert (found["epoch_s"].isna() == failed).all()


def test_a_point_that_is_tried_again_is_no_further_point():
    first, all_trials = sentences_of(told(["complete", "complete", "not reached"], [2, 2, 4]))
    assert first == "1 of 2 points tried is beaten by none in time_s."
    assert all_trials == "Of all trials: 2 complete, 1 not reached."


def told(outcomes: list[str], workers: list[int]) -> Any:
    table = pd.DataFrame({"workers": workers, "outcome": outcomes, "note": ""})
    return SimpleNamespace(
        table=table, front=table[table["outcome"] == "complete"].head(1), objectives=["time_s"],
        keys=("workers",), hypervolume=0.0, hypervolume_random=None,
    )  # fmt: skip


class Diverges:
    """Data of which no training batch has finite gradients."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def batches(self, part: str, *, epoch: int, seed: int) -> Any:
        for one in self._data.batches(part, epoch=epoch, seed=seed):
            yield one._replace(images=one.images * np.float32(1e30)) if part == "train" else one


def test_a_trial_has_the_numbers_of_a_forecast_also_where_a_seed_diverges_at_once():
    """A seed that ends early never arrives; what it had spent by then is no time to the target."""
    own = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)

    def make_data(seed: int, count: Any) -> Any:
        data = own.make_data(seed, count)
        return Diverges(data) if seed == 1 else data

    model, cluster = replace(own, make_data=make_data), ampsim.load_cluster("a100", workers=2)
    how: dict[str, Any] = {"instances": 400, "target": 0.3, "max_epochs": 8, "repeats": 3}
    names = {
        "time_s": "time_to_target_s", "epochs": "epochs_to_target", "joules": "energy_to_target_j",
    }  # fmt: skip
    found = ampsim.search(
        model, cluster, "sequential", over={"workers": [2]}, minimise=",".join(names), trials=1,
        **how,
    )  # fmt: skip
    made = ampsim.forecast(model, cluster, "sequential", placement="paper", **how)
    assert [bool(run.failure) for run in made.runs] == [False, True, False]
    (trial,), (row,) = found.table.to_dict("records"), made.table.to_dict("records")
    assert trial["outcome"] == "complete"
    for name in names.values():
        assert trial[name] == pytest.approx(row[name], rel=0.05 if "energy" in name else 1e-12)
