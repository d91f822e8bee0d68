"""Gradients of the whole graph equal PyTorch's, in whatever order the messages arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch

from ampsim import Amp, load_model, simulate
from ampsim.data import ListBatch
from ampsim.optim import Optimizer, constant

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load

HIDDEN = 8
WORKERS = 6
NEVER = 10**9
SEEDS = {1: range(4), 3: range(20), 8: range(20)}
"""By instances in flight: draws of latencies; one instance alone arrives in few orders."""


@dataclass(frozen=True)
class EveryLength:
    """Buckets of all lengths from 2 to 10, twice: one of a single row, one of several."""

    name = "every length"
    description = "random tokens"

    def batch_count(self, split: str) -> int:
        return 18 if split == "train" else 1

    def count(self, split: str) -> int:
        return sum(batch.rows for batch in self.batches(split, epoch=0, seed=0))

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[ListBatch]:
        random = np.random.default_rng(seed)
        for i in random.permutation(18)[: self.batch_count(split)].tolist():
            rows, steps = 1 if i % 2 else int(random.integers(2, 6)), 2 + i // 2
            tokens = random.integers(0, 14, (steps, rows))
            yield ListBatch(tokens, random.integers(0, 10, rows))


def rnn(replicas: int) -> Any:
    """The shipped model; after a pass, its "parameters" are the gradients it accumulated."""
    model = load_model("rnn", hidden=HIDDEN, replicas=replicas, dtype="float64")
    keep = Optimizer("keep", constant(1.0), lambda _theta: (), lambda g, s, _theta, _rate: (g, s))
    return replace(model, optimizer=keep, make_data=lambda _seed, _count: EveryLength())


@pytest.fixture(scope="module")
def oracle() -> dict[str, Any]:
    """Sum over buckets of the gradient of each bucket's mean loss, by automatic differentiation."""
    p = {key: torch.tensor(value, requires_grad=True) for key, value in rnn(1).parameters().items()}
    for batch in EveryLength().batches("train", epoch=0, seed=0):
        h = torch.zeros(batch.rows, HIDDEN, dtype=torch.float64)
        for tokens in batch.tokens:
            both = torch.cat([h, p["embedding.weight"][torch.as_tensor(tokens)]], dim=1)
            h = torch.relu(both @ p["linear-1.weight"] + p["linear-1.bias"])
        logits = h @ p["linear-2.weight"] + p["linear-2.bias"]
        torch.nn.functional.cross_entropy(logits, torch.as_tensor(batch.labels)).backward()
    return {name: tensor.grad.numpy() for name, tensor in p.items()}


def order_of(result: Any) -> tuple[Any, ...]:
    spans = result.spans[result.spans["node"].isin(["embedding", "linear-2"])]
    return tuple(zip(spans["node"], spans["direction"], spans["instance"], strict=True))


def close(found: Any, expected: Any, tolerance: float) -> None:
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * 1e-2 * np.abs(expected).max()
    )


@pytest.mark.parametrize("in_flight", SEEDS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_gradients_equal_automatic_differentiation_for_any_order_of_arrival(
    random_cluster, oracle, replicas, in_flight
):
    model = rnn(replicas)
    orders = set()
    for seed in SEEDS[in_flight]:
        cluster = random_cluster(WORKERS, seed=seed, latency_s_max=1e-7)
        schedule = Amp(max_active_keys=in_flight, min_update_interval=NEVER)
        result = simulate(model, cluster, schedule)
        assert len(result.updates) == 2 + replicas, "each node updates once, after the pass"
        for name, found in result.model.parameters().items():
            node, part = name.rsplit(".", 1)
            if replicas > 1 and node.startswith("linear-1."):  # equal at first, averaged at the end
                close(found * replicas, oracle[f"linear-1.{part}"], 1e-10)
            else:
                close(found, oracle[name], 1e-10)
        orders.add(order_of(result))
    if in_flight > 1:
        assert len(orders) > 10, "the latencies hardly changed the order of arrival"
