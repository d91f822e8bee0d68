"""Numeric training of the shipped models against PyTorch eager: same data, cells and thread.

    AMPSIM_DATA=... python tests/benchmark/bench_models.py [MODEL ...] [--rounds 5] [--synthetic]

Both train on the same instances one by one, as the paper does, on one thread, in turns, so that a
noisy machine disturbs both alike; times are processor time, without that of drawing and converting
the instances. "each" updates all parameters after each instance (schedule "sequential"). "amp" is
the paper's way: 16 instances in flight, a node updates itself after the model's
`min_update_interval`; PyTorch steps after as many instances as bring about that many gradients.
Printed are medians, and the median of the ratios of the rounds with their range.

PyTorch's networks are written as its users write them: modules for the linear layers, a recursive
function for a tree, `index_add` for a graph, sparse gradients for the embedding. The tree's leaves
go through their layers as one matrix, as here and in the paper; `tree_lstm, joint` also classifies
all nodes of a tree as one matrix, which the paper's graph does not. `mlp, NumPy` is no simulation:
a bare loop of the same products in NumPy, beside the same PyTorch. It says what is left to win.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import ampsim
from ampsim.nodes import Linear
from ampsim.study import Simulation


class TorchMlp(nn.Module):
    """A perceptron; an instance is (images, labels)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        widths = [784, *[config.hidden] * (config.layers - 1)]
        layers: list[nn.Module] = []
        for d_in, d_out in pairwise(widths):
            layers += [nn.Linear(d_in, d_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 10))

    @staticmethod
    def instance(batch: Any) -> Any:
        return torch.tensor(batch.images), torch.tensor(batch.labels)

    def forward(self, instance: Any) -> Tensor:
        images, labels = instance
        return cross_entropy(self.layers(images), labels)


class TorchTree(nn.Module):
    """A binary Tree-LSTM; an instance is (words, labels, left, right)."""

    is_joint = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden = config.hidden
        self.embedding = nn.Embedding(config.words, config.embedding, sparse=True)
        self.leaf = nn.Linear(config.embedding, 3 * hidden)
        self.branch = nn.Linear(2 * hidden, 5 * hidden)
        self.classifier = nn.Linear(hidden, 5)

    @staticmethod
    def instance(tree: Any) -> Any:
        arrays = torch.tensor(tree.words), torch.tensor(tree.labels)
        return (*arrays, tree.left.tolist(), tree.right.tolist())

    def leaves(self, words: Tensor) -> tuple[Tensor, Tensor]:
        o, i, g = self.leaf(self.embedding(words)).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def join(self, left: Any, right: Any) -> tuple[Tensor, Tensor]:
        gates = self.branch(torch.cat([left[0], right[0]], dim=1))
        o, i, f, e, g = gates.chunk(5, dim=1)
        c = torch.sigmoid(i) * torch.tanh(g)
        c = c + torch.sigmoid(f) * left[1] + torch.sigmoid(e) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, instance: Any) -> Tensor:
        words, labels, left, right = instance
        h, c = self.leaves(words)
        visited: list[tuple[int, Tensor]] = []
        losses: list[Tensor] = []

        def visit(node: int) -> tuple[Tensor, Tensor]:
            branch = node - len(words)
            if branch < 0:
                state = (h[node : node + 1], c[node : node + 1])
            else:
                state = self.join(visit(left[branch]), visit(right[branch]))
            if self.is_joint:
                visited.append((node, state[0]))
            else:
                losses.append(cross_entropy(self.classifier(state[0]), labels[node : node + 1]))
            return state

        visit(len(labels) - 1)
        if not self.is_joint:
            return torch.stack(losses).sum()
        nodes, states = zip(*visited, strict=True)
        return cross_entropy(self.classifier(torch.cat(states)), labels[[*nodes]], reduction="sum")


class TorchJointTree(TorchTree):
    """The same, with one classification of all nodes."""

    is_joint = True


