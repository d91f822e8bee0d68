"""Code that changed leaves a report standing as long as it does the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ampsim.files import sha256_of
from ampsim.ir import Direction, Work
from ampsim.model_parallel import SCHEDULES
from ampsim.nodes.gru import GRUCell
from ampsim.nodes.linear import MatrixNode
from ampsim.recipes import checking, running
from ampsim.recipes.beside import WITNESS_FILE, read_witnesses, witnesses_to_text
from ampsim.recipes.checking import check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.rows import make_rows
from ampsim.recipes.running import RecipeOptions, run_recipe
from ampsim.runs import witness as tiny_runs
from ampsim.runs.witness import TinyRun, agree, tiny_run

THREE_LAYERS = Path(__file__).parents[2] / "reports" / "figure-1" / "three_layers.py"
CELLS = """
title = "Two cells"
model = "ggnn"
mode = "sleep"
workers = 4
instances = 20
epochs = 1
figures = ["throughput"]
set = { data = "synthetic", hidden = 12 }

[[schedules]]
name = "amp"
label = "fused"
set = { cell = "fused" }

[[schedules]]
name = "amp"
label = "composed"
set = { cell = "composed" }
"""


@pytest.fixture(scope="module")
def cells_made(report_of) -> Path:
    """A report of two rows, whose cells are other nodes; not to be written to."""
    return report_of(CELLS)


@pytest.fixture
def cells(cells_made, tmp_path) -> Path:
    """A copy of it, under its name."""
    return shutil.copytree(cells_made, tmp_path / cells_made.name)


@pytest.mark.slow
def test_a_manifest_that_tells_costs_in_other_words_is_found_without_runs(cells, monkeypatch):
    """Its page would say so, and only running the report again would tell."""
    recipe = read_recipe(cells)
    assert check_report(recipe, cells).follows
    told = running.costs_of
    changed = lambda clusters, rows: [  # noqa: E731  # short
        one | {"text": f"{one['text']}, at night"} for one in told(clusters, rows)
    ]
    monkeypatch.setattr(checking, "costs_of", changed)
    (fault,) = check_report(recipe, cells).faults
    assert fault == "manifest.toml tells other costs than are charged; make the report again"


def test_what_differs_is_shown_where_it_differs(cells):
    """However much the two texts begin with alike."""
    before = "- assumed, not measured: of links: messages; of host: controller, loading of data"
    said = checking._words(before, f"{before}, control flow", 0.0)
    assert said == (
        "'t: controller, loading of data' in place of "
        "'t: controller, loading of data, control flow'"
    )


def recipe_of_all(folder: Path) -> Path:
    """A recipe with a row for each schedule that is registered, on a chain of three layers."""
    (folder / "three_layers.py").write_bytes(THREE_LAYERS.read_bytes())
    head = 'title = "All"\nmodel = "./three_layers.py"\nfigures = ["throughput"]\n'
    head += "workers = 3\nepochs = 1\ntarget = 0.5\n"
    rows = "".join(f'\n[[schedules]]\nname = "{name}"\n' for name in SCHEDULES)
    (folder / "recipe.toml").write_text(
        f"{head}set = {{ width = 4, train_count = 60, valid_count = 9 }}\n{rows}"
    )
    return folder


@pytest.fixture
def every_schedule(tmp_path) -> Path:
    """Its folder."""
    return recipe_of_all(tmp_path)


@pytest.fixture(scope="module")
def firsts(tmp_path_factory) -> dict[str, TinyRun]:
    """The tiny runs of its rows, made by the code as it is."""
    rows = make_rows(read_recipe(recipe_of_all(tmp_path_factory.mktemp("all"))))
    return {row.label: tiny_run(row, rows.goal, 0) for row in rows.rows}


def make(folder: Path) -> list[str]:
    """Run the recipe and write it up; what was said of its runs."""
    said: list[str] = []
    recipe = read_recipe(folder)
    run_recipe(recipe, folder, RecipeOptions(say=said.append)).save(folder)
    return said


def make_dearer(monkeypatch, node: type[MatrixNode]) -> None:
    """Let a forward step of that class cost one operation more."""
    work = node.work

    def dearer(self, direction, shape):
        done = work(self, direction, shape)
        return Work(done.flop + 1) if direction is Direction.FORWARD else done

    monkeypatch.setattr(node, "work", dearer)


def verdict(folder: Path):
    return check_report(read_recipe(folder), folder)


@pytest.fixture
def change_code(monkeypatch):
    """`change_code()` makes the package's code look like another."""

    def change() -> None:
        for module in (checking, running):
            monkeypatch.setattr(module, "source_digest", lambda: "another")

    return change


@pytest.mark.slow
def test_every_schedule_has_a_witness_that_is_the_same_when_made_again(every_schedule, firsts):
    kept = json.loads(witnesses_to_text({label: one.witness for label, one in firsts.items()}))
    assert set(kept["rows"]) == set(SCHEDULES)
    (every_schedule / WITNESS_FILE).write_text(
        witnesses_to_text({n: one.witness for n, one in firsts.items()})
    )
    before = read_witnesses(every_schedule)
    assert before is not None
    rows = make_rows(read_recipe(every_schedule))
    for row in rows.rows:
        again = tiny_run(row, rows.goal, 0)
        assert again.difference(before[row.label]) is None
        assert agree(again.witness, before[row.label])
        assert again.witness.numbers["repeats_reached"] in (0, 1)
        assert again.witness.tables["updates"].count > 3


