"""Short runs at the ends of intervals are kept, redrawn and checked like all runs of a report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ampsim.errors import FileFormatError
from ampsim.recipes.beside import OUTLINES_FILE, read_outlines
from ampsim.recipes.checking import check_again, check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_manifest, read_results, redraw_report
from ampsim.recipes.running import InterruptedReport, RecipeOptions, run_recipe

RECIPE = """
title = "A test"
model = "mlp"
set = { data = "synthetic", hidden = 16, batch = 20, layers = 2 }
cluster = "ampnet-core"
workers = 2
instances = 200
max_epochs = 4
target = 0.11
seeds = [3, 4]
figures = []

[[schedules]]
name = "sequential"

[[schedules]]
name = "amp"
max_active_keys = 2
"""

HIGH_END = "3.751e-05 of 1.402e-05 to 3.751e-05"


@pytest.fixture(scope="module")
def report(report_of) -> Path:
    """The report of `RECIPE`, with its kept runs."""
    return report_of(RECIPE)


def test_the_page_says_which_numbers_and_what_the_notes_have(report):
    page = re.sub(r"\\(.)", r"\1", (report / "report.md").read_text())
    numbers = (
        "flop_per_s of ampnet-core 2.05e+10 to 2.43e+10, "
        "step_overhead_s of ampnet-core 1.4e-05 to 3.75e-05"
    )
    said = f"- 2 numbers of the devices have 95 % intervals: {numbers}. Each row was run shortly in"
    assert said in page
    assert "- Intervals hold the seeds and, within 95 %, the devices' numbers; notes have" in page
    notes = page.count("of the device alone, 95 %: training ")
    assert notes == 2 * 2  # of two rows, below the table and among all columns


def test_what_is_kept_is_not_made_again_and_gives_the_same(report):
    said: list[str] = []
    made: list[str] = []
    options = RecipeOptions(say=said.append, on_progress=lambda one: made.append(one.schedule))
    again = run_recipe(read_recipe(report), report, options)
    assert (len(said), made) == (2 * 2 + 2 * 5, [])
    assert all(line.endswith("kept from before") for line in said)
    assert f"amp at step_overhead_s of ampnet-core, {HIGH_END}, seed 3: kept from before" in said
    assert again.outlines == (report / OUTLINES_FILE).read_text()


def test_ctrl_c_in_a_short_run_keeps_what_was_made(folder):
    recipe = read_recipe(folder)
    ended: list[str] = []

    def interrupt(progress) -> None:
        if progress.schedule.startswith("amp at flop_per_s"):
            raise KeyboardInterrupt
        if progress.is_epoch_end:
            ended.append(progress.schedule)

    with pytest.raises(InterruptedReport, match="interrupted: 10 of 14 runs are kept"):
        run_recipe(recipe, folder, RecipeOptions(on_progress=interrupt))
    assert f"sequential at step_overhead_s of ampnet-core, {HIGH_END}" in ended
    said: list[str] = []
    run_recipe(recipe, folder, RecipeOptions(say=said.append))
    assert len(said) == 10


def test_a_report_is_redrawn_and_checked_with_its_intervals(report):
    names = ("report.csv", "report.md", "manifest.toml")
    before = {name: (report / name).read_bytes() for name in names}
    recipe = read_recipe(report)
    redraw_report(read_results(recipe, report), report, read_manifest(report)["files"])
    assert {name: (report / name).read_bytes() for name in names} == before
    assert check_report(recipe, report).follows
    assert check_again(recipe, report, run_recipe(recipe, report)).follows


def test_what_is_no_spread_is_refused_with_its_file(report, tmp_path):
    text = (report / OUTLINES_FILE).read_text()
    content = json.loads(text)
    content["at_ends"]["amp"]["rates"].pop()
    (tmp_path / OUTLINES_FILE).write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"does not hold the outlines of this version$"):
        read_outlines(tmp_path)
