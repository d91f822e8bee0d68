"""A staleness budget is kept, whatever the chain, its costs and its links."""

from __future__ import annotations

import math
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import Amp, AmpBudget, load_cluster, simulate
from ampsim.model_parallel.controller import Controller

COST = st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 2))
COSTS = st.lists(COST, min_size=1, max_size=5).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    costs=COSTS,
    budget=st.floats(0, 9),
    in_flight=st.integers(1, 9),
    workers=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_no_gradient_of_a_chain_is_older_than_the_budget_if_its_first_node_updates_each_time(
    chain, random_cluster, costs, budget, in_flight, *, workers, seed
):
    model = chain(costs, instances=14).model()
    cluster = random_cluster(workers, seed=seed, latency_s_max=1e-12 * (seed % 4))
    schedule = AmpBudget(in_flight, staleness_budget=budget)
    found = simulate(model, cluster, schedule, seed=seed, epochs=2)
    assert found.staleness_max is not None
    assert found.staleness_max <= budget


@settings(max_examples=60, deadline=None)
@given(
    costs=COSTS,
    budget=st.integers(0, 4),
    interval=st.integers(1, 4),
    in_flight=st.integers(1, 20),
    workers=st.integers(1, 5),
)
def test_on_a_chain_with_free_links_a_budget_is_a_count_that_knows_the_interval(
    chain, costs, budget, interval, *, in_flight, workers
):
    model = chain(costs, instances=25, update_interval=interval).model()
    cluster = load_cluster("tflops-1", workers=workers)
    found = simulate(model, cluster, AmpBudget(in_flight, staleness_budget=budget))
    as_many = min(in_flight, math.floor(budget * interval) + 1)
    assert found.digest == simulate(model, cluster, Amp(as_many)).digest
    assert found.staleness_max is not None
    assert found.staleness_max <= budget + (interval > 1)  # some of an update's may have come


@settings(max_examples=40, deadline=None)
@given(
    costs=COSTS, budget=st.integers(0, 4), interval=st.integers(1, 4), latency_s=st.floats(0, 1e-11)
)
def test_on_slow_links_a_budget_keeps_as_many_in_flight_or_more(
    chain, costs, budget, interval, latency_s
):
    """What has brought its gradient, and is still on its way back, owes nothing any more."""
    model = chain(costs, instances=25, update_interval=interval).model()
    cluster = load_cluster("tflops-1", workers=4, latency_s=latency_s)
    in_flight: list[int] = []

    def note(controller: Controller) -> None:
        if controller.is_closed:
            in_flight.append(len(controller.unfinished))
        note_closure(controller)

    note_closure = Controller.note_closure
    with patch.object(Controller, "note_closure", note):
        simulate(model, cluster, AmpBudget(99, staleness_budget=budget))
    assert min(in_flight, default=99) >= budget * interval + 1
