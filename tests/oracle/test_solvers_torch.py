"""The gradient of four ranks together, against automatic differentiation of one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from solver_cases import cluster
from torch_oracle import torch

import ampsim

RATE = 0.125


@pytest.mark.parametrize("collective", ["ring", "tree"])
def test_four_ranks_together_have_the_gradient_of_their_batches_in_one(collective):
    options: dict[str, Any] = {"data": "synthetic", "hidden": 8, "batch": 6, "dtype": "float64"}
    made = ampsim.load_model("mlp", learning_rate=RATE, **options)
    chosen = ampsim.SyncSGD(ranks=4, collective=collective)
    before = made.graph(0)
    start = {node.name: node.theta.copy() for node in before.parameterized}
    result = ampsim.simulate(made, cluster([1e9, 2e9, 5e8, 1e9]), chosen, instances=24)
    data = made.make_data(0, 24)
    batches: list[Any] = list(data.batches("train", epoch=0, seed=0))
    images = torch.tensor(np.vstack([one.images for one in batches]))
    labels = torch.tensor(np.concatenate([one.labels for one in batches]))
    tensors = {name: torch.tensor(theta, requires_grad=True) for name, theta in start.items()}
    wire = images
    for place, (node, theta) in enumerate(zip(before.parameterized, tensors.values(), strict=True)):
        d_in, d_out = wire.shape[1], len(node.theta) // (wire.shape[1] + 1)
        weight, bias = theta[: d_in * d_out].reshape(d_in, d_out), theta[d_in * d_out :]
        wire = wire @ weight + bias
        if place < len(tensors) - 1:
            wire = torch.relu(wire)
    torch.nn.functional.cross_entropy(wire, labels.long()).backward()
    after = result.model.parameters()
    for name, theta in tensors.items():
        ended = np.concatenate([after[f"{name}.weight"].ravel(), after[f"{name}.bias"].ravel()])
        gradient = (start[name] - ended) / RATE
        assert np.allclose(gradient, theta.grad.numpy(), rtol=1e-10, atol=1e-12)
        assert np.abs(gradient).max() > 1e-3
