"""A page begins with the answer, how sure it is and what was assumed, and ends with commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import typer

from ampsim.cli.entry import app
from ampsim.metric import ACCURACY
from ampsim.report import words as markdown
from ampsim.report.page.text import (
    _FLAGS,
    _OF_FORECAST,
    _OF_OUTPUT,
    assumed_words,
    next_of_report,
    next_of_run,
    next_steps,
    rates_words,
)
from ampsim.runs.run import RunTable

ROWS = {
    "schedule": ["sequential", "amp"], "time_to_target_s": [2.0, 1.0], "best_accuracy": [0.9, 0.9],
    "train_per_s": [1.0, 2.0], "repeats": [3, 3], "max_active_keys": [1, 8],
}  # fmt: skip


def of(command, **columns) -> Any:
    manifest = {"command": command, "model": {"name": "rnn"}, "seed": 3}
    table = pd.DataFrame({**ROWS, **columns})
    return RunTable(
        table=table, target=0.9, metric=ACCURACY, manifest=manifest, runs=(),
        model="rnn", cluster="one", workers=1,
    )  # fmt: skip


def options_of(name: str) -> dict[str, bool]:
    """The options of a command, and whether each is a flag, which takes no value."""
    group: Any = typer.main.get_command(app)
    command = group.commands[name]
    return {
        option: bool(getattr(one, "is_flag", False))
        for one in command.params
        for option in one.opts
        if option.startswith("-")
    }


@pytest.mark.parametrize("name", ["forecast", "run"])
def test_options_without_a_value_are_those_of_the_command_line(name):
    flags = {option for option, is_flag in options_of(name).items() if is_flag}
    assert flags & (_OF_FORECAST | _OF_OUTPUT) <= _FLAGS <= _OF_FORECAST | _OF_OUTPUT


def test_what_a_run_lacks_of_a_forecast_is_left_out():
    lacking = set(options_of("forecast")) - set(options_of("run")) - {"-j"}
    assert lacking <= _OF_FORECAST
    kept = set(options_of("forecast")) - _OF_FORECAST - {"--validate-every"} - _OF_OUTPUT
    assert kept <= set(options_of("whatif"))


def test_a_forecast_ends_with_four_commands_that_the_command_line_takes():
    words = ["ampsim", "forecast", "rnn", "--set", "hidden=8", "--repeats", "3", "--quiet"]
    words += ["--schedule", "sequential,amp", "--max-active-keys", "8", "--out", "there"]
    surer, tuned, run, buys = next_steps(of(words))
    shared = "rnn --set hidden=8"
    assert surer.startswith(f"ampsim forecast {shared} --schedule sequential,amp")
    assert surer.endswith("--repeats 6")
    assert tuned.endswith("--repeats 3 --schedule sequential,amp --max-active-keys 8 --tune")
    assert run == f"ampsim run {shared} --schedule amp --max-active-keys 8"
    assert buys == f"ampsim whatif {shared} --schedule amp --max-active-keys 8"
    for line in (surer, tuned, run, buys):
        _ampsim, name, *rest = line.split()
        assert {word for word in rest if word.startswith("-")} <= set(options_of(name))


def test_what_python_made_ends_with_no_command():
    assert next_steps(of(["mine.py"])) == []
    assert next_of_run(of(["mine.py"]).manifest, 2) == []


def test_a_kept_run_is_drawn_prolonged_and_compared():
    words = ["ampsim", "run", "rnn", "--epochs", "2", "--seed=3", "--out", "here"]
    draw, longer, other = next_of_run(of(words).manifest, 2)
    assert draw == "ampsim gantt here --out gantt.html"
    assert "--epochs 4 --out longer" in longer
    assert other.endswith("--seed 4 --out other && ampsim compare here other")


def test_a_report_has_three_commands():
    assert len(next_of_report("schedules")) == 3


def test_rows_that_were_not_tuned_say_so():
    told = "learning rates: the model's for all rows, none tuned"
    assert rates_words(of([])) == told
    rule = ["as given", "linear: 4 averaged gradients"]
    assert "scaling rule" in rates_words(of([], learning_rate_rule=rule))
    trials = {"schedule": ["amp"] * 3 + ["pipeline"] * 3, "learning_rate": [0.1, 0.2, 0.2] * 2}
    trials["is_chosen"] = [False, True, True] * 2
    tuned = replace(of([]), trials=pd.DataFrame(trials))
    assert rates_words(tuned) == "learning rates: the best of 3 trials for each row"
    tuned.trials["is_chosen"] = [False, True, True] + [False] * 3
    assert rates_words(tuned).endswith("of 3 trials for each row that was tuned")
    tuned.trials["is_chosen"] = False
    assert "no row was tuned, as no trial reached the target" in rates_words(tuned)


def test_one_row_or_no_target_compares_nothing():
    alone = replace(of([]), table=of([]).table.head(1))
    assert rates_words(alone) == ""
    assert rates_words(replace(of([]), target=None)) == ""


def test_what_is_assumed_is_named_by_what_it_is_of():
    cost = {"of": "tflops-1", "what": "light steps", "kind": "assumed", "text": "free"}
    costs = [cost, {**cost, "what": "heavy steps", "kind": "formula"}, {**cost, "of": "links"}]
    assert assumed_words({"costs": costs}) == (
        "assumed, not measured: of tflops-1: light steps; of links: light steps"
    )
    assert assumed_words({}) == ""


def test_a_long_verdict_stands_whole_on_a_page():
    said = " ".join(f"row {place} (1.00 s)" for place in range(60))
    assert markdown.paragraph(said) == said
    assert "…" in markdown.escape(said)
