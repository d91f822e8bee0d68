"""A recipe says what it must, or one line says what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ampsim import Amp, AmpBudget
from ampsim.data.registry import MissingDataError
from ampsim.errors import FileFormatError, UnknownNameError
from ampsim.metric import Metric
from ampsim.model_parallel.placements import base
from ampsim.model_parallel.placements.paper import Paper
from ampsim.recipes.recipe import read_recipe, recipe_folder, report_names
from ampsim.recipes.rows import make_rows

GOOD = """
title = "A test"
model = "rnn"
set = { hidden = 4 }
epochs = 2
target = 0.97

[[schedules]]
name = "sequential"

[[schedules]]
name = "amp"
label = "amp, mak 4"
max_active_keys = 4
set = { replicas = 2 }
mode = "sleep"

[[published]]
schedule = "amp, mak 4"
quantity = "train_per_s"
value = 16_000
source = "AMPNet, Table 2"
"""
SHIPPED = Path(__file__).resolve().parents[2] / "reports"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """`write(GOOD)` puts a recipe into a folder and gives the folder."""
    monkeypatch.chdir(tmp_path)

    def put(content: str, folder: str = "mine") -> Path:
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        (place / "recipe.toml").write_text(content)
        return place

    return put


@pytest.fixture
def rejection(write):
    """What is said of a recipe, by reading it or, with `is_read`, by making it ready."""

    def reject(content: str, *, is_read: bool = False) -> str:
        folder = write(content)
        recipe = read_recipe(folder) if is_read else None
        with pytest.raises(FileFormatError) as caught:
            make_rows(recipe or read_recipe(folder))
        text = str(caught.value)
        assert len(text.splitlines()) == 1
        assert text.startswith("mine/recipe.toml: ")
        return text.removeprefix("mine/recipe.toml: ")

    return reject


def test_a_recipe_becomes_rows(write):
    rows = make_rows(read_recipe(write(GOOD)))
    assert [row.label for row in rows.rows] == ["sequential", "amp, mak 4"]
    assert [row.schedule.admission.in_flight_max for row in rows.rows] == [1, 4]
    assert [row.plan.options.mode for row in rows.rows] == ["numeric", "sleep"]
    assert [row.plan.model.replicas for row in rows.rows] == [4, 2]
    assert {row.plan.model.config.hidden for row in rows.rows} == {4}
    assert (rows.goal.target, rows.goal.metric) == (0.97, Metric())
    assert {row.plan.options.target for row in rows.rows} == {None}
    assert rows.cluster.workers == 16


def test_max_epochs_ends_a_run_at_the_target(write):
    rows = make_rows(read_recipe(write(GOOD.replace("epochs = 2", "max_epochs = 9"))))
    assert {(row.plan.options.target, row.plan.options.epochs) for row in rows.rows} == {(0.97, 9)}


def test_paths_are_those_beside_the_recipe(write, tmp_path):
    folder = write(
        GOOD.replace('"rnn"', '"mine.py"').replace("epochs", 'cluster="./c.toml"\nepochs')
    )
    shipped = SHIPPED.parent / "models" / "rnn.py"
    (folder / "mine.py").write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "c.toml").write_text('[[device]]\nname = "tflops-1"\ncount = 3\n')
    rows = make_rows(read_recipe(folder))
    assert (rows.model.origin["file"], rows.cluster.workers) == ("mine.py", 3)


def test_a_row_takes_every_option_of_its_schedule(write):
    tuned = 'max_active_keys = 4\nstaleness_budget = 2\nremedy = "weight-prediction"'
    content = GOOD.replace("max_active_keys = 4", tuned)
    content = content.replace('name = "amp"', 'name = "amp-budget"')
    (_first, second) = make_rows(read_recipe(write(content))).rows
    assert second.schedule == AmpBudget(4, staleness_budget=2, remedy="weight-prediction")
    assert second.origin["staleness_budget"] == 2


def test_a_row_may_merge_messages(write):
    tuned = "max_active_keys = 4\nmax_group = 8\ngroup_wait_s = 1e-6"
    rows = make_rows(read_recipe(write(GOOD.replace("max_active_keys = 4", tuned)))).rows
    assert rows[1].schedule == Amp(4, max_group=8, group_wait_s=1e-6)


def test_a_row_may_have_a_placement_of_its_own_which_decides_the_run(write):
    plain = make_rows(read_recipe(write(GOOD))).rows
    content = GOOD.replace("max_active_keys = 4", 'max_active_keys = 4\nplacement = "balanced"')
    first, second = make_rows(read_recipe(write(content))).rows
    assert (first.plan.options.placement, second.plan.options.placed.origin) == (
        Paper(),
        {"name": "balanced"},
    )
    assert first.decided_by == plain[0].decided_by
    assert second.decided_by != plain[1].decided_by
    assert "placement" not in first.origin
    assert second.origin["placement"] == {"name": "balanced"}


def test_a_placement_file_is_one_beside_the_recipe(write):
    content = GOOD.replace("max_active_keys = 4", 'max_active_keys = 4\nplacement = "p.toml"')
    folder = write(content)
    text = rf"recipe.toml: schedules\[1\]: {re.escape(str(folder / 'p.toml'))}: cannot be read: no"
    with pytest.raises(FileFormatError, match=text):
        make_rows(read_recipe(folder))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("staleness_budget = 3", "staleness_budget has no effect on amp; leave it out"),
        ("vertical_sync = true", "vertical_sync has no effect on amp; leave it out"),
        ("staleness_budget = -3.0", "staleness_budget must be a number >= 0, got -3.0"),
        ('remedy = "x"', "no remedy named 'x'; known: none, weight-prediction"),
        ('placement = "x"', "placement: no placement named 'x'; known: balanced, communication-"),
    ],
)
def test_an_option_that_does_not_fit_its_row_is_refused(write, option, said):
    content = GOOD.replace("max_active_keys = 4", f"max_active_keys = 4\n{option}")
    with pytest.raises(FileFormatError, match=rf"schedules\[1\]: {re.escape(said)}"):
        make_rows(read_recipe(write(content)))


def test_a_schedule_that_does_not_fit_the_graph_is_refused_before_anything_runs(write):
    content = GOOD.replace('name = "amp"', 'name = "pipedream"')
    said = r"recipe.toml: schedules\[1\]: pipedream needs a chain of stages, but rnn is none: it"
    with pytest.raises(FileFormatError, match=said):
        make_rows(read_recipe(write(content)))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("title", "titel", "unknown key 'titel'; did you mean 'title'?"),
        ("label", "lable", "unknown key 'lable' in schedules[1]; did you mean 'label'?"),
        ('title = "A test"', "", "missing key 'title'; add it"),
        ('"A test"', "3", "title must be text in quotes, got 3"),
        ("epochs = 2", "epochs = 2.5", "epochs must be a whole number, got 2.5"),
        ("epochs = 2", "epochs = 0", "epochs must be >= 1, got 0"),
        ("epochs = 2", "epochs = true", "epochs must be a whole number, got True"),
        ("epochs = 2", "epochs = 2\nseeds = 3", "seeds must be a list in brackets, got 3"),
        ("epochs = 2", "epochs = 2\nseeds = []", "seeds must be a list of at least one, got []"),
        ("epochs = 2", "epochs = 2\nseeds = [-1]", "seeds[0] must be >= 0, got -1"),
        ("epochs = 2", "epochs = 2\nseeds = [1, 1]", "seeds must differ, got [1, 1]"),
        ("{ hidden = 4 }", "4", "set must be a table, got 4"),
        ("{ hidden = 4 }", "{ hidden = [4] }", "set.hidden must be a number, text, true or false"),
        (
            "epochs = 2",
            "epochs = 2\nmode = 'fast'",
            "mode must be 'numeric' or 'sleep', got 'fast'",
        ),
        ("epochs = 2", "", "must have one of the keys 'epochs' and 'max_epochs'; give one"),
        ("epochs = 2", "epochs = 2\nmax_epochs = 3", "must have one of the keys 'epochs' and"),
        (
            "epochs = 2\ntarget = 0.97",
            "max_epochs = 2",
            "missing key 'target', which max_epochs waits for; add it, or give epochs instead",
        ),
        ("target = 0.97", "target = -1.0", "target must be > 0, got -1.0"),
        ('"sequential"', '"sequental"', "schedules[0]: no schedule named 'sequental'; did you"),
        (
            '"amp, mak 4"\nmax',
            '"sequential"\nmax',
            "schedules[1]: label 'sequential' comes twice; give each row a label of its own",
        ),
        ('"train_per_s"', '"speed"', "published[0].quantity must be 'train_per_s', "),
        (
            'schedule = "amp, mak 4"',
            'schedule = "amp"',
            "published[0].schedule: no row named 'amp'; did you mean 'amp, mak 4'? known: ",
        ),
        ("epochs = 2", "epochs = 2\nfigures = ['pie']", "figures[0] must be 'convergence', "),
        ("[[schedules]]", "[schedules]", "is not valid TOML: "),
        (
            "epochs = 2",
            'epochs = 2\nmode = "sleep"',
            "target has no effect where every row has mode",
        ),
        (
            "epochs = 2\ntarget = 0.97",
            'epochs = 2\nmode = "sleep"',
            "epochs must be 1 where every row has mode 'sleep', got 2",
        ),
        (
            "epochs = 2\ntarget = 0.97",
            'epochs = 1\nmode = "sleep"\nscale_rate = "linear"',
            "scale_rate has no effect where every row has mode 'sleep' and so learns nothing",
        ),
    ],
)
def test_a_mistake_in_a_recipe_is_named_with_file_and_key(before, after, said, rejection):
    assert before in GOOD
    assert rejection(GOOD.replace(before, after, 1)).startswith(said)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"rnn"', '"rrn"', "schedules[0]: model: no model named 'rrn'; did you mean 'rnn'?"),
        ("hidden = 4", "hiden = 4", "schedules[0]: model: rnn: no field named 'hiden'; did you"),
        ("replicas = 2", "replicas = 0", "schedules[1]: model: rnn: field 'replicas': "),
        ("target = 0.97", "target = 97", "target must be an accuracy above 0 and at"),
        ("epochs = 2", "epochs = 2\ncluster = 'cpu'", "cluster: no device named 'cpu'; did you"),
        ("epochs = 2", "epochs = 2\nlatency_s = -1", "cluster: latency_s must be >= 0, got -1"),
        (
            'name = "sequential"',
            'name = "sequential"\nmax_active_keys = 3',
            "schedules[0]: max_active_keys has no effect on sequential; leave it out",
        ),
    ],
)
def test_what_a_recipe_names_must_be_there_and_fit(before, after, said, rejection):
    assert before in GOOD
    assert rejection(GOOD.replace(before, after, 1), is_read=True).startswith(said)


def test_an_empty_recipe_and_none_at_all_are_told(write, rejection):
    assert (
        rejection("# nothing")
        == "is empty; a recipe has at least title, model, epochs and schedules"
    )
    with pytest.raises(FileFormatError, match=r"^nowhere/recipe\.toml: cannot be read: no such"):
        read_recipe("nowhere")


def test_a_name_is_looked_for_in_the_reports_here(write):
    folder = write(GOOD, "reports/mine")
    assert report_names() == ["mine"]
    assert recipe_folder("mine").resolve() == folder.resolve()
    for path in ("reports/mine", "reports/mine/recipe.toml", "./reports/mine"):
        assert recipe_folder(path).resolve() == folder.resolve()


def test_a_recipe_that_is_not_there_is_told(write, monkeypatch):
    write(GOOD, "reports/mine")
    said = "no recipe named 'mien'; did you mean 'mine'? known: mine; or give the path of a folder"
    with pytest.raises(UnknownNameError, match=f"^{re.escape(said)}"):
        recipe_folder("mien")
    with pytest.raises(
        UnknownNameError, match=r"^no recipe in 'reports/x'; expected a folder with"
    ):
        recipe_folder("reports/x")
    monkeypatch.setattr("ampsim.recipes.recipe.reports_folder", lambda: None)
    assert report_names() == []
    with pytest.raises(UnknownNameError, match=r"^no recipe named 'mine': there is no folder 'rep"):
        recipe_folder("mine")


@pytest.mark.parametrize(
    "folder", sorted(SHIPPED.glob("*/recipe.toml")), ids=lambda p: p.parent.name
)
def test_every_recipe_of_the_project_can_be_run(folder, monkeypatch):
    monkeypatch.setattr(base, "INSTANCES", 2)  # by which placements are searched, not whether
    try:
        rows = make_rows(read_recipe(folder.parent))
    except MissingDataError as error:
        pytest.skip(str(error))
    assert rows.rows
    for model in {id(one): one for one in (row.plan.model for row in rows.rows)}.values():
        assert model.graph().nodes
