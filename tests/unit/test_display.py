"""What objects look like in a notebook: small tables with units, safe whatever the names are."""

from __future__ import annotations

import dataclasses
import html.parser
from typing import Any

import pytest

import ampsim
from ampsim.hardware import Link
from ampsim.report.table import answer_cells

EVIL = "<script>alert(1)</script>"


class Reader(html.parser.HTMLParser):
    """Rows of cells, and which elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.elements: set[str] = set()
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.said.append(data)
        if self.get_starttag_text() in ("<td>", '<th scope="row">', '<th scope="col">'):
            self.rows[-1][-1] += data


def read(thing: Any) -> Reader:
    """The display of `thing`, read as a browser would."""
    reader = Reader()
    reader.feed(thing._repr_html_())
    safe = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert reader.elements <= safe
    return reader


@pytest.fixture(scope="module")
def result(chain, make_cluster):
    model = chain(((1000, 1000, 500),) * 2, instances=4, valid=64).model()
    return ampsim.simulate(model, make_cluster(2, flop_per_s=1e9), ampsim.Amp(2))


def test_a_result_shows_its_numbers_with_units(result):
    rows = dict(read(result).rows)
    assert rows["epochs"] == "1"
    assert rows["virtual time"].endswith(" µs")
    assert rows["training (items/s)"].endswith(" k")
    assert rows["workers busy"].endswith(" %")
    assert rows["messages"] == str(result.messages)
    assert read(result).said[0] == "chain, amp, 2 workers"


def test_a_forecast_shows_a_row_for_each_schedule(result, make_cluster):
    schedules = [ampsim.Sequential(), ampsim.Amp(2)]
    made = ampsim.forecast(result.model, make_cluster(2), schedules, target=1.0, max_epochs=1)
    headings, *rows = read(made).rows
    assert [row[0] for row in rows] == ["sequential", "amp"]
    assert all(len(row) == len(headings) for row in rows)
    assert [headings, *rows] == answer_cells(made.table, made.target)
    assert rows[1][headings.index("time to target")].startswith("best ")
    assert len(headings) <= 7
    assert read(made).said[0] == "chain on test, target 100 %"


def test_a_model_shows_its_options(result):
    rows = dict(read(result.model).rows)
    assert rows["instances"] == "4"
    assert (rows["optimizer"], rows["measured by"]) == ("sgd", "validation accuracy, target none")


def test_a_cluster_shows_its_devices_and_links(make_cluster):
    cluster = make_cluster(3, flop_per_s=2e12, link=Link(latency_s=1e-6))
    reader = read(cluster)
    assert reader.rows[1:] == [["test", "3", "2.00 TFLOP/s", "no limit of bandwidth", "0 s"]]
    assert reader.said[-1] == "links: latency 1.00 µs, no limit of bandwidth"
    assert read(make_cluster(1)).said[-1] == "links: free"


def test_names_are_shown_letter_for_letter(result, make_cluster):
    cluster = make_cluster(2).model_copy(update={"name": EVIL})
    model = dataclasses.replace(result.model, name=EVIL)
    made = ampsim.forecast(model, cluster, [ampsim.Amp(2)], max_epochs=1)
    for thing in (cluster, model, made, made.runs[0].result):
        assert EVIL in " ".join(read(thing).said)


def test_a_row_of_utilisation_is_a_worker_and_the_mean_is_that_of_the_run(result):
    shares = result.utilisation_by_worker
    assert shares["worker"].tolist() == [0, 1]
    parts = shares[["update", "backward", "forward"]]
    assert parts.to_numpy().min() > 0
    assert parts.sum(axis=1).mean() == pytest.approx(result.utilisation, rel=1e-12)
    spans = result.spans[result.spans["worker"] == 1]
    spent_s = (spans["end_s"] - spans["start_s"])[spans["direction"] == "update"].sum()
    assert shares["update"][1] == pytest.approx(spent_s / result.makespan_s, rel=1e-12)
