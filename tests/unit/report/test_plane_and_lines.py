"""What the figures of throughput over mak, the plane, utilisation and bounds show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from ampsim.report.page.figures import result_figures
from ampsim.report.plot import bars
from ampsim.report.plot import plane as plane_figure
from ampsim.report.plot import whatif as whatif_figure
from ampsim.report.plot.plane import has_points, iso_times
from ampsim.report.style import DIRECTIONS
from ampsim.report.table import series

# Figures are Any here: matplotlib types what it returns too widely to ask it anything.
plane: Any = plane_figure.plane
throughput_over_mak: Any = bars.throughput_over_mak
utilisation: Any = bars.utilisation
bounds: Any = bars.bounds
tornado: Any = whatif_figure.tornado

ITEMS = 100_000


@pytest.fixture
def sweep(make_table) -> pd.DataFrame:
    """Sequential training, and AMP with 4, 1 and 16 in flight, in that order."""
    one = make_table().iloc[[0, 2, 2, 2]].reset_index(drop=True)
    return one.assign(
        max_active_keys=[1, 4, 1, 16],
        train_per_s=[1e6, 3e6, 1.2e6, 6e6],
        epochs_to_target=[4.0, 6.0, 4.0, None],
        bound_by=["critical path", "admission limit", "critical path", "worker 3"],
        worker_share=[0.2, 0.5, 0.3, 0.9],
        path_share=[1.0, 0.4, 0.9, 0.2],
        link_share=[0.0, 0.1, 0.0, 0.1],
        admission_share=[0.8, 0.6, 0.7, 0.1],
    )


def drawn(axes, name) -> Any:
    (line,) = [line for line in axes.get_lines() if line.get_label() == name]
    return line


def words(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def inside(figure) -> bool:
    """Whether every text and legend of a figure lies within it."""
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    box = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    return bool(box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1)


def test_a_line_is_a_schedule_with_its_instances_in_flight_in_order(sweep):
    lines = series(sweep)
    assert list(lines) == ["sequential", "amp"]
    assert [row["max_active_keys"] for row in lines["amp"]] == [1, 4, 16]


def test_other_intervals_and_replicas_are_other_lines(sweep):
    table = sweep.assign(min_update_interval=[1, 1, 8, 8], replicas=[1, 1, 2, 2])
    assert list(series(table)) == [
        "sequential",
        "amp, update interval 1",
        "amp, update interval 8",
    ]
    table = sweep.assign(replicas=[1, 1, 2, 2])
    assert list(series(table)) == ["sequential", "amp, 1 replica", "amp, 2 replicas"]


def test_labels_of_rows_can_be_overruled_by_the_names_of_their_schedules(sweep):
    labelled = sweep.assign(schedule=["a", "b", "c", "d"])
    assert list(series(labelled, ["sequential", "amp", "amp", "amp"])) == ["sequential", "amp"]


def test_throughput_over_mak_has_a_line_a_schedule_and_a_second_axis_of_ratios(sweep):
    figure = throughput_over_mak(sweep)
    axes = figure.axes[0]
    line = drawn(axes, "amp")
    np.testing.assert_allclose(line.get_xdata(), [1, 4, 16])
    np.testing.assert_allclose(line.get_ydata(), [1.2, 3, 6])
    assert axes.get_xlabel() == "instances in flight, at most (max_active_keys)"
    assert axes.get_ylabel() == "training items per second of virtual time (M/s)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4", "16"]
    (right,) = axes.child_axes
    assert right.get_ylabel() == "times the first row"
    figure.draw_without_rendering()
    low, high = right.get_ylim()
    assert (low, high) == pytest.approx((0, axes.get_ylim()[1]))  # a first row of 1 M/s
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["sequential", "amp"]
    assert inside(figure)


def test_there_are_lines_only_where_a_schedule_was_tried_with_several(sweep, make_table):
    assert bars.has_lines(sweep)
    assert not bars.has_lines(make_table())
    unknown = sweep.assign(train_per_s=[1e6, None, None, 2e6])
    assert not bars.has_lines(unknown)


def test_an_unknown_throughput_leaves_a_gap_and_a_first_row_without_one_no_ratios(sweep):
    figure = throughput_over_mak(sweep.assign(train_per_s=[None, 3e6, 1e6, None]))
    axes = figure.axes[0]
    np.testing.assert_allclose(drawn(axes, "amp").get_xdata(), [1, 4])
    assert not axes.child_axes


def test_the_plane_has_a_point_for_each_row_that_reached_the_target(sweep):
    figure = plane(sweep, ITEMS)
    axes = figure.axes[0]
    line = drawn(axes, "amp")
    np.testing.assert_allclose(line.get_xdata(), [1.2, 3])
    np.testing.assert_allclose(line.get_ydata(), [4, 6])
    assert words(axes).count("1") == 2
    assert "4" in words(axes)
    assert "16" not in words(axes)
    assert axes.get_ylabel() == "epochs to the target"
    assert inside(figure)


def test_along_a_grey_line_the_time_of_training_is_the_same(sweep):
    axes = plane(sweep, ITEMS).axes[0]
    lines = [line for line in axes.get_lines() if line.get_zorder() == 1]
    times_s = []
    for line in lines:
        (begin, end_x), (zero, end_y) = line.get_xdata(), line.get_ydata()
        assert (begin, zero) == (0, 0)
        times_s.append(end_y * ITEMS / (end_x * 1e6))
    np.testing.assert_allclose(times_s, [0.2, 0.5])
    assert set(words(axes)) >= {"200 ms", "500 ms"}


def test_times_of_the_lines_are_round_and_few():
    assert iso_times([0.4]) == pytest.approx([0.2, 0.5])
    many = iso_times([1e-6, 1e3])
    assert len(many) <= 7
    assert iso_times([]) == []


def test_without_a_row_at_the_target_there_is_no_plane(sweep):
    assert has_points(sweep)
    assert not has_points(sweep.assign(epochs_to_target=None))


def test_labels_of_points_close_together_do_not_cover_each_other(sweep):
    crowd = pd.concat([sweep.iloc[[1]]] * 8, ignore_index=True)
    crowd = crowd.assign(
        max_active_keys=range(1, 9),
        train_per_s=3e6 + 5e4 * np.arange(8),
        epochs_to_target=6.0 + 0.05 * np.arange(8),
    )
    figure = plane(crowd, ITEMS)
    figure.draw_without_rendering()
    labels = [one for one in figure.axes[0].texts if one.get_text().isdigit()]
    boxes = [Text.get_window_extent(one) for one in labels]  # without the line to the point
    assert len(boxes) == 8
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:index])


def test_utilisation_is_a_bar_a_worker_of_three_parts(make_forecast, figure_1):
    shares = make_forecast(figure_1, 3).runs[0].utilisation_by_worker
    figure = utilisation({"amp": shares, "pipeline": shares})
    axes = figure.axes[0]
    widths = {
        direction: [patch.get_width() for patch in container]
        for container in axes.containers
        if (direction := container.get_label()) in DIRECTIONS
    }
    for direction, found in widths.items():
        np.testing.assert_allclose(found, shares[direction] * 100)
    assert set(widths) == set(DIRECTIONS)
    assert axes.get_xlabel() == "share of the run (%)"
    assert axes.get_title(loc="right") == "all: 33.3 %"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["forward", "backward", "update", "idle"]
    hatches = {patch.get_hatch() for patch in figure.legends[0].get_patches()[:3]}
    assert len(hatches) == 3
    assert inside(figure)


@pytest.mark.parametrize("name", ["amp", "amp, mak 8, weights predicted", "W" * 60])
def test_a_panel_of_utilisation_has_room_for_its_name_and_the_mean(name, make_forecast, figure_1):
    shares = make_forecast(figure_1, 3).runs[0].utilisation_by_worker
    figure = utilisation({name: shares, "b": shares, "c": shares})
    figure.draw_without_rendering()
    axes = figure.axes[0]
    (left,), (right,) = (
        [text for text in axes.get_children() if isinstance(text, Text) and text.get_text() == said]
        for said in (axes.get_title(loc="left"), axes.get_title(loc="right"))
    )
    assert left.get_window_extent().x1 < right.get_window_extent().x0


def test_utilisation_of_many_workers_stays_on_a_page():
    workers = np.arange(256)
    part = np.full(256, 0.25)
    frame = pd.DataFrame({"worker": workers, "update": part, "backward": part, "forward": part})
    figure = utilisation(dict.fromkeys("abcd", frame))
    assert figure.get_size_inches()[1] < 14
    assert len(figure.axes[0].get_yticks()) < 40


def test_of_many_workers_those_that_idle_in_every_panel_are_left_out_and_counted():
    """They stay in the mean; of few workers each has its row."""
    part = np.zeros(1024)
    frame = pd.DataFrame({"worker": np.arange(1024), "update": part, "backward": part})
    one, two = (frame.assign(forward=np.where(np.arange(1024) == at, 0.5, 0)) for at in (3, 900))
    axes = utilisation({"one": one, "two": two}).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["3", "900"]
    assert axes.get_ylabel() == "worker (1,022 more idle)"
    assert axes.get_title(loc="right") == "all: 0.0488 %"
    axes = utilisation({"one": one[:8], "two": two[:8]}).axes[0]
    assert (len(axes.get_yticks()), axes.get_ylabel()) == (8, "worker")


def test_bounds_are_four_bars_a_row_and_the_largest_is_named(sweep):
    figure = bounds(sweep)
    axes = figure.axes[0]
    lengths = sorted(patch.get_width() for patch in axes.patches)
    shares = sweep[["worker_share", "path_share", "link_share", "admission_share"]]
    np.testing.assert_allclose(lengths, sorted(shares.to_numpy().ravel() * 100))
    bold = [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"]
    assert bold == [
        "100 %  critical path",
        "60.0 %  admission limit",
        "90.0 %  critical path",
        "90.0 %  worker 3",
    ]
    assert axes.get_xlabel() == "share of the run's virtual time (%)"
    assert inside(figure)


def test_rows_that_do_not_know_what_bounds_them_have_no_figure(sweep, make_table):
    assert bars.has_bounds(sweep)
    assert not bars.has_bounds(make_table())
    partly = bounds(sweep.assign(link_share=float("nan")))
    assert words(partly.axes[0]).count("\N{EN DASH}") == 4


@pytest.mark.parametrize("change", [0.5, 23.0])
def test_a_bar_of_a_change_is_as_long_as_it_and_cut_only_by_the_edge(change):
    table = pd.DataFrame({"schedule": "amp", "what": "worker 0", "factor": [0.5, 2.0],
                          "change": [change, -0.25], "time_to_target_s": 1.0})  # fmt: skip
    (axes,) = tornado(table).axes
    assert [bar.get_width() for bar in axes.patches] == [100 * change, -25.0]
    assert (axes.get_xlim()[1] < 100 * change) == (change > 10)
    assert axes.get_xlim()[0] < -25.0


@pytest.mark.parametrize("factor", [1, 2])
def test_rows_whose_epochs_differ_in_size_have_no_lines_of_equal_time(
    make_forecast, make_chain, factor
):
    made = make_forecast(make_chain(), 3)
    runs = [
        replace(run, epochs=run.epochs.assign(instances=factor * run.epochs["instances"]))
        if run.schedule == "amp" else run
        for run in made.runs
    ]  # fmt: skip
    made = replace(made, runs=tuple(runs))
    drawn = [picture.file for picture, _figure in result_figures(made, wanted={"plane"})]
    assert drawn == ["plane.png"] * (factor == 1)
