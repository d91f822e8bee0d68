"""A device's efficiency over the rows reaches what a run is charged."""

from dataclasses import replace

import pytest

from ampsim import Amp, Cluster, load_cluster, load_model, simulate
from ampsim.data import ListReduction
from ampsim.hardware import Device

HALF_AT_8 = ((8, 0.5), (32, 1.0))


def spans_of(rows, efficiency):
    data = ListReduction.generate(0, 40, 4, batch=rows)
    model = replace(load_model("rnn", hidden=8), make_data=lambda _seed, _count: data)
    device = Device(name="d", flop_per_s=1e12, efficiency=efficiency)
    cluster = Cluster(name="c", devices=(device,) * 4)
    return simulate(model, cluster, Amp(2), mode="sleep").spans


def test_steps_of_few_rows_last_longer_and_updates_do_not():
    spans = spans_of(8, HALF_AT_8)
    seconds, full_s = spans["end_s"] - spans["start_s"], spans["flop"] * 1e-12
    is_update = spans["direction"] == "update"
    of_8 = spans["flop"] == 2 * 8 * 16 * 8  # the recurrent product, forward
    assert of_8.any() and is_update.any()
    assert seconds[of_8].to_numpy() == pytest.approx(2 * full_s[of_8].to_numpy(), rel=1e-9)
    updates_s = seconds[is_update].to_numpy()
    assert updates_s == pytest.approx(full_s[is_update].to_numpy(), rel=1e-9, abs=1e-17)


def test_a_curve_that_is_always_one_is_no_curve_to_the_last_bit():
    assert spans_of(4, ((1, 1.0),)).equals(spans_of(4, None))


def test_halving_the_rows_costs_a_gpu_more_per_item_than_the_papers_device():
    def seconds_per_list(device, rows):
        data = ListReduction.generate(0, 160, 4, batch=rows)
        model = replace(load_model("rnn", hidden=64), make_data=lambda _seed, _count: data)
        cluster = load_cluster(device, workers=4)
        return 1 / simulate(model, cluster, Amp(2), mode="sleep").train_per_s

    gpu, paper = (seconds_per_list(d, 8) / seconds_per_list(d, 16) for d in ("p100", "tflops-1"))
    assert gpu > 1.3 * paper
