"""A recurrent network that learns how long to think at each step: Adaptive Computation Time.

Source: A. Graves, "Adaptive computation time for recurrent neural networks", 2016, Sections 2 and
3.2: at each step the cell runs again and again on the same input, whose last column says that it is
new, until the halting probabilities of a sequence reach 1 - `EPSILON`. Its states count by these
probabilities, the last one by what remains to 1; their mean goes on, and what the loss adds is
`time_penalty` times the steps of thinking and the remainders. It is a loop in a loop, as in Yu et
al., "Dynamic control flow in large-scale machine learning", EuroSys 2018, Section 2.2.

The task: logic gates one after the other. A sequence has a bit; each step brings none to `GATES` of
the gates and, or and xor, each with another bit, to which it is put in their order, and asked is
the last one. Steps with more gates need more thought. Sequences are drawn from the seed.

What the papers leave open, and what is chosen here:

* A step has a column for each gate and bit of each place, not a gate's truth table. A step may have
  no gate. All sequences of an instance have as many steps, and each halts by itself: the inner loop
  goes on while one still thinks, and those that have halted count no more.
* The cell is a tanh layer. The bias of the halting unit starts at 1, as the source has it, so that
  thinking starts short; `thoughts` at most (Graves' M).
* The steps of thinking are in the loss, and have no gradient; the remainders have.
* Adam, and a time penalty between those of the source.
* As a program, the cell is on the last of as many workers as the option `devices` says, and all
  else on the first. Control flow reads probabilities: there is no graph of messages.
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
from ampsim.nodes import Linear
from ampsim.optim import adam
from ampsim.options import require_room
from ampsim.rng import stream

GATES = 3
"""That a step brings at most."""

KINDS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
WIDTH = 2 + GATES * 2 * len(KINDS) + 1
"""Columns of a step: the first bit, gates with their bits by place, and whether it is new."""

STEPS = (1, 4)
"""The least and the most steps of a sequence."""

EPSILON = 0.01
SEQUENCES = 8_000
"""Of the training set, unless told."""

SEQUENCE_BYTES = 4 * WIDTH * STEPS[1]

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config:
    """Options of the network.

    Args:
        hidden: width of the state.
        thoughts: runs of the cell at a step, at most.
        time_penalty: what a run of the cell adds to the loss.
        batch: sequences in an instance.
        devices: workers of the program; with two the second has the cell.
        learning_rate: of Adam.
        dtype: of parameters and activations.
    """

    hidden: Count = 32
    thoughts: Annotated[int, Field(ge=1, le=1000)] = 6
    time_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.005
    batch: Count = 50
    devices: Annotated[int, Field(ge=1, le=2)] = 1
    learning_rate: Rate = 5e-3
    dtype: Literal["float32", "float64"] = "float32"


class Gates(NamedTuple):
    """Sequences of as many steps, step-major."""

    inputs: np.ndarray
    """(steps, rows, WIDTH)."""

    labels: np.ndarray
    """(rows,)."""

    @property
    def rows(self) -> int:
        """Count of sequences."""
        return self.inputs.shape[1]


@dataclass(frozen=True)
class Logic:
    """Batches of sequences, drawn when they are asked for.

    Args:
        seed: of all that is drawn.
        counts: of sequences, by split.
        batch: sequences in one; the last may have fewer.
        dtype: of the inputs.
    """

    seed: int
    counts: dict[str, int]
    batch: int
    dtype: str

    name = "logic"
    description = "a bit, and gates to which it is put, some at each step; the last bit is asked"

    def count(self, split: Split) -> int:
        """How many sequences a split has."""
        return self.counts[split]

    def batch_count(self, split: Split) -> int:
        """How many batches."""
        return -(-self.counts[split] // self.batch)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Gates]:
        """Every batch of a split once; those of "train" in an order of the epoch's own."""
        places = list(range(self.batch_count(split)))
        if split == "train":
            places = stream(seed, "order", epoch).permutation(len(places)).tolist()
        return (self._drawn(split, place) for place in places)

    def _drawn(self, split: Split, place: int) -> Gates:
        generator = stream(self.seed, f"logic {split}", place)
        rows = min(self.batch, self.counts[split] - place * self.batch)
        steps = int(generator.integers(STEPS[0], STEPS[1] + 1))
        bit, each = generator.integers(0, 2, rows), np.arange(rows)
        inputs = np.zeros((steps, rows, WIDTH), self.dtype)
        inputs[0, each, bit] = 1
        for step in range(steps):
            counts = generator.integers(0, GATES + 1, rows)
            for gate in range(GATES):
                kind = generator.integers(0, len(KINDS), rows)
                other = generator.integers(0, 2, rows)
                put = np.choose(kind, [one(bit, other) for one in KINDS])
                is_there = gate < counts
                bit = np.where(is_there, put, bit)
                inputs[step, each, 2 + 2 * (gate * len(KINDS) + kind) + other] = is_there
        return Gates(inputs, bit)


