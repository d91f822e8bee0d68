"""Pages in a real browser: no error, no request, zoom and hover work, 100,000 steps at once."""

from __future__ import annotations

import json
import os
import shutil

import pandas as pd
import pytest

import ampsim
from ampsim.report.forecast_html import html_page
from ampsim.report.gantt_html import write_gantt_page
from ampsim.report.run_page import write_run_page
from ampsim.study.kept_run import RunOptions, run_to_keep

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROME = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROME and shutil.which("chromedriver")),
        reason="no Chromium (or Chrome) with its chromedriver on the path",
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's sockets
]
SWITCHES = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync",
    "disable-background-networking", "disable-component-update", "disable-dev-shm-usage",
    "window-size=1280,900",
)  # fmt: skip
POINT = "const r=arguments[0].getBoundingClientRect(); return [r.left, r.top, r.width, r.height]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium with a profile of its own; nothing is downloaded where browser or driver are not."""
    os.environ.update(SE_OFFLINE="true", SE_AVOID_STATS="true")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROME
    for switch in (*SWITCHES, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(10)
    yield driver
    driver.quit()


class Page:
    """A page that is open, and what a hand can do to it."""

    def __init__(self, browser, path) -> None:
        self.browser, self.address = browser, path.as_uri()
        for kind in ("browser", "performance"):
            browser.get_log(kind)  # what earlier pages left
        browser.get(self.address)
        self.settle()

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.browser.execute_async_script(
            "const done=arguments[0]; requestAnimationFrame(()=>requestAnimationFrame(()=>done()))"
        )

    def state(self, name: str) -> str:
        return self.find("#gantt").get_attribute(f"data-{name}") or ""

    def view(self) -> tuple[float, float]:
        return float(self.state("start")), float(self.state("end"))

    def press(self, key: str) -> None:
        self.find("#gantt figure canvas").send_keys(key)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more) -> None:
        """A mouse event at a place in the first chart, measured from its left upper corner."""
        left, top, _, _ = self.browser.execute_script(POINT, self.find("#gantt figure canvas"))
        event = {"type": kind, "x": left + x, "y": top + y, **more}
        self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.settle()

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def first_step(self) -> tuple[float, float]:
        """A place in the first box of the first row, which begins at time 0."""
        return float(self.state("gutter")) + 4, 12.0

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the page was opened, apart from its own."""
        found = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            of_page = message["params"].get("documentURL") == self.address
            if of_page and message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        assert self.address in found
        return [url for url in found if url != self.address and not url.startswith("data:")]


@pytest.fixture
def page(browser, figure_1, tmp_path):
    """Three schedules of the paper's Figure 1."""
    return Page(browser, write_gantt_page(figure_1, tmp_path / "g.html", workers=3, title="three"))


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
    assert lines[2] == "worker 0, sequential"
    assert lines[3].endswith("takes 1.00 µs")
    assert lines[4] == "100 FLOP, 8 B"


@pytest.fixture
def links(browser, figure_1, tmp_path):
    """One schedule on two kinds of devices, with transfers and states."""
    spans = figure_1["sequential"].assign(state="step 3, length 7")
    row = ("linear-0", "linear-2", 8, 1e-6, 2e-6)
    sent = pd.DataFrame([row], columns=["source", "target", "bytes", "start_s", "end_s"])
    path = write_gantt_page(
        {"sequential": spans}, tmp_path / "g.html", workers=3,
        devices=["fast", "slow", "fast"], transfers={"sequential": [sent]},
    )  # fmt: skip
    return Page(browser, path)


def test_pointing_at_a_box_says_its_state_and_its_device(links):
    links.mouse("mouseMoved", *links.first_step())
    lines = links.find("[data-part=tip]").text.splitlines()
    assert lines[1:3] == ["instance 0, step 3, length 7", "worker 0 (fast), sequential"]
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


