"""How far all runs are: kept ones count at once, the share never falls, early ends shorten it."""

import io
import itertools
import time
from typing import Any

import pytest
from rich.console import Console

import ampsim
from ampsim.cli import progress as cli_progress
from ampsim.cli.progress import Bars, Lines
from ampsim.runs.jobs import Listeners, WholeProgress, opened, run_all
from ampsim.runs.task import RunPlan, Task
from ampsim.study import Progress, Whole
from ampsim.study.simulation import RunOptions


@pytest.fixture
def tasks(chain, make_cluster):
    """`tasks(**of the plan)`: runs that nobody has made yet."""
    model = chain(((10, 20, 5),) * 2, instances=8, valid=4).model()

    def make(
        labels=("amp", "pipeline"), repeats=2, *, epochs=4, stop_at=None, mode: Any = "numeric"
    ):
        schedule = ampsim.Amp(2)
        options = RunOptions(epochs=epochs, mode=mode, target=stop_at)
        plan = RunPlan(model, make_cluster(2), options)
        return [
            Task(plan, schedule, repeat, label, repeat, repeats)
            for label in ("amp", "pipeline")
            for repeat in range(1, repeats + 1)
        ]

    return make


def wholes(told: list[Progress]) -> list[Whole]:
    return [each.whole for each in told if each.whole is not None]


def epoch_of(task: Task, epoch: int, items: int = 2, *, is_epoch_end: bool = True) -> Progress:
    return Progress(task.label, task.repeat, task.repeats, epoch, items, 2, None, is_epoch_end)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("earlier", [0, 4])
@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_the_share_rises_from_what_was_kept_to_one(tasks, jobs, earlier, mode):
    told: list[Progress] = []
    mine = tasks(mode=mode)
    made: dict[int, object] = {}
    keep = Listeners(lambda place, *made_: made.update({place: made_}), print, told.append, earlier)
    with opened(jobs) as executor:
        run_all(mine, executor, keep)
    seen = wholes(told)
    assert sorted(made) == list(range(len(mine)))
    assert {whole.runs for whole in seen} == {len(mine) + earlier}
    assert all(whole.is_known for whole in seen)
    assert all(whole.finished >= earlier for whole in seen)
    assert all(a.share <= b.share for a, b in itertools.pairwise(seen))
    assert seen[0].share >= earlier / (len(mine) + earlier)
    assert seen[-1] == Whole(len(mine) + earlier, len(mine) + earlier, 1.0, True)


def test_runs_under_way_count_by_their_share_of_epochs_and_items(tasks):
    told: list[Progress] = []
    first, second, *_ = mine = tasks()
    whole = WholeProgress(mine, told.append)
    whole.tell(epoch_of(first, 2))
    assert wholes(told)[-1].share == pytest.approx(2 / 4 / 4)
    whole.tell(epoch_of(second, 1))
    assert wholes(told)[-1].share == pytest.approx((2 + 1) / 4 / 4)
    whole._looked_s = 0.0
    whole.tell(epoch_of(second, 2, 1, is_epoch_end=False))
    assert wholes(told)[-1].share == pytest.approx((2 + 1.5) / 4 / 4)


def test_a_run_that_ended_at_its_target_shortens_the_others_of_its_row_first(tasks):
    told: list[Progress] = []
    mine = tasks(epochs=40, stop_at=0.9)
    whole = WholeProgress(mine, told.append)
    whole.tell(epoch_of(mine[0], 1))
    assert not wholes(told)[-1].is_known
    assert wholes(told)[-1].share == pytest.approx(1 / 40 / 4)
    for epoch in (2, 3, 4):
        whole.tell(epoch_of(mine[0], epoch))
    whole.end(0)
    assert wholes(told)[-1] == Whole(4, 1, 1 / 4, True)
    whole.tell(epoch_of(mine[2], 1))  # of another row: as long as all that ended
    assert wholes(told)[-1].share == pytest.approx((1 + 1 / 4) / 4)
    whole.tell(epoch_of(mine[2], 2))
    whole.end(2)
    whole.tell(epoch_of(mine[3], 1))  # of this row, which took 2
    assert wholes(told)[-1].share == pytest.approx((2 + 1 / 2) / 4)
    whole.tell(epoch_of(mine[3], 7))  # it takes longer than expected, and is not done
    assert wholes(told)[-1].share < 3 / 4


