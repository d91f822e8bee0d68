"""What a device says beside its rate reaches what a run is charged, or leaves it as it is."""

from dataclasses import replace

import numpy as np
import pytest

from ampsim import Amp, Cluster, load_model, simulate
from ampsim.data import ListReduction
from ampsim.hardware import Device

RATE = 1e12


def spans_of(**numbers):
    data = ListReduction.generate(0, 40, 4, batch=8)
    model = replace(load_model("rnn", hidden=8), make_data=lambda _seed, _count: data)
    device = Device(name="d", flop_per_s=RATE, **numbers)
    spans = simulate(model, Cluster(name="c", devices=(device,) * 4), Amp(2), mode="sleep").spans
    return spans.assign(seconds=spans["end_s"] - spans["start_s"])


def is_near(seconds, expected):
    return np.isclose(seconds, expected, rtol=1e-9, atol=1e-15)


def test_every_step_pays_its_overhead_once_and_one_that_waits_pays_nothing():
    spans = spans_of(step_overhead_s=1e-6)
    waits = spans["seconds"] == 0
    told = 1e-6 + spans["flop"] / RATE
    assert is_near(spans["seconds"], told)[~waits].all()
    assert waits.any()
    assert (spans["operations"][waits] == 0).all()
    assert {"forward", "backward", "update"} <= set(spans["direction"][~waits])
    light = ~waits & (spans["flop"] == 0)
    assert is_near(spans["seconds"][light], 1e-6).all()
    assert light.any()


def test_small_matrices_reach_a_fraction_and_updates_the_whole_rate():
    recurrent = 16 * 8 + 8
    spans = spans_of(matrix_efficiency=((recurrent, 0.25), (recurrent + 1, 1.0)))
    full_s = spans["flop"] / RATE
    updates = spans["direction"] == "update"
    of_recurrent = spans["node"].str.startswith("linear-1.") & ~updates
    assert of_recurrent.any()
    assert is_near(spans["seconds"][of_recurrent], 4 * full_s[of_recurrent]).all()
    assert updates.any()
    assert is_near(spans["seconds"][updates], full_s[updates]).all()


def test_light_steps_have_a_bandwidth_of_their_own():
    plain = spans_of(memory_bandwidth_bytes_per_s=1e10)
    slow = spans_of(memory_bandwidth_bytes_per_s=1e10, light_bandwidth_bytes_per_s=1e9)
    for spans, light_bandwidth in ((plain, 1e10), (slow, 1e9)):
        is_heavy = spans["node"].str.contains(r"^linear-[12](?:\.|$)|^embedding$")
        light = ~is_heavy & (spans["bytes"] > 0)
        assert light.any()
        assert is_near(spans["seconds"][light], spans["bytes"][light] / light_bandwidth).all()
        heavy_s = np.maximum(spans["flop"] / RATE, spans["bytes"] / 1e10)
        assert is_near(spans["seconds"][is_heavy], heavy_s[is_heavy]).all()


@pytest.mark.parametrize(
    "numbers",
    [
        {"step_overhead_s": 0.0},
        {"matrix_efficiency": ((1, 1.0),)},
        {"idle_power_w": 1.0, "busy_power_w": 2.0, "price_usd_per_h": 3.0},
        {"memory_bytes": 10**12},
        {"jitter_cv": 0.0},
        {"message_overhead_s": 0.0, "dispatch_s": 0.0},
        {"copy_bandwidth_bytes_per_s": 1e9, "copy_latency_s": 1e-6},
    ],
)
def test_what_changes_no_time_leaves_a_run_as_it_is_to_the_last_bit(numbers):
    assert spans_of(**numbers).equals(spans_of())
