"""Numeric training of the list-reduction RNN against PyTorch eager: same model, batches and thread.

    python tests/benchmark/bench_numeric.py [--rounds 7] [--instances 20000]

Both train an epoch of the same buckets with Adam, one update a bucket, on one thread, in turns, so
that a noisy machine disturbs both alike. Printed are medians and the median of the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import ampsim
from ampsim.data import ListReduction
from ampsim.study import Simulation


class TorchRnn(torch.nn.Module):
    """The same network as its users write it in PyTorch."""

    def __init__(self, hidden: int = 128) -> None:
        """Make the layers."""
        super().__init__()
        self.hidden = hidden
        self.embedding = torch.nn.Embedding(14, hidden)
        self.linear_1 = torch.nn.Linear(2 * hidden, hidden)
        self.linear_2 = torch.nn.Linear(hidden, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Classify lists given step by step, (steps, rows)."""
        embedded = self.embedding(tokens)
        state = embedded.new_zeros(tokens.shape[1], self.hidden)
        for step in range(tokens.shape[0]):
            state = torch.relu(self.linear_1(torch.cat([state, embedded[step]], dim=1)))
        return self.linear_2(state)


def torch_epoch(data: ListReduction) -> float:
    """Return lists per second of one epoch in PyTorch."""
    torch.manual_seed(0)
    model = TorchRnn()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_of = torch.nn.CrossEntropyLoss()
    batches = [
        (torch.from_numpy(batch.tokens.copy()), torch.from_numpy(batch.labels.copy()))
        for batch in data.batches("train", epoch=0, seed=0)
    ]
    start = time.perf_counter()
    for tokens, labels in batches:
        optimizer.zero_grad()
        loss_of(model(tokens), labels).backward()
        optimizer.step()
    return data.count("train") / (time.perf_counter() - start)


def ampsim_epoch(instances: int, workers: int) -> float:
    """Return lists per second of one epoch under the sequential schedule, trace on."""
    model = ampsim.load_model("rnn", replicas=1)
    cluster = ampsim.load_cluster("tflops-1", workers=workers)
    simulation = Simulation(model, cluster, ampsim.Sequential(), instances=instances)
    start = time.perf_counter()
    simulation._training.train(simulation._batches("train"))
    return instances / (time.perf_counter() - start)


def main() -> None:
    """Measure in turns and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = ListReduction.generate(0, train_count=options.instances)
    torch_epoch(data)
    ampsim_epoch(options.instances, options.workers)
    theirs, ours = [], []
    for _ in range(options.rounds):
        theirs.append(torch_epoch(data))
        ours.append(ampsim_epoch(options.instances, options.workers))
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    print(f"PyTorch eager {statistics.median(theirs):10,.0f} lists/s")
    print(f"ampsim        {statistics.median(ours):10,.0f} lists/s")
    print(
        f"ratio         {statistics.median(ratios):10.2f}"
        f"   ({min(ratios):.2f} to {max(ratios):.2f} over {options.rounds} rounds)"
    )


if __name__ == "__main__":
    main()