def test_a_run_that_never_told_anything_is_done_when_it_is_lost(tasks):
    told: list[Progress] = []
    mine = tasks()
    whole = WholeProgress(mine, told.append)
    whole.end(1)
    assert told == []
    whole.tell(epoch_of(mine[0], 1))
    assert wholes(told)[-1] == Whole(4, 1, (1 + 1 / 4) / 4, True)


def test_a_run_that_is_made_again_counts_once(tasks):
    """As where the worker died that was at it."""
    told: list[Progress] = []
    mine = tasks()
    whole = WholeProgress(mine, told.append)
    for epoch in (1, 2, 3, 1, 2):
        whole.tell(epoch_of(mine[0], epoch))
    assert wholes(told)[-1] == Whole(4, 0, 3 / 4 / 4, True)  # it does not fall
    whole.tell(epoch_of(mine[0], 4))
    whole.end(0)
    assert wholes(told)[-1] == Whole(4, 1, 1 / 4, True)


def test_instances_in_quick_succession_are_told_but_not_looked_at(tasks):
    told: list[Progress] = []
    mine = tasks()
    whole = WholeProgress(mine, told.append)
    whole._looked_s = float("inf")
    for items in range(100):
        whole.tell(epoch_of(mine[0], 1, items, is_epoch_end=False))
    assert len(told) == 100
    assert wholes(told) == []


def drawn(monkeypatch, *news: tuple[float, Whole]) -> str:
    """The last picture of the bars, where the whole is told at such times."""
    terminal = io.StringIO()
    bars = Bars(Console(file=terminal, force_terminal=True, width=120, color_system=None))
    for now_s, whole in news:
        monkeypatch.setattr(cli_progress.time, "monotonic", lambda now_s=now_s: now_s)
        bars.show(Progress("amp", 1, 1, 1, 1, 2, None, whole=whole))
        monkeypatch.undo()
    bars.close()
    return terminal.getvalue().split("\x1b[2K")[-1]


def test_the_bar_of_all_runs_tells_what_is_left_at_the_pace_since_its_start(monkeypatch):
    lines = drawn(
        monkeypatch, (10.0, Whole(8, 4, 0.5, True)), (40.0, Whole(8, 5, 0.6, True))
    ).splitlines()
    (line,) = [line for line in lines if "5 of 8 runs" in line]
    assert "02:00" in line  # 30 s for a tenth, and four are left
    assert not [line for line in lines if "amp, epoch 1" in line]  # runs leave, the answer follows


@pytest.mark.parametrize("last", [Whole(8, 4, 0.51, True), Whole(8, 4, 0.8, False)])
def test_nothing_is_told_of_time_before_it_is_known(monkeypatch, last):
    picture = drawn(monkeypatch, (10.0, Whole(8, 4, 0.5, False)), (40.0, last))
    (line,) = [line for line in picture.splitlines() if "4 of 8 runs" in line]
    assert ":" not in line


def test_lines_say_the_same_with_and_without_a_whole(tasks, capsys):
    said = []
    for is_whole in (False, True):
        lines, mine = Lines(), tasks()
        whole = WholeProgress(mine, lines.show)
        for place, task in enumerate(mine):
            for epoch in (1, 2):
                (whole.tell if is_whole else lines.show)(epoch_of(task, epoch))
            if is_whole:
                whole.end(place)
        lines.close()
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert said[0].count("done") == len(tasks()) + 1


def test_a_look_costs_the_same_for_any_number_of_runs(tasks):
    mine = tasks(repeats=4000, epochs=40, stop_at=0.9)
    whole = WholeProgress(mine, lambda progress: None)
    start_s = time.process_time()
    for place, task in enumerate(mine[:4000]):
        whole.tell(epoch_of(task, 1))
        whole.end(place)
    assert time.process_time() - start_s < 0.5  # chosen: five times what it took
