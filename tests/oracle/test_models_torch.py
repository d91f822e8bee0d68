"""Gradients of whole models equal PyTorch's, in whatever order the messages arrive.

The recurrent model has its own file (test_gradients_torch.py), and so has the tagger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch

from ampsim import Amp, load_model, simulate
from ampsim.data import ImageBatch, Molecule, Qm9Dipoles, Tree
from ampsim.optim import Optimizer, constant

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load

WORKERS = 5
SEEDS = {(1, 1): range(4), (8, 1): range(4, 12), (8, 3): range(12, 20)}
"""By instances in flight and size of groups: draws of latencies, of which a model meets twenty."""

NEVER = 10**9


@dataclass(frozen=True)
class Given:
    """A data set of these instances, for training and for validation."""

    items: tuple[Any, ...]
    name = "given"
    description = "made by the test"

    def batch_count(self, split: str) -> int:
        return len(self.items)

    def count(self, split: str) -> int:
        return sum(item.rows for item in self.items)

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Any]:
        return iter(self.items)


def images() -> list[ImageBatch]:
    random = np.random.default_rng(0)
    return [
        ImageBatch(random.random((rows, 784)), random.integers(0, 10, rows)) for rows in (1, 3, 2)
    ]


def tree(leaves: int, seed: int) -> Tree:
    """A random binary tree, joined pair by pair from the left or the right."""
    random = np.random.default_rng(seed)
    left, right, roots = [], [], list(range(leaves))
    parent = np.full(2 * leaves - 1, -1)
    for branch in range(leaves, 2 * leaves - 1):
        place = int(random.integers(len(roots) - 1))
        left.append(roots.pop(place))
        right.append(roots.pop(place))
        roots.insert(place, branch)
        parent[[left[-1], right[-1]]] = branch
    return Tree(
        words=random.integers(0, 12, leaves),
        labels=random.integers(0, 5, 2 * leaves - 1),
        left=np.array(left, np.intp),
        right=np.array(right, np.intp),
        parent=parent,
    )


def trees() -> list[Tree]:
    return [tree(leaves, seed) for seed, leaves in enumerate((1, 2, 5, 3, 9))]


def molecules() -> list[Molecule]:
    """Drawn ones, most of them without bonds of some type, and one atom alone."""
    drawn = list(
        Qm9Dipoles.synthetic(0, train_count=6, dtype="float64").batches("train", epoch=0, seed=0)
    )
    none = type(drawn[0].edges[0])(np.zeros(0, np.intp), np.zeros(0, np.intp))
    alone = replace(drawn[0], atoms=drawn[0].atoms[:1], edges=(none,) * 4)
    return [*drawn, alone]


def mlp_loss(p: dict[str, Any], batch: ImageBatch) -> Any:
    x = torch.tensor(batch.images)
    for layer in (1, 2, 3):
        x = torch.relu(x @ p[f"linear-{layer}.weight"] + p[f"linear-{layer}.bias"])
    logits = x @ p["linear-4.weight"] + p["linear-4.bias"]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))


def lenet_loss(p: dict[str, Any], batch: ImageBatch) -> Any:
    functional = torch.nn.functional
    x = torch.tensor(batch.images).reshape(-1, 1, 28, 28)
    for layer in (1, 2):
        x = functional.conv2d(x, p[f"conv-{layer}.weight"], p[f"conv-{layer}.bias"])
        x = functional.max_pool2d(x, 2)
    x = torch.relu(x.flatten(1) @ p["linear-1.weight"] + p["linear-1.bias"])
    logits = x @ p["linear-2.weight"] + p["linear-2.bias"]
    return functional.cross_entropy(logits, torch.tensor(batch.labels))


def lstm_mnist_loss(p: dict[str, Any], batch: ImageBatch) -> Any:
    """With PyTorch's own LSTM; its gates are in the order i, f, g, o, here o, i, f, g."""
    hidden = len(p["linear-2.weight"])
    x = torch.tensor(batch.images).reshape(-1, 28, 28) @ p["linear-1.weight"] + p["linear-1.bias"]
    lstm = torch.nn.LSTM(hidden, hidden, batch_first=True)
    order = [1, 2, 3, 0]

    def in_their_order(columns: Any) -> Any:
        return columns.reshape(-1, 4, hidden)[:, order].reshape(len(columns), 4 * hidden)

    weight = in_their_order(p["lstm.weight"])
    theirs = {
        "weight_ih_l0": weight[:hidden].T,
        "weight_hh_l0": weight[hidden:].T,
        "bias_ih_l0": in_their_order(p["lstm.bias"][None])[0],
        "bias_hh_l0": torch.zeros(4 * hidden),
    }
    outputs, _last = torch.func.functional_call(lstm, theirs, (x,))
    logits = outputs[:, -1] @ p["linear-2.weight"] + p["linear-2.bias"]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))


def tree_loss(p: dict[str, Any], one: Tree) -> Any:
    """Tai et al. (2015), written as a recursion over the nodes."""

    def node(number: int) -> tuple[Any, Any]:
        if number < len(one.words):
            x = p["embedding.weight"][one.words[number]]
            o, i, g = (x @ p["leaf-lstm.weight"] + p["leaf-lstm.bias"]).chunk(3)
            c = torch.sigmoid(i) * torch.tanh(g)
        else:
            branch = number - len(one.words)
            (h1, c1), (h2, c2) = node(one.left[branch]), node(one.right[branch])
            sums = torch.cat([h1, h2]) @ p["branch-lstm.weight"] + p["branch-lstm.bias"]
            o, i, f1, f2, g = sums.chunk(5)
            c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f1) * c1 + torch.sigmoid(f2) * c2
        h = torch.sigmoid(o) * torch.tanh(c)
        logits = h @ p["classifier.weight"] + p["classifier.bias"]
        losses.append(-torch.log_softmax(logits, 0)[one.labels[number]])
        return h, c

    losses: list[Any] = []
    node(len(one.labels) - 1)
    assert len(losses) == len(one.labels)
    return sum(losses)


