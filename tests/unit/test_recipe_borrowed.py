"""A row that takes its epochs from another, and what is said where it must not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ampsim
from ampsim.errors import FileFormatError
from ampsim.metric import Goal
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.rows import make_rows
from ampsim.runs.rows import row_of
from ampsim.runs.run import run_of

GOOD = """
title = "A test"
model = "mlp"
set = { hidden = 64, data = "synthetic", batch = 20, learning_rate = 0.03 }
cluster = "a100"
workers = 4
instances = 400
max_epochs = 9
target = 0.8
seeds = [0, 1, 2]
figures = []

[[schedules]]
name = "pipeline"
label = "lender"
max_active_keys = 4

[[schedules]]
name = "gpipe"
max_active_keys = 4
latency_s = 1e-5
mode = "sleep"
epochs_of = "lender"

[[schedules]]
name = "gpipe"
label = "itself"
max_active_keys = 4
latency_s = 1e-5
"""
EVENTS = """
[[device]]
name = "tflops-1"
count = 4

[[events]]
kind = "pause"
worker = 0
from_s = 0.0
until_s = 1e-6
source = { kind = "assumed", text = "a test" }
"""
LOSSY = """
[[device]]
name = "tflops-1"
count = 4

[failures]
weights = "checkpoint"
mean_time_between_s = 1.0
mean_time_to_repair_s = 1e-6
source = { kind = "assumed", text = "a test" }

[checkpoints]
every_s = 0.1
source = { kind = "assumed", text = "a test" }
"""


@pytest.fixture
def write(tmp_path):
    """`write(GOOD)` puts a recipe into a folder and gives the folder."""

    def put(content: str) -> Path:
        (tmp_path / "recipe.toml").write_text(content)
        (tmp_path / "events.toml").write_text(EVENTS)
        (tmp_path / "lossy.toml").write_text(LOSSY)
        return tmp_path

    return put


def test_epochs_that_are_borrowed_give_what_the_row_itself_would(write, make_report):
    table = make_report(write(GOOD)).table.set_index("schedule")
    lender, borrower, itself = (table.loc[name] for name in ("lender", "gpipe", "itself"))
    assert lender["time_to_target_s"] < itself["time_to_target_s"]
    assert borrower["note"] == "epochs as lender"
    assert itself["repeats_reached"] == borrower["repeats_reached"] == 3
    assert itself["epochs_to_target"] == borrower["epochs_to_target"] > 1
    for column in (
        "time_to_target_s", "time_to_target_low_s", "time_to_target_high_s", "train_per_s",
        "best_accuracy",
    ):  # fmt: skip
        assert borrower[column] == pytest.approx(itself[column], rel=1e-9), column
    for column in ("energy_to_target_j", "cost_to_target_usd"):  # the last message of each epoch
        assert borrower[column] == pytest.approx(itself[column], rel=5e-3), column


def require_refused(folder: Path, said: str) -> None:
    """The recipe of a folder is refused in one line that begins so, after its file."""
    with pytest.raises(FileFormatError) as caught:
        make_rows(read_recipe(folder))
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.removeprefix(f"{folder / 'recipe.toml'}: ").startswith(said)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('mode = "sleep"\n', "", 'schedules[1]: epochs_of belongs to mode "sleep", in which noth'),
        (
            '_of = "lender"',
            '_of = "x"',
            "schedules[1]: epochs_of: no row named 'x'; known: gpipe, itself, l",
        ),
        (
            "max_epochs = 9",
            "epochs = 9",
            "schedules[1]: epochs_of needs max_epochs and a target; give them instead of epochs",
        ),
        (
            'label = "lender"',
            'label = "lender"\nmode = "sleep"',
            "schedules[1]: epochs_of: 'lender' must learn; let its mode be \"numeric\"",
        ),
        (
            'label = "lender"',
            'label = "lender"\nset = { learning_rate = 0.1 }',
            "schedules[1]: epochs_of: 'lender' must have the same set, {}, got {'learning_rate': ",
        ),
        (
            'label = "lender"\nmax_active_keys = 4',
            'label = "lender"\nmax_active_keys = 2',
            "schedules[1]: epochs_of must name a row with the same admission: GPipe(",
        ),
        (
            'name = "gpipe"\nmax_active_keys = 4',
            'name = "amp"\nmax_active_keys = 4',
            "schedules[1]: epochs_of has no sense for amp, whose learning depends on what it runs",
        ),
        (
            'name = "gpipe"\nmax_active_keys = 4',
            'name = "pipedream"\nmax_active_keys = 4',
            "schedules[1]: epochs_of must name a row of the same schedule where it does not drain",
        ),
        (
            "latency_s = 1e-5\nmode",
            'cluster = "./events.toml"\nmode',
            "schedules[1]: epochs_of has no sense on events, whose events at set times are not th",
        ),
        (
            "latency_s = 1e-5\nmode",
            'cluster = "./lossy.toml"\nmode',
            "schedules[1]: epochs_of has no sense with lossy, on which learning depends on what st",
        ),
        (
            "[[schedules]]",
            "[grid]\nworkers = [4, 5]\n\n[[schedules]]",
            "schedules[1] at 4 workers: epochs_of must name one row, but the grid makes 2 of 'len",
        ),
    ],
)
def test_epochs_must_not_be_borrowed_where_learning_differs(before, after, said, write):
    assert before in GOOD
    require_refused(write(GOOD.replace(before, after, 1)), said)


def test_a_row_whose_first_repeat_failed_at_once_is_still_summed_up():
    model = ampsim.load_model("mlp", hidden=4, data="synthetic")
    run = run_of(ampsim.simulate(model, "tflops-1", "sequential", instances=200))
    failed = replace(run, epochs=run.epochs[:0], failure="it failed")
    goal = Goal(model.measure, 1e-9)
    made = row_of("a", goal, [failed, run, run])
    whole = row_of("a", goal, [run, run, run])
    assert made["time_to_target_formula_s"] == whole["time_to_target_formula_s"] > 0
    assert made["note"] == "1 of 3 runs failed: it failed"


SOLVERS = """
title = "A test"
model = "mlp"
set = { hidden = 64, data = "synthetic", batch = 10, learning_rate = 0.03 }
cluster = "a100"
workers = 4
instances = 200
max_epochs = 12
target = 0.6
seeds = [0, 1]
figures = []

