"""Three equal layers on three devices: what the paper's Figure 1 is drawn of.

Source: AMPNet, Figure 1. An instance is one row. Each layer is square, so that all cost the same:
with k = 1 a forward step takes 2·width² FLOP, a backward step 4·width², an update width² (Appendix
C). The first layer needs no gradient of its input; its backward step is half as long.

The data, chosen for the three to have something to learn: noisy directions in as many dimensions
as there are classes, to be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim.ir import Graph, Send
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
from ampsim.optim import sgd

Count = Annotated[int, Field(ge=1)]
LAYERS = 3


@dataclass(frozen=True)
class Config:
    """Options of the network and its data.

    Args:
        width: of each layer, and count of classes.
        train_count: training rows of an epoch.
        valid_count: validation rows.
        learning_rate: of SGD.
    """

    width: Count = 50
    train_count: Count = 1000
    valid_count: Count = 100
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1


class Row(NamedTuple):
    """State of a message: which row."""

    instance: int


class Batch(NamedTuple):
    """One row: a vector, (1, width), and its class, (1,)."""

    vector: np.ndarray
    label: np.ndarray

    @property
    def rows(self) -> int:
        """One."""
        return len(self.label)


@dataclass(frozen=True)
class Directions:
    """Noisy unit vectors, to be told which; the order of training rows depends on the epoch."""

    config: Config
    train_count: int
    name = "directions"
    description = "a noisy unit vector; which?"

    def count(self, split: str) -> int:
        """How many rows a split has."""
        return self.train_count if split == "train" else self.config.valid_count

    def batch_count(self, split: str) -> int:
        """The same, for each row is a batch."""
        return self.count(split)

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Batch]:
        """Draw every row; those of "valid" are the same in every epoch."""
        is_training = split == "train"
        random = np.random.default_rng([seed, epoch if is_training else 0, is_training])
        for label in random.integers(0, self.config.width, self.count(split)).tolist():
            vector = 0.1 * random.standard_normal((1, self.config.width))
            vector[0, label] += 1.0
            yield Batch(vector.astype(np.float32), np.array([label]))


def network(width: int) -> Graph:
    """Build the chain."""
    graph = Graph("three-layers")
    wire, label = graph.controller(vector=("rows", width), label=("rows",))
    for layer in range(1, LAYERS + 1):
        wire = graph.add(Linear(f"linear-{layer}", width, width), wire)
        if layer < LAYERS:
            wire = graph.add(ReLU(f"relu-{layer}"), wire)
    graph.end(SoftmaxCrossEntropy("loss"), wire, label)
    return graph


def pump(instance: int, batch: Batch) -> list[Send]:
    """Send vector and class."""
    return [(0, Row(instance), batch.vector), (1, Row(instance), batch.label)]


def build(config: Config) -> ampsim.Model:
    """Build the model."""

    def data(seed: int, train_count: int | None) -> Any:
        count = config.train_count if train_count is None else train_count
        return Directions(config, min(count, config.train_count))

    return ampsim.Model(
        name="three layers",
        config=config,
        make_graph=lambda: network(config.width),
        make_data=data,
        pump=pump,
        optimizer=sgd(config.learning_rate),
    )
