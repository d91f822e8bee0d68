"""Rows grouped by device, transfers as arrows, and windows that users write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D

import ampsim
from ampsim.errors import OptionError
from ampsim.report.frames import hosts_in
from ampsim.report.gantt import boxes as chart_arrows
from ampsim.report.gantt import chart as charts
from ampsim.report.gantt.boxes import ChartRun, parse_window, require_within
from ampsim.report.saving import save

gantt_comparison: Any = charts.gantt


def gantt(run: Any, *, title: str = "", **how: Any) -> Any:
    """The chart of one run."""
    return charts.gantt({title: run}, **how)


DEVICES = ["fast", "slow", "fast"]


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def notes(axes):
    return {text.get_text() for text in axes.texts}


def sent(*rows):
    """Transfers between linear-N of worker N, the light node of worker 3 and the controller."""
    frame = pd.DataFrame(list(rows), columns=["source", "target", "bytes", "start_s", "end_s"])
    for end in ("source", "target"):
        number: Any = frame[end].str.extract(r"linear-(\d)")[0].astype(float)
        others = frame[end].map({"light": 3, "controller": -1})
        frame[f"{end}_worker"] = number.where(number.notna(), others).astype(int)
    return frame


def ways(axes) -> Any:
    """Ends of the arrows: ((time, row), (time, row)) each."""
    return [
        [tuple(end) for end in segment]
        for collection in axes.collections
        if isinstance(collection, LineCollection)
        for segment in collection.get_segments()
    ]


def test_each_rank_has_the_nodes_of_its_copy():
    solver, cluster = ampsim.AsyncSGD(ranks=2), ampsim.load_cluster("tflops-1", workers=3)
    model = ampsim.load_model("mlp", hidden=8, data="synthetic")
    run = ampsim.simulate(model, cluster, solver, mode="sleep", instances=20)
    copy = "linear-1, linear-4 +6"
    told = ["0 (" + copy, "1 (" + copy, "2 (centre"]
    assert names(gantt(run.spans, workers=3).axes[0]) == [f"worker {one})" for one in told]


def busy(*rows):
    """Steps of nodes on workers, which take so long."""
    frame = pd.DataFrame(rows, columns=["worker", "node", "end_s"])
    return frame.assign(start_s=0.0)


def test_a_row_of_several_charts_names_nodes_only_where_all_of_them_place_them_there():
    """Those that work for longest, over all charts, stand first; the host has none."""
    one, other = busy((0, "a", 1.0), (0, "b", 2.0), (-1, "c", 9.0)), busy((0, "a", 1.5))
    assert hosts_in([one]) == {0: ["b", "a"]}
    assert hosts_in([one, other]) == {0: ["a", "b"]}
    assert hosts_in([one, busy((1, "a", 3.0))]) == {}
    assert hosts_in([one, busy((0, "a", 1.0), (1, "a", 1.0))]) == {}


def test_rows_of_one_device_are_together_in_a_bracket_with_its_name(figure_1):
    axes = gantt(figure_1["amp"], workers=3, devices=DEVICES).axes[0]
    assert names(axes) == [f"worker {n} (linear-{n})" for n in (0, 2, 1)]
    assert {"fast", "slow"} <= notes(axes)
    lines: list[Any] = [line for line in axes.get_children() if isinstance(line, Line2D)]
    brackets = [line.get_ydata() for line in lines]
    brackets = [list(y) for y in brackets if len(y) == 2 and y[1] > y[0] > -0.5]
    assert brackets == [pytest.approx([-0.38, 1.38]), pytest.approx([1.62, 2.38])]


def test_boxes_follow_their_worker_to_its_row(figure_1):
    axes = gantt(figure_1["sequential"], workers=3, devices=DEVICES).axes[0]
    forward = [c for c in axes.collections if c.get_label() == "forward"]
    rows = {round(path.get_extents().y0 + 0.42) for c in forward for path in c.get_paths()}
    assert rows == {0, 1, 2}
    first = min(
        (path.get_extents() for c in forward for path in c.get_paths()), key=lambda box: box.x0
    )
    assert round(first.y0 + 0.42) == 0


@pytest.mark.parametrize("devices", [(), ["fast"] * 3])
def test_equal_devices_have_no_brackets(figure_1, devices):
    axes = gantt(figure_1["amp"], workers=3, devices=devices).axes[0]
    assert names(axes) == [f"worker {n} (linear-{n})" for n in range(3)]
    assert "fast" not in notes(axes)


def test_names_of_devices_never_overlap_and_stay_on_the_page():
    workers = 256
    spans = pd.DataFrame(
        {
            "worker": range(workers), "node": "n", "direction": "forward", "instance": 0,
            "start_s": 0.0, "end_s": 1e-6, "flop": 0, "bytes": 0, "staleness": -1,
        }
    )  # fmt: skip
    devices = [f"device of kind {worker}" for worker in range(5)] + ["the rest"] * (workers - 5)
    figure = gantt(spans, workers=workers, devices=devices)
    figure.draw_without_rendering()
    written = [text for text in figure.axes[0].texts if text.get_text() in devices]
    extents = sorted((text.get_window_extent() for text in written), key=lambda box: -box.y0)
    assert 1 < len(extents) < 6
    assert all(a.y0 >= b.y1 - 1 for a, b in pairwise(extents))
    assert all(box.x0 >= figure.bbox.x0 - 1 for box in extents)
    axes = figure.axes[0].get_window_extent()
    assert all(box.x1 < axes.x0 for box in extents)


def test_a_transfer_is_an_arrow_from_the_row_that_sends_to_the_row_that_receives(figure_1):
    transfers = sent(
        ("linear-0", "linear-2", 8, 1e-6, 2e-6), ("linear-1", "linear-0", 8, 3e-6, 4e-6)
    )
    axes = gantt(ChartRun(figure_1["amp"], [transfers[:1], transfers[1:]]), workers=3).axes[0]
    found = ways(axes)
    assert found[0] == [pytest.approx((1.0, 0.2)), pytest.approx((2.0, 1.8))]
    assert found[1] == [pytest.approx((3.0, 0.8)), pytest.approx((4.0, 0.2))]
    heads = next(c for c in axes.collections if c.get_label() == "arrow heads")
    assert isinstance(heads, PolyCollection)
    paths: Any = heads.get_paths()
    tips = [tuple(path.vertices[0]) for path in paths]
    assert tips == [pytest.approx(way[1]) for way in found]


def test_a_legend_names_transfers_only_where_there_are_some(figure_1):
    transfers = sent(("linear-0", "linear-2", 8, 1e-6, 2e-6))
    with_some = gantt(ChartRun(figure_1["amp"], [transfers]), workers=3)
    without = gantt(ChartRun(figure_1["amp"], [transfers[:0]]), workers=3)
    labels = [[t.get_text() for t in f.legends[0].get_texts()] for f in (with_some, without)]
    assert labels[0] == [*labels[1], "transfer"]


def test_transfers_of_the_host_and_outside_the_window_are_no_arrows(figure_1):
    transfers = sent(
        ("controller", "linear-0", 8, 0.0, 1e-6),
        ("linear-0", "controller", 8, 0.0, 1e-6),
        ("linear-0", "linear-1", 8, 5e-6, 6e-6),
        ("linear-0", "linear-1", 8, 0.5e-6, 1.5e-6),
    )
    axes = gantt(ChartRun(figure_1["amp"], [transfers]), workers=3, window_s=(0, 4e-6)).axes[0]
    assert len(ways(axes)) == 1
    assert len(chart_arrows.arrows_in([transfers], (0, 4e-6))) == 1


def test_too_many_transfers_are_thinned_and_it_is_said(figure_1):
    rows = [("linear-0", "linear-1", 8, k * 1e-8, k * 1e-8 + 1e-7) for k in range(1000)]
    axes = gantt(ChartRun(figure_1["amp"], [sent(*rows)]), workers=3).axes[0]
    assert len(ways(axes)) == chart_arrows.ARROWS_MAX == 200
    assert axes.get_title("right").endswith("; one in 5 of 1,000 transfers is drawn")


def test_a_worker_that_only_passes_messages_on_keeps_a_row_where_they_are_drawn(make_chain):
    spans = make_chain(3, 6)["amp"]
    light = spans[spans["worker"] == 3].index[0]
    spans["node"] = spans["node"].astype(str)
    spans.loc[light, "node"] = "light"
    transfers = sent(("linear-0", "light", 8, 0.0, 1e-6))
    axes = gantt(ChartRun(spans, [transfers]), workers=6).axes[0]
    hosts = [*(f"linear-{n}" for n in range(3)), "light, relu"]
    assert names(axes) == [f"worker {n} ({nodes})" for n, nodes in enumerate(hosts)]
    assert "1 worker with only free steps, 1 worker with no steps" in notes(axes)


def test_each_schedule_of_a_comparison_has_its_own_transfers(figure_1):
    transfers = sent(("linear-0", "linear-2", 8, 1e-6, 2e-6))
    drawn = {
        "sequential": charts.ChartRun(figure_1["sequential"], [transfers]),
        "amp": figure_1["amp"],
    }
    figure = gantt_comparison(drawn, workers=3, devices=DEVICES)
    assert [len(ways(axes)) for axes in figure.axes] == [1, 0]
    assert all({"fast", "slow"} <= notes(axes) for axes in figure.axes)


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "../../x", "--><script>", "a\x1bb\n$x$"]
)
def test_a_hostile_name_of_a_device_or_a_node_does_no_harm_in_a_picture(figure_1, tmp_path, name):
    spans = figure_1["amp"]
    spans["node"] = spans["node"].astype(str) + name
    transfers = sent((f"linear-0{name}", f"linear-2{name}", 8, 1e-6, 2e-6))
    figure = gantt(
        ChartRun(spans, [transfers]), workers=3, title=name, devices=[name, "other", name]
    )
    save(figure, tmp_path / "g.svg")
    root = ElementTree.parse(tmp_path / "g.svg").getroot()
    assert not [element for element in root.iter() if "script" in element.tag.lower()]
    assert len(ways(figure.axes[0])) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["g.svg"]


@pytest.mark.parametrize(
    ("text", "window_s"),
    [
        ("0:2e-5", (0.0, 2e-5)),
        ("0:2ms", (0.0, 2e-3)),
        ("1:2us", (1e-6, 2e-6)),
        ("1ms:2", (1e-3, 2.0)),
        ("500ns:1.5µs", (5e-7, 1.5e-6)),
        ("1 s:2 s", (1.0, 2.0)),
    ],
)
def test_a_window_of_time_may_name_its_unit(text, window_s):
    assert parse_window(text) == pytest.approx(window_s)


@pytest.mark.parametrize("text", ["1", "0:1:2", "a:b", "0:2hours", "instance:1", "1.2.3:4"])
def test_a_window_that_cannot_be_read_is_refused(text):
    with pytest.raises(OptionError, match="--window must be START:END in virtual seconds or with"):
        parse_window(text)


def test_a_window_of_time_is_itself(figure_1):
    assert require_within((0.0, 1e-5), figure_1.values()) == (0.0, 1e-5)
