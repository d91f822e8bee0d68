"""Gantt charts in a real browser: no error, no request, zoom and hover, 100,000 steps at once."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from ampsim.report.gantt.boxes import ChartRun
from ampsim.report.gantt.view import write_gantt_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's sockets
]


CONTRAST_MIN = 4.5  # WCAG 2, level AA
SENT = ["source_worker", "target_worker", "bytes", "start_s", "end_s"]


@pytest.fixture
def page(open_page, figure_1, tmp_path):
    """Three schedules of the paper's Figure 1."""
    return open_page(write_gantt_page(figure_1, tmp_path / "g.html", workers=3, title="three"))


def test_a_page_says_nothing_to_the_console_and_asks_for_nothing(page):
    assert page.complaints() == []
    assert page.requests() == []


def test_keys_zoom_and_move(page):
    page.press("0")
    start, end = page.view()
    page.press("+")
    assert page.view()[1] - page.view()[0] == pytest.approx((end - start) / 2)
    before = page.view()
    page.press("\ue014")  # the right arrow
    assert page.view()[0] > before[0]
    page.press("-")
    page.press("-")
    assert page.view() == pytest.approx((start, end))


def test_the_wheel_zooms_to_where_the_mouse_is_and_dragging_moves(page):
    page.press("0")
    start, end = page.view()
    page.mouse("mouseWheel", 600, 20, deltaX=0, deltaY=-400)
    zoomed = page.view()
    assert start < zoomed[0] < zoomed[1] < end
    page.mouse("mousePressed", 600, 20, button="left", buttons=1, clickCount=1)
    page.mouse("mouseMoved", 500, 20, button="left", buttons=1)
    page.mouse("mouseReleased", 500, 20, button="left", clickCount=1)
    moved = page.view()
    assert moved[0] > zoomed[0]
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0])


def test_pointing_at_a_box_says_what_it_is(page):
    page.mouse("mouseMoved", *page.first_step())
    tip = page.find("[data-part=tip]")
    assert tip.is_displayed()
    lines = tip.text.splitlines()
    assert lines[0] == "linear-0, forward"
    assert lines[1] == "instance 0"
    assert lines[2] == "worker 0 (linear-0), sequential"
    assert lines[3].endswith("takes 1.00 µs")
    assert lines[4] == "100 FLOP, 8 B"


def test_a_step_far_shorter_than_a_picosecond_takes_more_than_nothing(
    open_page, figure_1, tmp_path
):
    spans = figure_1["sequential"]
    spans[["start_s", "end_s"]] *= 1e-10
    page = open_page(write_gantt_page({"sequential": spans}, tmp_path / "g.html", workers=3))
    page.mouse("mouseMoved", *page.first_step())
    told = page.find("[data-part=tip]").text.splitlines()[3]
    assert told == "0.000000 ps to 0.000100 ps, takes 0.000100 ps"


KEEP_TEXTS = """
  const paint = CanvasRenderingContext2D.prototype.fillText;
  window.said = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.said.push(text);
    return paint.call(this, text, ...place);
  };
"""


def test_ticks_of_a_late_window_count_from_the_very_time_that_the_label_says(
    open_page, figure_1, tmp_path
):
    spans = figure_1["sequential"]
    spans[["start_s", "end_s"]] += 123456.789012345
    path = write_gantt_page({"sequential": spans}, tmp_path / "g.html", workers=3)
    page = open_page(path)
    page.browser.execute_script(KEEP_TEXTS)
    page.press("0")
    page.settle()
    end = page.view()[1]
    *_others, before, last, label = page.browser.execute_script("return said")
    said = re.fullmatch(r"virtual time after (\S+) s \(µs\)", label)
    assert said, label
    after_s = end - (float(said[1]) + float(last) * 1e-6)
    assert -1e-9 < after_s < (float(last) - float(before)) * 1e-6


@pytest.fixture
def links(open_page, figure_1, tmp_path):
    """One schedule on two kinds of devices, with transfers and states."""
    spans = figure_1["sequential"].assign(state="step 3, length 7")
    sent = pd.DataFrame([(0, 2, 8, 1e-6, 2e-6)], columns=SENT)
    path = write_gantt_page(
        {"sequential": ChartRun(spans, [sent])}, tmp_path / "g.html", workers=3,
        devices=["fast", "slow", "fast"],
    )  # fmt: skip
    return open_page(path)


