"""The page of a map in a real browser."""

from __future__ import annotations

import re

import pytest

from ampsim.report.saving import page_colours, render

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's sockets
]

LATENCIES = (1e-7, 1e-6, 1e-5, 1e-4)
RATES = (1e11, 1e12)
INSIDE = """
const box = document.querySelector(arguments[0]).getBoundingClientRect();
return [...document.querySelectorAll(arguments[0] + " text")].map((one) => {
  const { left, right } = one.getBoundingClientRect();
  return [one.textContent, box.left <= left && right <= box.right];
});
"""
COLOURS = """
return [...document.querySelectorAll(".slice path[fill=none]:not(.axis)")]
  .map((one) => getComputedStyle(one).stroke);
"""
LINES = """
return [...document.querySelectorAll(".slice path[fill=none]:not(.axis)")]
  .map((one) => one.getAttribute("d"));
"""
LEARNERS = """
const select = [...document.querySelectorAll("select")].at(-1);
select.value = arguments[0];
select.dispatchEvent(new Event("change"));
const cells = [...document.querySelectorAll(".panels rect.cell")];
const number = (cell) => cell.nextSibling.nodeName === "text" ? cell.nextSibling.textContent : "";
const of = (place) => cells.filter((one) => one.ariaLabel.startsWith(place)).map(number);
const places = ["100 ns", "1 µs", "10 µs", "100 µs"].map((one) => of(`${one}, `));
return [...places, cells.map((one) => one.getAttribute("fill"))];
"""
PLACES = 'return [...document.querySelectorAll(".slice circle")].map((one) => one.cx.baseVal.value)'


def cell(
    time_s, *, is_first=False, learning: int | None = 1, other=1e-6, basis="learned", note="",
    half=0.1,
):  # fmt: skip
    low, high = (None, None) if time_s is None else ((1 - half) * time_s, (1 + half) * time_s)
    doubt, standing = (other, "first") if is_first else (None, None)
    return [time_s, low, high, basis, doubt, is_first, standing, note, learning]


@pytest.fixture
def open_map(open_page, tmp_path):
    """`open_map(reached)` opens a map on which both reach the target over the first latencies.

    Or over those whose places are given.
    """

    def open_it(reached, time_s=0.5, other=1e-6, basis="learned", **more):
        reached = range(reached) if isinstance(reached, int) else reached
        points = [
            [
                cell(0.9996, **more),
                cell(time_s, is_first=True, learning=2 + place, other=other, **more),
            ]
            if place in reached
            else [cell(None), cell(None, learning=None, basis=basis, **more)]
            for place in range(len(LATENCIES))
            for _rate in RATES
        ]
        ticks = {"latency_s": ["100 ns", "1 µs", "10 µs", "100 µs"]}
        keys = [
            {"name": name, "values": values, "ticks": (words := ticks.get(name, ["slow", "fast"])),
             "words": words}
            for name, values in (("latency_s", LATENCIES), ("device.flop_per_s", RATES))
        ]  # fmt: skip
        methods = [
            {"name": name, "colour": page_colours(colour)}
            for name, colour in (("pipeline", "#000000"), ("amp", "#332288"))
        ]
        made = render(
            "explore.html", title="Map", sentences=["A sentence."], interrupted="",
            headings=["ahead", "sooner than the next"], lines=[["amp", "2.00 times"]], manifest="",
            csv="explore.csv", setting="90 %", covered=0.9,
            data={"keys": keys, "methods": methods, "points": points},
        )  # fmt: skip
        (tmp_path / "index.html").write_text(made, "utf-8")
        return open_page(tmp_path / "index.html")

    return open_it


def test_a_slice_has_all_that_varies_below_it_where_only_some_is_reached(open_map):
    found = open_map(2).browser.execute_script(INSIDE, ".slice svg")
    assert {"100 ns", "100 µs"} <= {words for words, _ in found}
    assert [words for words, is_inside in found if not is_inside] == []


def test_no_line_of_a_slice_goes_on_where_the_target_is_not_reached(open_map):
    page = open_map([0, 2, 3])
    steps = [re.sub("[^ML]", "", path) for path in page.browser.execute_script(LINES)]
    assert steps == ["MML"] * 2
    assert [re.sub("[^ML]", "", one) for one in open_map(4).browser.execute_script(LINES)] == [
        "MLLL"
    ] * 2