[[schedules]]
name = "sync-sgd"
label = "lender"

[[schedules]]
name = "sync-sgd"
ranks = 4
collective = "tree"
latency_s = 1e-5
mode = "sleep"
epochs_of = "lender"

[[schedules]]
name = "sync-sgd"
label = "itself"
collective = "tree"
latency_s = 1e-5

[[schedules]]
name = "pipeline"
label = "beside"
max_active_keys = 4

[[schedules]]
name = "gpipe"
max_active_keys = 4
latency_s = 1e-5
mode = "sleep"
epochs_of = "beside"
"""


def test_epochs_are_borrowed_under_and_beside_solvers(write, make_report):
    """Where validation takes no time."""
    table = make_report(write(SOLVERS)).table.set_index("schedule")
    lender, borrower, itself = (table.loc[name] for name in ("lender", "sync-sgd", "itself"))
    assert borrower["epochs_to_target"] == itself["epochs_to_target"] > 1
    assert lender["time_to_target_s"] < itself["time_to_target_s"]
    assert borrower["time_to_target_s"] == pytest.approx(itself["time_to_target_s"], rel=1e-9)
    assert borrower["time_to_target_low_s"] > 0
    one, other = table.loc["gpipe"], table.loc["beside"]
    assert one["epochs_to_target"] == other["epochs_to_target"]
    expected = one["epochs_to_target"] * 200 / one["train_per_s"]
    assert one["time_to_target_s"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "ranks = 4\n",
            "ranks = 2\n",
            "schedules[1]: epochs_of must name a row with the same ranks, but that of sync-sgd is "
            "2 and not 4; give both the same, or one a run of its own",
        ),
        (
            'name = "sync-sgd"\nlabel = "lender"',
            'name = "local-sgd"\nlabel = "lender"',
            "schedules[1]: epochs_of must name a row of the same solver, but sync-sgd is not Loc",
        ),
        (
            'ranks = 4\ncollective = "tree"\n',
            'ranks = 4\ninner = "pipeline:2"\n',
            "schedules[1]: epochs_of must name a row with the same inner, but that of sync-sgd is",
        ),
        (
            'name = "sync-sgd"\nranks = 4\ncollective = "tree"',
            'name = "async-sgd"',
            "schedules[1]: epochs_of has no sense for async-sgd, whose learning depends on what it",
        ),
        (
            'name = "sync-sgd"\nranks = 4\ncollective = "tree"',
            'name = "local-sgd"\ninner = "amp:4"',
            "schedules[1]: epochs_of has no sense for local-sgd, whose learning depends on what it",
        ),
    ],
)
def test_a_solver_must_not_borrow_epochs_where_learning_differs(before, after, said, write):
    assert before in SOLVERS
    require_refused(write(SOLVERS.replace(before, after, 1)), said)
