"""An LSTM that reads an MNIST image row by row: a loop of 28 steps, real and unbatchable in time.

Source: Wongpanich, You and Demmel, "Rethinking the value of asynchronous solvers for distributed
deep learning", 2020, Section 4.5.3: an image is 28 vectors of 28 pixels, a linear layer brings each
to 128, an LSTM of 128 reads them, and a linear layer tells the digit from its last hidden state.
Adam; the baseline has batches of 256 and reaches 98.7 % in 50 epochs. An instance is a batch.

What the paper leaves open, and what is chosen here:

* The vectors are the image's rows, from the top. There is no function between the linear layer and
  the cell, whose bias of the forget gates starts 1 higher (Jozefowicz et al., 2015). The first
  state is 0.
* A rate of 1e-3, Adam's own. Pixels are scaled to [0, 1]. Validation is on the 10,000 test images.
* Under AMP a node updates itself after each batch unless told otherwise: those within the loop,
  which meet a batch 28 times, after 28 messages for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim import flow
from ampsim.data import BatchWarmup, ImageBatch, Mnist
from ampsim.ir import Graph, Pumped
from ampsim.nodes import (
    Columns,
    Cond,
    Isu,
    Linear,
    LSTMCell,
    Phi,
    SoftmaxCrossEntropy,
    Ungroup,
)
from ampsim.optim import Learning, OptimizerName

STEPS = 28
PIXELS = 28
CLASSES = 10
WITHIN_THE_LOOP = ("linear-1", "lstm")
FORGET_BIAS = 1.0

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config(Learning):
    """Options of the LSTM.

    Args:
        hidden: width of the LSTM's state, and of what it reads.
        batch: images in an instance.
        batch_warmup_epochs: in which the batch grows from a tenth, epoch by epoch; 0 for none.
        optimizer: the method: sgd, momentum, nesterov, adam, adagrad, lars or two-stage.
        learning_rate: of the method; in two-stage of gradient descent.
        momentum: of momentum, nesterov and lars; None for 0.9.
        weight_decay: times the weights is added to the gradient.
        rate_policy: constant, exponential:FACTOR, polynomial:EPOCHS[:POWER] or
            multistep:EPOCH,EPOCH,…[:FACTOR].
        warmup_epochs: in which the rate grows from a tenth; in two-stage those of gradient descent.
        second_rate: of Adam in two-stage; None for 0.001.
        min_update_interval: batches between updates under AMP; nodes within the loop, which meet a
            batch once a step, count 28 messages for each.
        data: "mnist", from files, or "synthetic", generated from the seed.
        folder: the data folder; empty for $AMPSIM_DATA, or the platform's cache folder.
        valid_images: how many images validation is on, the first of the test images; 0 for all.
        dtype: of parameters and activations.
    """

    hidden: Count = 128
    batch: Count = 256
    batch_warmup_epochs: Annotated[int, Field(ge=0)] = 0
    optimizer: OptimizerName = "adam"
    learning_rate: Rate = 1e-3
    min_update_interval: Count = 1
    data: Literal["mnist", "synthetic"] = "mnist"
    folder: str = ""
    valid_images: Annotated[int, Field(ge=0)] = 0
    dtype: Literal["float32", "float64"] = "float32"


class Row(NamedTuple):
    """State of a message: which batch, which row of the images."""

    instance: int
    step: int


def at_step(state: Row, step: int) -> Row:
    """Tag the row at `step`."""
    return Row(state.instance, step)


def advance(state: Row) -> Row:
    """Go on to the next row."""
    return Row(state.instance, state.step + 1)


def retreat(state: Row) -> Row:
    """Go back to the row before."""
    return Row(state.instance, state.step - 1)


def more(state: Row) -> str:
    """Whether the last row has been read."""
    return "again" if state.step < STEPS else "last"


def reader(config: Config) -> Graph:
    """Build the loop over rows, and the classifier after it."""
    hidden = config.hidden
    graph = Graph("lstm_mnist")
    image, start, label = graph.controller(
        image=(STEPS, "rows", PIXELS), start=("rows", 2 * hidden), label=("rows",)
    )
    row = graph.add(Ungroup("ungroup", at_step), image)
    transformed = graph.add(Linear("linear-1", PIXELS, hidden), row)
    loop = Phi("phi", ("start", "again"))
    cell = LSTMCell("lstm", hidden, hidden, forget_bias=FORGET_BIAS)
    state = graph.add(
        Isu("isu", advance, retreat), graph.add(cell, transformed, graph.add(loop, start))
    )
    again, last = graph.branch(Cond("cond", more, ("again", "last")), state)
    graph.connect(again, loop, "again")
    seen = graph.add(Columns("columns", 2 * hidden, 0, hidden), last)
    logits = graph.add(Linear("linear-2", hidden, CLASSES), seen)
    graph.end(SoftmaxCrossEntropy("loss"), logits, label)
    return graph


def rows_of(batch: ImageBatch) -> np.ndarray:
    """The images' rows, (steps, images, pixels)."""
    rows = batch.images.reshape(-1, STEPS, PIXELS).swapaxes(0, 1)
    return np.ascontiguousarray(rows)


