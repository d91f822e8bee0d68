"""A forecast's folder: which files, what the page says, and that no name does harm."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pandas as pd
import pytest

from ampsim.errors import OutputError
from ampsim.files import sha256_of
from ampsim.report.page.text import setting

pytestmark = pytest.mark.slow  # each draws several figures

HOSTILE = ["../../x", "<script>alert(1)</script>", "a|b [bold] ![x](http://e)"]


@pytest.fixture(scope="module")
def result(make_forecast, make_chain):
    """A finished forecast."""
    return make_forecast(make_chain(), 3)


@pytest.fixture(scope="module")
def written(result, tmp_path_factory):
    """Its files, in a folder that was not there."""
    return result.save(tmp_path_factory.mktemp("report") / "new" / "out")


def test_the_folder_holds_table_page_figures_and_manifest(written):
    assert [path.name for path in written] == [
        "forecast.csv", "epochs.csv", "convergence.png", "throughput.png", "plane.png",
        "utilisation.png", "staleness.png", "gantt.png", "forecast.md", "index.html",
        "manifest.toml",
    ]  # fmt: skip
    assert set(written[0].parent.iterdir()) == set(written)


def test_the_page_tells_verdict_table_figures_assumptions_and_origin(written):
    page = written[-3].read_text(encoding="utf-8")
    first, verdict, setting, _table, below = page.split("\n\n")[:5]
    assert first == "# Forecast: rnn on 16 × tflops-1"
    assert verdict.startswith("**amp reaches 97 % in 410 ms")
    assert "- learning rates: the model's for all rows, none tuned" in below.splitlines()
    assert setting == "3 workers, target 97 % validation accuracy, 3 repeats of each schedule."
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page)
    assert shown == [path.name for path in written if path.suffix == ".png"]
    assert "- Light operations are free." in page
    assert "| tflops-1 | linear-1 | formula | Appendix C |" in page
    assert "| command | ampsim forecast rnn |" in page
    assert "| model.config.hidden | 128 |" in page
    (named,) = re.findall(r"\((\w+) in the table\)", page)  # by a caption
    assert f"\n| {named} |" in page


@pytest.mark.parametrize(("lost", "told"), [([2, 3, 3], "2 to 3 repeats"), ([1] * 3, "1 repeat")])
def test_repeats_are_those_of_each_schedule_where_some_were_lost(result, lost, told):
    table = result.table.assign(repeats=lost[: len(result.table)])
    assert setting(replace(result, table=table)).endswith(f"accuracy, {told} of each schedule.")


def test_the_manifest_reads_back_as_it_was(written, result):
    kept = tomllib.loads(written[-1].read_text("utf-8"))
    files = kept.pop("files")
    assert kept == {"kind": "forecast", "format": 1, **result.manifest}
    assert files == {path.name: sha256_of(path) for path in written[:-1]}


def test_the_same_forecast_gives_the_same_bytes(written, result, tmp_path):
    again = result.save(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


@pytest.mark.usefixtures("unpainted")
def test_without_accuracy_and_spans_their_figures_are_left_out(
    make_forecast, make_table, figure_1, tmp_path
):
    table = make_table(epochs_to_target=None)
    forecast = make_forecast(figure_1, 3, target=None, table=table)
    runs = [
        replace(
            run,
            utilisation_by_worker=run.utilisation_by_worker.assign(forward=float("nan")),
            epochs=run.epochs.assign(accuracy=float("nan")),
            spans=run.spans.iloc[:0],
            staleness=run.staleness.iloc[:0],
        )
        for run in forecast.runs
    ]
    forecast = replace(forecast, runs=runs)
    names = {path.name for path in forecast.save(tmp_path)}
    tables = {"forecast.csv", "epochs.csv"}
    assert names == {*tables, "manifest.toml", "throughput.png", "forecast.md", "index.html"}


def test_a_forecast_of_nothing_is_still_written(make_forecast, figure_1, make_table, tmp_path):
    forecast = make_forecast(figure_1, 3, runs=[], table=make_table().iloc[:0])
    names = {path.name for path in forecast.save(tmp_path)}
    assert names == {"manifest.toml", "forecast.csv", "forecast.md", "index.html"}
    nothing = make_forecast(figure_1, 3, runs=[], table=pd.DataFrame([]))
    nothing.save(tmp_path)
    assert "No schedule was finished" in (tmp_path / "forecast.md").read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_forecast_says_so(make_forecast, figure_1, tmp_path):
    forecast = make_forecast(figure_1, 3, interrupted="interrupted: 2 of 9 runs did not finish")
    forecast.save(tmp_path)
    assert "interrupted: 2 of 9 runs" in (tmp_path / "forecast.md").read_text("utf-8")


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_no_harm(make_forecast, make_table, figure_1, tmp_path, name):
    spans = {"sequential": figure_1["sequential"], "pipeline": figure_1["pipeline"]}
    forecast = make_forecast(spans, 3, model=name, cluster=name)
    names = {"sequential": "sequential", "pipeline": name}
    runs = [replace(run, schedule=names[run.schedule]) for run in forecast.runs]
    table = make_table(note=["", name, ""]).iloc[:2]
    table = table.assign(schedule=["sequential", name])
    forecast = replace(forecast, runs=runs, table=table)
    folder = tmp_path / "out"
    written = forecast.save(folder)
    assert {path.parent for path in written} == {folder}
    assert set(tmp_path.iterdir()) == {folder}
    page = (folder / "forecast.md").read_text("utf-8")
    folds = re.compile(r"</?details>|</?summary>")
    assert len(folds.findall(page)) == 4 and "<" not in folds.sub("", page)
    assert "http://e)" not in re.sub(r"\\\]\([^)]*\)", "", page)
    assert all(re.fullmatch(r"[a-z0-9_.-]+", path.name) for path in written)


@pytest.mark.usefixtures("undrawn")
def test_rows_of_one_schedule_are_kept_apart(make_forecast, make_table, figure_1, tmp_path):
    forecast = make_forecast({"amp": figure_1["amp"], "pipeline": figure_1["pipeline"]}, 3)
    runs = [replace(run, schedule="amp") for run in forecast.runs]
    table = make_table(schedule=["amp"] * 3, max_active_keys=[1, 4, 8])
    forecast = replace(forecast, runs=runs, table=table.iloc[:2])
    forecast.save(tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.count("<strong>(a) amp, 1 in flight</strong>") == 1
    assert page.count("<strong>(b) amp, 4 in flight</strong>") == 1


@pytest.mark.usefixtures("undrawn")
def test_a_folder_that_cannot_be_is_an_output_error(make_forecast, figure_1, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="file"):
        make_forecast(figure_1, 3).save(tmp_path / "file")
