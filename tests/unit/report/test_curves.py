"""What the figures of convergence, throughput and staleness show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from ampsim import model_parallel
from ampsim.metric import ACCURACY, Metric
from ampsim.report.plot import bars
from ampsim.report.plot import convergence as convergence_figure
from ampsim.report.plot import curves as curves_figure
from ampsim.report.plot.convergence import has_scores, is_blind
from ampsim.report.plot.curves import Curves
from ampsim.report.style import line_styles

# Figures are Any here: matplotlib types what it returns too widely to ask it anything.
convergence: Any = convergence_figure.convergence
draw_curves: Any = curves_figure.draw_curves
throughput: Any = bars.throughput
staleness_histogram: Any = bars.staleness_histogram
memory_over_time: Any = bars.memory_over_time

SCHEDULES = ("sequential", "pipeline", "amp")


def ticks(axis, figure):
    """What stands at the ticks of an axis that are within its limits."""
    figure.draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    named = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [text.get_text() for place, text in named if low <= place <= high]


def test_axes_of_a_table_have_ticks_that_can_be_read():
    table = pd.DataFrame({"late": [0, 1, 2, 0, 1, 2], "step_s": [2e-3, 9e-3, 6e-2] * 2,
                          "dispatch_us": [1.0] * 3 + [5.7] * 3})  # fmt: skip
    labels: Any = {"x_label": "updates late", "y_label": "step (s)"}
    figure = draw_curves(
        table, Curves("f", "F", "t", "late", "step_s", "dispatch_us", **labels, is_log_y=True)
    )
    (axes,) = figure.axes
    assert ticks(axes.xaxis, figure) == ["0", "1", "2"]
    assert ticks(axes.yaxis, figure) == ["2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]
    assert axes.get_ylabel() == "step"
    assert legend_texts(figure) == ["dispatch 1 µs", "dispatch 5.7 µs"]


def test_limits_are_those_of_the_lines_that_are_drawn(make_epochs):
    runs = [make_epochs("amp", repeat) for repeat in (0, 1, 2)]
    low = runs[2].assign(accuracy=0.01)
    figure = convergence({f"row {place}": [runs[0], runs[1], low] for place in range(7)})
    shown = [value for line in figure.axes[0].get_lines() for value in line.get_ydata()]
    assert figure.axes[0].get_ylim()[0] > 0.01
    assert min(shown) > 0.01


def lines(axes, name):
    return [line for line in axes.get_lines() if line.get_label() == name]


def legend_texts(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_accuracy_is_drawn_over_virtual_time_and_over_epochs(make_epochs):
    epochs = make_epochs("amp", 0)
    by_time, by_epoch = convergence({"amp": [epochs]}, target=0.97).axes
    (over_time,), (over_epochs,) = lines(by_time, "amp"), lines(by_epoch, "amp")
    np.testing.assert_allclose(over_time.get_xdata(), epochs["time_s"] * 1e3)
    np.testing.assert_allclose(over_epochs.get_xdata(), epochs["epoch"])
    for line in (over_time, over_epochs):
        np.testing.assert_allclose(line.get_ydata(), epochs["accuracy"])
    assert by_time.get_xlabel() == "virtual time (ms)"
    assert by_epoch.get_xlabel() == "epoch"
    assert by_time.get_ylabel() == "validation accuracy (%)"


def test_of_three_repeats_the_median_one_is_thick(make_epochs):
    runs = [make_epochs("amp", repeat) for repeat in (2, 0, 1)]
    figure = convergence({"amp": runs}, target=0.97)
    thick = [line for line in lines(figure.axes[1], "amp") if line.get_linewidth() > 1.5]
    assert len(thick) == 1
    assert thick[0].get_xdata()[-1] == 9  # of 8, 9, 10 epochs
    assert legend_texts(figure) == [
        "amp: 97 % after 450 ms, 9 epochs "
        "(medians of 3 repeats; line: the median by time, band: all)"
    ]


def test_the_point_of_reaching_is_marked_and_the_target_labelled(make_epochs):
    epochs = make_epochs("sequential", 0)
    axes = convergence({"sequential": [epochs]}, target=0.97).axes[1]
    (ring,) = lines(axes, "target reached")
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (7, 0.972)
    assert [text.get_text() for text in axes.texts] == ["target 97 %"]
    dashed = [line for line in axes.get_lines() if list(line.get_ydata()) == [0.97, 0.97]]
    assert len(dashed) == 1
    assert dashed[0].get_linestyle() == "--"


@pytest.mark.parametrize(("scale", "shown"), [(1, ["0", "1"]), (0.5, ["0.0", "0.1", "0.2"])])
def test_of_whole_epochs_the_ticks_are_whole(scale, shown, make_epochs):
    epochs = make_epochs("sequential", 0)[:1]
    figure = convergence({"amp": [epochs.assign(epoch=epochs.epoch * scale)]})
    assert ticks(figure.axes[1].xaxis, figure)[: len(shown)] == shown


def test_a_run_that_misses_the_target_has_no_mark_and_says_so(make_epochs):
    figure = convergence({"amp": [make_epochs("amp", 0, reached=False)]}, target=0.97)
    assert not lines(figure.axes[0], "target reached")
    assert legend_texts(figure) == ["amp: 97 % not reached"]
    low, high = figure.axes[0].get_ylim()
    assert low < 0.97 < high


def test_schedules_differ_in_colour_and_in_marker_and_dash():
    names = [*model_parallel.SCHEDULES, "mine", "mine too", "amp, mak 16"]
    styles = line_styles(names)
    assert len({style.colour for style in styles.values()}) == len(names)
    assert len({(style.marker, str(style.dash)) for style in styles.values()}) == len(names)


def test_more_schedules_than_styles_still_have_styles():
    assert len(line_styles([f"mine {index}" for index in range(30)])) == 30


def test_a_schedule_looks_the_same_whichever_others_there_are():
    assert line_styles(["amp"])["amp"] == line_styles(["mine", *SCHEDULES])["amp"]


def test_bands_and_thin_lines_are_left_out_where_they_would_hide_one_another(make_epochs):
    few, many = ({f"mine {i}": [make_epochs("amp", 0)] * 3 for i in range(n)} for n in (6, 7))
    banded, plain = convergence(few, target=0.97), convergence(many, target=0.97)
    assert len(banded.axes[0].collections) - len(plain.axes[0].collections) == 6 - 1
    assert all(
        text.endswith("repeats; line: the median by time, band: all)")
        for text in legend_texts(banded)
    )
    assert all("(medians of 3 repeats; " in text for text in legend_texts(plain))
    assert all(text.endswith(" epochs)") for text in legend_texts(plain))


def test_runs_without_accuracy_are_known_as_such(make_epochs):
    epochs = make_epochs("amp", 0)
    assert has_scores({"amp": [epochs]})
    assert not has_scores({"amp": [epochs.assign(accuracy=float("nan"))], "empty": []})
    unknown = convergence({"amp": [epochs.assign(accuracy=float("nan"))]}, target=None)
    assert unknown.axes[0].get_ylim() == (0.0, 1.0)


def test_bars_are_as_long_as_the_throughputs_they_name(make_table):
    axes = throughput(make_table()).axes[0]
    lengths = sorted(patch.get_width() for patch in axes.patches)
    np.testing.assert_allclose(lengths, [0.508, 1.29, 1.52, 2.08, 5.8, 5.9])
    written = [text.get_text() for text in axes.texts]
    assert written == [
        "508 k/s", "1.29 M/s  (2.5×)", "2.08 M/s  (4.1×)", "1.52 M/s", "5.80 M/s", "5.90 M/s",
    ]  # fmt: skip
    assert axes.get_xlabel() == "items per second of virtual time (M/s)"
    assert [label.get_text() for label in axes.get_yticklabels()] == list(SCHEDULES)


def test_validation_bars_are_hatched_and_the_legend_says_what_that_means(make_table):
    figure = throughput(make_table())
    hatches = [patch.get_hatch() or "" for patch in figure.axes[0].patches]
    assert hatches == ["", "", "", "////", "////", "////"]
    assert legend_texts(figure) == ["training", "validation"]


def test_without_any_validation_there_is_one_bar_for_each_row_and_no_legend(make_table):
    figure = throughput(make_table(valid_per_s=[None, float("nan"), None]))
    (axes,) = figure.axes
    bars = [patch.get_y() + patch.get_height() / 2 for patch in axes.patches]
    assert bars == pytest.approx([0.0, 1.0, 2.0])
    assert not any(text.get_text() == "–" for text in axes.texts)
    assert not figure.legends
    assert axes.get_xlabel().startswith("training ")


def test_an_unknown_throughput_is_a_dash_and_never_zero(make_table):
    axes = throughput(make_table(valid_per_s=[None, float("nan"), 3.0e6])).axes[0]
    assert [text.get_text() for text in axes.texts][3:] == ["–", "–", "3.00 M/s"]


def test_rows_of_one_schedule_are_told_apart(make_table):
    table = make_table(schedule=["amp", "amp", "amp"], max_active_keys=[1, 4, 4])
    labels = [label.get_text() for label in throughput(table).axes[0].get_yticklabels()]
    assert labels == ["amp, 1 in flight", "amp, 4 in flight", "amp, 4 in flight (2)"]


def test_a_histogram_tells_share_mean_and_maximum_of_each_node():
    counts = pd.DataFrame(
        {"node": ["a", "a", "a", "b"], "staleness": [0, 2, 2, 0], "count": [10, 20, 10, 5]}
    )
    axes = staleness_histogram({"amp": counts}).axes[0]
    bars = {c.get_label(): [abs(p.get_height()) for p in c] for c in axes.containers}
    np.testing.assert_allclose(np.array(bars["a"]) / max(bars["a"]), [1 / 3, 0, 1])
    np.testing.assert_allclose(np.array(bars["b"]) / max(bars["b"]), [1])
    assert [text.get_text() for text in axes.texts] == [
        "mean 1.5\nmax 2\npeak 75.0 %",
        "mean 0\nmax 0\npeak 100 %",
    ]
    assert axes.get_xlabel() == "staleness (updates)"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_of_many_nodes_the_stalest_are_drawn_in_their_order():
    names = [f"linear-{place}" for place in range(1, 101)]
    counts = pd.DataFrame({"node": names, "staleness": [*range(100)], "count": 1})
    figure = staleness_histogram({"amp": counts, "sequential": counts.assign(staleness=0)})
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == names[-32:]
    assert "of the 32 stalest of 100 nodes" in figure.get_supylabel()


def test_all_schedules_share_nodes_and_range_of_staleness(make_staleness):
    figure = staleness_histogram({name: make_staleness(name) for name in SCHEDULES})
    assert [axes.get_title("left") for axes in figure.axes] == list(SCHEDULES)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    colours = {to_hex(axes.containers[0][0].get_facecolor()) for axes in figure.axes}
    assert len(colours) == 3


def test_a_node_without_gradients_under_a_schedule_says_so():
    counts = pd.DataFrame({"node": ["a"], "staleness": [0], "count": [10]})
    others = pd.DataFrame({"node": ["b"], "staleness": [1], "count": [10]})
    figure = staleness_histogram({"amp": counts, "pipeline": others})
    assert " no gradients" in [text.get_text() for text in figure.axes[0].texts]


def test_nothing_of_the_figures_is_cut_off(make_epochs, make_table, make_staleness):
    long = "a schedule with a name as long as a whole sentence about it"
    table = make_table(schedule=["sequential", long, "amp"])
    figures = [
        convergence({long: [make_epochs("amp", 0)]}, target=0.97),
        throughput(table),
        staleness_histogram({long: make_staleness("amp")}),
    ]
    for figure in figures:
        figure.draw_without_rendering()
        parts = [*figure.axes, *figure.legends]
        boxes = [part.get_tightbbox() for part in parts]
        assert min(box.x0 for box in boxes) >= -1
        assert min(box.y0 for box in boxes) >= -1
        assert max(box.x1 for box in boxes) <= figure.bbox.x1 + 1
        assert max(box.y1 for box in boxes) <= figure.bbox.y1 + 1


def test_an_error_falls_to_its_target_on_an_axis_with_its_unit(make_epochs):
    epochs = make_epochs("amp", 0)
    falling = epochs.assign(error=10 * (1 - epochs["accuracy"]), accuracy=float("nan"))
    figure = convergence({"amp": [falling]}, target=1.0, metric=Metric("error", "eV"))
    by_time = figure.axes[0]
    assert by_time.get_ylabel() == "validation error (eV)"
    first = int(np.flatnonzero(falling["error"] <= 1.0)[0])
    (ring,) = [line for line in by_time.lines if line.get_label() == "target reached"]
    np.testing.assert_allclose(ring.get_ydata(), falling["error"].iloc[first])
    assert legend_texts(figure)[0].startswith("amp: 1 eV after ")
    low, high = by_time.get_ylim()
    assert 0 <= low < falling["error"].min() < falling["error"].max() < high


def test_a_run_without_numbers_is_told_from_one_without_epochs(make_epochs):
    epochs = make_epochs("amp", 0)
    blind = epochs.assign(accuracy=float("nan"))
    assert is_blind([blind], ACCURACY)
    assert not is_blind([epochs], ACCURACY)
    assert not is_blind([epochs[:0]], ACCURACY)


def test_each_moment_of_a_memory_is_drawn_the_last_and_fullest_too():
    moments = pd.DataFrame({"worker": 0, "time_s": [1.0, 3.0, 4.0], "bytes": [5e6, 7e6, 9e6]})
    parts = {**dict.fromkeys(bars.CATEGORIES, 0.0), "weights": moments["bytes"]}
    (axes,) = memory_over_time({"amp": moments.assign(**parts)}).axes
    corners = axes.collections[0].get_paths()[0].vertices
    widths = [np.ptp(corners[corners[:, 1] == height, 0]) for height in (5.0, 7.0, 9.0)]
    assert widths == [1.0, 2.0, 1.0]
    assert axes.get_xlim() == (0.0, 4.0)