def test_pointing_at_a_box_says_its_state_and_its_device(links):
    links.mouse("mouseMoved", *links.first_step())
    lines = links.find("[data-part=tip]").text.splitlines()
    assert lines[1:3] == ["instance 0, step 3, length 7", "worker 0 (linear-0) (fast), sequential"]
    assert links.complaints() == []


def test_transfers_are_drawn_until_they_are_switched_off(links):
    pixels = "return arguments[0].toDataURL()"
    chart = links.find("#gantt figure canvas")
    assert links.state("arrows") == "1"
    before = links.browser.execute_script(pixels, chart)
    links.find("[data-do=transfers]").click()
    links.settle()
    assert links.state("arrows") == "0"
    assert links.browser.execute_script(pixels, chart) != before


def test_a_page_without_transfers_has_no_switch_for_them(page):
    assert not page.browser.find_elements("css selector", "[data-do=transfers]")


def test_too_many_transfers_are_thinned_and_it_is_said(open_page, figure_1, tmp_path):
    rows = [(0, 1, 8, k * 1e-8, k * 1e-8 + 1e-7) for k in range(2000)]
    sent = pd.DataFrame(rows, columns=SENT)
    path = write_gantt_page(
        {"amp": ChartRun(figure_1["amp"], [sent])}, tmp_path / "g.html", workers=3
    )
    page = open_page(path)
    page.press("0")
    assert page.state("arrows") == "5"
    assert "one in 5 is drawn" in page.find("[data-part=note]").text


def test_a_click_follows_the_instance_and_a_key_lists_its_steps(page):
    page.click(*page.first_step())
    assert page.state("followed") == "0"
    note = page.find("[data-part=note]")
    assert note.text.startswith("Instance 0 – sequential: 9 steps in ")
    page.press("n")
    assert note.text.startswith(
        "linear-0, forward; instance 0; worker 0 (linear-0), sequential; 0.000 µs"
    )
    page.press("\ue00c")  # Escape
    assert page.state("followed") == ""


def test_a_number_follows_an_instance_and_brings_it_into_view(page):
    page.press("1")
    page.find("[data-do=instance]").send_keys("11")
    page.settle()
    assert page.find("[data-part=note]").text.startswith("Instance 11 – ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_a_page_fits_its_window_and_its_text_can_be_read_in_light_and_dark(page, scheme, width):
    ground = "return getComputedStyle(document.body).backgroundColor"
    with page.shown(width, scheme):
        page.open_details()
        assert page.overflow() == 0
        is_dark = page.browser.execute_script(ground) == "rgb(21, 24, 27)"
        assert is_dark == (scheme == "dark")
        contrasts = page.contrasts()
    assert len(contrasts) > 20
    assert {words: ratio for words, ratio in contrasts.items() if ratio < CONTRAST_MIN} == {}


def test_a_hundred_thousand_steps_are_there_in_two_seconds(open_page, make_crowd, tmp_path):
    spans = make_crowd(100_000, 16)
    page = open_page(write_gantt_page({"amp": spans}, tmp_path / "g.html", workers=16))
    assert float(page.state("ready")) < 2000
    page.press("0")
    assert page.state("shares") == "true"
    assert "Steps are too many to be seen apart" in page.find("[data-part=note]").text
    page.mouse("mouseMoved", 600, 12)
    assert "forward" in page.find("[data-part=tip]").text
    for _ in range(12):
        page.press("+")
    assert page.state("shares") == "false"
    assert page.complaints() == []


def test_a_hostile_name_runs_nothing(open_page, figure_1, tmp_path):
    name = "</script><script>document.title='harm'</script><img src=x onerror=alert(1)>"
    spans = figure_1["amp"]
    spans["node"] = name
    page = open_page(write_gantt_page({name: spans}, tmp_path / "g.html", workers=3, title="t"))
    page.mouse("mouseMoved", *page.first_step())
    assert page.find("[data-part=tip]").text.startswith("</script><script>docu")
    assert page.browser.title == "t"
    assert (page.complaints(), page.requests()) == ([], [])
