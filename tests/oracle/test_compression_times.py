"""How long compressed exchanges take, against closed forms of Appendix C and of a ring."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_solvers import SHARES, drawn
from solver_cases import cluster, model, weights
from test_solvers_times import LATENCY_S, RATE, SLOW, unlike

import ampsim
from ampsim.hardware import Cluster, Device


def first_step(ranks: int, share: float, as_messages: bool, **options: Any) -> ampsim.Result:
    speeds = [1e8 * (2 + one) for one in range(ranks)]
    hosts = cluster(speeds, link=SLOW)
    chosen = ampsim.SyncSGD(ranks=ranks, compression=share, **options)
    made = model(ranks * 6, 6, layers=2)
    return ampsim.simulate(made, unlike(hosts) if as_messages else hosts, chosen, mode="sleep")


@pytest.mark.parametrize("as_messages", [False, True], ids=["event", "messages"])
@pytest.mark.parametrize("bucket_bytes", [None, 0])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_a_step_takes_its_closed_form_and_the_entries_of_all_ranks(
    ranks, share, bucket_bytes, as_messages
):
    """Two layers, of 12 and 8 parameters; the slowest rank makes 2e8 FLOP/s (Appendix C)."""
    found = first_step(ranks, share, as_messages, bucket_bytes=bucket_bytes)
    top, bottom = SHARES[share]
    sizes, products = [12, 8], [2 * 6 * 9, 2 * 6 * 6]
    counts = [max(1, math.ceil(top * size / bottom)) for size in sizes]
    last_s = (2 * products[0] + 3 * products[1] + 5 * sum(sizes)) / 2e8
    gather_s = 0.0
    messages = [sum(counts)] if bucket_bytes is None else counts[::-1]
    for count in messages:
        gather_s += (ranks - 1) * (LATENCY_S + count * (8 + 4) / RATE)
    collectives = found.collectives
    assert set(collectives["is_event"]) == {not as_messages}
    assert collectives["bytes"].tolist() == [12 * one for one in messages]
    assert collectives["start_s"].min() == pytest.approx(last_s, rel=1e-9)
    took_s = collectives["end_s"].max() - collectives["start_s"].min()
    assert took_s == pytest.approx(gather_s, rel=1e-9)
    assert found.exchanges["end_s"].max() == pytest.approx(last_s + gather_s, rel=1e-9)
    updates = found.spans[(found.spans["direction"] == "update") & (found.spans["worker"] == 0)]
    added = updates.iloc[2:4]
    assert added["flop"].tolist() == [ranks * one for one in counts]
    update = updates.iloc[4:6]["flop"].sum()
    whole_s = last_s + gather_s + (ranks * sum(counts) + update) / 2e8
    assert found.makespan_s == pytest.approx(whole_s, rel=1e-9)
    if as_messages:
        transfers = found.transfers
        sent = transfers.groupby("source_worker")["bytes"].sum()
        assert (sent == (ranks - 1) * 12 * sum(counts)).all()


def test_a_selection_and_an_addition_pass_over_memory_as_often_as_they_say():
    """On a device that is bound by its memory: ten arrays, k entries and k zeros; then one array
    of zeros, P k entries, and as many values read and written."""
    hosts = cluster([1e12] * 3, link=SLOW)
    bound = [one.model_copy(update={"memory_bandwidth_bytes_per_s": 1e9}) for one in hosts.devices]
    hosts = hosts.model_copy(update={"devices": tuple(bound)})
    for dtype, item in (("float64", 8), ("float32", 4)):
        chosen = ampsim.SyncSGD(ranks=3, compression=0.3)
        spans = ampsim.simulate(model(9, 3, dtype=dtype), hosts, chosen, mode="sleep").spans
        own = spans[(spans["worker"] == 1) & (spans["direction"] == "update")].iloc[:2]
        moved = [10 * 8 * item + 3 * (2 * item + 4), 8 * item + 3 * 3 * (3 * item + 4)]
        assert own["bytes"].tolist() == moved
        took_s = (own["end_s"] - own["start_s"]).tolist()
        assert took_s == pytest.approx([one / 1e9 for one in moved], rel=1e-9)
        assert own["operations"].tolist() == [5, 4]


@pytest.mark.parametrize("solver", [ampsim.SyncSGD, ampsim.AsyncSGD])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_selection_finds_in_the_cache_what_is_kept_beside_the_arrays_of_an_update(
    optimizer, solver
):
    """Weights, gradient, the optimizer's arrays where ranks step, and what was kept back."""
    arrays = 3 + (2 if optimizer == "adam" and solver is ampsim.SyncSGD else 0)
    lasted_s = []
    for cache_bytes in (None, arrays * 64 // 2, arrays * 64):
        room = {} if cache_bytes is None else {"cache_bytes": cache_bytes}
        room |= {} if cache_bytes is None else {"cache_bandwidth_bytes_per_s": 4.0}
        device = Device(name="d", flop_per_s=1e24, pass_bandwidth_bytes_per_s=1.0, **room)
        hosts = Cluster(name="c", devices=(device,) * 3)
        made = model(2, 1, optimizer=optimizer)
        spans = ampsim.simulate(made, hosts, solver(2, compression=0.5), mode="sleep").spans
        own = spans[(spans["direction"] == "update") & (spans["worker"] == 0)].iloc[0]
        lasted_s.append(own["end_s"] - own["start_s"])
    assert lasted_s == pytest.approx([lasted_s[0] * one for one in (1, 1 / 2 + 1 / 8, 1 / 4)])


def test_with_all_entries_ranks_learn_what_they_learn_without_indices_in_another_time():
    made, hosts = drawn(3, 41, 3, layers=2), cluster([1e9, 3e9, 2e9], link=SLOW)
    for chosen in (ampsim.SyncSGD(3), ampsim.AsyncSGD(2)):
        one = ampsim.simulate(made, hosts, chosen, epochs=1)
        all_of_it = ampsim.simulate(made, hosts, replace(chosen, compression=1.0), epochs=1)
        if isinstance(chosen, ampsim.SyncSGD):
            np.testing.assert_allclose(weights(all_of_it), weights(one), rtol=1e-12)
        assert all_of_it.makespan_s > one.makespan_s
        assert all_of_it.exchanges["bytes"].iloc[0] == 12 * 20
        assert one.exchanges["bytes"].iloc[0] == 8 * 20
