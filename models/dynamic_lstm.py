"""LSTMs over sequences whose length the instance says: `dynamic_rnn`, with a layer on each device.

Source: Yu et al., "Dynamic control flow in large-scale machine learning", EuroSys 2018, Sections
2.2, 6.2 and 6.4: one `while_loop` over time has all layers in its body; what it reads, and what the
last layer says at each step, are TensorArrays. An instance is a batch of sequences of one length.

The task is to recall: at each step a sequence shows one of eight symbols, and what is asked is the
one that it showed two steps before, or in its first two steps the first one. Sequences are drawn
from the seed.

What the paper leaves open, and what is chosen here:

* Its data and its loss. Here symbols are embedded in as many numbers as a layer has units, and a
  linear layer tells the symbol from what the last layer says, at every step.
* The lengths: batches of each length between `shortest` and 1 times `length` are as likely. All
  sequences of a batch have one length, so that nothing is padded and no state is copied through.
* The bias of the forget gates starts 1 higher (Jozefowicz et al., 2015). The first state is 0.
* The order of training batches is shuffled in each epoch; which sequences are together is not.
* Adam. Rate and target are such that a run with all other options as usual gets there in its first
  two epochs.
* Under AMP a node within the loop, which meets a batch once a step, counts as many messages for
  each as a batch has steps in the mean.

As a program, layers are on as many workers as the option `devices` says, each on one of them; by
messages, placement says where each is, as of any model.
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
from ampsim.ir import Graph, Pumped
from ampsim.nodes import (
    Columns,
    Cond,
    Embedding,
    Group,
    Isu,
    Linear,
    LSTMCell,
    Phi,
    SoftmaxCrossEntropy,
    Ungroup,
)
from ampsim.optim import adam
from ampsim.options import require_room
from ampsim.rng import stream

SYMBOLS = 8
DELAY = 2
FORGET_BIAS = 1.0
SEQUENCES = 8_000
"""Of the training set, unless told."""

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Config:
    """Options of the LSTM.

    Args:
        hidden: units of each layer, and width of the embedding.
        layers: LSTMs one above the other, in one loop.
        length: steps of the longest sequences.
        shortest: steps of the shortest ones, as a share of these; 1 for one length.
        batch: sequences in an instance.
        devices: workers among which the layers of the program are shared out evenly.
        learning_rate: of Adam.
        min_update_interval: batches between updates under AMP; nodes within the loop, which meet a
            batch once a step, count as many messages for each as it has steps in the mean.
        dtype: of parameters and activations.
    """

    hidden: Count = 32
    layers: Annotated[int, Field(ge=1, le=8)] = 1
    length: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    shortest: Share = 0.5
    batch: Count = 50
    devices: Count = 1
    learning_rate: Rate = 1e-2
    min_update_interval: Count = 1
    dtype: Literal["float32", "float64"] = "float32"

    @property
    def lengths(self) -> tuple[int, int]:
        """The least and the most steps of a sequence."""
        return max(1, round(self.shortest * self.length)), self.length

    def worker(self, layer: int) -> int:
        """The worker of a layer of the program."""
        return layer * self.devices // self.layers


class Recall(NamedTuple):
    """Sequences of one length: what they show, and what is asked at each step."""

    symbols: np.ndarray
    """(steps, rows)."""

    labels: np.ndarray
    """(steps · rows,), the rows of a step side by side."""

    @property
    def rows(self) -> int:
        """Count of sequences."""
        return self.symbols.shape[1]


@dataclass(frozen=True)
class Sequences:
    """Batches of sequences, drawn when they are asked for.

    Args:
        seed: of all that is drawn.
        counts: of sequences, by split.
        batch: sequences in one; the last may have fewer.
        lengths: the least and the most steps.
    """

    seed: int
    counts: dict[str, int]
    batch: int
    lengths: tuple[int, int]

    name = "recall"
    description = "sequences of eight symbols; at each step the one of two steps before is asked"

    def count(self, split: Split) -> int:
        """How many sequences a split has."""
        return self.counts[split]

    def batch_count(self, split: Split) -> int:
        """How many batches."""
        return -(-self.counts[split] // self.batch)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Recall]:
        """Every batch of a split once; those of "train" in an order of the epoch's own."""
        places = list(range(self.batch_count(split)))
        if split == "train":
            places = stream(seed, "order", epoch).permutation(len(places)).tolist()
        return (self._drawn(split, place) for place in places)

    def _drawn(self, split: Split, place: int) -> Recall:
        generator = stream(self.seed, f"sequences {split}", place)
        rows = min(self.batch, self.counts[split] - place * self.batch)
        steps = int(generator.integers(self.lengths[0], self.lengths[1] + 1))
        symbols = generator.integers(0, SYMBOLS, (steps, rows))
        asked = np.maximum(np.arange(steps) - DELAY, 0)
        return Recall(symbols, symbols[asked].reshape(-1))


class Step(NamedTuple):
    """State of a message: which batch, which step of how many."""

    instance: int
    step: int
    length: int


def at_step(state: Step, step: int) -> Step:
    """Tag what is shown at `step`."""
    return Step(state.instance, step, state.length)


def advance(state: Step) -> Step:
    """Count one step."""
    return Step(state.instance, state.step + 1, state.length)


