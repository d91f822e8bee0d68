"""Of a long run the beginning is kept: charts hatch the rest."""

from __future__ import annotations

import numpy as np
import pytest

import ampsim
from ampsim.hardware import Cluster, Device
from ampsim.model_parallel import SCHEDULES
from ampsim.report.frames import KeptPart, kept_of
from ampsim.report.gantt.boxes import ChartRun
from ampsim.report.gantt.chart import gantt
from ampsim.report.gantt.view import gantt_view
from ampsim.runs.run import Run


def test_what_was_not_kept_is_hatched_and_neither_busy_nor_idle(figure_1):
    spans = figure_1["amp"]
    until_s = float(spans["end_s"].max())
    kept = KeptPart(until_s, 4 * until_s, len(spans), 4 * len(spans))
    axes = gantt({"": ChartRun(spans, (), kept)}, workers=3, window_s=(0.0, 2 * until_s)).axes[0]
    hatched = next(each for each in axes.collections if each.get_label() == "not kept")
    outlines = [np.asarray(path.vertices) for path in hatched.get_paths()]
    ends = [(vertices[:, 0].min(), vertices[:, 0].max()) for vertices in outlines]
    assert ends == [pytest.approx((until_s * 1e6, 2 * until_s * 1e6))] * 3
    assert axes.get_title(loc="right").startswith("first ")
    inside = gantt({"": ChartRun(spans, (), kept)}, workers=3, window_s=(0.0, until_s)).axes[0]
    assert not [each for each in inside.collections if each.get_label() == "not kept"]


def test_the_page_says_how_much_was_kept_and_where_the_rest_would_be(figure_1):
    ends_s = {name: float(spans["end_s"].max()) for name, spans in figure_1.items()}
    kept = {"amp": KeptPart(ends_s["amp"], 9.0, len(figure_1["amp"]), 10**6)}
    charted = {name: ChartRun(one, (), kept.get(name)) for name, one in figure_1.items()}
    view = gantt_view(charted, workers=3)
    gaps = {one["name"]: one["gap"] for one in view.data["schedules"]}
    assert gaps["amp"] == pytest.approx([ends_s["amp"], max(ends_s.values())])
    assert gaps["sequential"] is None and not view.is_whole
    said = {panel.name: panel.summary for panel in view.panels}
    assert said["amp"].startswith(kept["amp"].words) and "of 9.00 s kept" in said["amp"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_was_not_kept_is_hatched_under_every_schedule(schedule, result_of):
    result = result_of(schedule)
    spans = result.spans[: len(result.spans) // 3]
    kept = kept_of(Run(spans=spans, messages=len(result.spans), makespan_s=result.makespan_s))
    assert kept is not None and kept.gap_s((0.0, result.makespan_s)) is not None
    until_s, end_s = float(spans["end_s"].max()), result.makespan_s
    axes = gantt({"": ChartRun(spans, (), kept)}, workers=4, window_s=(0.0, end_s)).axes[0]
    hatched = [each for each in axes.collections if each.get_label() == "not kept"]
    paths = [path for one in hatched for path in one.get_paths()]
    corners = np.concatenate([np.asarray(path.vertices)[:, 0] for path in paths])
    scale = axes.get_xlim()[1] / end_s
    assert (corners.min() / scale, corners.max() / scale) == pytest.approx((until_s, end_s))
    assert kept_of(result) is None


def test_steps_of_lanes_are_no_messages_of_which_a_part_was_kept():
    issuing = Device(name="issuing", flop_per_s=1e9, dispatch_s=2e-6)
    cluster, model = Cluster(name="c", devices=(issuing,)), ampsim.load_model("rnn", hidden=4)
    result = ampsim.simulate(model, cluster, ampsim.Dataflow(), mode="sleep", instances=20)
    spans = result.spans[: len(result.spans) // 2]
    assert len(spans) > result.messages > (spans["lane"] == "compute").sum()
    kept = kept_of(Run(spans=spans, messages=result.messages, makespan_s=result.makespan_s))
    assert kept is not None and kept.gap_s((0.0, result.makespan_s)) is not None
    assert (kept.steps, kept.steps_all) == ((spans["lane"] == "compute").sum(), result.messages)
    assert kept_of(result) is None
