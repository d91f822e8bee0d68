"""Runs of a forecast as they end: yielded, told, and in the table that fills."""

import io
import multiprocessing
from dataclasses import replace

import pytest
from rich.console import Console

import ampsim
from ampsim.cli.progress import Bars, Filling
from ampsim.errors import OptionError
from ampsim.forecasting.forecast import table_so_far
from ampsim.metric import Goal, Metric
from ampsim.runs import RunCache

ALL = [ampsim.Sequential(), ampsim.Amp(3)]


@pytest.fixture
def model(chain):
    return replace(chain(((10, 20, 5),) * 2, instances=6, valid=3, rows=4).model(), target=0.99)


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(2)


@pytest.mark.parametrize("executor", [1, 2])
def test_every_run_is_yielded_once_and_the_forecast_is_the_value(model, cluster, executor):
    runs, told = ampsim.stream(model, cluster, ALL, max_epochs=2, repeats=2, executor=executor), []
    while True:
        try:
            told.append(next(runs))
        except StopIteration as end:
            made = end.value
            break
    alone = ampsim.forecast(model, cluster, ALL, max_epochs=2, repeats=2)
    assert made.table.equals(alone.table)
    assert sorted((run.label, run.seed) for run in told) == [
        (name, seed) for name in ("amp", "sequential") for seed in (0, 1)
    ]
    assert {id(run) for run in told} == {id(run) for run in made.runs}


@pytest.mark.parametrize("executor", [1, 2])
def test_who_leaves_the_loop_ends_the_forecast(model, cluster, executor):
    told = []
    runs = ampsim.stream(
        model, cluster, ALL, max_epochs=5, repeats=20, executor=executor, on_progress=told.append
    )
    first = next(runs)
    runs.close()
    assert first.label == "sequential"
    assert told
    assert len({(one.schedule, one.repeat) for one in told}) < 40
    assert not multiprocessing.active_children()


def test_a_mistake_is_raised_where_the_runs_are_asked_for(model, cluster):
    with pytest.raises(OptionError, match="repeats must be a whole number >= 1, got 0"):
        next(ampsim.stream(model, cluster, ALL, repeats=0))
    with pytest.raises(OptionError, match="stream yields the runs that on_run would be told of"):
        next(ampsim.stream(model, cluster, ALL, on_run=print))


def test_jobs_and_an_executor_say_the_same_thing(model, cluster):
    with pytest.raises(OptionError, match="jobs 2 and executor say the same thing; leave one"):
        ampsim.forecast(model, cluster, ALL, jobs=2, executor=3)


def test_kept_runs_are_told_too(cluster, tmp_path):
    told = []
    for _ in range(2):
        ampsim.forecast(
            "rnn", cluster, ALL, instances=20, max_epochs=1, keeping=RunCache(tmp_path),
            on_run=told.append,
        )  # fmt: skip
    assert [run.label for run in told] == ["sequential", "amp"] * 2


def test_the_table_so_far_has_the_last_run_of_each_row_and_seed(model, cluster):
    made = ampsim.forecast(model, cluster, ALL, max_epochs=1, repeats=3)
    goal = Goal(Metric(), 0.99)
    early = replace(made.runs[0], failure="it diverged")
    table = table_so_far([early, *made.runs], goal)
    assert table["schedule"].tolist() == ["sequential", "amp"]
    assert table["repeats"].tolist() == [3, 3]
    assert "diverged" not in table["note"][0]
    assert table["train_per_s"].tolist() == made.table["train_per_s"].tolist()


def test_rows_fill_above_the_bars_and_leave_with_them(model, cluster):
    terminal = io.StringIO()
    filling = Filling(model, None)
    console = Console(file=terminal, force_terminal=True, width=100, color_system=None)
    bars = Bars(console, filling)
    pictures = []

    def take(run):
        filling.take(run)
        bars._rich.refresh()
        pictures.append(terminal.getvalue().split("\x1b[2K")[-1])

    made = ampsim.forecast(model, cluster, ALL, max_epochs=1, on_progress=bars.show, on_run=take)
    bars.close()
    assert len(made.runs) == len(pictures) == 2
    assert ("sequential  " in pictures[0], "amp  " in pictures[0]) == (True, False)
    assert "amp  " in pictures[1]
    assert "throughput" not in terminal.getvalue().split("\x1b[2K")[-1]
