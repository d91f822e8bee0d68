"""A forecast of which runs are missing, as Ctrl-C or a death came first, says so and goes on."""

import json

import ampsim
from ampsim.forecasting.forecast import to_json
from ampsim.forecasting.making import Looks, RunMaker, entries_of, run_rows
from ampsim.runs.local_slots import LocalSlots
from ampsim.runs.ranking import Sureness
from ampsim.runs.task import RunPlan
from ampsim.study.simulation import RunOptions


def test_a_forecast_without_a_row_is_shown():
    def end(_progress):
        raise KeyboardInterrupt

    made = ampsim.forecast(
        ampsim.load_model("mlp", data="synthetic", hidden=4),
        ampsim.load_cluster("tflops-1", workers=2),
        ["sequential", "amp"],
        instances=100,
        max_epochs=1,
        on_progress=end,
        jobs=1,
    )
    assert made.interrupted is not None and not len(made.table)
    assert repr(made) == "Forecast(mlp on 2 x tflops-1: no row finished; 0 runs)"
    assert "did not finish" in made._repr_html_()
    assert json.loads(to_json(made, seed=0))["interrupted"] == made.interrupted


def test_a_run_that_is_made_later_takes_its_place_among_its_rows():
    model = ampsim.load_model("mlp", data="synthetic", hidden=4)
    plan = RunPlan(model, ampsim.load_cluster("tflops-1"), RunOptions(instances=40))
    (row,), maker = entries_of(plan, [ampsim.Sequential()]), RunMaker(LocalSlots(1), None, None)
    known = maker.make([row.task(1, 2, 2)]).rows[0]  # that of the first seed died
    _rows, made = run_rows([row], Looks((2,), Sureness()), 0, maker, {row.label: known})
    assert [(run.seed, run.repeat) for run in made.rows[0]] == [(0, 1), (1, 2)]