def test_equal_times_are_seen_apart_and_lines_are_seen_in_the_dark(open_map):
    page = open_map(4)
    assert len(set(page.browser.execute_script(PLACES))) == 2 * len(LATENCIES)
    light = page.browser.execute_script(COLOURS)
    with page.shown(1280, "dark"):
        dark = page.browser.execute_script(COLOURS)
    assert light == ["rgb(0, 0, 0)", "rgb(51, 34, 136)"]
    assert dark == ["rgb(242, 244, 245)", "rgb(154, 143, 240)"]


def test_no_two_ticks_of_a_slice_have_one_word(open_map):
    """Of times that differ by less than three digits, each was that of all."""
    page = open_map(4, time_s=0.99965, half=0.0)
    ticks = [one.text for one in page.browser.find_elements("css selector", ".slice [x='64']")]
    assert len(ticks) == 3
    assert len({*ticks}) == 3


@pytest.mark.parametrize(
    ("basis", "told"),
    [("learned", "not reached, learned; first epoch: ranks never met"), ("failed", "cannot be run"),
     (None, "unknown: first epoch: ranks never met")],
)  # fmt: skip
def test_a_cell_tells_its_note_whatever_its_basis(open_map, basis, told):
    note = "" if basis == "failed" else "first epoch: ranks never met"
    said = open_map(0, basis=basis, note=note)
    assert said.find(".note").text.endswith(f"amp: {told}")
    told = "No time is known" if basis is None else "Nobody is known to reach the target"
    assert said.find(".slice").text.endswith(f"{told} along this line.")


def test_a_key_chooses_a_cell_and_stays_on_it(open_map):
    page = open_map(4)
    page.find(".cell-4").send_keys("\ue007")  # Enter
    focused = "return document.activeElement.ariaLabel"
    assert page.browser.execute_script(focused).startswith("10 µs, slow")
    told = page.find(".note").text
    assert told.startswith("10 µs, slow")
    assert "pipeline: 1 s [900 ms to 1.1 s]" in told  # of 0.9996 s


@pytest.mark.parametrize(("other", "told"), [(1.0, "100 %"), (0.996, "100 %"), (0.25, "25 %")])
def test_a_lead_and_its_doubt_are_told_without_exponents(open_map, other, told):
    said = open_map(4, 4e-4, other).find(".note").text
    assert f"first, 2499 times as soon as the next; probability of another {told}" in said


def test_a_map_is_coloured_by_what_a_method_learns(open_map):
    """One colour and one number for cells that learn the same; what is not timed has none."""
    page = open_map(2)
    told = page.browser.execute_script(LEARNERS, "1")
    assert told[:4] == [["2", "2"], ["3", "3"], ["", ""], ["", ""]]
    assert len(set(told[4])) == 3
    assert "amp learns the same" in page.find(".legend").text
    assert page.browser.execute_script(LEARNERS, "0")[:4] == [["1", "1"]] * 4
    assert (
        "first; paler"
        in (page.browser.execute_script(LEARNERS, "-1"), page.find(".legend").text)[1]
    )


def test_the_product_of_latency_and_rate_is_left_out_where_nothing_is_known_of_it(open_map):
    page = open_map(4)
    assert page.find(".product h2").text == "Latency × rate"
    assert "< 0.1 %" in page.find(".note").text
    assert "nobody is known" not in page.find(".legend").text
    page = open_map(0)
    assert page.find(".product").text == ""
    assert "nobody is known to reach the target" in page.find(".legend").text
    assert "it is open" not in page.find(".legend").text
    assert (page.complaints(), page.requests()) == ([], [])


def test_where_a_time_is_unknown_it_is_open_who_is_first(open_map):
    """That nobody is known to reach the target was said where one arrives, too."""
    page = open_map(1, basis=None)
    assert "nobody is known" not in page.find(".legend").text
    assert "it is open who is first: of a schedule no time is known" in page.find(".legend").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_a_map_fits_its_window_and_says_on_a_phone_what_a_word_of_its_table_is(
    open_map, width, scheme
):
    page = open_map(4)
    with page.shown(width, scheme):
        assert page.overflow() == 0
        contrasts = page.contrasts()
        told = "return getComputedStyle(document.querySelector('.words td'), '::before').content"
        heading = page.browser.execute_script(told)
    assert min(contrasts.values()) >= 4.5  # WCAG 2, level AA
    assert heading == ('"sooner than the next: "' if width < 600 else "none")
