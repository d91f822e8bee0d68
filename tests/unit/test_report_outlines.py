"""A report is redrawn from the outlines of its runs, which lie beside it."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ampsim.data import MissingDataError
from ampsim.errors import FileFormatError
from ampsim.files import sha256_of
from ampsim.metric import Metric
from ampsim.recipes import rows, running
from ampsim.recipes.beside import OUTLINES_FILE, outlines_to_text, read_outlines
from ampsim.recipes.checking import check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_manifest, read_results, redraw_report
from ampsim.report.page import text as page_text
from ampsim.runs import jobs
from ampsim.runs.run import (
    NUMBER_FIELDS,
    TABLE_FIELDS,
    TRACE_FIELDS,
    from_plain,
    run_of,
    to_plain,
)

RECIPE = """
title = "A *small* test"
model = "rnn"
set = { hidden = 4, replicas = 1 }
instances = 200
epochs = 1
target = 0.97
seeds = [0, 1]

[[schedules]]
name = "amp"
label = "throughput, mak 2"
mode = "sleep"
max_active_keys = 2

[[schedules]]
name = "amp"
label = "hidden 5"
placement = "balanced"
set = { hidden = 5 }

[[schedules]]
name = "sequential"
set = { learning_rate = 1e30 }

[[published]]
schedule = "throughput, mak 2"
quantity = "train_per_s"
value = 13_000
source = "AMPNet, Table 2"
"""

SMALL = [name for name in TABLE_FIELDS if name not in TRACE_FIELDS]


@pytest.fixture(scope="module")
def made(tmp_path_factory, make_report) -> Path:
    """The report of `RECIPE`, without its kept runs; not to be written to."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "recipe.toml").write_text(RECIPE)
    make_report(folder)
    shutil.rmtree(folder / ".runs")
    return folder


@pytest.fixture
def report(made, tmp_path, monkeypatch) -> Path:
    """A copy of it, where nothing can be run and no data be read."""

    def refuse(*given, **named):
        raise MissingDataError("nothing may be run or loaded")

    monkeypatch.setattr(rows, "load_model", refuse)
    monkeypatch.setattr(jobs, "run_all", refuse)
    monkeypatch.setenv("AMPSIM_DATA", str(tmp_path / "nowhere"))
    return Path(shutil.copytree(made, tmp_path / "report"))


def redraw(folder: Path) -> list[str]:
    recipe = read_recipe(folder)
    results = read_results(recipe, folder)
    written = redraw_report(results, folder, read_manifest(folder)["files"])
    return [path.name for path in written]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def list_anew(folder: Path, *names: str) -> None:
    """Let the manifest have the hashes of what now lies beside it."""
    text = (folder / "manifest.toml").read_text()
    for name in names:
        before = tomllib.loads(text)["files"][name]
        text = text.replace(before, sha256_of(folder / name))
    (folder / "manifest.toml").write_text(text)


def test_an_outline_is_read_as_it_was_written_to_the_bit(result):
    outline = dataclasses.replace(
        run_of(result),
        staleness_mean=math.nan,
        min_update_interval=None,
        epochs=result.epochs.assign(loss=math.inf, error=[math.nan], third=np.float32(1 / 3)),
    )
    text = json.dumps(to_plain(outline), allow_nan=False)
    again = from_plain(json.loads(text))
    for name in SMALL:
        pd.testing.assert_frame_equal(
            getattr(again, name), getattr(outline, name), check_exact=True
        )
    assert len(outline.path_parts) > 2
    assert json.dumps(to_plain(again)) == text
    for name in NUMBER_FIELDS:
        np.testing.assert_equal(getattr(again, name), getattr(outline, name))
    assert again.spans.empty
    assert "end_s" not in text
    assert (again.train_per_s, again.valid_per_s) == (outline.train_per_s, outline.valid_per_s)


