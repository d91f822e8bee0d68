"""Figures as notebooks ask for them."""

from __future__ import annotations

import pytest

import ampsim
from ampsim import figures
from ampsim.errors import OptionError


@pytest.fixture(scope="module")
def model(chain):
    return chain(((1000, 2000, 500),) * 2, instances=8, valid=4).model()


@pytest.fixture(scope="module")
def results(model, make_cluster):
    cluster = make_cluster(2, flop_per_s=1e9)
    return [ampsim.simulate(model, cluster, ampsim.Amp(mak)) for mak in (1, 2)]


@pytest.fixture(scope="module")
def forecast(model, make_cluster):
    schedules = [ampsim.Sequential(), ampsim.Amp(2)]
    cluster = make_cluster(2, flop_per_s=1e9)
    return ampsim.forecast(model, cluster, schedules, target=0.01, max_epochs=2)


def titles(figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_results_of_one_schedule_are_told_apart_by_their_instances_in_flight(results):
    assert titles(figures.gantt(*results)) == ["(a) amp, 1 in flight", "(b) amp, 2 in flight"]
    assert titles(figures.staleness(*results)) == ["amp, 1 in flight", "amp, 2 in flight"]
    assert titles(figures.utilisation(*results)) == ["amp, 1 in flight", "amp, 2 in flight"]


def test_one_result_has_no_number(results):
    assert titles(figures.gantt(results[0])) == ["amp"]


def test_a_window_is_what_is_shown(results):
    axes = figures.gantt(results[0], window_s=(0.0, 4e-6)).axes[0]
    assert axes.get_xlim() == (0.0, 4.0)


def test_a_forecast_has_the_figures_that_recipes_name(forecast):
    assert figures.convergence(forecast).axes[0].get_ylabel() == "validation accuracy (%)"
    assert figures.plane(forecast).axes[0].get_ylabel() == "epochs to the target"
    assert figures.of(forecast, "bounds").axes


def test_what_cannot_be_drawn_is_told(results, forecast, model, make_cluster):
    for draw in (figures.gantt, figures.staleness, figures.utilisation):
        with pytest.raises(OptionError, match=r"^a figure needs at least one result, got none$"):
            draw()
    other = ampsim.simulate(model, make_cluster(3), ampsim.Amp(1))
    with pytest.raises(
        OptionError, match=r"^results must have equally many workers, got \[2, 3\]$"
    ):
        figures.gantt(results[0], other)
    with pytest.raises(OptionError, match=r"^this forecast has no data for a figure 'pie'$"):
        figures.of(forecast, "pie")


def test_public_names_are_those_of_the_package():
    assert ampsim.figures.__all__ == figures.__all__
    assert all(getattr(ampsim.figures, name) is getattr(figures, name) for name in figures.__all__)
    assert all(callable(getattr(figures, name)) for name in figures.__all__)
