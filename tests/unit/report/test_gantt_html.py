"""A page with a Gantt chart carries every step that takes time, and nothing that does harm."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from ampsim.errors import OptionError, OutputError
from ampsim.report.gantt import view as chart_view
from ampsim.report.gantt.boxes import ChartRun
from ampsim.report.gantt.view import gantt_view, write_gantt_page
from ampsim.report.words import plain

HOSTILE = ["../../x", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>"]


class Seen(HTMLParser):
    """Tags with their attributes, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def column(packed, name, kind):
    return np.frombuffer(base64.b64decode(packed[name]), dtype=kind)


def test_the_page_carries_each_step_that_takes_time_once(figure_1):
    data = gantt_view(figure_1, workers=3).data
    for packed, (name, spans) in zip(data["schedules"], figure_1.items(), strict=True):
        drawn = spans[spans["end_s"] > spans["start_s"]].sort_values(["worker", "start_s"])
        assert packed["name"] == name
        assert np.array_equal(column(packed, "start", "<f8"), drawn["start_s"])
        assert np.array_equal(column(packed, "end", "<f8"), drawn["end_s"])
        assert np.array_equal(column(packed, "instance", "<i4"), drawn["instance"])
        assert np.array_equal(column(packed, "flop", "<f8"), drawn["flop"])
        assert np.array_equal(column(packed, "staleness", "<i4"), drawn["staleness"])
        nodes = [data["nodes"][code] for code in column(packed, "node", "<u2")]
        assert nodes == list(drawn["node"])
        labels = [look["label"] for look in data["directions"]]
        directions = [labels[code] for code in column(packed, "direction", "u1")]
        assert directions == list(drawn["direction"])
        assert np.array_equal(np.diff(packed["begins"]), np.bincount(drawn["worker"], minlength=3))


def test_free_steps_and_idle_workers_are_counted_not_drawn(make_chain):
    view = gantt_view({"amp": make_chain(workers=6)["amp"]}, workers=6)
    assert view.data["workers"] == [0, 1, 2]
    assert view.data["closing"] == "2 workers with only free steps, 1 worker with no steps"
    assert view.panels[0].summary.endswith("; 36 free steps are not drawn")


def test_the_page_carries_each_transfer_between_workers_once(figure_1):
    frame = pd.DataFrame(
        [(0, 2, 8, 2e-6, 3e-6), (1, 0, 16, 1e-6, 2e-6), (-1, 0, 8, 0.0, 1e-6)],
        columns=["source_worker", "target_worker", "bytes", "start_s", "end_s"],
    )  # fmt: skip
    view = gantt_view({"amp": ChartRun(figure_1["amp"], [frame])}, workers=3)
    sent = view.data["schedules"][0]["sent"]
    assert column(sent, "start", "<f8").tolist() == [1e-6, 2e-6]
    assert column(sent, "end", "<f8").tolist() == [2e-6, 3e-6]
    assert column(sent, "bytes", "<f8").tolist() == [16, 8]
    assert (column(sent, "from", "<u2").tolist(), column(sent, "to", "<u2").tolist()) == (
        [1, 0],
        [0, 2],
    )
    assert view.has_transfers
    assert view.panels[0].summary.endswith("; 2 transfers between workers")
    assert not gantt_view({"amp": figure_1["amp"]}, workers=3).has_transfers


def test_transfers_that_are_too_many_for_a_page_are_left_out_and_it_says_so(figure_1, monkeypatch):
    monkeypatch.setattr(chart_view, "TRANSFERS_MAX", 3)
    row = (0, 2, 8, 2e-6, 3e-6)
    names = ["source_worker", "target_worker", "bytes", "start_s", "end_s"]
    frame = pd.DataFrame([row] * 4, columns=names)
    view = gantt_view({"amp": ChartRun(figure_1["amp"], [frame])}, workers=3)
    assert view.data["schedules"][0]["sent"]["start"] == ""
    words = "; 4 transfers between workers are too many for a page; choose a shorter window"
    assert view.panels[0].summary.endswith(words)


def test_rows_are_grouped_by_device_where_devices_differ(figure_1):
    view = gantt_view(figure_1, workers=3, devices=["fast", "slow", "fast"])
    assert view.data["workers"] == [0, 2, 1]
    assert view.data["devices"] == ["fast", "fast", "slow"]
    assert view.data["groups"] == [["fast", 0, 1], ["slow", 2, 2]]
    names = [name for name, *_ in view.panels[0].worked]
    assert names == [
        "all workers",
        "worker 0 (linear-0), fast",
        "worker 2 (linear-2), fast",
        "worker 1 (linear-1), slow",
    ]
    assert gantt_view(figure_1, workers=3, devices=["fast"] * 3).data["groups"] == []


def test_the_page_carries_what_states_say(figure_1):
    spans = figure_1["amp"]
    spans["state"] = [f"step {index % 3}" if index else "" for index in range(len(spans))]
    data = gantt_view({"amp": spans}, workers=3).data
    codes = column(data["schedules"][0], "state", "<u4")
    ordered = spans.sort_values(["worker", "start_s"])
    assert [data["states"][code] for code in codes] == list(ordered["state"])


