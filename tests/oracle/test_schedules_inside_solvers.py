"""Schedules that never drain, such as AMP, inside solvers that exchange weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from solver_cases import Link, cluster, model, solver, stacked, weights

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.errors import AmpsimError, OptionError
from ampsim.study.schedule_names import labels_of, schedules_of
from ampsim.study.simulation import Simulation

OF_WEIGHTS = [name for name, kind in SOLVERS.items() if kind.sends == "weights"]
OF_GRADIENTS = [name for name, kind in SOLVERS.items() if kind.sends == "gradient"]
NEVER_DRAINS: dict[str, Any] = {
    "amp": ampsim.Amp(3),
    "amp, grouped": ampsim.Amp(4, max_group=2),
    "amp, predicted": ampsim.Amp(4, remedy="weight-prediction"),
    "amp, every 2": ampsim.Amp(4, min_update_interval=2),
    "amp-budget": ampsim.AmpBudget(4),
}
SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)


@pytest.mark.parametrize("inner", NEVER_DRAINS.values(), ids=NEVER_DRAINS)
@pytest.mark.parametrize("workers", [1, 3])
def test_one_rank_that_meets_nobody_within_an_epoch_is_the_schedule_itself(inner, workers):
    """Weights to the bit, and the same instants."""
    made, hosts = model(36, 3, layers=3, optimizer="momentum"), cluster([1e9] * workers)
    alone = ampsim.LocalSGD(ranks=1, workers_per_rank=workers, inner=inner, period=100)
    found = ampsim.simulate(made, hosts, alone, epochs=2)
    plain = Simulation(made, hosts, inner, times_validation=False)
    for _epoch in range(2):
        plain.run_epoch()
    expected = plain.result()
    assert weights(found).tobytes() == weights(expected).tobytes()
    assert found.epochs["time_s"].tolist() == expected.epochs["time_s"].tolist()
    assert found.staleness_max == expected.staleness_max


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd"])
def test_batches_of_other_sizes_within_one_gradient_count_alike(name):
    """Of four, four and two items: to the bit as under the schedule by itself."""
    made, hosts, inner = model(10, 4, layers=2), cluster([1e9] * 2), ampsim.Pipeline(3)
    found = ampsim.simulate(made, hosts, solver(name, ranks=1, inner=inner), epochs=2)
    plain = ampsim.simulate(made, hosts, inner, epochs=2)
    assert len(plain.updates) == 4  # one for each layer and epoch
    assert weights(found).tobytes() == weights(plain).tobytes()


@pytest.mark.parametrize("name", ["local-sgd", "diloco"])
def test_one_instance_in_flight_is_the_sequential_schedule_inside(name):
    made, hosts = model(60, 3, layers=2, optimizer="adam"), cluster([1e9])
    one, other = (
        ampsim.simulate(made, hosts, solver(name, ranks=1, period=4, inner=inner), epochs=3)
        for inner in (ampsim.Amp(1, min_update_interval=1), ampsim.Sequential())
    )
    assert weights(one).tobytes() == weights(other).tobytes()
    assert one.exchanges["distance"].tolist() == other.exchanges["distance"].tolist()


def test_elastic_averaging_after_local_steps_is_a_loop_in_numpy():
    """Ranks step by themselves; at each meeting, all pull and are pulled by weights of before."""
    made, ranks, period, alpha, rate = model(48, 2), 2, 3, 0.2, 0.05
    chosen = ampsim.SyncEASGD(
        ranks=ranks, inner=ampsim.Amp(1, min_update_interval=1), period=period, moving_rate=alpha
    )
    found = ampsim.simulate(made, cluster([1e9] * ranks), chosen)
    data: Any = made.make_data(0, None)
    first = stacked(made)
    x = np.hstack([data.x, np.ones((48, 1))])
    batches = [slice(at, at + 2) for at in range(0, 48, 2)]
    own, centre = [first] * ranks, first
    for turn in range(0, len(batches), ranks * period):
        for rank in range(ranks):
            for batch in batches[turn + rank * period : turn + (rank + 1) * period]:
                gap = x[batch] @ own[rank] - data.y[batch]
                own[rank] = own[rank] - rate * slope(gap, x[batch])
        before, sent = centre, list(own)
        centre = before + alpha * sum(one - before for one in sent)
        own = [one - alpha * (one - before) for one in sent]
    assert np.allclose(stacked(found.model), centre, rtol=1e-12, atol=1e-13)


def slope(gap: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of the mean over rows and outputs of the squared error."""
    return 2 * x.T @ gap / gap.size


