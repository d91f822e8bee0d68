"""How many of all runs have ended: kept ones count at once, lost ones when they are lost."""

import io
import itertools
from typing import Any

import pytest
from rich.console import Console

import ampsim
from ampsim.cli.progress import Bars, Lines
from ampsim.runs.jobs import Listeners, opened, run_all
from ampsim.runs.task import RunPlan, Task
from ampsim.study import Progress, Whole
from ampsim.study.simulation import RunOptions


@pytest.fixture
def tasks(chain, make_cluster):
    """`tasks(**of the plan)`: runs that nobody has made yet."""
    model = chain(((10, 20, 5),) * 2, instances=8, valid=4).model()

    def make(repeats=2, *, mode: Any = "numeric"):
        schedule = ampsim.Amp(2)
        options = RunOptions(epochs=4, mode=mode)
        plan = RunPlan(model, make_cluster(2), options)
        return [
            Task(plan, schedule, repeat, label, repeat, repeats)
            for label in ("amp", "pipeline")
            for repeat in range(1, repeats + 1)
        ]

    return make


def wholes(told: list[Progress]) -> list[Whole]:
    return [each.whole for each in told if each.whole is not None]


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("earlier", [0, 4])
@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_each_run_that_ends_is_counted_behind_those_that_were_kept(tasks, jobs, earlier, mode):
    told: list[Progress] = []
    mine = tasks(mode=mode)
    made: dict[int, object] = {}
    keep = Listeners(lambda place, *made_: made.update({place: made_}), print, told.append, earlier)
    with opened(jobs) as executor:
        run_all(mine, executor, keep)
    seen = wholes(told)
    assert sorted(made) == list(range(len(mine)))
    assert {whole.runs for whole in seen} == {len(mine) + earlier}
    assert seen[0].finished == earlier
    assert all(0 <= b.finished - a.finished <= 1 for a, b in itertools.pairwise(seen))
    assert seen[-1].finished == seen[-1].runs
    assert len(seen) == 2 * len(mine) < len(told)  # when a run begins, and when it has ended


def drawn(*news: Whole) -> str:
    """The last picture of the bars, where the whole is told so."""
    terminal = io.StringIO()
    bars = Bars(Console(file=terminal, force_terminal=True, width=120, color_system=None))
    for whole in news:
        bars.show(Progress("amp", 1, 1, 1, 1, 2, None, whole=whole))
    bars.close()
    return terminal.getvalue().split("\x1b[2K")[-1]


def test_the_bar_of_all_runs_counts_them_and_stays():
    lines = drawn(Whole(8, 4), Whole(8, 5)).splitlines()
    assert sum("5 of 8 runs" in line for line in lines) == 1
    assert not [line for line in lines if "amp, epoch 1" in line]  # runs leave, the answer follows


def test_lines_say_the_same_with_and_without_a_whole(capsys):
    said = []
    for whole in (None, Whole(2, 0)):
        lines = Lines()
        for label, epoch in itertools.product(("amp", "pipeline"), (1, 2)):
            lines.show(Progress(label, 1, 1, epoch, 2, 2, None, True, whole=whole))
        lines.close()
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert said[0].count("done") == 3