def test_too_many_transfers_are_thinned_and_it_is_said(browser, figure_1, tmp_path):
    rows = [("linear-0", "linear-1", 8, k * 1e-8, k * 1e-8 + 1e-7) for k in range(2000)]
    sent = pd.DataFrame(rows, columns=["source", "target", "bytes", "start_s", "end_s"])
    path = write_gantt_page(
        {"amp": figure_1["amp"]}, tmp_path / "g.html", workers=3, transfers={"amp": [sent]}
    )
    page = Page(browser, path)
    page.press("0")
    assert page.state("arrows") == "5"
    assert "one in 5 is drawn" in page.find("[data-part=note]").text


def test_a_click_follows_the_instance_and_a_key_lists_its_steps(page):
    page.click(*page.first_step())
    assert page.state("followed") == "0"
    note = page.find("[data-part=note]")
    assert note.text.startswith("Instance 0 – sequential: 9 steps in ")
    page.press("n")
    assert note.text.startswith("linear-0, forward; instance 0; worker 0, sequential; 0.000 µs")
    page.press("\ue00c")  # Escape
    assert page.state("followed") == ""


def test_a_number_follows_an_instance_and_brings_it_into_view(page):
    page.press("1")
    page.find("[data-do=instance]").send_keys("11")
    page.settle()
    assert page.find("[data-part=note]").text.startswith("Instance 11 – ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_a_page_fits_its_window_in_light_and_dark(page, scheme, width):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.settle()
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    ground = "return getComputedStyle(document.body).backgroundColor"
    try:
        assert page.browser.execute_script(wide) == 0
        is_dark = page.browser.execute_script(ground) == "rgb(21, 24, 27)"
        assert is_dark == (scheme == "dark")
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_hundred_thousand_steps_are_there_in_two_seconds(browser, make_crowd, tmp_path):
    spans = make_crowd(100_000, 16)
    page = Page(browser, write_gantt_page({"amp": spans}, tmp_path / "g.html", workers=16))
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


def test_a_hostile_name_runs_nothing(browser, figure_1, tmp_path):
    name = "</script><script>document.title='harm'</script><img src=x onerror=alert(1)>"
    spans = figure_1["amp"]
    spans["node"] = name
    page = Page(browser, write_gantt_page({name: spans}, tmp_path / "g.html", workers=3, title="t"))
    page.mouse("mouseMoved", *page.first_step())
    assert page.find("[data-part=tip]").text.startswith("</script><script>docu")
    assert browser.title == "t"
    assert (page.complaints(), page.requests()) == ([], [])


@pytest.fixture
def report(browser, figure_1, make_forecast, tmp_path):
    """A forecast's page, with a chart amid other things."""
    forecast = make_forecast(figure_1, 3)
    (tmp_path / "index.html").write_text(html_page(forecast, [], figure_1), "utf-8")
    return Page(browser, tmp_path / "index.html")


def test_the_page_of_a_forecast_says_nothing_to_the_console_and_asks_for_nothing(report):
    assert (report.complaints(), report.requests()) == ([], [])


def test_the_page_of_a_run_fits_a_phone_and_asks_for_nothing(
    browser, chain, make_cluster, tmp_path
):
    model = chain(((1000, 2000, 500),) * 2, instances=8, valid=4).model()
    cluster = make_cluster(2, flop_per_s=1e9)
    outcome = run_to_keep(model, cluster, ampsim.Amp(2), RunOptions(epochs=2))
    page = Page(browser, write_run_page(outcome, tmp_path)[-1])
    assert (page.complaints(), page.requests()) == ([], [])
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.settle()
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    names = "return [...document.querySelectorAll('img')].map(i => i.alt && i.naturalWidth)"
    try:
        assert page.browser.execute_script(wide) == 0
        assert all(width > 0 for width in page.browser.execute_script(names))
        assert len(page.browser.find_elements("css selector", "img")) == 4
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_page_with_more_than_charts_the_wheel_scrolls_until_a_chart_is_clicked(report):
    report.press("0")
    report.browser.execute_script("document.activeElement.blur()")
    whole = report.view()
    report.mouse("mouseWheel", 600, 20, deltaX=0, deltaY=-100)
    assert report.view() == whole
    report.click(600, 20)
    report.mouse("mouseWheel", 600, 20, deltaX=0, deltaY=-100)
    assert report.view() != whole
