"""A forecast that Ctrl-C ended before any row had finished can be shown, and says so."""

import json

import ampsim
from ampsim.forecasting.forecast import to_json


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