def ggnn_loss(p: dict[str, Any], molecule: Molecule) -> Any:
    (w_input, b_input, w_state, b_state) = (p[key] for key in p if key.startswith("gru"))
    features = torch.tensor(molecule.atoms)
    hidden = len(w_state)
    h = torch.cat([features, torch.zeros(len(features), hidden - features.shape[1])], dim=1)
    for _step in range(4):
        m = torch.zeros(len(features), hidden)
        for kind, edges in enumerate(molecule.edges, 1):
            sent = h[torch.tensor(edges.source)] @ p[f"bond-{kind}.weight"] + p[f"bond-{kind}.bias"]
            m = m.index_add(0, torch.tensor(edges.target), sent)
        x_r, x_z, x_n = (m @ w_input + b_input).chunk(3, dim=1)
        h_r, h_z, h_n = (h @ w_state + b_state).chunk(3, dim=1)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        h = (1 - z) * torch.tanh(x_n + r * h_n) + z * h
    both = torch.cat([h, features], dim=1)
    gate = torch.sigmoid(both @ p["readout-gate.weight"] + p["readout-gate.bias"])
    value = both @ p["readout-value.weight"] + p["readout-value.bias"]
    return ((gate * value).sum() - molecule.dipole) ** 2


TREE: dict[str, Any] = {"hidden": 4, "embedding": 3, "words": 40}
CASES: dict[str, tuple[dict[str, Any], Callable[[], Sequence[Any]], Callable[..., Any]]] = {
    "mlp": ({"hidden": 6}, images, mlp_loss),
    "lenet": ({"filters": 2, "more_filters": 3, "hidden": 6}, images, lenet_loss),
    "lstm_mnist": ({"hidden": 5}, images, lstm_mnist_loss),
    "tree_lstm": (TREE, trees, tree_loss),
    "tree_lstm, composed": (TREE | {"cell": "composed"}, trees, tree_loss),
    "tree_lstm, by-gate": (TREE | {"cell": "by-gate"}, trees, tree_loss),
    "ggnn": ({"hidden": 12}, molecules, ggnn_loss),
    "ggnn, composed": ({"hidden": 12, "cell": "composed"}, molecules, ggnn_loss),
    "ggnn, by-gate": ({"hidden": 12, "cell": "by-gate"}, molecules, ggnn_loss),
}


@cache
def model_of(name: str) -> Any:
    """The shipped model; after a pass, its "parameters" are the gradients it accumulated."""
    options, items, _loss = CASES[name]
    model = load_model(name.split(",")[0], data="synthetic", dtype="float64", **options)
    data = Given(tuple(items()))
    keep = Optimizer("keep", constant(1.0), lambda _theta: (), lambda g, s, _theta, _rate: (g, s))
    return replace(model, optimizer=keep, make_data=lambda _s, _count: data, error_scale=1.0)


def expected_of(name: str, initial: dict[str, Any]) -> dict[str, Any]:
    """Of three cases of a model, and of three cells of equal first weights, computed once."""
    loss = CASES[name][2]
    known = EXPECTED.get(loss)
    if known is None or any((known[0][key] != value).any() for key, value in initial.items()):
        known = EXPECTED[loss] = initial, by_autograd(name, initial)
    return known[1]


EXPECTED: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, Any]]] = {}
"""For each loss first weights, and gradients."""


def by_autograd(name: str, initial: dict[str, Any]) -> dict[str, Any]:
    """Sum over instances of the gradient of each one's loss, by automatic differentiation."""
    _options, items, loss = CASES[name]
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        p = {key: torch.tensor(v, requires_grad=True) for key, v in initial.items()}
        for item in items():
            loss(p, item).backward()
    finally:
        torch.set_default_dtype(previous)
    return {key: tensor.grad.numpy() for key, tensor in p.items()}


def close(found: Any, expected: Any) -> None:
    """A gradient may be 0: the one of a type of bond that no molecule has."""
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(("in_flight", "group"), SEEDS)
@pytest.mark.parametrize("name", list(CASES))
def test_gradients_equal_automatic_differentiation_for_any_order_of_arrival(
    random_cluster, as_fused, name, in_flight, group
):
    """Of a sparse table in the rows looked up; the others stay as they were."""
    model = model_of(name)
    initial = as_fused(model.parameters())
    expected = expected_of(name, initial)
    assert sum(np.abs(gradient).max() > 1e-6 for gradient in expected.values()) >= 6
    for seed in SEEDS[in_flight, group]:
        cluster = random_cluster(WORKERS, seed=seed, latency_s_max=1e-7)
        schedule = Amp(in_flight, NEVER, max_group=group)
        result = simulate(model, cluster, schedule)
        assert group == 1 or result.group_sizes["size"].max() == group
        for key, found in as_fused(result.model.parameters()).items():
            if key == "embedding.weight":
                touched = expected[key].any(axis=1)
                assert 0 < touched.sum() < len(touched)
                assert (found[~touched] == initial[key][~touched]).all()
                close(found[touched], expected[key][touched])
            else:
                close(found, expected[key])
