"""The pages beside a run's trace: what they tell, whatever became of the run, and safely."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib

import pytest

import ampsim
from ampsim.report.frames import joined
from ampsim.report.page import folders as run_page
from ampsim.report.page.figures import gantt_together, result_figures
from ampsim.report.page.folders import (
    EPOCHS_SHOWN,
    epochs_table,
    index,
    page,
    verdict_of,
    view_of,
    words_of,
    write_run_folder,
    write_run_page,
)
from ampsim.runs.folder import Outcome, run_to_keep
from ampsim.study.simulation import RunOptions

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def model(chain):
    return chain(((1000, 2000, 500),) * 3, instances=8, valid=4).model()


@pytest.fixture(scope="module")
def kept(model, make_cluster):
    """`kept(schedule, **options)`: what `ampsim run` keeps of the chain on three devices."""

    def keep(schedule: ampsim.Amp | ampsim.Pipeline | None = None, **options) -> Outcome:
        cluster = make_cluster(3, flop_per_s=1e9)
        return run_to_keep(model, cluster, schedule or ampsim.Amp(2), RunOptions(**options))

    return keep


@pytest.fixture(scope="module")
def finished(kept):
    return kept(epochs=3)


@pytest.mark.usefixtures("unpainted")
def test_the_folder_gets_figures_and_two_pages(finished, tmp_path):
    written = [path.name for path in write_run_page(finished, tmp_path)]
    assert written == [
        "gantt.png", "convergence.png", "utilisation.png", "bounds.png", "memory.png",
        "staleness.png", "report.md", "index.html", "epochs.csv",
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == set(written)


def test_both_pages_tell_verdict_table_epochs_bound_assumptions_and_origin(finished):
    view = view_of(finished)
    for text in (page(view, [], words_of(view)), index(view, [])):
        for told in (
            "Run: chain on test", "amp trains ", "After 3 epochs, at ", "3 workers",
            "validation accuracy", "Epochs", "busy", "What is assumed", "How this was made",
            "spans.parquet", "epochs.parquet",
        ):  # fmt: skip
            assert told in text
        assert (
            "time to" not in text.partition("All times are virtual")[0].partition("In flight: ")[0]
        )


@pytest.mark.parametrize("target", [None, 0.01])
def test_captions_speak_of_the_one_run_and_of_what_is_drawn(target, finished):
    view = view_of(finished, target)
    charts = gantt_together(view, {"amp": list(view.runs)})
    told = {one.file: one.caption for one, _figure in [*charts, *result_figures(view)]}
    assert len(told) >= 8 and not re.search(
        r"repeat|median|table|row|[][]", " ".join(told.values())
    )
    assert ("A ring marks where the run reaches" in told["convergence.png"]) == (target is not None)
    assert told["throughput.png"] == "Training and validation throughput."
    alone = dataclasses.replace(view, table=view.table.assign(valid_per_s=math.nan))
    ((picture, _figure),) = result_figures(alone, wanted=["throughput"])
    assert picture.caption == "Training throughput."
    several = dataclasses.replace(alone, runs=view.runs * 2, table=joined([alone.table] * 2))
    ((picture, _figure),) = result_figures(several, wanted=["throughput"])
    assert picture.caption == "Training throughput; in brackets, how many times the first row's."


def test_what_bounds_it_is_told(finished):
    bound_by = finished.result.bounds.bound_by
    assert bound_by == "worker 0"  # the first of three alike
    assert "- amp: bound by stage-1 (" in page(view_of(finished), [])
    assert "amp: bound by stage-1 (" in index(view_of(finished), [])


def test_with_a_target_the_time_to_it_is_told(kept):
    outcome = kept(epochs=9, target=0.01)
    view = view_of(outcome, 0.01)
    assert len(view.runs[0].epochs) < 9
    assert "and reaches 1 % in " in verdict_of(view)
    assert "time to target" in page(view, [])


def test_a_line_for_each_epoch_and_of_many_the_last(finished, kept):
    headings, *lines = epochs_table(view_of(finished))
    assert headings[-2:] == ["validation accuracy", "training (items/s)"]
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert all(line[-1].endswith(" k") for line in lines)
    many = view_of(kept(epochs=EPOCHS_SHOWN + 2))
    assert len(epochs_table(many)) == 1 + EPOCHS_SHOWN
    assert f"The last {EPOCHS_SHOWN} of {EPOCHS_SHOWN + 2} epochs" in index(many, [])


@pytest.mark.usefixtures("unpainted")
def test_without_numbers_there_is_no_convergence_and_an_older_figure_goes(finished, kept, tmp_path):
    write_run_folder(lambda _on_rows: finished, tmp_path)
    assert (tmp_path / "convergence.png").is_file()
    (tmp_path / "mine.png").write_bytes(b"mine")
    write_run_folder(lambda _on_rows: kept(mode="sleep"), tmp_path)
    assert not (tmp_path / "convergence.png").exists()
    assert (tmp_path / "mine.png").read_bytes() == b"mine"
    manifest = tomllib.loads((tmp_path / "manifest.toml").read_text("utf-8"))
    tables = {f"{name}.parquet" for name in manifest["files"]}
    known = {*tables, *manifest["pages"], "manifest.toml", "mine.png"}
    assert {path.name for path in tmp_path.iterdir()} == known


def test_a_run_that_was_interrupted_at_once_has_pages_too(finished, tmp_path):
    recorder = type(finished.result.recorder)(finished.result.recorder.nodes, 3)
    result = dataclasses.replace(finished.result, recorder=recorder)
    outcome = Outcome(result, 3, is_interrupted=True)
    written = [path.name for path in write_run_page(outcome, tmp_path)]
    assert written == ["report.md", "index.html", "epochs.csv"]
    for name in written[:2]:
        text = (tmp_path / name).read_text("utf-8")
        assert "The run was interrupted after 0 of 3 epochs." in text
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_a_run_that_failed_says_why(finished):
    outcome = Outcome(finished.result, 9, failure="the loss is NaN")
    view = view_of(outcome)
    for text in (page(view, [], words_of(view)), index(view, [])):
        assert "The run failed after 3 of 9 epochs: the loss is NaN." in text


def test_a_page_shows_the_leading_steps_only(finished, monkeypatch):
    monkeypatch.setattr(run_page, "ROWS_KEPT", 50)
    assert len(finished.result.spans) > 50
    view = view_of(finished)
    assert len(view.runs[0].spans) == 50
    assert math.isclose(view.runs[0].makespan_s, finished.result.makespan_s)
    assert "(50 of " in index(view, [])


@pytest.mark.usefixtures("unpainted")
def test_names_of_a_user_do_no_harm(finished, tmp_path):
    model = dataclasses.replace(finished.result.model, name=HOSTILE)
    origin = {**finished.result.origin, "cluster": {"name": "../../x"}}
    result = dataclasses.replace(finished.result, model=model, origin=origin)
    written = write_run_page(Outcome(result, 3), tmp_path)
    assert {path.parent for path in written} == {tmp_path}
    for name in ("report.md", "index.html"):
        text = (tmp_path / name).read_text("utf-8")
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text