def test_the_file_has_a_line_a_run_and_is_read_again(result, tmp_path):
    runs = [
        run_of(result, schedule="amp", seed=7),
        run_of(result, "it ended", schedule='a "b"', repeat=2, seed=8),
    ]
    text = outlines_to_text(Metric("error", "eV"), runs)
    assert len(text.splitlines()) == 4
    (tmp_path / OUTLINES_FILE).write_text(text)
    read = read_outlines(tmp_path)
    assert read.metric == Metric("error", "eV")
    said = [(run.schedule, run.repeat, run.seed, run.failure) for run in read.runs]
    assert said == [("amp", 1, 7, None), ('a "b"', 2, 8, "it ended")]
    assert outlines_to_text(read.metric, read.runs) == text


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", '{"kind": "outlines", "format": 2}', "[" * 100_000,
        '{"kind": "outlines", "format": 1, "metric": {"kind": "speed", "unit": ""}, "runs": []}',
        '{"kind": "outlines", "format": 1, "metric": {"kind": "error", "unit": ""}, "runs": [{}]}',
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused(tmp_path, content):
    (tmp_path / OUTLINES_FILE).write_text(content)
    with pytest.raises(FileFormatError, match=r"does not hold the outlines of this version$"):
        read_outlines(tmp_path)


def test_a_file_that_is_missing_or_no_text_is_told(tmp_path):
    with pytest.raises(FileFormatError, match=r"^outlines\.json is missing$"):
        read_outlines(tmp_path)
    (tmp_path / OUTLINES_FILE).write_bytes(b"\xff")
    with pytest.raises(FileFormatError, match=r"^outlines\.json cannot be read: "):
        read_outlines(tmp_path)


@pytest.mark.slow
def test_a_report_that_is_redrawn_is_the_same_to_the_byte(report):
    before = contents(report)
    pictures = {name for name in before if name.endswith(".png")}
    assert len(pictures) > 4
    assert OUTLINES_FILE in tomllib.loads(before["manifest.toml"].decode())["files"]
    for name in ("report.csv", "report.md", *pictures - {"gantt.png"}):
        (report / name).unlink()
    written = redraw(report)
    assert set(written) == set(before) - {"recipe.toml", "gantt.png", "witness.json"}
    assert contents(report) == before


@pytest.mark.slow
def test_outlines_have_busy_times_and_the_path_of_each_rows_first_run_alone(report):
    runs = [one for one in read_outlines(report).runs if not one.failure]
    assert {one.repeat == 1 for one in runs} == {False, True}
    for run in runs:
        assert (len(run.time_by_node) > 0) == (len(run.path_parts) > 0) == (run.repeat == 1)
        assert len(run.epochs) > 0 < len(run.utilisation_by_worker)


@pytest.mark.usefixtures("undrawn")
def test_what_is_drawn_otherwise_gets_a_new_hash_and_the_origin_stays(report, monkeypatch):
    redraw(report)
    before = read_manifest(report)
    monkeypatch.setattr(page_text, "ALL_COLUMNS", "Another legend.")
    monkeypatch.setattr(running, "source_digest", lambda: "another")
    redraw(report)
    assert "Another legend." in (report / "report.md").read_text()
    after = read_manifest(report)
    changed = {name for name, digest in after["files"].items() if digest != before["files"][name]}
    assert changed == {"report.md"}
    assert {**after, "files": 0} == {**before, "files": 0}
    assert check_report(read_recipe(report), report).follows


@pytest.mark.usefixtures("undrawn")
def test_the_gantt_chart_stays_as_it_is_on_disk_and_on_the_page(report):
    (report / "gantt.png").write_bytes(b"a chart")
    list_anew(report, "gantt.png")
    redraw(report)
    assert (report / "gantt.png").read_bytes() == b"a chart"
    assert "](gantt.png)" in (report / "report.md").read_text()
    (report / "gantt.png").write_bytes(b"mine")
    digest = read_manifest(report)["files"]["gantt.png"]
    redraw(report)
    assert (report / "gantt.png").read_bytes() == b"mine"
    assert read_manifest(report)["files"]["gantt.png"] == digest
    faults = check_report(read_recipe(report), report).faults
    assert faults == ("gantt.png is not as it was written",)


@pytest.mark.slow
def test_outlines_that_were_edited_or_are_of_other_runs_are_refused(report):
    recipe = read_recipe(report)
    before = (report / OUTLINES_FILE).read_text()
    (report / OUTLINES_FILE).write_text(before.replace('"seed":1', '"seed":2'))
    said = "outlines.json is not as it was written"
    assert check_report(recipe, report).faults == (said,)
    with pytest.raises(FileFormatError, match=f"^{said}; run it again$"):
        read_results(recipe, report)
    list_anew(report, OUTLINES_FILE)
    with pytest.raises(FileFormatError, match="has other runs than the recipe asks for; run it"):
        read_results(recipe, report)
    (report / OUTLINES_FILE).write_text(before)
    list_anew(report, OUTLINES_FILE)
    (report / "recipe.toml").write_text(RECIPE.replace("hidden = 5", "hidden = 6"))
    with pytest.raises(FileFormatError, match=r"^the recipe has changed since outlines\.json was"):
        read_results(read_recipe(report), report)


@pytest.mark.usefixtures("undrawn")
def test_title_and_text_may_change_before_a_report_is_redrawn(report):
    said = RECIPE.replace('title = "A *small* test"', 'title = "Another"\ntext = "In other words."')
    (report / "recipe.toml").write_text(said)
    recipe = read_recipe(report)
    assert check_report(recipe, report).faults == ("the recipe has changed",)
    results = read_results(recipe, report)
    redraw_report(results, report, read_manifest(report)["files"])
    page = (report / "report.md").read_text()
    assert page.startswith("# Another\n\nIn other words.\n")
    assert check_report(recipe, report).faults == ()


@pytest.mark.slow
def test_a_report_without_outlines_does_not_follow_and_is_not_redrawn(made, tmp_path):
    report = Path(shutil.copytree(made, tmp_path / "report"))
    (report / OUTLINES_FILE).unlink()
    manifest = (report / "manifest.toml").read_text().splitlines(keepends=True)
    (report / "manifest.toml").write_text(
        "".join(one for one in manifest if OUTLINES_FILE not in one)
    )
    recipe = read_recipe(report)
    faults = check_report(recipe, report).faults
    assert faults == (f"manifest.toml does not list {OUTLINES_FILE}",)
    with pytest.raises(FileFormatError, match=r"^it has no outlines\.json to redraw it from; run"):
        read_results(recipe, report)


@pytest.mark.slow
def test_a_manifest_that_lacks_the_clusters_name_is_refused(report):
    text = (report / "manifest.toml").read_text()
    (report / "manifest.toml").write_text(text.replace("[cluster]\nname", "[cluster]\nnome"))
    with pytest.raises(FileFormatError, match=r"^manifest\.toml, outlines\.json or .* is not that"):
        read_results(read_recipe(report), report)
