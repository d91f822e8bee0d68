"""A stop that takes weights back to a checkpoint: as a loop that restores a copy of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lost_weights import (
    BACKWARD,
    BATCH,
    FORWARD,
    ITEMS,
    METHODS,
    RATE,
    SEED,
    UPDATE,
    WHOLE,
    Clocked,
    batches_of,
    cluster,
    model,
    stop,
)

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.hardware import Checkpoints, Cluster, Device, Event, MemoryRemedy
from ampsim.ir import Graph
from ampsim.nodes import GRUCell, Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd, two_stage
from ampsim.study.model import parameters_of

STOPS = {
    "between two steps of the device": [(1.1 * WHOLE + FORWARD[1], 1.2 * WHOLE + FORWARD[1])],
    "in the middle of a forward step": [
        (3 * WHOLE + FORWARD[1] + 0.4 * FORWARD[2], 3 * WHOLE + FORWARD[1] + 900.0)
    ],
    "in the middle of a backward step": [
        (2 * WHOLE + sum(FORWARD.values()) + BACKWARD[3] + 50.0, 3.9 * WHOLE)
    ],
    "in the middle of an update": [(3 * WHOLE - max(UPDATE.values()) + 3.0, 3.2 * WHOLE)],
    "twice": [(2.05 * WHOLE, 2.6 * WHOLE), (5 * WHOLE, 5.001 * WHOLE)],
    "twice in one step": [
        (3 * WHOLE + FORWARD[1] + 100.0, 3 * WHOLE + FORWARD[1] + 200.0),
        (3 * WHOLE + FORWARD[1] + 250.0, 3 * WHOLE + FORWARD[1] + 1250.0),
    ],
}


@pytest.mark.parametrize("every", [0.3, 1.7, 4.3, 1000.0])
@pytest.mark.parametrize("when", STOPS)
def test_weights_are_those_of_a_loop_that_restores_a_copy(when, every):
    """One instance in flight, bit for bit; with a checkpoint far away, from the first weights."""
    check_against_loop("sgd", STOPS[when], every * WHOLE)


@pytest.mark.parametrize("method", METHODS)
def test_the_state_of_an_optimizer_goes_back_with_the_weights(method):
    check_against_loop(method, STOPS["twice"], 0.7 * WHOLE)


def check_against_loop(method: str, stops: list[tuple[float, float]], every_s: float) -> None:
    events = [stop(*one) for one in stops]
    result = ampsim.simulate(
        model(method), cluster(every_s, *events), ampsim.Sequential(), instances=ITEMS,
        seed=SEED, placement="paper",
    )  # fmt: skip
    assert result.spans.groupby("node", observed=True)["worker"].first()["linear-2"] == 1
    loop = Clocked(method, stops, every_s)
    trained_s = loop.train(batches_of(method))
    assert result.epochs["train_s"].iloc[0] == pytest.approx(trained_s, rel=1e-12)
    loop.finish(result.makespan_s)
    rows = result.outages[result.outages["kind"] == "stop"]
    found: list[Any] = list(
        rows[["start_s", "checkpoint_s", "updates_lost"]].itertuples(index=False)
    )
    assert [(a, pytest.approx(b), c) for a, b, c in loop.layers[2].lost] == found
    assert every_s < 4 * WHOLE or sum(one.updates_lost for one in found)
    exact = method != "adam"  # whose loop rounds in another order
    for number, layer in loop.layers.items():
        for part in ("weight", "bias"):
            learned = result.model.parameters()[f"linear-{number}.{part}"]
            own = getattr(layer, part)
            if exact:
                np.testing.assert_array_equal(learned, own)
            else:
                np.testing.assert_allclose(learned, own, rtol=1e-9, atol=1e-12)


def test_a_stop_in_the_last_moment_of_a_run_takes_weights_back_for_whoever_reads_them():
    """No step of the device comes after it."""
    usual = ampsim.simulate(
        model(), cluster(1e6, stop(1e8, 1e8 + 1)), ampsim.Sequential(), instances=ITEMS, seed=SEED
    )
    assert not len(usual.outages)
    late = stop(usual.makespan_s - 0.5 * FORWARD[3], 1e8)
    result = ampsim.simulate(
        model(), cluster(1e6, late), ampsim.Sequential(), instances=ITEMS, seed=SEED
    )
    assert result.makespan_s == usual.makespan_s
    first = parameters_of(model().graph(SEED))
    (row,) = result.outages.to_dict("records")
    assert row["updates_lost"] == ITEMS // BATCH
    for name, values in result.model.parameters().items():
        before = first if name.startswith("linear-2") else usual.model.parameters()
        np.testing.assert_array_equal(values, before[name])


NAMES = {
    "weight_input": "weight_ih", "weight_state": "weight_hh", "bias_input": "bias_ih",
    "bias_state": "bias_hh",
}  # fmt: skip
"""Parameters of a GRU cell, and PyTorch's names of them."""


