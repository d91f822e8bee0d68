"""Training of the BiLSTM tagger against PyTorch eager: same sentences, sizes and thread.

    python tests/benchmark/bench_tagger.py [--rounds 5] [--sentences 300] [--data wikiner]

All train on the same sentences with Adam, one update a sentence, sparse gradients of both
embeddings, on one thread, in turns, so that a noisy machine disturbs them alike. PyTorch in two
ways, as its users write them: with a cell for each step (`nn.LSTMCell`), and with `nn.LSTM` over
the words of the sentence and over the characters of each rare word, one rare word after the other,
since they differ in length. Printed are medians and the median of the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

import ampsim
from ampsim.data import Sentence
from ampsim.study import Simulation


class Cells(nn.Module):
    """Both directions of an LSTM as cells, one step after the other."""

    def __init__(self, d_in: int, hidden: int) -> None:
        """Make the cells."""
        super().__init__()
        self.forward_cell = nn.LSTMCell(d_in, hidden)
        self.backward_cell = nn.LSTMCell(d_in, hidden)

    def states(self, rows: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return h of every step, of each direction, in the order of steps."""
        both: list[list[torch.Tensor]] = []
        steps = rows.split(1)
        for cell, order in ((self.forward_cell, steps), (self.backward_cell, steps[::-1])):
            state, said = None, []
            for row in order:
                state = cell(row, state)
                said.append(state[0])
            both.append(said)
        return both[0], both[1]

    def each(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what both directions say of each row."""
        ahead, back = self.states(rows)
        return torch.cat([torch.cat(ahead), torch.cat(back[::-1])], dim=1)

    def last(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what both directions say in the end."""
        ahead, back = self.states(rows)
        return torch.cat([ahead[-1], back[-1]], dim=1)


class Sequence(nn.Module):
    """Both directions of an LSTM as one module."""

    def __init__(self, d_in: int, hidden: int) -> None:
        """Make the module."""
        super().__init__()
        self.lstm = nn.LSTM(d_in, hidden, bidirectional=True)

    def each(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what both directions say of each row."""
        return self.lstm(rows)[0]

    def last(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what both directions say in the end."""
        return self.lstm(rows)[1][0].view(1, -1)


class TorchTagger(nn.Module):
    """The same network as its users write it in PyTorch."""

    def __init__(self, config: Any, kind: type[Cells] | type[Sequence]) -> None:
        """Make the layers."""
        super().__init__()
        width = config.word_width
        self.words = nn.Embedding(config.words, width, sparse=True)
        self.characters = nn.Embedding(config.characters, config.character_width, sparse=True)
        self.spell = kind(config.character_width, width // 2)
        self.read = kind(width, config.hidden)
        self.hidden = nn.Linear(2 * config.hidden, config.tanh_units)
        self.tags = nn.Linear(config.tanh_units, config.tags)

    def forward(self, sentence: Any) -> torch.Tensor:
        """Give logits for every word."""
        words, frequent, rare = sentence
        looked_up = self.words(words)
        represented = looked_up.split(1)
        spelled = iter([self.spell.last(self.characters(word)) for word in rare])
        known = iter(represented)
        rows = torch.cat(
            [next(known) if is_frequent else next(spelled) for is_frequent in frequent]
        )
        return self.tags(torch.tanh(self.hidden(self.read.each(rows))))


def as_tensors(sentence: Sentence) -> tuple[Any, torch.Tensor]:
    """Return (frequent words, which words these are, characters of the others) and tags."""
    frequent = sentence.frequent.tolist()
    words = torch.from_numpy(sentence.words[sentence.frequent])
    rare = [
        torch.from_numpy(one.copy())
        for one, is_frequent in zip(sentence.characters, frequent, strict=True)
        if not is_frequent
    ]
    return (words, frequent, rare), torch.from_numpy(sentence.tags.copy())


def torch_epoch(
    config: Any, kind: type[Cells] | type[Sequence], data: list[Any], every: int = 1
) -> float:
    """Return sentences per second of one epoch in PyTorch, with a step after `every` of them."""
    torch.manual_seed(0)
    model = TorchTagger(config, kind)
    tables = [*model.words.parameters(), *model.characters.parameters()]
    known = {id(one) for one in tables}
    others = [one for one in model.parameters() if id(one) not in known]
    optimizers = (torch.optim.SparseAdam(tables, lr=1e-3), torch.optim.Adam(others, lr=1e-3))
    loss_of = nn.CrossEntropyLoss()
    start = time.process_time()
    for number, (sentence, tags) in enumerate(data, 1):
        loss_of(model(sentence), tags).backward()
        if number % every == 0:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return len(data) / (time.process_time() - start)


def ampsim_epoch(model: ampsim.Model, sentences: int, workers: int) -> float:
    """Return sentences per second of one epoch under the sequential schedule, trace on."""
    cluster = ampsim.load_cluster("tflops-1", workers=workers)
    simulation = Simulation(model, cluster, ampsim.Sequential(), instances=sentences)
    start = time.process_time()
    simulation._training.train(simulation._batches("train"))
    return sentences / (time.process_time() - start)


def main() -> None:
    """Measure in turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--data", default="wikiner")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = ampsim.load_model("bilstm_tagger", data=options.data)
    batches = model.make_data(0, options.sentences).batches("train", epoch=0, seed=0)
    data = [as_tensors(sentence) for sentence in batches]
    ways = {
        "ampsim": lambda: ampsim_epoch(model, options.sentences, options.workers),
        "PyTorch, cells": lambda: torch_epoch(model.config, Cells, data),
        "PyTorch, nn.LSTM": lambda: torch_epoch(model.config, Sequence, data),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, run in ways.items():
            rates[name].append(run())
    for name, found in rates.items():
        ratios = [our / their for our, their in zip(rates["ampsim"], found, strict=True)]
        print(
            f"{name:17} {statistics.median(found):7.1f} sentences/s   ampsim is "
            f"{statistics.median(ratios):5.2f} times as fast ({min(ratios):.2f} to "
            f"{max(ratios):.2f} over {options.rounds} rounds)"
        )


if __name__ == "__main__":
    main()
