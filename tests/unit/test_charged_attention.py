"""Attention is charged for its products, whatever comes last, and however large a mask is."""

from __future__ import annotations

import numpy as np
import pytest

import ampsim
from ampsim.cli.entry import program
from ampsim.cli.options import Hardware, Tuning
from ampsim.cli.questions import Question
from ampsim.forecasting.forecast import cc_ratio
from ampsim.interop import Position
from ampsim.ir import Graph
from ampsim.nodes import Attention, Linear, Reshape, SquaredError
from ampsim.report.page.text import beside_answer

HEADS, QUERIES, KEYS, WIDTH, COLUMNS = 2, 3, 20, 4, 6


def graph() -> Graph:
    """Queries and the mask learn, keys and values are data; the mask comes last."""
    made = Graph("attending")
    heads = ("rows", HEADS)
    query, key, value, mask, target = made.controller(
        query=(*heads, QUERIES, WIDTH),
        key=(*heads, KEYS, WIDTH),
        value=(*heads, KEYS, COLUMNS),
        mask=(HEADS, QUERIES, KEYS),
        target=("rows", HEADS * QUERIES * COLUMNS),
    )
    query = made.add(Linear("project", WIDTH, WIDTH), query)
    for name in ("first", "second", "third"):
        mask = made.add(Linear(name, KEYS, KEYS), mask)
    y = made.add(Attention("attention", is_masked=True), query, key, value, mask)
    flat = made.add(Reshape("flat", (-1, HEADS * QUERIES * COLUMNS)), y)
    made.end(SquaredError("loss"), flat, target)
    return made


def attending(items: int) -> ampsim.Model:
    """One batch of so many items."""
    draw = np.random.default_rng(0).standard_normal
    arrays = (
        draw((items, HEADS, QUERIES, WIDTH)),
        draw((items, HEADS, KEYS, WIDTH)),
        draw((items, HEADS, KEYS, COLUMNS)),
        draw((items, HEADS * QUERIES * COLUMNS)),
    )
    mask = draw((HEADS, QUERIES, KEYS)).astype("float32")
    data = ampsim.ArrayDataset(arrays, arrays, items)

    def pump(instance, batch):
        *inputs, target = batch.arrays
        return [(port, Position(instance), one) for port, one in enumerate((*inputs, mask, target))]

    return ampsim.Model(
        "attending", None, graph, data.for_run, pump, ampsim.optim.sgd(0.1), metric="error"
    )


@pytest.mark.parametrize("items", [1, 2, 5])
def test_attention_is_charged_for_its_products_however_large_a_mask_is(items):
    model = attending(items)
    spans = ampsim.simulate(model, "p100:1", "sequential").spans
    found = spans[spans["node"] == "attention"].groupby("direction")["flop"].max()
    products = 2 * items * HEADS * QUERIES * KEYS * (WIDTH + COLUMNS)
    assert found.to_dict() == {"forward": products, "backward": products}


def test_the_cc_ratio_has_the_products_of_attention():
    products = 2 * HEADS * QUERIES * KEYS * (WIDTH + COLUMNS)
    layers = 2 * HEADS * QUERIES * (WIDTH * WIDTH + 3 * KEYS * KEYS)
    parameters = WIDTH * (WIDTH + 1) + 3 * KEYS * (KEYS + 1)
    assert cc_ratio(attending(1)) == pytest.approx((products + layers) / parameters, rel=1e-12)


@pytest.mark.parametrize(
    ("cluster", "is_free"), [("tflops-1:1", True), ("p100:1,tflops-1:1", True), ("p100:1", False)]
)
def test_a_forecast_says_where_attention_takes_no_time(cluster, is_free):
    made = ampsim.forecast(attending(1), cluster, ["sequential"], mode="sleep", placement="paper")
    said = [one for one in beside_answer(made) if "no time" in one]
    assert [one.split(",")[0] for one in said] == ["attention takes no time on tflops-1"] * is_free


@pytest.mark.parametrize("device", ["tflops-1", "p100"])
def test_runs_and_questions_say_so_too(device, monkeypatch, capsys, tmp_path):
    """Only a forecast did, while a trace, and what a faster device buys, leave attention out."""
    monkeypatch.setattr(ampsim, "load_model", lambda _name, **_settings: attending(1))
    hardware = Hardware(device=device, workers=1)
    Question(hardware=hardware, tuning=Tuning()).setup("attending", "amp", ["latency_s=1e-6..1"])
    asked = capsys.readouterr().err
    typed = ["run", "attending", "--device", device, "--workers", "1", "--mode", "sleep", "--quiet"]
    program()([*typed, "--out", str(tmp_path / "out")], standalone_mode=False)
    note = "ampsim: note: attention takes no time on tflops-1, which names no bandwidth or overhead"
    for said in (asked, capsys.readouterr().err):
        assert said.count(note) == (device == "tflops-1")