def program(config: Config) -> flow.Program:
    """The same network as a program."""
    hidden, dtype = config.hidden, config.dtype

    def build() -> flow.Objective:
        image = flow.input("image", (STEPS, None, PIXELS), dtype)
        start, label = (
            flow.input("start", (None, hidden), dtype),
            flow.input("label", (None,), "int64"),
        )
        rows = flow.TensorArray().unstack(image)

        def is_within(number: Any, h: Any, c: Any) -> Any:
            return number < STEPS

        def step(number: Any, h: Any, c: Any) -> Any:
            transformed = flow.linear("linear-1", rows.read(number), hidden)
            return number + 1, *flow.lstm("lstm", transformed, (h, c))

        _, h, _ = flow.while_loop(is_within, step, (0, start, start))
        logits = flow.linear("linear-2", h, CLASSES)
        loss = flow.softmax_cross_entropy(logits, label)
        return flow.Objective(loss, flow.count_right(logits, label))

    def feed(batch: ImageBatch) -> dict[str, Any]:
        start = np.zeros((batch.rows, hidden), dtype)
        return {"image": rows_of(batch), "start": start, "label": batch.labels}

    return flow.Program(build, feed)


def build(config: Config) -> ampsim.Model:
    """Build the model."""
    dtype = np.dtype(config.dtype)

    def pump(instance: int, batch: ImageBatch) -> list[Pumped]:
        first = Row(instance, 0)
        start = np.zeros((batch.rows, 2 * config.hidden), dtype)
        return [
            ("image", first, rows_of(batch)),
            ("start", first, start),
            ("label", Row(instance, STEPS), batch.labels),
        ]

    def data(seed: int, train_count: int | None) -> Any:
        options: dict[str, Any] = {"batch": config.batch, "dtype": config.dtype}
        if train_count is not None:
            options["train_count"] = train_count
        if config.valid_images:
            options["valid_count"] = config.valid_images
        if config.data == "synthetic":
            made = Mnist.synthetic(seed, **options)
        else:
            made = Mnist.load(config.folder or None, **options)
        warmup = config.batch_warmup_epochs
        return BatchWarmup(made, warmup) if warmup else made

    messages = config.min_update_interval * STEPS
    return ampsim.Model(
        name="lstm_mnist",
        config=config,
        make_graph=lambda: reader(config),
        make_program=lambda: program(config),
        make_data=data,
        pump=pump,
        optimizer=config.make_optimizer(),
        target=0.97,
        min_update_interval=config.min_update_interval,
        node_update_intervals=dict.fromkeys(WITHIN_THE_LOOP, messages),
        items="images",
        dtype=config.dtype,
    )
