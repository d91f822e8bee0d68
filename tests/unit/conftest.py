"""What unit tests share: the command line, and short runs of shipped schedules."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from matplotlib.figure import Figure
from unpainted import DRAWN, no_paint

import ampsim
from ampsim.cli import main
from ampsim.exploring import solve, whatif
from ampsim.exploring.changes import Change, changes_of
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.recipes import results
from ampsim.recipes.explored import run_exploration
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.running import RecipeOptions, run_recipe
from ampsim.report.page import figures as page_figures
from ampsim.report.page import folders


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ended]:
    """`call("forecast", "--seed", "1")` runs a command in a folder that is empty at first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main(words)
        said = capsys.readouterr()
        return Ended(int(ending.value.code or 0), said.out, said.err)

    return run


def no_drawing(patch: pytest.MonkeyPatch) -> None:
    """Have pages show empty figures, and each figure written down as an empty picture."""
    no_paint(patch)
    for module in (folders, page_figures, results, solve, whatif):
        for name, draw in vars(module).copy().items():
            is_drawing = getattr(draw, "__annotations__", {}).get("return") == "Figure"
            if is_drawing and draw.__module__.startswith(DRAWN):
                patch.setattr(module, name, lambda *_, **_options: Figure())


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn up but not painted, for a test of what else a command writes or says.

    Painting is most of what a command takes; what is painted has its own tests.
    """
    no_paint(monkeypatch)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of pages are not even drawn up, for a test of what else a command writes or says."""
    no_drawing(monkeypatch)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ampsim calibrate machine` times one call of each operation, for a test of something else.

    And in a call for the gradient of a weight few products.
    """
    monkeypatch.setattr("ampsim.calibration.machine.CALLS", 1)
    monkeypatch.setattr("ampsim.calibration.machine.STACKED", 2)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`only(factor=2.0)`, `only(what="latency of links")`: what-if tries nothing else, no curve.

    A whole table has a setup a row, each timed with every seed: most of what a question takes.
    """

    def narrow(*, factor: float | None = None, what: str | None = None) -> None:
        def some(*given: Any) -> list[Change]:
            return [
                replace(one, factors=[by for by in one.factors if factor in (None, by)])
                for one in changes_of(*given)
                if what in (None, one.what)
            ]

        monkeypatch.setattr(whatif, "changes_of", some)
        monkeypatch.setattr(whatif, "CURVE", (1.0, 2.0))

    return narrow


@pytest.fixture(scope="module")
def commands_kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Ended]]:
    """The folder that a command wrote in, and how it ended: each is run once for the file."""

    @cache
    def keep(*words: str) -> tuple[Path, Ended]:
        folder = tmp_path_factory.mktemp("once")
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in "12")
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setenv("COLUMNS", "120")
            no_drawing(patch)
            with pytest.raises(SystemExit) as ending:
                main(words)
        return folder, Ended(int(ending.value.code or 0), _all_of(out), _all_of(err))

    return keep


def _all_of(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@pytest.fixture
def once(
    call: Callable[..., Ended], commands_kept: Callable[..., tuple[Path, Ended]], tmp_path: Path
) -> Callable[..., Ended]:
    """As `call`, for a command that reads no file here and whose pictures nobody looks at.

    It is run once for the tests of a file; each gets a copy of what it wrote.
    """
    del call  # it leads into the folder

    def run(*words: str) -> Ended:
        folder, ended = commands_kept(*words)
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        return ended

    return run


@pytest.fixture
def mistake(call: Callable[..., Ended]) -> Callable[..., str]:
    """`mistake("forecast", "rrn")`: the one line that is said of it; nothing else may happen."""

    def run(*words: str) -> str:
        ended = call(*words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("ampsim: ")
        assert ended.err.endswith("\n")
        assert ended.err.count("\n") == 1
        return ended.err

    return run


@cache
def short_run(schedule: str, latency_s: float = 1e-6) -> ampsim.Result:
    """A moment of a shipped schedule on four workers between which there are links."""
    kind: Any = SCHEDULES[schedule]
    options = {"max_active_keys": 3, "staleness_budget": 1.0}
    chosen = {f.name: options[f.name] for f in fields(kind) if f.name in options}
    name, sizes, instances = "rnn", {"hidden": 4, "replicas": 2}, 300
    if needs_chain(kind()):
        name, sizes, instances = "mlp", {"hidden": 8, "data": "synthetic"}, 200
    ways: dict[str, Any] = {"latency_s": latency_s, "bandwidth_bytes_per_s": 1e9}
    cluster = ampsim.load_cluster("tflops-1", workers=4, **ways)
    model = ampsim.load_model(name, **sizes)
    return ampsim.simulate(model, cluster, kind(**chosen), instances=instances, mode="sleep")


@pytest.fixture(scope="session")
def result_of() -> Callable[..., ampsim.Result]:
    """`result_of(schedule, latency_s)` runs a schedule of the registry by name."""
    return short_run


@pytest.fixture(scope="module")
def model() -> ampsim.Model:
    """A small shipped model, which needs no data files."""
    return ampsim.load_model("mlp", data="synthetic", hidden=4)


@pytest.fixture(scope="module")
def cluster() -> ampsim.Cluster:
    """Four workers of a shipped device."""
    return ampsim.load_cluster("tflops-1", workers=4)


@pytest.fixture(scope="module")
def result(model: ampsim.Model, cluster: ampsim.Cluster) -> ampsim.Result:
    """A moment of that model on these workers."""
    return ampsim.simulate(model, cluster, ampsim.Amp(2), instances=200)


@pytest.fixture
def small_recipe() -> str:
    """A recipe whose one row takes a moment, in mode "sleep"."""
    return """
title = "A test"
model = "rnn"
set = { hidden = 4, replicas = 1 }
mode = "sleep"
instances = 100
epochs = 1
figures = ["throughput"]

[[schedules]]
name = "sequential"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The folder where the user is; the recipe in it is the `RECIPE` of the test's module."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_text(request.module.RECIPE)
    return tmp_path


@pytest.fixture(scope="session")
def make_report() -> Callable[..., Any]:
    """`make_report(folder, say=...)` runs the recipe in a folder and writes it up there."""

    def make(folder: Path, **options: Any) -> Any:
        recipe = read_recipe(folder)
        run = run_exploration if recipe.file.explore else run_recipe
        findings = run(recipe, folder, RecipeOptions(**options))
        findings.save(folder)
        return findings

    return make


@pytest.fixture(scope="session")
def report_of(
    tmp_path_factory: pytest.TempPathFactory, make_report: Callable[..., Any]
) -> Callable[..., Path]:
    """`report_of(recipe, files=...)` makes a report of a recipe's text, and gives its folder."""

    def make(recipe: str, files: dict[str, str] | None = None) -> Path:
        folder = tmp_path_factory.mktemp("report")
        for name, text in {"recipe.toml": recipe, **(files or {})}.items():
            (folder / name).write_text(text)
        make_report(folder)
        return folder

    return make
