"""Pages of a forecast and of a run in a real browser."""

from __future__ import annotations

import pytest

import ampsim
from ampsim.report.page.figures import result_figures
from ampsim.report.page.folders import write_run_page
from ampsim.report.page.html import html_page
from ampsim.runs.folder import run_to_keep
from ampsim.study.simulation import RunOptions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's sockets
]

CONTRAST_MIN = 4.5  # WCAG 2, level AA
DRAWN = "[...document.querySelectorAll('svg[role=img]')].filter(s => s.checkVisibility())"
WIDTHS = f"return {DRAWN}.map(s => s.ariaLabel && s.parentElement.getBoundingClientRect().width)"


@pytest.fixture
def report(open_page, figure_1, make_forecast, tmp_path):
    """A forecast's page, with a chart amid other things."""
    forecast = make_forecast(figure_1, 3)
    (tmp_path / "index.html").write_text(html_page(forecast, [], figure_1), "utf-8")
    return open_page(tmp_path / "index.html")


def test_the_page_of_a_forecast_says_nothing_to_the_console_and_asks_for_nothing(report):
    assert (report.complaints(), report.requests()) == ([], [])


@pytest.fixture(scope="module")
def page_drawn(make_chain, make_forecast, tmp_path_factory):
    """The same page with all its figures."""
    figure_1 = make_chain()
    forecast = make_forecast(figure_1, 3)
    pictures = list(result_figures(forecast))
    path = tmp_path_factory.mktemp("drawn") / "index.html"
    path.write_text(html_page(forecast, pictures, figure_1), "utf-8")
    return path


@pytest.fixture
def drawn(open_page, page_drawn):
    return open_page(page_drawn)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_of_a_forecast_fits_its_window_and_its_text_can_be_read(drawn, width, scheme):
    with drawn.shown(width, scheme):
        drawn.open_details()
        assert drawn.overflow() == 0
        widths = drawn.browser.execute_script(WIDTHS)
        contrasts = drawn.contrasts()
    assert len(widths) > 4
    assert all(0 < one <= width for one in widths)
    of_figures = sum(words.startswith("figure ") for words in contrasts)
    assert of_figures > 50 and len(contrasts) - of_figures > 50
    assert {words: ratio for words, ratio in contrasts.items() if ratio < CONTRAST_MIN} == {}


def test_what_each_column_is_stands_within_a_wide_page(drawn):
    with drawn.shown(800):
        drawn.open_details()
        wide = "const of = arguments[0]; return of.scrollWidth - of.clientWidth"
        table = drawn.find("[aria-label='All columns, and what they are']")
        assert drawn.browser.execute_script(wide, table) == 0


DEFAULT_ANSWER = """
<thead><tr><th>schedule</th><th>in flight</th><th>training lists/s</th><th>epochs</th>
<th>time to target [98 % CI]</th><th>speed-up</th><th>first or tie</th></tr></thead>
<tr><th>sequential</th><td>1</td><td>7.88&nbsp;M</td><td>7</td>
<td>4.58&nbsp;ms [3.29,&nbsp;5.25]</td><td>1.0×</td><td>behind</td></tr>
<tr class="best"><th>amp</th><td>8</td><td>30.9&nbsp;M</td><td>7</td>
<td>1.17&nbsp;ms [1.01,&nbsp;1.37]</td><td>3.9×</td><td>first</td></tr>
"""
"""The table of `ampsim forecast`."""


def test_the_answer_fits_a_phone_whose_letters_are_wide(drawn):
    """Two letters of the last column were cut until one scrolled."""
    with drawn.shown(390):
        drawn.browser.execute_script("document.body.style.fontFamily = 'DejaVu Sans'")
        table = drawn.find(".schedules")
        drawn.browser.execute_script("arguments[0].innerHTML = arguments[1]", table, DEFAULT_ANSWER)
        wider = "const of = arguments[0].parentElement; return of.scrollWidth - of.clientWidth"
        assert drawn.browser.execute_script(wider, table) == 0


def test_the_page_of_a_run_fits_a_phone_and_asks_for_nothing(
    open_page, chain, make_cluster, tmp_path
):
    model = chain(((1000, 2000, 500),) * 2, instances=8, valid=4).model()
    cluster = make_cluster(2, flop_per_s=1e9)
    outcome = run_to_keep(model, cluster, ampsim.Amp(2), RunOptions(epochs=2))
    write_run_page(outcome, tmp_path)
    page = open_page(tmp_path / "index.html")
    assert (page.complaints(), page.requests()) == ([], [])
    with page.shown(375):
        assert page.overflow() == 0
        shown = page.browser.execute_script(WIDTHS)
    assert len(shown) == 5
    assert all(0 < width <= 375 for width in shown)


def test_on_a_page_with_more_than_charts_the_wheel_scrolls_until_a_chart_is_clicked(report):
    report.press("0")
    report.browser.execute_script("document.activeElement.blur()")
    whole = report.view()
    report.mouse("mouseWheel", 600, 20, deltaX=0, deltaY=-100)
    assert report.view() == whole
    report.click(600, 20)
    report.mouse("mouseWheel", 600, 20, deltaX=0, deltaY=-100)
    assert report.view() != whole
