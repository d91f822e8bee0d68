"""The 4-layer perceptron of the paper, on MNIST: a static, batched network, for comparison.

Source: AMPNet, Section 6 and Appendix B.1: ReLUs, hidden layers of 784 units, SGD with a learning
rate of 0.1, batches of 100. An instance is a batch.

What the paper leaves open, and what is chosen here:

* Four linear layers, the last of them the classifier: 784-784-784-784-10 ("the first three linear
  layers are the heaviest operations").
* Pixels are scaled to [0, 1]. Weights start normally distributed with variance 2/d_in (He et al.
  2015), biases at 0.
* Validation is on the 10,000 test images, whose number the paper's Table 2 gives.
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
from ampsim.data import BatchWarmup, ImageBatch, Mnist
from ampsim.ir import Graph, Pumped
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
from ampsim.optim import Learning, OptimizerName

PIXELS = 784
CLASSES = 10

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config(Learning):
    """Options of the perceptron.

    Args:
        hidden: units of each hidden layer.
        layers: linear layers, the classifier among them.
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
        min_update_interval: gradients between updates under AMP.
        data: "mnist", from files, or "synthetic", generated from the seed.
        folder: the data folder; empty for $AMPSIM_DATA, or the platform's cache folder.
        valid_images: how many images validation is on, the first of the test images; 0 for all.
        dtype: of parameters and activations.
    """

    hidden: Annotated[int, Field(ge=1)] = 784
    layers: Annotated[int, Field(ge=1)] = 4
    batch: Annotated[int, Field(ge=1)] = 100
    batch_warmup_epochs: Annotated[int, Field(ge=0)] = 0
    optimizer: OptimizerName = "sgd"
    learning_rate: Rate = 0.1
    min_update_interval: Annotated[int, Field(ge=1)] = 1
    data: Literal["mnist", "synthetic"] = "mnist"
    folder: str = ""
    valid_images: Annotated[int, Field(ge=0)] = 0
    dtype: Literal["float32", "float64"] = "float32"


class Batch(NamedTuple):
    """State of a message: which batch."""

    instance: int


def he_normal(d_in: int, d_out: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a first weight, (d_in, d_out)."""
    return generator.normal(0.0, math.sqrt(2 / d_in), (d_in, d_out))


def linear(name: str, d_in: int, d_out: int) -> Linear:
    """Make a layer that starts as He et al. say."""
    return Linear(name, d_in, d_out, start=partial(he_normal, d_in, d_out))


def perceptron(config: Config) -> Graph:
    """Build the chain of layers."""
    graph = Graph("mlp")
    wire, label = graph.controller(image=("rows", PIXELS), label=("rows",))
    width = PIXELS
    for layer in range(1, config.layers):
        sums = graph.add(linear(f"linear-{layer}", width, config.hidden), wire)
        wire = graph.add(ReLU(f"relu-{layer}"), sums)
        width = config.hidden
    logits = graph.add(linear(f"linear-{config.layers}", width, CLASSES), wire)
    graph.end(SoftmaxCrossEntropy("loss"), logits, label)
    return graph


def program(config: Config) -> flow.Program:
    """The same chain as a program."""

    def build() -> flow.Objective:
        wire = flow.input("image", (None, PIXELS), config.dtype)
        label = flow.input("label", (None,), "int64")
        for layer in range(1, config.layers):
            wire = flow.relu(flow.linear(f"linear-{layer}", wire, config.hidden))
        logits = flow.linear(f"linear-{config.layers}", wire, CLASSES)
        loss = flow.softmax_cross_entropy(logits, label)
        return flow.Objective(loss, flow.count_right(logits, label))

    def feed(batch: ImageBatch) -> dict[str, Any]:
        return {"image": batch.images, "label": batch.labels}

    return flow.Program(build, feed)


def pump(instance: int, batch: ImageBatch) -> list[Pumped]:
    """Send images and labels."""
    state = Batch(instance)
    return [("image", state, batch.images), ("label", state, batch.labels)]


def build(config: Config) -> ampsim.Model:
    """Build the model."""

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

    return ampsim.Model(
        name="mlp",
        config=config,
        make_graph=lambda: perceptron(config),
        make_program=lambda: program(config),
        make_data=data,
        pump=pump,
        optimizer=config.make_optimizer(),
        target=0.97,
        min_update_interval=config.min_update_interval,
        items="images",
        dtype=config.dtype,
    )
