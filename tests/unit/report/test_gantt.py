"""What a Gantt chart shows: boxes, colours, numbers, rows, units."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import PathPatch
from matplotlib.transforms import Bbox
from PIL import Image

from ampsim.errors import OptionError
from ampsim.report.gantt import chart as charts
from ampsim.report.gantt.boxes import ChartRun, chart_of, chart_runs, first_window
from ampsim.report.saving import encode
from ampsim.report.style import DIRECTIONS
from ampsim.runs.run import Run

# Figures are Any here: matplotlib types what it returns too widely to ask it anything.
gantt_comparison: Any = charts.gantt


def gantt(run: Any, *, title: str = "", **how: Any) -> Any:
    """The chart of one run."""
    return charts.gantt({title: run}, **how)


PAPER = {"forward": "#e69f00", "backward": "#0072b2", "update": "#f0e442"}


def boxes(axes, direction):
    """Extents (left, right, middle) of the boxes of a direction."""
    found = []
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and collection.get_label() == direction:
            for path in collection.get_paths():
                box = path.get_extents()
                found.append((box.x0, box.x1, (box.y0 + box.y1) / 2))
    return np.array(sorted(found)).reshape(-1, 3)


def numbers(axes):
    """Texts in the chart that are instance numbers, with their places."""
    return [text for text in axes.texts if text.get_text().isdigit()]


def span(worker=0, start_s=0.0, end_s=1e-6, direction="forward", instance=0):
    return {
        "worker": worker, "node": "n", "direction": direction, "instance": instance,
        "start_s": start_s, "end_s": end_s, "flop": 0, "bytes": 0, "staleness": -1,
    }  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "backward", "update"])
@pytest.mark.parametrize("schedule", ["sequential", "pipeline", "amp"])
def test_every_span_has_one_box_of_its_length_in_its_workers_row(figure_1, schedule, direction):
    spans = figure_1[schedule]
    axes = gantt(spans, workers=3).axes[0]
    chosen = spans[spans["direction"] == direction]
    expected = sorted(
        zip(chosen["start_s"] * 1e6, chosen["end_s"] * 1e6, chosen["worker"], strict=True)
    )
    np.testing.assert_allclose(boxes(axes, direction), expected, atol=1e-9)


def test_directions_have_the_colours_of_the_papers_figure_1(figure_1):
    axes = gantt(figure_1["amp"], workers=3).axes[0]
    for direction, colour in PAPER.items():
        fills = {
            to_hex(collection.get_facecolor()[0])
            for collection in axes.collections
            if collection.get_label() == direction
        }
        assert fills == {colour}


def test_directions_can_be_told_apart_without_colour(figure_1):
    figure = gantt(figure_1["amp"], workers=3)
    greys = sorted(
        0.299 * r + 0.587 * g + 0.114 * b
        for r, g, b in (to_rgb(style.fill) for style in DIRECTIONS.values())
    )
    assert np.diff(greys).min() > 0.15
    hatches = {p.get_hatch() for p in figure.axes[0].patches if isinstance(p, PathPatch)}
    assert hatches == {"////", "...."}
    legend = {patch.get_label(): patch.get_hatch() for patch in figure.legends[0].get_patches()}
    assert legend == {"forward": "", "backward": "////", "update": "....", "idle": None}


def test_the_hatch_covers_exactly_the_boxes_of_its_direction(figure_1):
    axes = gantt(figure_1["sequential"], workers=3).axes[0]
    hatch = next(p for p in axes.patches if p.get_hatch() == "////")
    corners = hatch.get_path().vertices.reshape(-1, 5, 2)
    np.testing.assert_allclose(sorted(corners[:, 0, 0]), boxes(axes, "backward")[:, 0])
    np.testing.assert_allclose(sorted(corners[:, 2, 0]), boxes(axes, "backward")[:, 1])


def test_instance_numbers_stand_in_their_boxes(figure_1):
    spans = figure_1["sequential"]
    axes = gantt(spans, workers=3, window_s=(0.0, 38e-6)).axes[0]
    shown = spans[spans["start_s"] < 38e-6]
    middles = (shown["start_s"] + shown["end_s"].clip(upper=38e-6)) / 2 * 1e6
    expected = sorted(zip(middles, shown["worker"], shown["instance"].astype(str), strict=True))
    written = sorted((*t.get_position(), t.get_text()) for t in numbers(axes))
    assert [text for *_, text in written] == [text for *_, text in expected]
    np.testing.assert_allclose([w[:2] for w in written], [e[:2] for e in expected])


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "workers"), [(3, 3), (4, 6), (10, 16)])
def test_no_number_is_wider_or_higher_than_its_box(make_chain, layers, workers):
    spans = make_chain(layers, workers, instances=12)
    figure = gantt_comparison(spans, workers=workers)
    for axes in figure.axes:
        places = np.concatenate([boxes(axes, direction) for direction in PAPER])
        for text in numbers(axes):
            x, y = text.get_position()
            inside = places[(places[:, 0] < x) & (x < places[:, 1]) & (places[:, 2] == y)]
            assert len(inside) == 1
            left, right, _ = inside[0]
            corners = axes.transData.transform([(left, y - 0.42), (right, y + 0.42)])
            box = Bbox([corners.min(axis=0), corners.max(axis=0)])
            extent = text.get_window_extent()
            assert extent.width <= box.width
            assert extent.height <= box.height


def test_updates_of_no_instance_have_no_number():
    spans = pd.DataFrame([span(), span(start_s=1e-6, end_s=2e-6, direction="update", instance=-1)])
    axes = gantt(spans, workers=1).axes[0]
    assert len(boxes(axes, "update")) == 1
    assert [text.get_text() for text in numbers(axes)] == ["0"]


def test_free_steps_are_not_drawn_and_their_workers_are_one_line(make_chain):
    spans = make_chain(3, 16)["amp"]
    axes = gantt(spans, workers=16).axes[0]
    drawn = sum(len(boxes(axes, direction)) for direction in PAPER)
    assert drawn == (spans["end_s"] > spans["start_s"]).sum() < len(spans)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"worker {n} (linear-{n})" for n in range(3)]
    lines = [text.get_text() for text in axes.texts if not text.get_text().isdigit()]
    assert lines == ["12 workers with only free steps, 1 worker with no steps"]


def test_worker_0_is_on_top(figure_1):
    axes = gantt(figure_1["amp"], workers=3).axes[0]
    bottom, top = axes.get_ylim()
    assert top < 0 < 2 < bottom


@pytest.mark.parametrize(
    ("length_s", "unit"), [(4e-9, "ns"), (4e-6, "µs"), (4e-3, "ms"), (4.0, "s"), (400.0, "s")]
)
def test_the_time_axis_names_a_unit_that_fits_the_window(length_s, unit):
    axes = gantt(pd.DataFrame([span(end_s=length_s)]), workers=1).axes[0]
    assert axes.get_xlabel() == f"virtual time ({unit})"
    assert axes.get_xlim()[1] == pytest.approx(4.0 if length_s < 100 else 400.0)


def test_a_late_window_counts_from_its_start_and_says_so():
    spans = pd.DataFrame([span(start_s=12.5, end_s=12.5 + 4e-6)])
    axes = gantt(spans, workers=1).axes[0]
    assert axes.get_xlabel() == "virtual time after 12.5 s (µs)"
    np.testing.assert_allclose(axes.get_xlim(), (0.0, 4.0), rtol=1e-6)


@pytest.mark.parametrize("start_s", [12.5, 123456.789012345, 987654.3210987, 0.1 + 0.2])
@pytest.mark.parametrize("length_s", [1e-6, 4.4e-5, 1e-4])
def test_ticks_of_a_late_window_count_from_the_very_time_that_the_label_says(start_s, length_s):
    """It had nine digits: "after 123456.789 s (µs)" was 12 µs off, twelve times the window."""
    spans = pd.DataFrame([span(start_s=start_s, end_s=start_s + length_s)])
    axes = gantt(spans, workers=1).axes[0]
    said = re.fullmatch(r"virtual time after (\S+) s \(µs\)", axes.get_xlabel())
    assert said, axes.get_xlabel()
    left, right = (float(said[1]) + end * 1e-6 for end in axes.get_xlim())
    assert (left, right) == pytest.approx((start_s, start_s + length_s), rel=1e-15, abs=1e-10)


def test_boxes_are_cut_to_the_window(figure_1):
    axes = gantt(figure_1["sequential"], workers=3, window_s=(0.5e-6, 8.0e-6)).axes[0]
    np.testing.assert_allclose(boxes(axes, "forward")[0, :2], (0.5, 1.0))
    np.testing.assert_allclose(boxes(axes, "backward")[-1, :2], (7.0, 8.0))


def test_the_share_of_busy_time_is_told(figure_1):
    axes = gantt(figure_1["sequential"], workers=3, window_s=(0.0, 9.5e-6)).axes[0]
    busy = 100 * 3 * (1.0 + 2.0 + 0.5) / (3 * 9.5)
    assert axes.get_title("right") == f"rows shown are busy {busy:.1f} % of this window"


def test_the_share_of_a_run_that_ends_in_the_window_is_that_of_its_own_time():
    """It was 30 % of the window of a longer one, where the page says 100 % of the run."""
    short, long = pd.DataFrame([span(end_s=3e-6)]), pd.DataFrame([span(end_s=10e-6)])
    figure = gantt_comparison({"short": short, "long": long}, workers=1)
    said = [axes.get_title("right") for axes in figure.axes]
    assert said == [
        "rows shown are busy 100 % until the run ends",
        "rows shown are busy 100 % of this window",
    ]


def test_a_comparison_stacks_the_schedules_on_one_axis_with_the_same_rows(make_chain):
    spans = make_chain(4, 6)
    figure = gantt_comparison(spans, workers=6, window_s=(0.0, 50e-6))
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == ["(a) sequential", "(b) pipeline", "(c) amp"]
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, 50.0)}
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "virtual time (µs)"]
    assert len(figure.legends) == 1


def test_a_trace_without_a_step_says_so():
    empty = pd.DataFrame([span()]).iloc[:0]
    for spans in (empty, pd.DataFrame([span(end_s=0.0)])):
        axes = gantt(spans, workers=2).axes[0]
        assert axes.get_title("right") == "no step takes time in this window"


def test_a_step_too_short_to_see_is_a_hairline_in_its_direction():
    long = [span(end_s=1.0), span(start_s=1.0, end_s=1.0 + 1e-9, direction="update")]
    axes = gantt(pd.DataFrame(long), workers=1).axes[0]
    hairline = next(c for c in axes.collections if c.get_label() == "update")
    assert hairline.get_linewidths()[0] > 0
    crowd = [span(start_s=k * 1e-4, end_s=k * 1e-4 + 1e-7) for k in range(10_000)]
    axes = gantt(pd.DataFrame(crowd), workers=1).axes[0]
    packed = next(c for c in axes.collections if c.get_label() == "forward")
    assert packed.get_linewidths()[0] == 0


@pytest.mark.parametrize("workers", [200, 1000])
def test_boxes_of_thousands_of_workers_have_the_colour_of_the_legend(workers):
    """Rows were lower than the edges of their boxes: forward steps were as brown as these."""
    figure = gantt(pd.DataFrame([span(worker) for worker in range(workers)]), workers=workers)
    image = np.asarray(Image.open(io.BytesIO(encode(figure, ".png"))).convert("RGB")) / 255
    high, wide, _ = image.shape
    middle = image[high // 4 : 3 * high // 4, 3 * wide // 5 : 4 * wide // 5].reshape(-1, 3)
    gaps = 1 - 0.84  # of the height, painted as idle
    seen = (middle.mean(axis=0) - gaps * np.array(to_rgb("#e9ecef"))) / (1 - gaps)
    np.testing.assert_allclose(seen, to_rgb(PAPER["forward"]), atol=0.12)


def test_256_workers_and_many_boxes_stay_one_readable_page():
    rows = [
        span(worker=worker, start_s=k * 2e-6, end_s=k * 2e-6 + 1e-6, instance=k)
        for worker in range(256)
        for k in range(20)
    ]
    figure = gantt(pd.DataFrame(rows), workers=256)
    axes = figure.axes[0]
    assert len(boxes(axes, "forward")) == 256 * 20
    assert figure.get_size_inches()[1] < 15
    labels = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(above.y0 >= below.y1 for above, below in pairwise(labels))


def test_nothing_is_cut_off(make_chain):
    devices = [f"accelerator {number // 3} in rack 7" for number in range(6)]
    figure = gantt_comparison(make_chain(4, 6), workers=6, devices=devices)
    figure.draw_without_rendering()
    page = figure.bbox
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box.x0 >= page.x0 - 1
        assert box.y0 >= page.y0 - 1
        assert box.x1 <= page.x1 + 1
        assert box.y1 <= page.y1 + 1


@pytest.mark.parametrize("window_s", [(1.0, 1.0), (2.0, 1.0), (0.0, float("nan"))])
def test_an_empty_window_is_refused(figure_1, window_s):
    with pytest.raises(OptionError, match=r"a window must be two finite times in s, start < end"):
        gantt(figure_1["amp"], workers=3, window_s=window_s)


def test_a_dollar_sign_in_a_title_is_a_dollar_sign(figure_1):
    title = "costs $1_000$ <script>\nnext"
    figure = gantt(figure_1["amp"], workers=3, title=title)
    shown = figure.axes[0].title if figure.axes[0].get_title() else figure.axes[0]._left_title
    assert shown.get_text() == "costs $1_000$ <script> next"
    assert not shown.get_parse_math()


def test_the_window_ends_when_the_slowest_schedule_has_finished_so_many(figure_1):
    assert first_window(chart_runs(figure_1)) == pytest.approx((0.0, 38e-6))


def test_a_window_of_more_instances_than_there_are_holds_them_all(make_chain):
    few = make_chain(instances=3)
    end_s = few["sequential"]["end_s"].max()
    assert first_window(chart_runs(few))[1] == pytest.approx(end_s)


def test_a_window_ends_where_the_spans_of_a_schedule_are_no_longer_known(figure_1):
    runs: list[Any] = [
        Run(spans=figure_1["amp"], messages=len(figure_1["amp"]) + 1),
        Run(spans=figure_1["sequential"], messages=len(figure_1["sequential"])),
        Run(spans=figure_1["sequential"]),
    ]
    known_s = figure_1["amp"]["end_s"].max()
    assert [one.kept and one.kept.until_s for one in map(chart_of, runs)] == [known_s, None, None]
    few = figure_1["amp"].head(4)
    charts = {"amp": chart_of(Run(spans=few, messages=5)), "sequential": chart_of(runs[1])}
    assert first_window(charts) == (0.0, few["end_s"].max())


def test_a_window_of_nothing_is_still_a_window():
    empty = pd.DataFrame([span()]).iloc[:0]
    assert first_window({"amp": ChartRun(empty)}) == (0.0, 1.0)
    assert first_window({"amp": ChartRun(pd.DataFrame([span(end_s=0.0)]))}) == (0.0, 1.0)