def cell_graph() -> Graph:
    graph = Graph("cell")
    x, h, label = graph.controller(x=("rows", 4), h=("rows", 3), label=("rows",))
    after = graph.add(Linear("linear", 3, 2), graph.add(GRUCell("gru", 4, 3), x, h))
    graph.end(SoftmaxCrossEntropy("loss"), after, label)
    return graph


def cell_model() -> ampsim.Model:
    random = np.random.default_rng(0)
    arrays = random.normal(size=(10, 4)), random.normal(size=(10, 3)), random.integers(0, 2, 10)
    data = ArrayDataset(train=arrays, valid=arrays, batch=5, dtype="float64")
    return ampsim.Model(
        "cell", None, cell_graph, data.for_run, pump_arrays, sgd(0.5), dtype="float64"
    )


def torch_cell(theta: dict[str, Any]) -> Any:
    made = torch.nn.GRUCell(4, 3).double()
    for name, other in NAMES.items():
        getattr(made, other).data = torch.tensor(np.array(theta[f"gru.{name}"].T))
    return made


@pytest.mark.parametrize("remedy", [None, "recompute"])
def test_what_is_computed_again_after_a_stop_has_the_weights_that_it_left(remedy):
    """PyTorch's cell: the device of the cell stops while the next one computes, in instance 1.

    The gates are those of the first weights where they are computed again, and kept otherwise.
    """
    memory = None if remedy is None else MemoryRemedy(remedy=remedy)
    devices = (Device(name="d", flop_per_s=1.0),) * 2
    plain = Cluster(name="two", devices=devices, memory=memory)
    made = cell_model()
    given: Any = {"instances": 10, "seed": SEED, "placement": "paper"}
    spans = ampsim.simulate(made, plain, ampsim.GPipe(1), mode="sleep", **given).spans
    after = spans[(spans["node"] == "linear") & (spans["instance"] == 1)]["start_s"].min()
    flaky = plain.model_copy(
        update={
            "events": (stop(after + 1.0, after + 2.0, worker=0),),
            "checkpoints": Checkpoints(every_s=1e9),
        }
    )
    result = ampsim.simulate(made, flaky, ampsim.GPipe(1), **given)
    assert result.outages["updates_lost"].tolist() == [1]
    first = parameters_of(made.graph(SEED))
    cells = [torch_cell(first), torch_cell(first)]  # the second is stepped, and lost
    weight, bias = (
        torch.tensor(first[f"linear.{name}"], requires_grad=True) for name in ("weight", "bias")
    )
    for number, batch in enumerate(made.make_data(SEED, 10).batches("train", epoch=0, seed=SEED)):
        x, h, label = map(torch.tensor, batch.arrays)
        hidden = cells[1](x, h)
        seen = hidden.detach().requires_grad_()
        torch.nn.functional.cross_entropy(seen @ weight + bias, label).backward()
        if number and remedy:
            hidden = cells[0](x, h)
        hidden.backward(seen.grad)
        for one in (*cells[1].parameters(), weight, bias) if not number else (weight, bias):
            assert one.grad is not None
            one.data -= 0.5 * one.grad
            one.grad = None
    for name, other in NAMES.items():
        left = getattr(cells[0], other)
        moved = getattr(cells[0 if remedy else 1], other).grad
        found = result.model.parameters()[f"gru.{name}"].T
        np.testing.assert_allclose(found, (left - 0.5 * moved).detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.model.parameters()["linear.weight"], weight.detach())


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_stop_in_the_first_update_of_a_second_stage_takes_all_back(share):
    """Adam's first update takes twice as long as those before, and is known to beforehand."""
    made = replace(model(), optimizer=two_stage(RATE, epochs=1, second_rate=0.01))
    plain = cluster(1e9, stop(5e8, 6e8))
    slow = [one.model_copy(update={"memory_bandwidth_bytes_per_s": 0.1}) for one in plain.devices]

    def run(*stops: Event) -> ampsim.Result:
        hosts = plain.model_copy(update={"devices": tuple(slow), "events": stops})
        return ampsim.simulate(
            made, hosts, ampsim.Sequential(), instances=ITEMS, epochs=2, seed=SEED,
            placement="paper",
        )  # fmt: skip

    def updates(result: ampsim.Result) -> Any:
        spans = result.spans
        return spans[(spans["node"] == "linear-2") & (spans["direction"] == "update")]

    whole = updates(run(stop(5e8, 6e8)))
    first, each = whole.iloc[ITEMS // BATCH], whole["end_s"] - whole["start_s"]
    assert each.iloc[ITEMS // BATCH] > 1.5 * each.iloc[0]
    at_s = first["start_s"] + share * (first["end_s"] - first["start_s"])
    result = run(stop(at_s, at_s + 1.0))
    assert result.outages["updates_lost"].tolist() == [ITEMS // BATCH]
    again = updates(result).iloc[ITEMS // BATCH]
    assert again["end_s"] == pytest.approx(at_s + 1.0 + first["end_s"] - first["start_s"])
