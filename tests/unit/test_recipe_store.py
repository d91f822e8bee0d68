"""A finished run of a report is taken as it was written, or not at all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

from ampsim.recipes.checking import check_again
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.rows import make_rows
from ampsim.recipes.running import RecipeOptions, run_recipe
from ampsim.runs.store import RunCache, known_by
from ampsim.runs.witness import tiny_run

RECIPE = """
title = "Two"
model = "rnn"
set = { hidden = 4, replicas = 1 }
instances = 200
epochs = 1
target = 0.97
seeds = [0, 1]
figures = ["throughput"]

[[schedules]]
name = "sequential"

[[schedules]]
name = "amp"
"""

pytestmark = pytest.mark.usefixtures("undrawn")


def edit_parquet(path: Path, column: str, factor: float) -> None:
    frame: pd.DataFrame = pd.read_parquet(path)
    frame.assign(**{column: frame[column] * factor}).to_parquet(path, index=False)


def edit_number(path: Path, key: str, value: object) -> None:
    content = json.loads(path.read_text())
    content["numbers"][key] = value
    path.write_text(json.dumps(content))


EDITS = {
    "epochs.parquet": lambda path: edit_parquet(path, "train_s", 0.001),
    "path_parts.parquet": lambda path: edit_parquet(path, "seconds", 2.0),
    "time_by_node.parquet": lambda path: edit_parquet(path, "busy_s", 2.0),
    "transfers.parquet": lambda path: path.write_bytes(b""),
    "spans.parquet": lambda path: edit_parquet(path, "end_s", 2.0),
    "validations.parquet": lambda path: path.write_bytes(b""),
    "outages.parquet": lambda path: path.write_bytes(b""),
    "waits.parquet": lambda path: path.write_bytes(b""),
    "peak_memory.parquet": lambda path: edit_parquet(path, "bytes", 2),
    "memory.parquet": lambda path: edit_parquet(path, "activations", 2),
    "staleness.parquet": lambda path: edit_parquet(path, "count", 2),
    "utilisation_by_worker.parquet": lambda path: path.unlink(),
    "numbers.json": lambda path: edit_number(path, "utilisation", 0.99),
}


@pytest.mark.slow
def test_no_edited_file_of_a_kept_run_is_ever_published(folder, make_report):
    (folder / "recipe.toml").write_text(RECIPE.replace("seeds = [0, 1]\n", ""))
    table = make_report(folder).table
    kept = sorted(path.parent for path in (folder / ".runs").glob("*/numbers.json"))
    assert {path.name for path in kept[0].iterdir()} == set(EDITS)
    files = [*EDITS]
    for names in zip(files[::2], [*files[1::2], files[0]], strict=True):  # one in each run
        for place, name in zip(kept, names, strict=True):
            EDITS[name](place / name)
        said: list[str] = []
        pd.testing.assert_frame_equal(make_report(folder, say=said.append).table, table)
        refused = "its kept run is not taken, it is run again: "
        assert {one.partition(refused)[2].split(" is ")[0] for one in said} == {*names}
        assert len(said) == 2, names
    said.clear()
    make_report(folder, say=said.append)
    assert all(line.endswith("kept from before") for line in said)


@pytest.mark.slow
def test_a_rerun_takes_nothing_from_the_store_even_where_it_was_edited_with_its_hashes(
    folder, make_report
):
    recipe = read_recipe(folder)
    make_report(folder)
    keeping = RunCache(folder)
    for row in make_rows(recipe).rows:
        witness = tiny_run(row, make_rows(recipe).goal, 0).witness
        for seed in (0, 1):
            (known,) = known_by(row, [seed], witness)
            kept = keeping.read(known) or pytest.fail("it is not kept")
            lies = kept.epochs.assign(accuracy=0.99, train_s=kept.epochs["train_s"] / 1000)
            keeping.put(known, dataclasses.replace(kept, epochs=lies))
    said: list[str] = []
    taken = run_recipe(recipe, folder, RecipeOptions(say=said.append))
    assert len(said) == 4
    assert not check_again(recipe, folder, taken).follows
    said.clear()
    again = run_recipe(recipe, folder, RecipeOptions(is_fresh=True, say=said.append))
    assert said == []
    assert check_again(recipe, folder, again).follows
