"""Networks known by their shapes: published totals, and what a run of them costs."""

from __future__ import annotations

from typing import Any

import pytest

from ampsim import Amp, OneFOneB, Sequential, SyncSGD, load_cluster, load_model, simulate
from ampsim.errors import OptionError
from ampsim.forecasting.forecast import cc_ratio

PUBLISHED: dict[str, tuple[int, float, float]] = {
    "alexnet": (60_965_224, 0.724e9, 0.01),
    "cifar10-full": (89_578, 12.3e6, 0.01),
    "densenet-40": (1_019_722, 0.265e9, 0.01),
    "googlenet": (6_998_552, 1.5e9, 0.06),
    "resnet-50": (25_557_032, 3.8e9, 0.02),
}
"""Parameters, multiplications, and how near these are to what was published.

Parameters: of Caffe's trained `bvlc_alexnet` and `bvlc_googlenet`, and of PyTorch's `resnet50`;
"1.0M" for DenseNet (Huang et al., 2017, Table 2), and 89,578 by hand from the layers of
cifar10-full. Multiplications: He et al. (2016), Table 1, "3.8 x 10^9"; Szegedy et al. (2015),
Section 1, "1.5 billion"; 724 M of AlexNet with two groups (Sze et al., 2017, Table II); the other
two by hand.
"""

SEED: dict[str, float] = {"resnet-50": 308, "densenet-40": 555}
"""CC ratios of Wongpanich, You and Demmel (2020), Section 4.6; 7.7e9 / 25e6 and 5e9 / 9e6.

Their others are of other networks: a GoogLeNet of 13.5 M parameters, and AlexNet in place of
cifar10-full.
"""


def profile(network: str, **options: Any) -> Any:
    return load_model("profile", network=network, **options)


@pytest.mark.parametrize("network", PUBLISHED)
def test_shapes_give_the_published_totals(network):
    parameters, multiplications, tolerance = PUBLISHED[network]
    nodes: Any = profile(network).graph().parameterized
    assert sum(node.parameter_count for node in nodes) == parameters
    found = sum(node.multiplications for node in nodes)
    assert found == pytest.approx(multiplications, rel=tolerance)


@pytest.mark.parametrize("network", PUBLISHED)
def test_images_are_counted_as_the_data_set_has_them(network):
    data = profile(network).data(0, None)
    counts = (50_000, 10_000) if network in ("cifar10-full", "densenet-40") else (1_281_167, 50_000)
    assert (data.count("train"), data.count("valid")) == counts


def test_conv_totals_of_alexnet_are_those_of_its_layers_by_hand():
    """Output pixels times filters times what a filter sees, layer by layer."""
    by_hand = [
        55**2 * 96 * 11**2 * 3,
        27**2 * 256 * 5**2 * 48,
        13**2 * 384 * 3**2 * 256,
        13**2 * 384 * 3**2 * 192,
        13**2 * 256 * 3**2 * 192,
        9216 * 4096,
        4096 * 4096,
        4096 * 1000,
    ]
    nodes: Any = profile("alexnet").graph().parameterized
    assert [node.multiplications for node in nodes] == by_hand


@pytest.mark.parametrize("network", SEED)
def test_cc_ratios_are_near_those_of_the_seed(network):
    assert cc_ratio(profile(network)) == pytest.approx(SEED[network], rel=0.07)


RATIOS: dict[str, tuple[dict[str, Any], float]] = {
    "mlp": ({}, 2.0),
    "lenet": ({}, 2 * (24**2 * 20 * 25 + 8**2 * 50 * 500 + 800 * 500 + 5000) / 431_080),
    "lstm_mnist": ({}, 2 * (28 * (28 * 128 + 256 * 512) + 1280) / 136_586),
}


@pytest.mark.parametrize("name", RATIOS)
def test_the_cc_ratio_is_forward_flop_over_parameters(name):
    """By hand; the biases of a perceptron are parameters without a multiplication."""
    options, expected = RATIOS[name]
    found = cc_ratio(load_model(name, data="synthetic", **options))
    assert found == pytest.approx(expected, rel=2e-3 if name == "mlp" else 1e-12)


def test_without_its_data_a_cc_ratio_is_unknown(tmp_path):
    assert cc_ratio(load_model("mlp", folder=str(tmp_path))) is None


@pytest.mark.parametrize("schedule", [Sequential(), Amp(4), SyncSGD(ranks=2)], ids=lambda s: s.name)
def test_numeric_mode_is_refused_in_one_line(schedule):
    text = (
        r"^mode 'numeric' computes with weights, but conv-1 \(Profile\) has shapes alone; use mode "
        r"'sleep'$"
    )
    with pytest.raises(OptionError, match=text):
        simulate(
            profile("cifar10-full"), load_cluster("tflops-1", workers=2), schedule, instances=256
        )


@pytest.mark.parametrize("network", PUBLISHED)
def test_a_step_takes_three_passes_less_the_first_layers_input_gradient(network):
    """On one device, at 2 FLOP a multiplication, and weights an update (Appendix C)."""
    model: Any = profile(network, batch=4)
    nodes: Any = model.graph().parameterized
    device = load_cluster("tflops-1", workers=1)
    result = simulate(model, device, Sequential(), instances=8, mode="sleep")
    counts = [node.multiplications for node in nodes]
    train_flop = 2 * 4 * (3 * sum(counts) - counts[0])
    weights = sum(part.size for name, part in result.model.parameters().items() if part.ndim > 1)
    flop_per_s = device.devices[0].flop_per_s
    seconds = 2 * (train_flop + weights) / flop_per_s
    assert result.epochs["train_s"].iloc[0] == pytest.approx(seconds, rel=1e-9)


def test_a_pipeline_of_stages_and_ranks_of_a_solver_take_it():
    model = profile("resnet-50", batch=32)
    chain = simulate(
        model, load_cluster("tflops-1", workers=18), OneFOneB(4), instances=256, mode="sleep"
    )
    assert 1 / 18 < chain.utilisation <= 1
    ranks = simulate(
        model, load_cluster("tflops-1", workers=4), SyncSGD(ranks=4), instances=256, mode="sleep"
    )
    assert ranks.makespan_s > 0
    assert ranks.utilisation == pytest.approx(1, abs=0.01)