class TorchGgnn(nn.Module):
    """A gated graph network; an instance is (atoms, edges by type, target)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.hidden, self.steps = config.hidden, config.steps
        self.bonds = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in range(4))
        self.cell = nn.GRUCell(config.hidden, config.hidden)
        self.gate = nn.Linear(config.hidden + 11, 1)
        self.value = nn.Linear(config.hidden + 11, 1)

    @staticmethod
    def instance(molecule: Any) -> Any:
        edges = [(torch.tensor(e.source), torch.tensor(e.target)) for e in molecule.edges]
        return torch.tensor(molecule.atoms), edges, torch.tensor([[molecule.dipole]]).float()

    def forward(self, instance: Any) -> Tensor:
        atoms, edges, target = instance
        h = nn.functional.pad(atoms, (0, self.hidden - atoms.shape[1]))
        ends = torch.cat([end for _source, end in edges])
        for _ in range(self.steps):
            sent = [layer(h[e[0]]) for layer, e in zip(self.bonds, edges, strict=True)]
            received = torch.zeros_like(h).index_add(0, ends, torch.cat(sent))
            h = self.cell(received, h)
        both = torch.cat([h, atoms], dim=1)
        read = (torch.sigmoid(self.gate(both)) * self.value(both)).sum(dim=0, keepdim=True)
        return mse_loss(read, target)


class Contest(NamedTuple):
    """A model, its counterpart, and how many instances it takes.

    Args:
        model: name of the shipped model.
        rival: the same network in PyTorch.
        instances: of a round, as the data set counts them; as many batches for PyTorch.
        every: instances that bring about `min_update_interval` gradients.
        optimizers: of the rival.
        is_bare: whether the rival meets a bare loop instead of ampsim.
    """

    model: str
    rival: type[nn.Module]
    instances: int
    every: int
    optimizers: Callable[[nn.Module], list[torch.optim.Optimizer]]
    is_bare: bool = False


def sgd(network: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(network.parameters(), lr=0.1)]


def adam(network: nn.Module) -> list[torch.optim.Optimizer]:
    """Adam, and its sparse form for an embedding."""
    named = list(network.named_parameters())
    sparse = [one for name, one in named if name.startswith("embedding")]
    dense = [one for name, one in named if not name.startswith("embedding")]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(dense, lr=1e-3)]
    return optimizers + ([torch.optim.SparseAdam(sparse, lr=1e-3)] if sparse else [])


CONTESTS = {
    "mlp": Contest("mlp", TorchMlp, 5_000, 1, sgd),
    "mlp, NumPy": Contest("mlp", TorchMlp, 5_000, 1, sgd, is_bare=True),
    "tree_lstm": Contest("tree_lstm", TorchTree, 200, 2, adam),
    "tree_lstm, joint": Contest("tree_lstm", TorchJointTree, 200, 2, adam),
    "ggnn": Contest("ggnn", TorchGgnn, 500, 1, adam),
}


def torch_per_s(contest: Contest, model: ampsim.Model, batches: Iterable[Any], every: int) -> float:
    """Instances a second of one pass, with a step after `every` of them."""
    torch.manual_seed(0)
    network: Any = contest.rival(model.config)
    optimizers = contest.optimizers(network)
    instances = [network.instance(batch) for batch in batches]
    start = time.process_time()
    for number, instance in enumerate(instances, 1):
        network(instance).backward()
        if number % every == 0:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return contest.instances / (time.process_time() - start)


class Drawn:
    """A data set whose training instances have been drawn, as those of the rival have."""

    def __init__(self, data: Any, batches: list[Any]) -> None:
        self._data, self._batches = data, batches

    def batches(self, *_split: Any, **_order: Any) -> list[Any]:
        return self._batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def ampsim_per_s(contest: Contest, model: ampsim.Model, schedule: Any) -> float:
    """Instances a second of one training pass, trace on."""
    cluster = ampsim.load_cluster("tflops-1", workers=16)
    simulation = Simulation(model, cluster, schedule, instances=contest.instances)
    start = time.process_time()
    simulation._training.train(simulation._batches("train"))
    return contest.instances / (time.process_time() - start)


def bare_per_s(contest: Contest, model: ampsim.Model, batches: Iterable[Any]) -> float:
    """Instances a second of the perceptron in a bare loop: no engine, no trace, no checks."""
    generator, rate = np.random.default_rng(0), np.float32(0.1)
    layers = [node for node in model.bare_graph().nodes if isinstance(node, Linear)]
    starts = [layer.parts(layer.initialise(generator).astype(np.float32)) for layer in layers]
    weights, biases = [weight for weight, _bias in starts], [bias for _weight, bias in starts]
    products = [np.empty_like(weight) for weight in weights]
    start = time.process_time()
    for batch in batches:
        values = [batch.images]
        for weight, bias in zip(weights, biases, strict=True):
            value = values[-1] @ weight
            value += bias
            values.append(np.maximum(value, 0) if weight is not weights[-1] else value)
        scores = np.exp(value - value.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        scores[np.arange(len(scores)), batch.labels] -= 1
        slope = scores / np.float32(len(scores))
        for place in reversed(range(len(weights))):
            np.matmul(values[place].T, slope, out=products[place])
            of_bias = np.ones(len(slope), slope.dtype) @ slope
            if place:  # (W gᵀ)ᵀ takes a tenth less than g Wᵀ
                slope = (weights[place] @ slope.T).T * (values[place] > 0)
            products[place] *= rate
            weights[place] -= products[place]
            biases[place] -= rate * of_bias
    return contest.instances / (time.process_time() - start)


def compare(name: str, rounds: int, options: dict[str, str]) -> None:
    contest = CONTESTS[name]
    model = ampsim.load_model(contest.model, **options)
    data = model.make_data(0, contest.instances)
    batches = list(data.batches("train", epoch=0, seed=0))
    drawn = replace(model, make_data=lambda _seed, _count: Drawn(data, batches))
    ways: list[tuple[str, int, Callable[[], float]]] = [
        ("each", 1, lambda: ampsim_per_s(contest, drawn, ampsim.Sequential())),
        ("amp", contest.every, lambda: ampsim_per_s(contest, drawn, ampsim.Amp(16))),
    ]
    if contest.is_bare:
        ways = [("each", 1, lambda: bare_per_s(contest, model, batches))]
    for way, every, run in ways:
        pairs = [(torch_per_s(contest, model, batches, every), run()) for _ in range(rounds + 1)]
        theirs, ours = np.transpose(pairs[1:])  # the first warms up
        ratios = ours / theirs
        print(
            f"{name:18}{way:6}{statistics.median(theirs):10,.0f}{statistics.median(ours):10,.0f}"
            f"{statistics.median(ratios):8.2f}   ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(CONTESTS), metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--synthetic", action="store_true", help="generated data, no files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'instances a second':18}{'update':6}{'PyTorch':>10}{'ampsim':>10}{'ratio':>8}")
    for name in options.models:
        compare(name, options.rounds, {"data": "synthetic"} if options.synthetic else {})


if __name__ == "__main__":
    main()
