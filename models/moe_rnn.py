"""A recurrent network with a mixture of experts in its loop: a gate chooses experts at each step.

Source: N. Shazeer et al., "Outrageously large neural networks: the sparsely-gated
mixture-of-experts layer", ICLR 2017: each expert is a network of one hidden layer with ReLU, a gate
chooses the `top` of them for each sequence at each step, and what they say is added to the state,
times the gate's share. It lies within a loop, over many devices, as in Yu et al., "Dynamic control
flow in large-scale machine learning", EuroSys 2018, Sections 2.2 and 4.4: an expert whom no
sequence of an instance asks is a branch that is not taken, and dead signals tell its device so.

The task: sequences of values under a topic, which the first token says. Each topic has a table of
its own, drawn once from a normal distribution, of how much each value speaks for each class; the
label is the class for which all values together speak most. So what a value means is the topic's,
and an expert can learn it. Sequences are drawn from the seed, the tables are always the same. All
sequences of an instance are of one topic, as those of a document, and of one length: most experts
are then asked by none of them.

What the papers leave open, and what is chosen here:

* The gate's shares are the softmax of all experts, not of the chosen ones alone, so that a single
  one has a gradient (as W. Fedus, B. Zoph and N. Shazeer, "Switch transformers", 2021). That
  experts share the work is asked for by their loss, Section 2.2 there: `balance` times the number
  of experts times the sum over them of how many sequences chose one and its mean share, in the mean
  over steps. There is no noise.
* Adam. Whom nobody asks has a gradient of zero, with which Adam still moves it.
* As a program, cell and gate are on the first worker, and experts take turns on as many as the
  option `devices` says. Control flow reads the gate's values: there is no graph of messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim import flow
from ampsim.data import Split
from ampsim.errors import OptionError
from ampsim.nodes import Embedding, Linear
from ampsim.optim import adam
from ampsim.options import require_room
from ampsim.rng import stream

TOPICS = 4
VALUES = 5
CLASSES = 3
TOKENS = TOPICS + VALUES
LENGTHS = (2, 4)
"""The least and the most tokens of a sequence, the topic included."""

SEQUENCES = 8_000
"""Of the training set, unless told."""

SEQUENCE_BYTES = 8 * LENGTHS[1]

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config:
    """Options of the network.

    Args:
        hidden: width of the state and of the embedding.
        experts: how many there are.
        width: units of an expert's hidden layer.
        top: how many experts each sequence asks at each step.
        balance: weight of the loss that asks experts to share the work.
        batch: sequences in an instance.
        devices: workers that have the experts; the first has cell and gate, too.
        learning_rate: of Adam.
        dtype: of parameters and activations.
    """

    hidden: Count = 32
    experts: Annotated[int, Field(ge=1, le=1000)] = 8
    width: Count = 32
    top: Count = 1
    balance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    batch: Count = 50
    devices: Count = 1
    learning_rate: Rate = 5e-3
    dtype: Literal["float32", "float64"] = "float32"

    def device(self, expert: int) -> int:
        """The worker of an expert."""
        return expert % self.devices


class Sequences(NamedTuple):
    """Sequences of one length, step-major: `tokens[t]` is read at step t."""

    tokens: np.ndarray
    """(steps, rows)."""

    labels: np.ndarray
    """(rows,)."""

    @property
    def rows(self) -> int:
        """Count of sequences."""
        return self.tokens.shape[1]


@dataclass(frozen=True)
class Topics:
    """Batches of sequences, drawn when they are asked for.

    Args:
        seed: of all that is drawn.
        counts: of sequences, by split.
        batch: sequences in one; the last may have fewer.
    """

    seed: int
    counts: dict[str, int]
    batch: int

    name = "topics"
    description = "a topic, then values; the class for which they speak by the topic's table"

    def count(self, split: Split) -> int:
        """How many sequences a split has."""
        return self.counts[split]

    def batch_count(self, split: Split) -> int:
        """How many batches."""
        return -(-self.counts[split] // self.batch)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Sequences]:
        """Every batch of a split once; those of "train" in an order of the epoch's own."""
        places = list(range(self.batch_count(split)))
        if split == "train":
            places = stream(seed, "order", epoch).permutation(len(places)).tolist()
        return (self._drawn(split, place) for place in places)

    def _drawn(self, split: Split, place: int) -> Sequences:
        generator = stream(self.seed, f"topics {split}", place)
        rows = min(self.batch, self.counts[split] - place * self.batch)
        steps = int(generator.integers(LENGTHS[0], LENGTHS[1] + 1))
        topics = np.full(rows, generator.integers(0, TOPICS))
        values = generator.integers(0, VALUES, (steps - 1, rows))
        votes = tables()[topics, values].sum(axis=0)
        return Sequences(np.concatenate([topics[None], TOPICS + values]), votes.argmax(axis=1))