def halting_start(hidden: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the halting unit's weights as PyTorch's Linear does; its bias is 1."""
    bound = hidden**-0.5
    return np.concatenate([generator.uniform(-bound, bound, (hidden, 1)), np.ones((1, 1))])


def layers(config: Config) -> list[Any]:
    """What the network learns."""
    hidden = config.hidden
    return [
        Linear("cell", WIDTH + hidden, hidden),
        Linear("halting", hidden, 1, start=lambda generator: halting_start(hidden, generator)),
        Linear("linear", hidden, 2),
    ]


def thought(config: Config, x: Any, state: Any, blank: Any, nothing: Any) -> tuple[Any, Any]:
    """The mean state of a step, and how long each sequence has thought, with its remainder.

    `blank` and `nothing` are zeros, as wide as the state and one wide.
    """
    hidden, dtype = config.hidden, config.dtype
    new = np.eye(WIDTH, dtype=dtype)[-1]

    def is_thinking(number: Any, state: Any, mean: Any, spent: Any, ponder: Any) -> Any:
        return flow.logical_and(flow.any(spent < 1 - EPSILON), number < config.thoughts)

    def think(number: Any, state: Any, mean: Any, spent: Any, ponder: Any) -> Any:
        said = x + flow.cast(flow.equal(number, 0), dtype) * new
        with flow.device(config.devices - 1):
            state = flow.tanh(flow.linear("cell", flow.concat([said, state]), hidden))
        halts = flow.sigmoid(flow.linear("halting", state, 1))
        is_running, rest = spent < 1 - EPSILON, 1.0 - spent
        is_last = flow.logical_or(
            spent + halts >= 1 - EPSILON, flow.equal(number, config.thoughts - 1)
        )
        share = flow.where(is_running, flow.where(is_last, rest, halts), 0.0)
        remainder = flow.where(flow.logical_and(is_running, is_last), rest, 0.0)
        ponder = ponder + flow.cast(is_running, dtype) + remainder
        return number + 1, state, mean + state * share, spent + share, ponder

    inits = (0, state, blank, nothing, nothing)
    _, _, mean, _, ponder = flow.while_loop(is_thinking, think, inits, name="thoughts")
    return mean, ponder


def program(config: Config) -> flow.Program:
    """The network."""
    hidden, dtype = config.hidden, config.dtype

    def build() -> flow.Objective:
        inputs = flow.input("inputs", (None, None, WIDTH), dtype)
        start = flow.input("start", (None, hidden), dtype)
        nothing = flow.input("nothing", (None, 1), dtype)
        label = flow.input("label", (None,), "int64")
        read, length = flow.TensorArray().unstack(inputs), flow.length(inputs)

        def step(number: Any, state: Any, total: Any) -> Any:
            state, ponder = thought(config, read.read(number), state, start, nothing)
            return number + 1, state, total + ponder

        def is_within(number: Any, state: Any, total: Any) -> Any:
            return number < length

        _, state, total = flow.while_loop(is_within, step, (0, start, nothing))
        logits = flow.linear("linear", state, 2)
        loss = flow.softmax_cross_entropy(logits, label)
        mean = flow.sum(total) / flow.cast(flow.length(total), dtype)
        return flow.Objective(loss + mean * config.time_penalty, flow.count_right(logits, label))

    def feed(batch: Gates) -> dict[str, Any]:
        start, nothing = np.zeros((batch.rows, hidden), dtype), np.zeros((batch.rows, 1), dtype)
        return {"inputs": batch.inputs, "start": start, "nothing": nothing, "label": batch.labels}

    return flow.Program(build, feed)


def build(config: Config) -> ampsim.Model:
    """Build the model."""

    def data(seed: int, train_count: int | None) -> Logic:
        train = SEQUENCES if train_count is None else train_count
        train = require_room("train_count", train, SEQUENCE_BYTES)
        counts = {"train": train, "valid": min(1000, max(config.batch, train // 10))}
        return Logic(seed, counts, config.batch, config.dtype)

    return ampsim.Model(
        name="act_rnn",
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
