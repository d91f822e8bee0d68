"""What all questions share: runs made elsewhere, folders, JSON, and how they show themselves."""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import json
import multiprocessing
import re
import signal
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import ampsim
from ampsim.cli.options import Hardware, Tuning
from ampsim.cli.questions import Question
from ampsim.errors import FileFormatError, OptionError, SimulationError
from ampsim.exploring.axes import Setup
from ampsim.exploring.explore import evidence_from_plain
from ampsim.exploring.making import How, PointRuns, Query
from ampsim.exploring.sampling import Proposals
from ampsim.forecasting.making import RunMaker
from ampsim.runs import RunCache
from ampsim.study.result import Result

pytest.importorskip("optuna", reason="optuna is not installed")

MODEL = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
CLUSTER = ampsim.load_cluster("ampnet-core", workers=2, latency_s=1e-6)
BOTH = (ampsim.Pipeline(2), ampsim.Amp(2))
LEARNS: dict[str, Any] = {"instances": 100, "target": 0.05, "max_epochs": 2, "repeats": 1}
WHERE: dict[str, Any] = {"over": {"latency_s": [1e-7, 1e-5]}}
QUESTIONS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "explore": (ampsim.explore, BOTH, WHERE),
    "search": (ampsim.search, BOTH, {**WHERE, "trials": 3, "in_flight": 2, "sampler": "random"}),
    "whatif": (ampsim.whatif, "amp", {"learn": 1}),
    "solve": (
        ampsim.solve, "amp", {"over": {"flop_per_s": "1e9..1e11"}, "until": "time_s <= 0.01"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_all_questions_share_is_shown_and_checked_as_of_a_forecast(name):
    function, schedules, how = QUESTIONS[name]
    forecast, own = (inspect.signature(one).parameters for one in (ampsim.forecast, function))
    for option in How.__annotations__:
        assert (own[option].kind, own[option].default) == (
            inspect.Parameter.KEYWORD_ONLY, forecast[option].default,
        ), option  # fmt: skip
    for wrong, said in (("jobs", "jobs must be a whole number >= 1"), ("job", "keyword argument")):
        with pytest.raises(OptionError, match=said):
            function(MODEL, CLUSTER, schedules, **{**LEARNS, **how, wrong: 0})


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_placement_that_is_faster_is_said_unless_one_is_named(name, only):
    only(factor=2.0)
    ask, schedules, how = QUESTIONS[name]
    model = ampsim.load_model("rnn", digits=2, hidden=16, batch=25, replicas=1)
    how = {**LEARNS, **how, "instances": 1000, "max_epochs": 1, "repeats": 1}
    found = [
        ask(model, "tflops-1:2,gflops-10:2", schedules, placement=one, **how).sentences
        for one in (None, "paper")
    ]
    advice = [one for one in found[0] if "take the placement" in one]
    assert len(advice) == 1 and advice[0].startswith(
        "On 2 x tflops-1, 2 x gflops-10, devices differ"
    )
    assert [one for one in found[0] if one not in advice] == [*found[1]]


FILES = {
    "device": 'flop_per_s = {rate}\nsources.flop_per_s = {{ kind = "assumed", text = "a test" }}\n',
    "cluster": 'device = [{{ file = "device.toml", count = 2 }}]\n[link]\n',
    "placement": "".join(f'"{one.name}" = {{worker}}\n' for one in MODEL.graph(0).nodes[1:]),
}


@pytest.mark.parametrize("key", FILES)
def test_points_of_a_file_that_changed_meanwhile_are_refused(tmp_path, key):
    """Else points of two machines would stand side by side."""

    def write(rate: float, worker: int) -> None:
        for one, text in FILES.items():
            (tmp_path / f"{one}.toml").write_text(text.format(rate=rate, worker=worker))

    def ask(**more: Any) -> Any:
        over: dict[str, Any] = {"latency_s": "1e-9..1e-3"}
        given: dict[str, Any] = {"over": {**over, key: [file]}}
        given = {"placement": file} if key == "placement" else given
        how: dict[str, Any] = {"minimise": "epoch_s", "in_flight": 1, "instances": 20, "over": over}
        return ampsim.search(MODEL, CLUSTER, "amp", **{**how, **given, **more})

    write(1e9, 0)
    file = str(tmp_path / f"{key}.toml")
    *_pages, manifest = ask(trials=1).save(tmp_path / "once")
    assert list(tomllib.loads(manifest.read_text("utf-8"))["read"]) == [file]
    with pytest.raises(FileFormatError, match=f"^{re.escape(file)} has changed since a point "):
        ask(on_progress=lambda _told: write(2e9, 1))


def test_a_front_stands_beside_as_many_points_at_random(tmp_path, monkeypatch):
    """Also in a folder with more trials than are asked for; never beside fewer, as of Ctrl-C."""
    how: dict[str, Any] = {"over": {"latency_s": "1e-9..1e-6"}, "minimise": "epoch_s"}
    how |= {"instances": 20, "in_flight": 1, "keeping": RunCache(tmp_path), "placement": "paper"}
    ampsim.search(MODEL, CLUSTER, "amp", **how, trials=2)
    usual, volumes = Proposals.tell, list[tuple[list[int], int]]()
    for stops in (True, False):

        def tell(proposals: Any, number: int, outcome: Any, stops: bool = stops) -> None:
            if stops and proposals._sampler == "random":
                raise KeyboardInterrupt
            usual(proposals, number, outcome)

        monkeypatch.setattr(Proposals, "tell", tell)
        found = ampsim.search(MODEL, CLUSTER, "amp", **how, trials=1, against_random=True)
        told = [one for one in found.sentences if "as many points at random" in one]
        volumes.append(([len(one) for one in found.volumes.values()], len(told)))
    assert volumes == [([2, 0], 0), ([2, 2], 1)]


@pytest.fixture(scope="module", params=QUESTIONS)
def asked(request) -> tuple[Any, Any]:
    """A question, and what is found in this process."""
    function, schedules, how = QUESTIONS[request.param]

    def ask(**more: Any) -> Any:
        return function(MODEL, CLUSTER, schedules, **LEARNS, **how, **more)

    return ask, ask()


def test_runs_of_an_executor_give_the_same_to_the_bit(asked):
    ask, found = asked
    with ThreadPoolExecutor(2) as executor:
        assert ask(executor=executor).to_json() == found.to_json()


@pytest.mark.parametrize("asked", ["explore"], indirect=True)
def test_no_run_of_a_question_keeps_its_trace(asked, monkeypatch):
    """A map holds hundreds of runs, of which each has some 20 MB of records."""
    made, learn = list[Any](), PointRuns.learn

    def noted(self: PointRuns, wanted: Any) -> Any:
        found = learn(self, wanted)
        made.extend(found)
        return found

    monkeypatch.setattr(PointRuns, "learn", noted)

    def results() -> set[int]:
        """By the type alone: asked for its class, an object of PyTorch's warns of what it is."""
        return {id(one) for one in gc.get_objects() if issubclass(type(one), Result)}

    before = results()
    asked[0]()
    gc.collect()
    assert made
    assert before >= results()


def short_of_memory_at(wrong: int) -> Any:
    """The model, for whose data of one seed there is no memory."""

    def make_data(seed: int, count: Any) -> Any:
        if seed == wrong:
            raise MemoryError(f"no room for seed {wrong}")
        return MODEL.make_data(seed, count)

    return MODEL.told_by_config(make_data=make_data)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_run_that_gives_nothing_is_one_sentence_and_the_others_finish(name, only):
    only(factor=2.0)
    function, schedules, how = QUESTIONS[name]
    how = {**LEARNS, **how, "repeats": 3}
    if name == "search":  # every trial lacks a seed, and has no median
        with pytest.raises(SimulationError, match="no room for seed 1"):
            function(short_of_memory_at(1), CLUSTER, schedules, **how)
        return
    whole = function(MODEL, CLUSTER, schedules, **{**how, "repeats": 1})
    found = function(short_of_memory_at(1), CLUSTER, schedules, **how)
    lost = [one for one in found.sentences if "no room for seed 1" in one]
    assert lost
    assert len(set(lost)) == len(lost)
    assert len(found.table) == len(whole.table)
    if name == "whatif":
        assert set(found.table["seeds"]) == {2}
    if name == "solve":
        seeds = found.curve.groupby("seed")["left"].apply(lambda of: of.notna().all())
        assert seeds.to_dict() == {0: True, 1: False, 2: True}
    if name == "explore":
        assert set(found.table["basis"]) <= {"learned", "shared", "predicted"}
        assert found.table["time_to_target_s"].notna().any()


@pytest.mark.parametrize("name", QUESTIONS)
def test_where_no_run_gives_anything_it_is_said(name):
    function, schedules, how = QUESTIONS[name]
    with pytest.raises(SimulationError, match="no room for seed 0"):
        function(short_of_memory_at(0), CLUSTER, schedules, **LEARNS, **how)


def test_a_search_of_which_every_trial_failed_is_tried_again_by_the_same_call(call, tmp_path):
    words = (
        "search", "mlp", "--set", "hidden=8", "--set", "data=synthetic", "--set", "batch=20",
        "--for", "device.memory_bytes=1000,2000", "--schedule", "amp", "--minimise", "epoch_s",
        "--trials", "2", "--instances", "100", "--out", str(tmp_path / "found"), "-q",
    )  # fmt: skip
    for _again in range(2):
        ended = call(*words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("ampsim: none of 2 points can be run; the first: ")
        assert ended.err.count("\n") == 1
    how: dict[str, Any] = {**LEARNS, **QUESTIONS["search"][2], "keeping": RunCache(tmp_path)}
    with pytest.raises(SimulationError, match="no room for seed 0"):
        ampsim.search(short_of_memory_at(0), CLUSTER, BOTH, **how)
    whole = ampsim.search(MODEL, CLUSTER, BOTH, **how)
    assert set(whole.table["outcome"]) == {"complete"}


@pytest.mark.parametrize(("where", "repeats"), [("time", 1), ("learn_once", 1), ("learn_once", 2)])
def test_a_trial_of_which_a_run_gave_nothing_is_tried_again_by_the_same_call(
    where, repeats, tmp_path, monkeypatch
):
    """Also where another of the trial's runs ended."""
    usual, is_short = getattr(PointRuns, where), list[bool]()

    def begun(*given: Any) -> Any:
        is_short.extend([] if is_short else [True])
        return usual(*given)

    def make_data(seed: int, count: Any) -> Any:
        if any(is_short):
            is_short[0] = False
            raise MemoryError("no room for once")
        return MODEL.make_data(seed, count)

    monkeypatch.setattr(PointRuns, where, begun)
    how: dict[str, Any] = {**LEARNS, **QUESTIONS["search"][2], "repeats": repeats}
    keeping, short = RunCache(tmp_path), MODEL.told_by_config(make_data=make_data)
    cut, later = (
        ampsim.search(one, CLUSTER, BOTH, **how, keeping=keeping) for one in (short, MODEL)
    )
    assert {*cut.table["outcome"]} == {"complete", "failed"}
    assert sum(one.endswith(": nothing is known of it.") for one in cut.sentences) == 1
    assert later.to_json() == searched(repeats)


@cache
def searched(repeats: int) -> str:
    """What a search finds of which no run gave nothing."""
    how: dict[str, Any] = {**LEARNS, **QUESTIONS["search"][2], "repeats": repeats}
    return ampsim.search(MODEL, CLUSTER, BOTH, **how).to_json()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["explore", "search", "whatif"])
def test_where_each_run_fails_it_is_written_said_and_no_success(name, call, only, tmp_path):
    only(factor=2.0)
    words = [
        name, "mlp", "--set", "hidden=8", "--set", "data=synthetic", "--set", "batch=20",
        "--set", "learning_rate=1e30", "--instances", "100", "--workers", "2", "--max-epochs", "1",
        "--repeats", "1", "--target", "0.5", "--out", "found", "-q",
    ]  # fmt: skip
    words += [] if name == "whatif" else ["--for", "latency_s=1e-7,1e-5", "--schedule", "amp,gpipe"]
    ended = call(*words, *(["--trials", "2"] if name == "search" else []))
    assert ended.code == 2
    assert re.fullmatch(r"ampsim: each of \d runs failed; the first: .* finite.*\n", ended.err)
    assert (tmp_path / "found" / "manifest.toml").is_file()
    assert "wrote" in ended.out


@pytest.mark.parametrize("name", ["whatif", "solve"])
def test_ctrl_c_before_a_run_has_finished_names_no_folder(name, call, monkeypatch, tmp_path):
    def interrupted(*_given, **_how):
        raise KeyboardInterrupt

    monkeypatch.setattr(ampsim, name, interrupted)
    more = ["--for", "latency_s=1e-9..1e-3", "--until", "time_s <= 1"] if name == "solve" else []
    ended = call(name, "rnn", *more, "--out", "found", "-q")
    said = "ampsim: interrupted; no run had finished; run again to go on\n"
    assert (*ended, (tmp_path / "found").exists()) == (130, "", said, False)


def test_a_map_of_which_no_cell_could_be_trained_is_one_line(monkeypatch):
    def dies(*_arguments: Any) -> Any:
        raise SimulationError("its process died")

    monkeypatch.setattr(RunMaker, "make", dies)
    with pytest.raises(SimulationError, match="its process died"):
        ampsim.explore(MODEL, CLUSTER, BOTH, **LEARNS, **WHERE)


def test_a_cell_of_a_map_that_memory_does_not_hold_fails_and_the_other_is_first():
    over = {"device.memory_bytes": [1000, 10**9], "latency_s": [1e-6, 1e-5]}
    found = ampsim.explore(MODEL, CLUSTER, ("sequential", "amp"), over=over, **LEARNS)
    small = found.table["device.memory_bytes"] == 1000
    assert set(found.table["basis"][small]) == {"failed"}
    assert "failed" not in set(found.table["basis"][~small])
    assert found.table["time_to_target_s"][small].isna().all()
    assert "No method is known to reach the target at 2." in found.verdict
    assert "4 of 8 cells cannot be run; the first, sequential, " in found.verdict
    assert found.table["note"][small].str.match("with seed 0: worker . .* is out of memory").all()
    lines = json.loads(json.dumps(found.evidence.plain()))
    again = evidence_from_plain(lines)
    assert again.plain() == found.evidence.plain()


@pytest.mark.parametrize("ask", [ampsim.explore, ampsim.search])
def test_a_schedule_that_does_not_fit_at_a_point_is_told_there_and_tried_at_the_others(ask):
    """The model has four stages, and 1F1B wants a worker for each."""
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    how = {**LEARNS, "over": {"workers": [2, 4]}}
    if ask is ampsim.search:
        how |= {"trials": 8, "minimise": "epoch_s", "sampler": "random"}
    found = ask(MODEL, cluster, ("amp", "1f1b"), **how)
    is_map = ask is ampsim.explore
    failed = found.table[
        found.table["basis" if is_map else "outcome"] == ("unfit" if is_map else "failed")
    ]
    assert {(row["workers"], row["schedule"]) for row in failed.to_dict("records")} == {(2, "1f1b")}
    told = "1 of 4 cells do not fit; the first, " if is_map else "Where one failed: "
    (said,) = [one for one in found.sentences if one.startswith(told)]
    assert not is_map or "workers = 2: 1f1b gives each stage" in said
    for one in (said, failed["note"].iloc[0]):
        assert "1f1b gives each stage a worker of its own" in one
    there = found.table[(found.table["workers"] == 4) & (found.table["schedule"] == "1f1b")]
    alone = ampsim.simulate(
        MODEL, ampsim.load_cluster("tflops-1", workers=4), "1f1b", mode="sleep", instances=100
    )
    assert set(there["epoch_s"]) == {alone.epochs["time_s"].iloc[0]}


@pytest.mark.parametrize("until", ["epoch_s <= 1", "time_s <= 1"])
def test_solve_says_from_how_many_workers_on_a_schedule_fits_and_asks_the_others(until):
    how: dict[str, Any] = {**LEARNS, "repeats": 2, "over": {"workers": "1..5"}, "until": until}
    found = ampsim.solve(MODEL, CLUSTER, ("amp", "1f1b", "zb-h1"), **how)
    rows = found.table.set_index("schedule")
    assert rows["holds"].to_dict() == {"amp": "everywhere", "1f1b": "above", "zb-h1": "above"}
    assert set(rows["value"].dropna()) == {4.0}
    said = " ".join(found.sentences)
    assert (
        "a run failed, where the condition is taken not to hold: 1f1b, workers=1: 1f1b giv" in said
    )
    assert "nan" not in str(found.cells)
    how["over"] = {"workers": "1..3"}
    with pytest.raises(SimulationError, match="1f1b, workers=1: 1f1b gives each stage"):
        ampsim.solve(MODEL, CLUSTER, "1f1b", **how)


def test_a_point_that_is_no_cluster_is_an_unfit_cell_and_a_trial_that_failed():
    """A torus of four fits four workers alone."""
    over: dict[str, Any] = {"topology": ["torus:2x2", "ring"], "workers": [2, 4]}
    found = ampsim.explore(MODEL, CLUSTER, ("sequential", "amp"), over=over, **LEARNS)
    unfit = found.table[found.table["basis"] == "unfit"]
    assert set(zip(unfit["topology"], unfit["workers"], strict=True)) == {("torus:2x2", 2)}
    assert sum("2 of 8 cells do not fit; the first, " in one for one in found.sentences) == 1
    data = re.search(r'id="drawing-data">(.*?)</script>', found.page())
    points = json.loads(data[1])["points"] if data else []
    bases = [[cell[3] for cell in point] for point in points]
    assert [of == ["unfit", "unfit"] for of in bases] == [True, False, False, False]
    assert [cell[7] for cell in points[0]] == unfit["note"].tolist()
    tried = ampsim.search(
        MODEL, CLUSTER, "amp", over=over, minimise="epoch_s", trials=12, sampler="random",
        instances=100,
    ).table  # fmt: skip
    failed = tried[tried["outcome"] == "failed"]
    assert set(zip(failed["topology"], failed["workers"], strict=True)) == {("torus:2x2", 2)}
    assert "expected extents of shape whose product is 2" in failed["note"].iloc[0]


def test_where_no_schedule_fits_at_any_point_it_is_one_line():
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    said = r"none of 4 cells fits; the first: 1f1b gives each"
    with pytest.raises(SimulationError, match=said):
        ampsim.explore(MODEL, cluster, ("1f1b", "zb-h1"), over={"workers": [1, 2]}, **LEARNS)


def test_solve_finds_the_memory_from_which_on_a_model_fits():
    over = {"device.memory_bytes": "1e3..1e9"}
    found = ampsim.solve(MODEL, CLUSTER, "amp", over=over, until="epoch_s <= 1e9", instances=100)
    (row,) = found.table.to_dict("records")
    assert (row["holds"], row["bound_by"] is None) == ("above", False)
    need = ampsim.simulate(
        MODEL, CLUSTER, "amp", mode="sleep", instances=100, counts_memory=True
    ).peak_bytes.max()
    assert row["low"] < need <= row["high"] * 1.001
    assert any(one.endswith(".") and "a run failed, where" in one for one in found.sentences)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork"
)
def test_a_run_over_its_limit_is_ended_and_named():
    def make_data(seed: int, count: Any) -> Any:
        if seed == 1:
            signal.pause()
        return MODEL.make_data(seed, count)

    mine = replace(MODEL, make_data=make_data)
    how = {**LEARNS, "repeats": 2, "over": {"workers": [2]}, "trials": 1, "run_limit_s": 3.0}
    said = r"workers = 2, seed 1: took longer than the limit of 3\.00 s"
    with pytest.raises(SimulationError, match=said):
        ampsim.search(mine, CLUSTER, "amp", jobs=2, **how)


def test_its_manifest_names_each_seed_as_that_of_a_forecast_does():
    three = Query(setup=Setup(MODEL, CLUSTER, BOTH), seed=4, repeats=3)
    assert three.manifest()["seeds"] == [4, 5, 6]


def test_its_folder_has_the_files_that_it_names_and_says_what_was_asked(asked, tmp_path):
    _ask, found = asked
    written = found.save(tmp_path / "found")
    names = [path.name for path in written]
    assert names == [*found.files, "manifest.toml"]
    manifest = tomllib.loads(written[-1].read_text("utf-8"))
    assert manifest["kind"] == found.kind
    assert manifest["model"]["config"]["hidden"] == 8
    assert (manifest["max_epochs"], manifest["seeds"]) == (2, [0])
    assert set(manifest["files"]) == set(found.files)


def test_it_shows_its_cells_and_sentences(asked):
    _ask, found = asked
    headings, lines = found.cells
    shown = found._repr_html_()
    assert all(f">{heading}<" in shown for heading in headings)
    assert shown.count("<tr>") == len(lines) + 1
    assert found.sentences[0] in repr(found)
    told = json.loads(found.to_json())
    assert list(told)[:4] == ["ampsim", "model", "cluster", "seed"]
    assert len(told["rows"]) == len(found.table)


def test_beside_solvers_validation_takes_no_time_and_that_is_said():
    """As in a forecast; `solve` charged it to schedules whose roots stand beside a solver's."""
    both: Any = (ampsim.Sequential(), ampsim.SyncSGD(ranks=2))
    made = ampsim.forecast(MODEL, CLUSTER, both, mode="sleep", placement="paper", instances=100)
    of_all = {run.schedule: float(run.epochs["time_s"].iloc[0]) for run in made.runs}
    rate = CLUSTER.devices[0].flop_per_s
    how: dict[str, Any] = {
        "over": {"flop_per_s": f"{rate!r}..{1.1 * rate!r}"}, "instances": 100,
        "until": f"epoch_s <= {0.999 * of_all['sequential']!r}",
    }  # fmt: skip
    found = ampsim.solve(MODEL, CLUSTER, both, **how)
    asked = found.curve
    first = asked[asked["value"] == rate].set_index("schedule")["left"].to_dict()
    assert first == of_all
    explored = ampsim.explore(MODEL, CLUSTER, both, over={"latency_s": [1e-6]}, **LEARNS)
    for one in (found, explored):
        assert any(said.startswith("Validation takes no virtual") for said in one.sentences)
    alone = ampsim.solve(MODEL, CLUSTER, "sequential", **how)
    assert not any("Validation" in said for said in alone.sentences)
    assert found.table["holds"].iloc[0] == "above" and alone.table["holds"].iloc[0] == "nowhere"


def noted(hardware: dict[str, Any], schedules: str, *over: str) -> list[str]:
    """What a question's command says of options that change nothing."""
    asked = Question(
        hardware=Hardware(**hardware), schedule=schedules, data="synthetic", tuning=Tuning()
    )
    with contextlib.redirect_stderr(io.StringIO()) as told:
        asked.setup("mlp", None, over)
    return [line.removeprefix("ampsim: note: ") for line in told.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("given", "over", "said"),
    [
        (({"workers": 2}, "amp"), "workers=1,2", "--workers has no effect, for --for says workers"),
        (({}, "amp:4,1f1b"), "schedule=amp,gpipe", "1f1b is left out, for --for says schedule"),
        (({}, "amp"), "schedule=amp,gpipe", ""),
        (({}, "amp,sequential"), "max_active_keys=2,4", ""),
    ],
)
def test_what_for_says_anew_is_not_dropped_without_a_word(given, over, said):
    assert noted(*given, over) == [said] * bool(said)


def test_a_schedule_does_not_say_beside_for_how_many_are_in_flight():
    with pytest.raises(OptionError, match=r"amp:4 says max_active_keys itself, got 2 besides"):
        noted({}, "amp:4,gpipe", "max_active_keys=2,4")


def test_memory_is_that_of_the_seed_that_takes_most_and_a_condition_is_of_it():
    pytest.importorskip("optuna", reason="optuna is not installed")
    model = ampsim.load_model("rnn", hidden=8, replicas=2, batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    how: dict[str, Any] = {"instances": 200, "target": 0.1, "max_epochs": 4}
    over = {"over": {"max_active_keys": [4]}, "minimise": "time_s,peak_bytes"}

    def tried(repeats: int, **more: Any) -> Any:
        given = {**over, **how, **more, "repeats": repeats, "trials": 1}
        return ampsim.search(model, cluster, [ampsim.Amp()], **given).table.loc[0]

    first, every = tried(1), tried(3)
    made = ampsim.forecast(model, cluster, [ampsim.Amp(4)], repeats=3, **how).table.loc[0]
    assert first["outcome"] == every["outcome"] == "complete"
    assert every["peak_bytes"] == made["peak_bytes"] > first["peak_bytes"]
    bound = tried(3, subject_to=f"peak_bytes <= {first['peak_bytes']}")
    assert bound["outcome"] == "infeasible"


def test_a_search_that_goes_on_does_not_say_that_none_arrived_where_one_did_before(tmp_path):
    model = ampsim.load_model("mlp", hidden=16, data="synthetic", batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    how: dict[str, Any] = {"target": 0.31, "max_epochs": 2, "repeats": 1, "instances": 400}
    how |= {"over": {"model.learning_rate": "0.0001..0.1:log", "workers": [2, 4]}, "in_flight": 1}
    for trials in (2, 3):  # of which the second alone reaches it
        keeping = RunCache(tmp_path)
        found = ampsim.search(model, cluster, "sequential", trials=trials, keeping=keeping, **how)
    assert found.table["outcome"].tolist() == ["not reached", "complete", "pruned"]
    assert not any(one.startswith("No run reached") for one in found.sentences)
