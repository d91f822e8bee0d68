"""The list-reduction RNN of the paper's Figure 2, with replicas as in Figure 4(b).

Source: AMPNet, Sections 4 and 5, Appendix B.2: a vanilla RNN with ReLU and 128 hidden units reads
a list of at most 10 tokens, and a last linear layer classifies its result modulo 10. An instance is
a bucket of up to 100 lists of one length.

What the paper leaves open, and what is chosen here:

* The embedding is as wide as the hidden state, and starts from a standard normal distribution. The
  recurrent layer starts orthogonal for the hidden state (Saxe et al. 2014) and uniform for the
  embedding (Glorot and Bengio 2010), with no bias; the hidden state starts at 0. The last layer
  starts as PyTorch's Linear does.
* Adam with a rate of 3e-3, decayed by 0.92 after each epoch: one setting with which every schedule
  reaches 97 % with 4 replicas. Of them AMP and sequential get there sooner with 0.85, and a single
  replica with 0.8 (docs/decisions/0009).
* Replicas start equal and are averaged after each epoch; optimizer states are not.
* Under AMP a node updates itself after each bucket unless told otherwise. `min_update_interval`
  counts buckets: the recurrent layer meets one once a step, 6 times in the mean, and so is told 6
  messages for each (docs/decisions/0009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim import flow
from ampsim.data import ListBatch, ListReduction
from ampsim.ir import Graph, Pumped
from ampsim.nodes import (
    Concat,
    Cond,
    Embedding,
    Isu,
    Linear,
    Phi,
    ReLU,
    SoftmaxCrossEntropy,
    Ungroup,
)
from ampsim.optim import adam, exponential

TOKENS = 14
CLASSES = 10
RECURRENT = "linear-1"

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Config:
    """Options of the RNN.

    Args:
        hidden: width of hidden state and embedding.
        replicas: copies of the recurrent linear layer.
        batch: lists in a bucket.
        digits: of a list at most; with the operation a list has one token more.
        learning_rate: of Adam, in the first epoch.
        decay: factor on the learning rate after each epoch.
        min_update_interval: buckets between updates under AMP; the recurrent layer, which meets a
            bucket once a step, counts as many messages for each as lists have tokens in the mean.
        dtype: "float32" or "float64".
    """

    hidden: Count = 128
    replicas: Annotated[int, Field(ge=1, le=1000)] = 4  # chosen: 250 times the paper's
    batch: Count = 100
    digits: Annotated[int, Field(ge=1, le=9)] = 9
    learning_rate: Rate = 3e-3
    decay: Factor = 0.92
    min_update_interval: Count = 1
    dtype: Literal["float32", "float64"] = "float32"


class Token(NamedTuple):
    """State of a message: which bucket, which step of how many."""

    instance: int
    step: int
    length: int


def at_step(state: Token, step: int) -> Token:
    """Tag the token at `step`."""
    return Token(state.instance, step, state.length)


def advance(state: Token) -> Token:
    """Count one step."""
    return Token(state.instance, state.step + 1, state.length)


def retreat(state: Token) -> Token:
    """Count one step back."""
    return Token(state.instance, state.step - 1, state.length)


def more(state: Token) -> str:
    """Whether the end of the list has been reached."""
    return "again" if state.step < state.length else "last"


def recurrent_start(hidden: int, generator: np.random.Generator) -> np.ndarray:
    """Draw the recurrent weights, (2 · hidden, hidden): hidden state above embedding."""
    orthogonal, triangle = np.linalg.qr(generator.standard_normal((hidden, hidden)))
    bound = math.sqrt(6 / (3 * hidden))
    uniform = generator.uniform(-bound, bound, (hidden, hidden))
    return np.concatenate([orthogonal * np.sign(np.diag(triangle)), uniform])


def figure_2(config: Config) -> Graph:
    """Build the graph of Figure 2."""
    hidden = config.hidden
    graph = Graph("rnn")
    tokens, start, label = graph.controller(
        tokens=("steps", "rows"), start=("rows", hidden), label=("rows",)
    )
    embedded = graph.add(Embedding("embedding", TOKENS, hidden), tokens)
    stream = graph.add(Ungroup("ungroup", at_step), embedded)
    loop = Phi("phi", ("start", "again"))
    joined = graph.add(Concat("concat", (hidden, hidden)), graph.add(loop, start), stream)
    start_of = partial(recurrent_start, hidden)
    linear = graph.replicate(
        RECURRENT,
        config.replicas,
        lambda name: Linear(name, 2 * hidden, hidden, start=start_of),
        joined,
    )
    state = graph.add(Isu("isu", advance, retreat), graph.add(ReLU("relu"), linear))
    again, last = graph.branch(Cond("cond", more, ("again", "last")), state)
    graph.connect(again, loop, "again")
    logits = graph.add(Linear("linear-2", hidden, CLASSES), last)
    graph.end(SoftmaxCrossEntropy("loss"), logits, label)
    return graph


def program(config: Config) -> flow.Program:
    """The same network as a program; replicas, which are alike in it, are one layer."""
    hidden, dtype = config.hidden, config.dtype

    def build() -> flow.Objective:
        tokens = flow.input("tokens", (None, None), "int64")
        start = flow.input("start", (None, hidden), dtype)
        label = flow.input("label", (None,), "int64")
        embedded = flow.embedding("embedding", tokens, TOKENS, hidden, dtype)
        stream, length = flow.TensorArray().unstack(embedded), flow.length(tokens)

        def is_within(number: Any, state: Any) -> Any:
            return number < length

        def step(number: Any, state: Any) -> Any:
            joined = flow.concat([state, stream.read(number)])
            return number + 1, flow.relu(flow.linear(RECURRENT, joined, hidden))

        _, state = flow.while_loop(is_within, step, (0, start))
        logits = flow.linear("linear-2", state, CLASSES)
        loss = flow.softmax_cross_entropy(logits, label)
        return flow.Objective(loss, flow.count_right(logits, label))

    def feed(batch: ListBatch) -> dict[str, Any]:
        start = np.zeros((batch.rows, hidden), dtype)
        return {"tokens": batch.tokens, "start": start, "label": batch.labels}

    return flow.Program(build, feed)


def steps_per_bucket(digits: int) -> int:
    """In the mean: lists have 2 tokens and more, each length as often as any other.

    A half is rounded up, so that no node updates itself more often than once a bucket.
    """
    return math.ceil((digits + 3) / 2)


def sizes(batch: int, train_count: int) -> dict[str, int]:
    """Validate on a tenth of a smaller training set, as the paper does of the whole."""
    return {"train_count": train_count, "valid_count": max(batch, min(train_count // 10, 10_000))}


def build(config: Config) -> ampsim.Model:
    """Build the model."""
    dtype = np.dtype(config.dtype)

    def pump(instance: int, batch: ListBatch) -> list[Pumped]:
        length = batch.steps
        state = Token(instance, 0, length)
        start = np.zeros((batch.rows, config.hidden), dtype)
        end = Token(instance, length, length)
        return [
            ("tokens", state, batch.tokens),
            ("start", state, start),
            ("label", end, batch.labels),
        ]

    def data(seed: int, train_count: int | None) -> Any:
        counts = {} if train_count is None else sizes(config.batch, train_count)
        return ListReduction.generate(seed, batch=config.batch, digits=config.digits, **counts)

    messages = config.min_update_interval * steps_per_bucket(config.digits)
    learning = (node.name for node in figure_2(config).parameterized)
    recurrent = [name for name in learning if name.startswith(RECURRENT)]
    return ampsim.Model(
        name="rnn",
        config=config,
        make_graph=lambda: figure_2(config),
        make_program=lambda: program(config),
        make_data=data,
        pump=pump,
        optimizer=adam(exponential(config.learning_rate, config.decay)),
        target=0.97,
        min_update_interval=config.min_update_interval,
        node_update_intervals=dict.fromkeys(recurrent, messages),
        replicas=config.replicas,
        items="lists",
        dtype=config.dtype,
    )
