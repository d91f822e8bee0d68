"""Elastic averaging in which the rank takes the difference: what it loses, the centre gains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from solver_cases import Link, cluster, model, solver, stacked, weights

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.errors import OptionError
from ampsim.hardware import Cluster, Event
from ampsim.study.simulation import Simulation

SERVED = [name for name, kind in SOLVERS.items() if "elastic" in kind.__dataclass_fields__]
SLOW = Link(latency_s=2e-8, bandwidth_bytes_per_s=1e10)
HOSTS = cluster([1e9, 1.7e9, 0.6e9, 1.2e9, 1e9], link=SLOW, jitter_cv=0.3)
MORE = cluster([1e9, 1.7e9, 0.6e9, 1.2e9, 1e9, 0.8e9, 1.4e9, 1e9], link=SLOW, jitter_cv=0.3)


SLOW_SERVER = cluster([1e9, 1.7e9, 0.6e9, 4e7], link=SLOW)
"""The server merges for longer than a rank takes for three batches."""


def sums(
    name: str, hosts: Cluster = HOSTS, **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum of all weights, centre's and ranks', before and after; and the centre after.

    Ranks start apart, and their own steps are too small to change a weight.
    """
    made = model(60, 2, layers=2, rate=1e-300)
    chosen = solver(name, ranks=3, moving_rate=0.3, **options)
    run = Simulation(made, hosts if chosen.group is None else MORE, chosen)
    engine: Any = run._training._method
    random, places = np.random.default_rng(3), range(2)
    for rank in engine._ranks:
        for node in rank.nodes:
            node.adopt(random.normal(size=node.theta.shape))

    def total() -> np.ndarray:
        centre = engine._setting.centre.thetas
        return np.concatenate(
            [centre[at] + sum(rank.nodes[at].theta for rank in engine._ranks) for at in places]
        )

    before, first = total(), engine._setting.centre.thetas[0]
    run._training.train(run._batches("train"))
    return before, total(), engine._setting.centre.thetas[0] - first


@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", SERVED)
def test_the_sum_of_all_weights_is_constant_under_any_timing(name, servers, period):
    before, after, moved = sums(name, elastic="worker", servers=servers, period=period)
    assert np.abs(moved).max() > 0.1
    assert np.allclose(before, after, rtol=0, atol=1e-13)


@pytest.mark.parametrize("period", [2, 3])
def test_ranks_that_step_on_while_a_slow_server_merges_lose_nothing(period):
    """In turn: the next rank asks when the merge of the one before has ended, and no sooner."""
    options: dict[str, Any] = {"elastic": "worker", "period": period}
    before, after, moved = sums("easgd", SLOW_SERVER, **options)
    assert np.abs(moved).max() > 0.1
    assert np.allclose(before, after, rtol=0, atol=1e-13)

    chosen = ampsim.EASGD(ranks=3, **options)
    found = ampsim.simulate(model(60, 2, layers=2), SLOW_SERVER, chosen, epochs=2)
    turns = found.exchanges.sort_values("start_s")
    merged_s = turns["merge_end_s"].to_numpy()
    assert (turns["start_s"].to_numpy()[1:] >= merged_s[:-1]).all()
    others = found.spans[(found.spans["direction"] == "forward")].sort_values("start_s")
    begun_s, end_s = turns["merge_start_s"].to_numpy(), turns["end_s"].to_numpy()
    stepped = [
        ((others["start_s"] > start) & (others["start_s"] < end)).any()
        for start, end in zip(begun_s, merged_s, strict=True)
    ]
    assert any(stepped)
    assert (end_s < merged_s).all()
    assert found.epochs["instances"].tolist() == [60, 60]
    assert found.makespan_s >= merged_s[found.exchanges["rank"].count() - 1]


@pytest.mark.parametrize("inner", ["sync-sgd:2", "local-sgd:2", "diloco:2"])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", SERVED)
def test_the_sum_of_groups_weights_is_constant_too(name, servers, inner):
    before, after, moved = sums(name, elastic="worker", servers=servers, inner=inner)
    assert np.abs(moved).max() > 0.1
    assert np.allclose(before, after, rtol=0, atol=1e-13)


@pytest.mark.parametrize("elastic", ["server", "worker"])
@pytest.mark.parametrize(
    ("inner", "period"), [("amp:2", 4), (ampsim.LocalSGD(ranks=2, period=2), 1)]
)
@pytest.mark.parametrize("name", ["async-easgd", "ea-wild"])
def test_the_difference_is_of_weights_from_before_what_steps_inside_meanwhile(
    name, inner, period, elastic
):
    """So that of the first exchange is 0, as all begin with the centre's weights."""
    far = cluster([1e9] * 5, link=Link(latency_s=1e-6, bandwidth_bytes_per_s=1e10))
    options: dict[str, Any] = {"period": period, "inner": inner, "elastic": elastic}
    found = ampsim.simulate(model(60, 2, layers=2), far, solver(name, ranks=2, **options))
    met = found.exchanges[found.exchanges["server"] >= 0]
    assert (met["end_s"] > met["ready_s"]).all()
    assert met.groupby("rank").first()["distance"].tolist() == [0.0, 0.0]
    assert (met["distance"] > 0).any()