def retreat(state: Step) -> Step:
    """Count one step back."""
    return Step(state.instance, state.step - 1, state.length)


def more(state: Step) -> str:
    """Whether another step follows."""
    return "again" if state.step + 1 < state.length else "last"


def place(state: Step) -> tuple[Step, int, int]:
    """Place what is said at a step among all that is said."""
    return Step(state.instance, 0, state.length), state.step, state.length


def layered(config: Config) -> Graph:
    """Build a loop for each layer, which goes round once for each step that the one below says."""
    hidden = config.hidden
    graph = Graph("dynamic_lstm")
    symbols, start, labels = graph.controller(
        symbols=("steps", "rows"), start=("rows", 2 * hidden), labels=("steps · rows",)
    )
    embedded = graph.add(Embedding("embedding", SYMBOLS, hidden), symbols)
    said = graph.add(Ungroup("ungroup", at_step), embedded)
    for layer in range(1, config.layers + 1):
        loop = Phi(f"phi-{layer}", ("start", "again"))
        cell = LSTMCell(f"lstm-{layer}", hidden, hidden, forget_bias=FORGET_BIAS)
        state = graph.add(cell, said, graph.add(loop, start))
        again, last = graph.branch(Cond(f"cond-{layer}", more, ("again", "last")), state)
        graph.connect(graph.add(Isu(f"isu-{layer}", advance, retreat), again), loop, "again")
        each = graph.add(Phi(f"each-{layer}", ("again", "last")), again, last)
        said = graph.add(Columns(f"columns-{layer}", 2 * hidden, 0, hidden), each)
    outputs = graph.add(Group("group", place, rows="steps · rows"), said)
    logits = graph.add(Linear("linear", hidden, SYMBOLS), outputs)
    graph.end(SoftmaxCrossEntropy("loss"), logits, labels)
    return graph


def program(config: Config) -> flow.Program:
    """The same network as a program, one loop with all layers in it."""
    hidden, dtype = config.hidden, config.dtype
    last = config.worker(config.layers - 1)

    def build() -> flow.Objective:
        symbols = flow.input("symbols", (None, None), "int64")
        start = flow.input("start", (None, hidden), dtype)
        labels = flow.input("labels", (None,), "int64")
        embedded = flow.embedding("embedding", symbols, SYMBOLS, hidden, dtype)
        shown, length = flow.TensorArray().unstack(embedded), flow.length(symbols)

        def is_within(step: Any, states: Any, said: Any) -> Any:
            return step < length

        def body(step: Any, states: Any, said: Any) -> Any:
            x, after = shown.read(step), list[tuple[Any, Any]]()
            for layer, state in enumerate(states):
                with flow.device(config.worker(layer)):
                    after.append(flow.lstm(f"lstm-{layer + 1}", x, state))
                    x = after[-1][0]
            with flow.device(last):
                return step + 1, after, said.write(step, x)

        with flow.device(last):
            said = flow.TensorArray(length, dtype=dtype, element_shape=(None, hidden))
        inits = (0, [(start, start)] * config.layers, said)
        _, _, said = flow.while_loop(is_within, body, inits)
        with flow.device(last):
            outputs = flow.reshape(said.stack(), (-1, hidden))
            logits = flow.linear("linear", outputs, SYMBOLS)
            loss = flow.softmax_cross_entropy(logits, labels)
            return flow.Objective(loss, flow.count_right(logits, labels), flow.length(labels))

    def feed(batch: Recall) -> dict[str, Any]:
        start = np.zeros((batch.rows, hidden), dtype)
        return {"symbols": batch.symbols, "start": start, "labels": batch.labels}

    return flow.Program(build, feed)


def build(config: Config) -> ampsim.Model:
    """Build the model.

    Raises:
        OptionError: there are more devices than layers.
    """
    if config.devices > config.layers:
        raise OptionError(
            f"dynamic_lstm: devices must be at most layers, {config.layers}, got {config.devices}"
        )

    def data(seed: int, train_count: int | None) -> Sequences:
        train = SEQUENCES if train_count is None else train_count
        train = require_room("train_count", train, 8 * config.length)
        counts = {"train": train, "valid": min(1000, max(config.batch, train // 10))}
        return Sequences(seed, counts, config.batch, config.lengths)

    def pump(instance: int, batch: Recall) -> list[Pumped]:
        state = Step(instance, 0, len(batch.symbols))
        start = np.zeros((batch.rows, 2 * config.hidden), config.dtype)
        return [
            ("symbols", state, batch.symbols),
            ("start", state, start),
            ("labels", state, batch.labels),
        ]

    messages = max(1, round(config.min_update_interval * sum(config.lengths) / 2))
    within = [f"lstm-{layer}" for layer in range(1, config.layers + 1)]
    return ampsim.Model(
        name="dynamic_lstm",
        config=config,
        make_graph=lambda: layered(config),
        make_program=lambda: program(config),
        make_data=data,
        pump=pump,
        optimizer=adam(config.learning_rate),
        target=0.95,
        min_update_interval=config.min_update_interval,
        node_update_intervals=dict.fromkeys(within, messages),
        items="sequences",
        dtype=config.dtype,
    )
