"""Progress: bars on a terminal, lines elsewhere, nothing where nobody wants it."""

import io

from rich.console import Console

from ampsim.cli import progress
from ampsim.cli.progress import Bars, Lines
from ampsim.metric import Metric
from ampsim.study import Progress


def told(show, schedule, epochs, *, accuracy: float | None = 0.5, repeats=1):
    """An epoch of two instances each, then its accuracy."""
    for repeat in range(1, repeats + 1):
        known = None
        for epoch in range(1, epochs + 1):
            for items in (1, 2):
                show(Progress(schedule, repeat, repeats, epoch, items, 2, known))
            known = accuracy
            show(Progress(schedule, repeat, repeats, epoch, 2, 2, known, is_epoch_end=True))


def test_in_a_hurry_only_the_first_line_and_the_last_epoch_of_each_run_are_said(capsys):
    lines = Lines()
    told(lines.show, "sequential", 3)
    told(lines.show, "amp", 2, accuracy=None, repeats=2)
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "ampsim: sequential, epoch 1 done, accuracy 50.0 %",
        "ampsim: sequential, epoch 3 done, accuracy 50.0 %",
        "ampsim: amp 1/2, epoch 2 done",
        "ampsim: amp 2/2, epoch 2 done",
    ]


def test_of_many_runs_in_a_hurry_only_the_first_and_the_last_are_said(capsys):
    lines = Lines()
    told(lines.show, "amp", 1, repeats=50)
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "ampsim: amp 1/50, epoch 1 done, accuracy 50.0 %",
        "ampsim: amp 50/50, epoch 1 done, accuracy 50.0 %",
    ]


def test_an_error_is_said_with_its_unit(capsys):
    lines, metric = Lines(), Metric("error", "eV")
    lines.show(Progress("amp", 1, 1, 1, 2, 2, 0.123456, is_epoch_end=True, metric=metric))
    assert capsys.readouterr().err == "ampsim: amp, epoch 1 done, error 0.123 eV\n"


def test_given_time_every_epoch_is_a_line(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines = Lines()
    told(lines.show, "amp", 3)
    lines.close()
    assert [line.split()[3] for line in capsys.readouterr().err.splitlines()] == ["1", "2", "3"]


def test_bars_show_epoch_rate_and_accuracy():
    terminal = io.StringIO()
    bars = Bars(Console(file=terminal, force_terminal=True, width=120, color_system=None))
    told(bars.show, "amp", 2, repeats=10)
    bars.close()
    last = terminal.getvalue().split("\x1b[2K")[-1]
    assert "amp 10/10, epoch 2" in last
    assert "accuracy 50.0 %" in last
    assert "/s" in last
    assert len([line for line in last.splitlines() if "epoch" in line]) == 8


def test_quiet_shows_nothing(capsys):
    with progress.shown(is_quiet=True) as show:
        assert show is None
    assert capsys.readouterr().err == ""
