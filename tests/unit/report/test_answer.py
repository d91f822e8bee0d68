"""A page begins with the answer, how sure it is and what was assumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from ampsim.metric import ACCURACY
from ampsim.report import words as markdown
from ampsim.report.page.text import (
    assumed_words,
    next_of_report,
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


def test_a_report_has_three_commands():
    _heading, commands = next_of_report("schedules")
    assert commands.splitlines()[1:-1] == [
        "ampsim report schedules --check", "ampsim report schedules --check --rerun",
        "ampsim report schedules --redraw",
    ]  # fmt: skip


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
