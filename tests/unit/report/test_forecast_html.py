"""A forecast's page of HTML: everything in one file, in words too, and no name does harm."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ampsim.metric import Metric
from ampsim.report.page.html import html_page
from ampsim.report.page.text import Picture
from ampsim.report.plot.convergence import convergence
from ampsim.text import to_toml

HOSTILE = ["../../x", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "&lt;"]


class Seen(HTMLParser):
    """Tags with their attributes, and the visible texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.cdata_elem is None and data.strip():
            self.texts.append(data.strip())


@pytest.fixture(scope="module")
def result(make_forecast, make_chain):
    return make_forecast(make_chain(), 3)


@pytest.fixture(scope="module")
def page(result, make_chain):
    runs = {"amp": [run.epochs for run in result.runs]}
    picture = Picture("convergence.png", "Convergence", "Accuracy over time")
    return html_page(result, [(picture, convergence(runs))], make_chain())


def test_the_page_tells_verdict_table_figures_assumptions_and_origin(page):
    texts = Seen(page).texts
    at = [
        next(index for index, text in enumerate(texts) if text.startswith(start) and index)
        for start in (
            "Forecast: rnn on 16 × tflops-1", "amp reaches 97 % in 410 ms",
            "3 workers, target 97 % validation accuracy", "2.08 M/s", "Who works when",
            "Convergence", "Light operations are free.", "Appendix C", "model.config.hidden",
        )
    ]  # fmt: skip
    assert at == sorted(at)
    command = ["ampsim", "forecast", "rnn"]
    assert to_toml({"command": command}) in "\n".join(texts)


def test_no_row_is_marked_as_the_best_where_none_is_ranked(page):
    best = re.findall(r'<tr class="best"><th scope="row">(\w+)</th>', page)
    assert best == []  # no ranking, no best row


def test_the_row_that_is_first_is_marked(make_forecast, make_table):
    table = make_table().assign(standing=["behind", "behind", "first"])
    seen = html_page(make_forecast({}, 3, table=table), [], {})
    assert re.findall(r'<tr class="best"><th scope="row">(\w+)</th>', seen) == ["amp"]


def test_what_bounds_a_row_is_said_below_the_table(make_forecast, make_table):
    nan = float("nan")
    table = make_table(
        bound_by=["critical path", "link 0-1", None],
        path_share=[0.99, 0.2, nan],
        link_share=[0.0, 0.5, nan],
    )
    texts = Seen(html_page(make_forecast({}, 3, table=table), [], {})).texts
    assert [text for text in texts if ": bound by " in text] == [
        "sequential: bound by critical path (99.0 %)",
        "pipeline: bound by link 0-1 (50.0 %)",
    ]


def test_an_error_is_told_in_its_unit(make_forecast, make_table):
    nan = float("nan")
    table = make_table(
        best_accuracy=[nan] * 3, best_error=[0.3, 0.4, 0.5], time_to_target_s=[nan] * 3
    )
    error = Metric("error", "D")
    forecast = make_forecast({}, 3, table=table, metric=error, target=0.1, runs=[])
    seen = html_page(forecast, [], {})
    assert 'class="best"' not in seen  # of throughput, where forecast.md has no bold row either
    texts = "\n".join(Seen(seen).texts)
    assert "sequential came closest with 0.3 D" in texts
    assert "target 0.1 D validation error" in texts


def test_origin_names_the_placement_but_not_the_worker_of_each_node(make_forecast):
    manifest = {"placement": {"name": "k-hop", "hops": 3, "workers": {"linear-1": 7}}}
    texts = Seen(html_page(make_forecast({}, 3, manifest=manifest), [], {})).texts
    at = texts.index("placement.hops")
    assert texts[at : at + 2] == ["placement.hops", "3"]
    assert not any(text.startswith("placement.workers") for text in texts)
    assert "linear-1 = 7" in "\n".join(texts)  # in the manifest, folded


def test_figures_are_inside_and_said_in_words(page):
    drawn = [attributes for tag, attributes in Seen(page).tags if tag == "svg"]
    assert [one["aria-label"] for one in drawn] == ["Accuracy over time"]
    assert all(one["role"] == "img" for one in drawn)


def test_the_page_asks_for_nothing(page):
    links = [each.get("src") or each.get("href") or "data:" for _, each in Seen(page).tags]
    assert [link for link in links if not link.startswith("data:")] == [
        "forecast.csv",
        "https://arxiv.org/abs/1705.09786",
    ]
    assert "default-src 'none'" in page


def test_every_column_and_row_has_a_heading_that_says_so(page):
    seen = Seen(page)
    assert all(
        attributes["scope"] in ("row", "col") for tag, attributes in seen.tags if tag == "th"
    )
    assert [attributes["lang"] for tag, attributes in seen.tags if tag == "html"] == ["en"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_no_harm(make_forecast, make_table, make_chain, name):
    def page_of(word):
        spans = {"sequential": make_chain()["sequential"], word: make_chain()["amp"]}
        table = make_table(note=["", word, ""]).iloc[:2].assign(schedule=["sequential", word])
        changes = {"model": word, "cluster": word, "runs": [], "interrupted": word, "table": table}
        changes |= {"target": 0.1, "metric": Metric("error", word)}
        manifest = {"command": [word], "assumptions": [word], "costs": [{"of": word, "what": word}]}
        forecast = make_forecast({}, 3, manifest=manifest, **changes)
        return Seen(html_page(forecast, [], spans))

    seen, usual = page_of(name), page_of("usual")
    assert [tag for tag, _ in seen.tags] == [tag for tag, _ in usual.tags]
    assert f"Forecast: {name} on {name}" in seen.texts
    assert any(f", target 0.1 {name} validation error, " in text for text in seen.texts)
    shortened = len(name) > 32  # as the label of a row, which heads a column of the fold
    assert seen.texts.count(name) + shortened == usual.texts.count("usual")


def test_a_forecast_of_nothing_is_still_a_page(make_forecast, make_table):
    forecast = make_forecast({}, 3, runs=[], table=make_table().iloc[:0], manifest={})
    page = html_page(forecast, [], {})
    assert "No schedule was finished" in page
    assert "<canvas" not in page
    assert "<table" not in page