def tables() -> np.ndarray:
    """How much each value speaks for each class, (topics, values, classes).

    All values of a topic together speak for none.
    """
    drawn = stream(0, "tables of topics").standard_normal((TOPICS, VALUES, CLASSES))
    return drawn - drawn.mean(axis=1, keepdims=True)


def layers(config: Config) -> list[Any]:
    """What the network learns."""
    hidden, width = config.hidden, config.width
    made: list[Any] = [
        Embedding("embedding", TOKENS, hidden),
        Linear("cell", 2 * hidden, hidden),
        Linear("gate", hidden, config.experts),
    ]
    for expert in range(config.experts):
        made.append(Linear(f"expert-{expert}-in", hidden, width))
        made.append(Linear(f"expert-{expert}-out", width, hidden))
    return [*made, Linear("linear", hidden, CLASSES)]


def asked(config: Config, expert: int, u: Any, shares: Any, asks: Any) -> tuple[Any, Any]:
    """What an expert says of the rows that ask it, a branch on its device; and which these are."""
    rows = flow.places(asks)

    def says() -> Any:
        x = flow.pick(u, rows)
        share = flow.cut(flow.pick(shares, rows), expert, expert + 1)
        with flow.device(config.device(expert)):
            inner = flow.relu(flow.linear(f"expert-{expert}-in", x, config.width))
            return flow.linear(f"expert-{expert}-out", inner, config.hidden) * share

    def says_nothing() -> Any:
        with flow.device(config.device(expert)):
            return flow.zeros((0, config.hidden), config.dtype)

    return flow.cond(flow.any(asks), says, says_nothing), rows


def mixed(config: Config, u: Any) -> tuple[Any, Any]:
    """What the experts add to the state, and the loss of their balance."""
    shares = flow.softmax(flow.linear("gate", u, config.experts))
    chosen = flow.top(shares, config.top)
    said: list[Any] = []
    rows: list[Any] = []
    for expert in range(config.experts):
        answer, which = asked(config, expert, u, shares, flow.cut(chosen, expert, expert + 1))
        said.append(answer)
        rows.append(which)
    count = flow.cast(flow.length(u), config.dtype)
    load = flow.sum(flow.cast(chosen, config.dtype), 0) / count
    balance = flow.sum(load * flow.sum(shares, 0) / count) * float(config.experts)
    return flow.scatter(flow.concat(said, 0), flow.concat(rows, 0), u), balance


def program(config: Config) -> flow.Program:
    """The network."""
    hidden, dtype = config.hidden, config.dtype

    def build() -> flow.Objective:
        tokens = flow.input("tokens", (None, None), "int64")
        start = flow.input("start", (None, hidden), dtype)
        label = flow.input("label", (None,), "int64")
        embedded = flow.embedding("embedding", tokens, TOKENS, hidden, dtype)
        read, length = flow.TensorArray().unstack(embedded), flow.length(tokens)

        def step(number: Any, state: Any, total: Any) -> Any:
            joined = flow.concat([read.read(number), state])
            u = flow.tanh(flow.linear("cell", joined, hidden))
            more, balance = mixed(config, u)
            return number + 1, u + more, total + balance

        def is_within(number: Any, state: Any, total: Any) -> Any:
            return number < length

        _, state, total = flow.while_loop(is_within, step, (0, start, np.zeros((), dtype)))
        logits = flow.linear("linear", state, CLASSES)
        loss = flow.softmax_cross_entropy(logits, label)
        mean = total / flow.cast(length, dtype)
        return flow.Objective(loss + mean * config.balance, flow.count_right(logits, label))

    def feed(batch: Sequences) -> dict[str, Any]:
        start = np.zeros((batch.rows, hidden), dtype)
        return {"tokens": batch.tokens, "start": start, "label": batch.labels}

    return flow.Program(build, feed)


def build(config: Config) -> ampsim.Model:
    """Build the model.

    Raises:
        OptionError: there are more experts to ask, or devices, than experts.
    """
    for key in ("top", "devices"):
        if getattr(config, key) > config.experts:
            raise OptionError(
                f"moe_rnn: {key} must be at most experts, {config.experts}, got "
                f"{getattr(config, key)}"
            )

    def data(seed: int, train_count: int | None) -> Topics:
        train = SEQUENCES if train_count is None else train_count
        train = require_room("train_count", train, SEQUENCE_BYTES)
        counts = {"train": train, "valid": min(1000, max(config.batch, train // 10))}
        return Topics(seed, counts, config.batch)

    return ampsim.Model(
        name="moe_rnn",
        config=config,
        make_graph=None,
        make_data=data,
        pump=None,
        optimizer=adam(config.learning_rate),
        target=0.9,
        items="sequences",
        dtype=config.dtype,
        make_program=lambda: program(config),
        make_layers=lambda: layers(config),
    )
