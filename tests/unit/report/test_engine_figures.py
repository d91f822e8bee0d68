"""Charts of a dependency engine's run show what its records say."""

from __future__ import annotations

from typing import Any

import pytest

import ampsim
from ampsim.errors import OptionError


def ran(operations: int = 3) -> Any:
    cluster = ampsim.load_cluster("tflops-1", workers=2, bandwidth_bytes_per_s=1e12)
    engine = ampsim.DependencyEngine(cluster, push_s=1e-12)
    a = engine.new_variable("A")
    for number in range(operations):
        work = ampsim.Work(flop=10 * (number + 1))
        engine.push(None, mutates=[a], on=number % 2, work=work, name=f"step {number}")
    engine.push_copy(None, [a], source=0, target="host", size_bytes=20, name="copy")
    engine.wait_for_all()
    return engine.result


def test_a_chart_has_a_row_for_each_thread_at_work_and_arrows_between_rows():
    (axes,) = ampsim.figures.gantt(ran()).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["host: push", "worker 0: compute", "worker 0: copy-out", "worker 1: compute"]
    counts: dict[str, int] = {}
    for each in axes.collections:
        label = str(each.get_label())
        counts[label] = counts.get(label, 0) + len(each.get_paths())
    assert counts == {
        "idle": 4, "push": 4, "compute": 3, "copy-out": 1, "transfer": 3, "arrow heads": 3,
    }  # fmt: skip
    assert {text.get_text() for text in axes.texts} == {"step 0", "step 1", "step 2", "copy"}
    (legend,) = axes.figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["compute", "copy-out", "push", "idle", "made ready by"]


def test_a_drawing_of_queues_has_a_block_for_each_that_waits_or_runs():
    result = ran()
    figure = ampsim.figures.queues(result, 2e-12, 30e-12)
    blocks = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert (
        blocks == [["step 0", "step 1"], ["step 1", "step 2", "copy"]] or blocks[0][0] == "step 0"
    )
    for axes, time_s in zip(figure.axes, (2e-12, 30e-12), strict=True):
        expected = [one.operation for queue in result.waiters_at(time_s).values() for one in queue]
        assert len(axes.texts) == len(expected)


def test_what_cannot_be_drawn_is_said_in_one_line():
    result = ran(60)
    with pytest.raises(OptionError, match="queues of at most 40 operations"):
        ampsim.figures.queues(result, 70e-12)
    with pytest.raises(OptionError, match="at least one time"):
        ampsim.figures.queues(result)
    with pytest.raises(OptionError, match="draw them one by one"):
        ampsim.figures.gantt(result, result)