def test_the_table_says_how_busy_each_worker_is(figure_1):
    panel = gantt_view(figure_1, workers=3).panels[0]
    spans = figure_1["sequential"]
    length_s = spans["end_s"].max()
    mine = spans[spans["worker"] == 1]
    assert [name for name, *_ in panel.worked] == [
        "all workers",
        *(f"worker {w} (linear-{w})" for w in range(3)),
    ]
    share = (mine["end_s"] - mine["start_s"]).sum() / length_s
    assert panel.worked[2][1:3] == [str(len(mine)), f"{100 * share:.1f} %"]


def test_what_is_said_of_a_schedule_is_the_same_beside_one_that_begins_earlier(figure_1):
    late = figure_1["amp"].assign(
        **{end: figure_1["amp"][end] + 3e-6 for end in ("start_s", "end_s")}
    )
    alone = gantt_view({"amp": late}, workers=3).panels
    beside = gantt_view({"amp": late, "pipeline": figure_1["pipeline"]}, workers=3).panels
    assert beside[0] == alone[0]


def test_the_window_is_what_is_shown_first(figure_1):
    data = gantt_view(figure_1, workers=3, window_s=(1e-6, 4e-6)).data
    assert data["first"] == [1e-6, 4e-6]
    assert data["whole"][1] == max(spans["end_s"].max() for spans in figure_1.values())


def test_a_window_beyond_the_run_shows_the_run(figure_1):
    data = gantt_view(figure_1, workers=3, window_s=(1.0, 2.0)).data
    assert data["first"] == data["whole"]


def test_more_steps_than_a_page_holds_need_a_window(figure_1, monkeypatch):
    monkeypatch.setattr(chart_view, "STEPS_MAX", 50)
    with pytest.raises(OptionError, match=r"at most 50 steps .* got 297; choose a shorter window"):
        gantt_view(figure_1, workers=3)
    data = gantt_view(figure_1, workers=3, window_s=(0.0, 5e-6)).data
    assert data["whole"] == [0.0, 5e-6]
    with pytest.raises(OptionError, match="at most 50 steps"):
        gantt_view(figure_1, workers=3, window_s=(0.0, 1.0))


def test_of_steps_that_a_window_cuts_only_what_is_inside_counts(figure_1, monkeypatch):
    monkeypatch.setattr(chart_view, "STEPS_MAX", 50)
    spans, window_s = figure_1["sequential"], (0.5e-6, 2.6e-6)
    panel = gantt_view({"sequential": spans}, workers=3, window_s=window_s).panels[0]
    cut_s = spans["end_s"].clip(*window_s) - spans["start_s"].clip(*window_s)
    share = cut_s.sum() / (3 * (window_s[1] - window_s[0]))
    assert 0.1 < share < (spans["end_s"] - spans["start_s"])[cut_s > 0].sum() / (3 * 2.1e-6) - 0.01
    assert panel.worked[0][2] == f"{100 * share:.1f} %"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_no_harm(figure_1, tmp_path, name):
    spans = figure_1["amp"]
    usual = write_gantt_page({"amp": spans}, tmp_path / "usual.html", workers=3, title="usual")
    spans["node"] = spans["node"].astype(str) + name
    spans["state"] = name
    devices = [name, "other", name]
    path = write_gantt_page(
        {name: spans}, tmp_path / "g.html", workers=3, title=name, devices=devices
    )
    seen, before = Seen(path.read_text("utf-8")), Seen(usual.read_text("utf-8"))
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in before.tags]
    assert not [key for _, attributes in seen.tags for key in attributes if key.startswith("on")]
    data = json.loads(seen.scripts[0])
    assert data["schedules"][0]["name"] == name
    assert data["nodes"][0] == f"linear-0{name}"
    assert data["states"] == [name]
    assert set(data["devices"]) == {plain(name, 24), "other"}
    assert seen.scripts[1] == before.scripts[1]


def test_the_page_needs_no_other_file_and_forbids_itself_to_ask_for_one(figure_1, tmp_path):
    text = write_gantt_page(figure_1, tmp_path / "g.html", workers=3).read_text("utf-8")
    assert "<h1>Who works when</h1>" in text
    assert "default-src 'none'" in text
    links = [each.get("src") or each.get("href") or "data:" for _, each in Seen(text).tags]
    assert all(link.startswith("data:") for link in links)
    assert not re.search(r"https?://|@import|url\(", text)


def test_the_same_run_gives_the_same_page(figure_1, tmp_path):
    one, other = (write_gantt_page(figure_1, tmp_path / name, workers=3) for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


def test_nothing_that_takes_time_is_still_a_page(figure_1, tmp_path):
    spans = figure_1["amp"].iloc[:0]
    text = write_gantt_page({"amp": spans}, tmp_path / "g.html", workers=3).read_text("utf-8")
    assert "0 steps that take time" in text


def test_a_reversed_window_and_a_folder_in_the_way_are_refused(figure_1, tmp_path):
    with pytest.raises(OptionError, match="start < end, got 2 to 1"):
        write_gantt_page(figure_1, tmp_path / "g.html", workers=3, window_s=(2.0, 1.0))
    with pytest.raises(OutputError, match="it is a folder"):
        write_gantt_page(figure_1, tmp_path, workers=3)
