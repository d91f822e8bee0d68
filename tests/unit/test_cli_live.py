"""The live view: a row of letters for each worker, drawn on a terminal while time passes."""

from __future__ import annotations

import io
from contextlib import closing

from rich.console import Console

import ampsim
from ampsim.cli.progress import shown
from ampsim.cli.run import LiveView, rows
from ampsim.clock import WallClock
from ampsim.runs.folder import run_to_keep
from ampsim.study.simulation import RunOptions
from ampsim.trace import LatestStep


def test_a_row_shows_what_a_worker_did_last_in_each_part_of_the_window():
    steps = [
        LatestStep(0, "forward", 0.0, 1.0),  # over before the window
        LatestStep(0, "forward", 1.5, 3.5),
        LatestStep(1, "backward", 4.0, 6.0),
        LatestStep(1, "update", 6.5, 7.5),
        LatestStep(0, "backward", 5.0, 5.0),  # took no time
    ]
    assert rows(steps, 2, (2.0, 10.0), 8) == ["FF······", "··BBUU··"]


def test_the_picture_has_a_row_for_each_worker_and_is_drawn_while_the_run_goes_on():
    told = io.StringIO()
    console = Console(file=told, force_terminal=True, width=100)
    model = ampsim.load_model("rnn", hidden=8)
    cluster = ampsim.load_cluster("tflops-1", workers=3)
    virtual = ampsim.simulate(model, cluster, "amp", instances=100, mode="sleep")
    with closing(WallClock(stretch=0.3 / virtual.makespan_s)) as clock:
        view = LiveView(clock).start(console)
        options = RunOptions(mode="sleep", instances=100, clock=clock, on_start=view.watch)
        outcome = run_to_keep(model, cluster, ampsim.Amp(), options, view.show)
        view.close()
    assert outcome.result.digest == virtual.digest
    last = told.getvalue().rsplit("epoch 1", 1)[1]
    for worker in range(3):
        assert f"\n    {worker} " in last.replace("\r", "")
    assert any(letter in last for letter in "FBU")


def test_without_a_terminal_there_is_no_picture():
    asked: list[Console] = []
    with shown(is_quiet=False, drawn=asked.append) as show:
        assert show is not None
    with shown(is_quiet=True, drawn=asked.append) as show:
        assert show is None
    assert asked == []