@pytest.mark.slow
def test_witnesses_stand_in_the_order_of_the_rows_whichever_ended_first(cells, monkeypatch):
    before = (cells / WITNESS_FILE).read_bytes()
    witnesses_of = running.witnesses_of

    def reversed_witnesses(*given):
        return dict(reversed(witnesses_of(*given).items()))

    monkeypatch.setattr(running, "witnesses_of", reversed_witnesses)
    make(cells)
    assert (cells / WITNESS_FILE).read_bytes() == before


@pytest.mark.slow
def test_a_changed_flop_formula_is_seen_under_every_schedule(every_schedule, firsts, monkeypatch):
    make_dearer(monkeypatch, MatrixNode)
    rows = make_rows(read_recipe(every_schedule))
    for row in rows.rows:
        said = tiny_run(row, rows.goal, 0).difference(firsts[row.label].witness)
        assert said is not None, row.label
        assert " of spans" in said


@pytest.mark.slow
def test_another_learning_rate_is_seen_by_its_loss_alone(every_schedule, firsts):
    before = {label: one.witness for label, one in firsts.items()}
    recipe = every_schedule / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("width = 4", "width = 4, learning_rate = 0.09"))
    rows = make_rows(read_recipe(every_schedule))
    for row in rows.rows:
        now = tiny_run(row, rows.goal, 0)
        said = now.difference(before[row.label])
        assert said is not None
        assert said.startswith("loss of epoch 1 was "), said
        assert now.witness.digest == before[row.label].digest


@pytest.mark.slow
def test_code_that_does_the_same_leaves_a_report_standing(cells, change_code, monkeypatch):
    """A helper under another name, and in another form."""
    change_code()
    forward = GRUCell.forward

    def renamed(self, *given):
        return forward(self, *given)

    monkeypatch.setattr(GRUCell, "forward", renamed)
    changed = "ampsim's code has changed, its behaviour has not"
    assert verdict(cells) == checking.Verdict((), (changed,))
    assert make(cells) == ["fused, seed 0: kept from before", "composed, seed 0: kept from before"]
    assert verdict(cells) == checking.Verdict(())


@pytest.mark.slow
def test_a_changed_flop_formula_makes_its_rows_stale_and_only_those_are_run_again(
    cells, change_code, monkeypatch
):
    change_code()
    make_dearer(monkeypatch, GRUCell)
    said = verdict(cells)
    assert said.notes[0] == "ampsim's code has changed"
    ratio, fault = said.faults
    assert ratio.startswith("cc_ratio of fused was ")
    assert fault.startswith("fused behaves otherwise: ")
    assert " of spans" in fault
    assert make(cells) == ["composed, seed 0: kept from before"]
    assert verdict(cells).follows


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_model_file_that_says_the_same_otherwise_leaves_a_report_standing(every_schedule):
    make(every_schedule)
    model = every_schedule / "three_layers.py"
    model.write_text(model.read_text() + "\n# a word\n")
    changed = "the model file of ./three_layers.py has changed, its behaviour has not"
    assert verdict(every_schedule) == checking.Verdict((), (changed,))
    said = make(every_schedule)
    assert len(said) == len(SCHEDULES)
    assert all(line.endswith(": kept from before") for line in said)


@pytest.mark.slow
def test_without_a_witness_or_data_it_is_said_what_cannot_be_told(cells, change_code, monkeypatch):
    def absent(*given):
        raise checking.MissingDataError("mnist: no such file")

    change_code()
    with monkeypatch.context() as other:
        other.setattr(checking, "tiny_run", absent)
        said = verdict(cells)
        assert said.follows
        reason = f"what it does is not compared with {WITNESS_FILE}: mnist: no such file"
        assert said.notes == ("ampsim's code has changed", reason)
    manifest = (cells / "manifest.toml").read_text()
    digest = sha256_of(cells / WITNESS_FILE)
    kept = (cells / WITNESS_FILE).read_text()
    (cells / WITNESS_FILE).write_text(kept[:-9])
    (cells / "manifest.toml").write_text(manifest.replace(digest, sha256_of(cells / WITNESS_FILE)))
    assert verdict(cells).faults == (f"{WITNESS_FILE} does not hold the witnesses of this version",)
    lines = [line for line in manifest.splitlines() if WITNESS_FILE not in line]
    (cells / "manifest.toml").write_text("\n".join(lines))
    assert verdict(cells).faults == (f"manifest.toml does not list {WITNESS_FILE}",)


@pytest.mark.slow
def test_a_tiny_run_has_as_many_in_flight_as_the_row(every_schedule, firsts):
    for row in make_rows(read_recipe(every_schedule)).rows:
        spans = firsts[row.label].frames["spans"]
        count = len(set(spans["instance"].tolist()) - {-1})
        wanted = 2 * (row.schedule.admission.in_flight_max or 1)
        assert count >= min(wanted, tiny_runs.TRAINED_MAX)
