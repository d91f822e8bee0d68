"""A stop that takes weights back to a checkpoint: as a loop that restores a copy of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lost_weights import (
    BACKWARD,
    BATCH,
    FORWARD,
    ITEMS,
    METHODS,
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
