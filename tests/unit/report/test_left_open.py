"""A page says what its comparison leaves open: arrivals at the first look, rates at an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from ampsim.metric import ACCURACY
from ampsim.report.frames import runs_by_row
from ampsim.report.page.text import beside_answer
from ampsim.runs.run import Run, RunTable

EARLY, LATE = [0.95, 0.96], [0.5, 0.95]


def run(schedule: str, repeat: int, scores: list[float], within: list[float] | None = None) -> Any:
    def table(found: list[float], name: str) -> pd.DataFrame:
        places = [float(place) for place in range(1, len(found) + 1)]
        return pd.DataFrame(
            {name: places, "accuracy": found, "time_s": places, "instances": [3000.0] * len(found)}
        )

    epochs = table(scores, "epoch")
    looks = pd.DataFrame() if within is None else table(within, "epochs")
    return Run(schedule=schedule, repeat=repeat, epochs=epochs, validations=looks)


def made(runs: list[Any], trials: Any = None, target: float | None = 0.9) -> Any:
    names = list(dict.fromkeys(one.schedule for one in runs))
    table = pd.DataFrame(
        {"schedule": names, "time_to_target_s": [1.0] * len(names), "repeats": [2] * len(names)}
    )
    manifest = {"command": ["ampsim", "forecast", "mlp"], "model": {"name": "mlp"}}
    return RunTable(
        table=table,
        target=target,
        metric=ACCURACY,
        runs=tuple(runs),
        trials=pd.DataFrame() if trials is None else trials,
        model="mlp",
        cluster="one",
        workers=1,
        manifest=manifest,
    )


def test_rows_that_had_arrived_when_they_were_first_looked_at_are_named():
    runs = [run("amp", 1, EARLY), run("amp", 2, EARLY), run("pipeline", 1, EARLY),
            run("pipeline", 2, LATE)]  # fmt: skip
    found = made(runs)
    said = "amp was there at the first validation: {}--validate-every tells if sooner"
    assert said.format("") in beside_answer(found)
    found.manifest["validate_every"] = 60  # of which the first look was, too
    assert said.format("a smaller ") in beside_answer(found)


def test_a_look_within_the_first_epoch_is_the_first():
    runs = [run("amp", 1, EARLY, within=[0.5, 0.95, 0.96]), run("amp", 2, EARLY, within=[0.91])]
    assert beside_answer(made([*runs, run("amp", 3, EARLY, within=[0.2, 0.95])])) == []
    assert beside_answer(made([run("amp", 1, LATE)])) == []
    assert beside_answer(made([run("amp", 1, EARLY)], target=None)) == []


def trials(chosen: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"schedule": name, "factor": factor, "is_chosen": factor == best}
            for name, best in chosen.items()
            for factor in (1.0, 2.0, 0.5, 4.0)
        ]
    )


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"amp": 1.0, "pipeline": 2.0}, ""),
        ({"amp": 0.5, "pipeline": 2.0}, "amp has the lowest rate of those tried"),
        ({"amp": 4.0, "pipeline": 4.0}, "amp and pipeline have the highest rate of those tried"),
        (
            {"amp": 0.5, "pipeline": 4.0},
            "amp has the lowest rate of those tried, pipeline has the highest rate of those tried",
        ),
        (dict.fromkeys("abcde", 4.0), "5 rows have the highest rate of those tried"),
    ],
)
def test_rates_at_an_end_of_those_tried_are_named(chosen, said):
    wanted = [f"{said}: others may be better"] if said else []
    assert beside_answer(made([run("amp", 1, LATE)], trials(chosen))) == wanted


def test_an_end_is_that_of_the_rates_of_one_optimizer():
    """A factor is times the rate of its optimizer: those of others lie on another ladder."""
    own, adam = trials({"amp": 1.0}), trials({"amp": 4.0})
    tried = pd.concat([
        own.assign(optimizer="sgd", is_chosen=False, factor=8 * own["factor"]),
        adam.assign(optimizer="adam"),
    ])  # fmt: skip
    (said,) = beside_answer(made([run("amp", 1, LATE)], tried))
    assert said == "amp has the highest rate of those tried: others may be better"


def test_rows_of_one_schedule_that_lost_unlike_runs_stay_rows():
    """The first lost its second run, the next its first."""
    runs = [
        Run(schedule="amp", label=f"amp, {many} in flight", repeat=repeat, epochs=pd.DataFrame())
        for many, repeat in ((2, 1), (8, 2))
    ]
    table = pd.DataFrame({"schedule": ["amp", "amp"], "max_active_keys": [2, 8]})
    rows = runs_by_row(replace(made(runs), table=table))
    assert [[one.label for one in of] for of in rows.values()] == [[one.label] for one in runs]
    assert len(rows) == 2
