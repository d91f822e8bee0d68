"""Pages of a forecast and of a run in a real browser."""

from __future__ import annotations

import pytest

import ampsim
from ampsim.report.page.html import html_page
from ampsim.report.page.run import write_run_page
from ampsim.study.run_to_keep import RunOptions, run_to_keep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's sockets
]


@pytest.fixture
def report(open_page, figure_1, make_forecast, tmp_path):
    """A forecast's page, with a chart amid other things."""
    forecast = make_forecast(figure_1, 3)
    (tmp_path / "index.html").write_text(html_page(forecast, [], figure_1), "utf-8")
    return open_page(tmp_path / "index.html")


def test_the_page_of_a_forecast_says_nothing_to_the_console_and_asks_for_nothing(report):
    assert (report.complaints(), report.requests()) == ([], [])


def test_the_page_of_a_run_fits_a_phone_and_asks_for_nothing(
    open_page, chain, make_cluster, tmp_path
):
    model = chain(((1000, 2000, 500),) * 2, instances=8, valid=4).model()
    cluster = make_cluster(2, flop_per_s=1e9)
    outcome = run_to_keep(model, cluster, ampsim.Amp(2), RunOptions(epochs=2))
    write_run_page(outcome, tmp_path)
    page = open_page(tmp_path / "index.html")
    assert (page.complaints(), page.requests()) == ([], [])
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.settle()
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    drawn = "[...document.querySelectorAll('svg[role=img]')].filter(s => s.checkVisibility())"
    widths = f"return {drawn}.map(s => s.ariaLabel && s.getBoundingClientRect().width)"
    try:
        assert page.browser.execute_script(wide) == 0
        shown = page.browser.execute_script(widths)
        assert len(shown) == 4
        assert all(width > 0 for width in shown)
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