def plain_steps(made: Any, rate: float) -> Callable[[np.ndarray, int, int], np.ndarray]:
    """What steps of single batches of two rows, from one to another, make of weights."""
    data: Any = made.make_data(0, None)
    x = np.hstack([data.x, np.ones((len(data.x), 1))])

    def stepped(theta: np.ndarray, first: int, last: int) -> np.ndarray:
        for at in range(2 * first, 2 * last, 2):
            gap = x[at : at + 2] @ theta - data.y[at : at + 2]
            theta = theta - rate * slope(gap, x[at : at + 2])
        return theta

    return stepped


@pytest.mark.parametrize(
    ("inner", "period"),
    [(ampsim.Amp(1, min_update_interval=1), 3), (ampsim.LocalSGD(ranks=1, period=3), 1)],
    ids=["amp", "local-sgd"],
)
@pytest.mark.parametrize("name", ["async-easgd", "ea-wild"])
def test_weights_that_go_beside_local_steps_are_those_that_the_spring_pulls(name, inner, period):
    """A loop in NumPy, equations (2) and (3): both sides have the weights of before the steps."""
    made, alpha = model(36, 2), 0.4
    chosen = solver(name, ranks=1, inner=inner, period=period, moving_rate=alpha)
    found = ampsim.simulate(made, cluster([1e9, 1e12], link=SLOW), chosen)
    stepped = plain_steps(made, rate=0.05)
    own = centre = stacked(made)
    for turn in range(0, 18, 3):
        spring = alpha * (own - centre)
        own, centre = stepped(own, turn, turn + 3) - spring, centre + spring
    assert np.allclose(stacked(found.model), centre, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("inner", NEVER_DRAINS.values(), ids=NEVER_DRAINS)
@pytest.mark.parametrize("name", OF_WEIGHTS)
def test_every_epoch_ends_and_counts_each_item_once_and_sleep_has_the_same_trace(name, inner):
    made, hosts = model(25, 1, layers=3), cluster([1e9, 2e9, 1e9, 1.5e9, 1e9], link=SLOW)
    chosen = solver(name, ranks=2, workers_per_rank=2, period=5, inner=inner)
    numeric, sleep = (
        ampsim.simulate(made, hosts, chosen, epochs=2, mode=mode, counts_memory=True)
        for mode in ("numeric", "sleep")
    )
    assert numeric.epochs["instances"].tolist() == [25, 25]
    for table in ("spans", "transfers", "updates", "admissions", "collectives"):
        assert getattr(numeric, table).equals(getattr(sleep, table)), table
    path = numeric.critical_path
    assert path["end_s"].iloc[-1] == numeric.makespan_s


@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_what_sends_gradients_refuses_a_schedule_that_never_drains(name):
    with pytest.raises(OptionError, match=f"inner of {name}: amp never drains") as caught:
        solver(name, inner=ampsim.Amp(4))
    assert "\n" not in str(caught.value)


def test_an_inner_schedule_may_be_named():
    assert ampsim.DiLoCo(inner="amp:4") == ampsim.DiLoCo(inner=ampsim.Amp(4))
    assert ampsim.SyncSGD(inner="pipeline").inside == ampsim.Pipeline()
    both: list[Any] = schedules_of("local-sgd,diloco", inner="amp:4", ranks=2)
    assert [one.inner for one in both] == [ampsim.Amp(4), ampsim.Amp(4)]
    labels = labels_of([ampsim.DiLoCo(inner="amp:4"), ampsim.DiLoCo()])
    assert labels == ["diloco, inner amp:4", "diloco, inner sequential"]


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("ampp", "no inner schedule named 'ampp'"),
        ("amp:", "as amp:8, got 'amp:'"),
        ("amp:x", "as amp:8, got 'amp:x'"),
        ("amp:0", "max_active_keys must be"),
        ("sequential:4", "as amp:8, got 'sequential:4'"),
        ("gpipe", "gpipe holds gradients"),
        ("pipedream", "pipedream has turns"),
    ],
)
def test_an_inner_schedule_that_cannot_be_is_refused_in_one_line(inner, words):
    with pytest.raises(AmpsimError, match=words) as caught:
        ampsim.DiLoCo(inner=inner)
    assert "\n" not in str(caught.value)