@pytest.mark.parametrize("name", ["ea-wild"])
def test_where_the_server_takes_the_difference_without_a_lock_it_is_not(name):
    before, after, _moved = sums(name, elastic="server")
    assert np.abs(before - after).max() > 1e-3


@pytest.mark.parametrize("name", SERVED)
def test_with_one_rank_both_sides_are_equations_2_and_3(name):
    """A loop in NumPy: nobody else moves the centre, so that it is the same whoever subtracts."""
    made, alpha = model(40, 2), 0.2
    data: Any = made.make_data(0, None)
    own = centre = stacked(made)
    x = np.hstack([data.x, np.ones((40, 1))])
    for at in range(0, 40, 2):
        gap = x[at : at + 2] @ own - data.y[at : at + 2]
        spring = alpha * (own - centre)
        own, centre = own - 0.05 * 2 * x[at : at + 2].T @ gap / gap.size - spring, centre + spring
    for side in ("server", "worker"):
        chosen = solver(name, ranks=1, moving_rate=alpha, elastic=side)
        found = ampsim.simulate(made, cluster([1e9, 1e12], link=SLOW), chosen)
        assert np.allclose(stacked(found.model), centre, rtol=1e-12, atol=1e-13), side


def test_the_way_takes_a_request_an_answer_and_a_parcel():
    """Closed form of EASGD on one rank: nothing overlaps, and the turn ends with the merge."""
    latency_s, rate, size_bytes = SLOW.latency_s, 1e10, 8 * 8
    hosts = cluster([1e9, 1e9], link=SLOW)
    found = ampsim.simulate(model(2, 2), hosts, ampsim.EASGD(ranks=1, elastic="worker"))
    (one,) = found.exchanges.to_dict("records")
    asked_s = one["start_s"] + latency_s
    answered_s = asked_s + latency_s + size_bytes / rate
    assert one["end_s"] == pytest.approx(answered_s, rel=1e-12)
    assert one["merge_start_s"] == pytest.approx(
        answered_s + latency_s + size_bytes / rate, rel=1e-12
    )
    assert one["merge_end_s"] - one["merge_start_s"] == pytest.approx(8 / 1e9, rel=1e-9)


@pytest.mark.parametrize("kind", ["stop", "pause"])
@pytest.mark.parametrize(
    ("name", "side"), [("ea-wild", "server"), ("ea-wild", "worker"), ("async-easgd", "worker")]
)
def test_a_server_that_is_up_again_answers_at_once_beside_the_merge_that_was_cut(name, side, kind):
    """It merges what rank 0 sent, is down from 4 to 12 us, and is asked by rank 1 at 6.4."""
    down: Any = Event(kind=kind, worker=2, from_s=4e-6, until_s=12e-6)
    hosts = cluster([1e8, 1e7, 1e6], link=Link(latency_s=1e-6), events=(down,))
    chosen = solver(name, ranks=2, period=2, elastic=side)
    found = ampsim.simulate(model(60, 2), hosts, chosen)
    first = found.exchanges[found.exchanges["rank"] == 1].sort_values("start_s").iloc[0]
    assert first["start_s"] == pytest.approx(5.4e-6, rel=1e-9)
    assert first["end_s"] == pytest.approx(12e-6 + 1e-6, rel=1e-9)
    merge = found.spans[found.spans["node"] == "centre"].sort_values("start_s").iloc[0]
    assert merge["start_s"] < 4e-6 < 13e-6 < merge["end_s"]


@pytest.mark.parametrize("name", SERVED)
def test_alpha_zero_leaves_the_centre(name):
    made = model(40, 2)
    found = ampsim.simulate(made, HOSTS, solver(name, ranks=3, elastic="worker", moving_rate=0.0))
    start = np.concatenate([value.ravel() for value in made.parameters().values()])
    assert weights(found).tobytes() == start.tobytes()


@pytest.mark.parametrize("name", SERVED)
def test_sleep_has_the_same_trace_and_epochs_end(name):
    made, chosen = model(33, 2, layers=2), solver(name, ranks=3, elastic="worker", period=2)
    numeric, sleep = (
        ampsim.simulate(made, HOSTS, chosen, epochs=2, mode=mode, counts_memory=True)
        for mode in ("numeric", "sleep")
    )
    for table in ("spans", "transfers", "updates"):
        assert getattr(numeric, table).equals(getattr(sleep, table)), table
    assert numeric.epochs["instances"].tolist() == [33, 33]
    assert numeric.critical_path["end_s"].iloc[-1] == numeric.makespan_s


def test_a_side_that_there_is_not_is_refused():
    with pytest.raises(OptionError, match="elastic") as caught:
        ampsim.EASGD(elastic="both")  # pyright: ignore[reportArgumentType]  # that is the mistake
    assert "\n" not in str(caught.value)
