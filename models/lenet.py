"""LeNet on MNIST: two convolutions, each with a pool, and two linear layers.

Source: Caffe's `examples/mnist/lenet.prototxt`, on which Wongpanich, You and Demmel (2020) show
their two-stage learning rate (Figure 3): 20 and 50 filters of 5 x 5 pixels, a pool of 2 x 2 after
each, 500 units with a ReLU, the classifier. There is no ReLU after a convolution. The training is
that of `lenet_solver.prototxt`: batches of 64, momentum 0.9, a rate of 0.01, a weight decay of
0.0005. An instance is a batch.

What is chosen here:

* The rate stays: Caffe's decays by (1 + 0.0001 · step)^-0.75, to 0.6 of it in ten epochs.
* The weights start as PyTorch's layers do, uniformly from ±1/√(inputs of a sum); Caffe's start from
  √3 times that, and biases at 0. Biases have the rate of weights; Caffe's have twice that.
* Pixels are scaled to [0, 1]. Validation is on the 10,000 test images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

import ampsim
from ampsim.data import BatchWarmup, ImageBatch, Mnist
from ampsim.ir import Graph, Pumped
from ampsim.nodes import Conv2d, Flatten, Linear, MaxPool, ReLU, SoftmaxCrossEntropy
from ampsim.optim import Learning, OptimizerName

SIDE = 28
CLASSES = 10
KERNEL = 5
POOL = 2
SIDE_LEFT = ((SIDE - KERNEL + 1) // POOL - KERNEL + 1) // POOL
"""Height and width of an image after both pools: 4."""

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config(Learning):
    """Options of LeNet.

    Args:
        filters: of the first convolution.
        more_filters: of the second.
        hidden: units of the layer before the classifier.
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

    filters: Count = 20
    more_filters: Count = 50
    hidden: Count = 500
    batch: Count = 64
    batch_warmup_epochs: Annotated[int, Field(ge=0)] = 0
    optimizer: OptimizerName = "momentum"
    learning_rate: Rate = 0.01
    weight_decay: Amount = 0.0005
    min_update_interval: Count = 1
    data: Literal["mnist", "synthetic"] = "mnist"
    folder: str = ""
    valid_images: Annotated[int, Field(ge=0)] = 0
    dtype: Literal["float32", "float64"] = "float32"


class Batch(NamedTuple):
    """State of a message: which batch."""

    instance: int


def lenet(config: Config) -> Graph:
    """Build the chain of layers."""
    graph = Graph("lenet")
    image, label = graph.controller(image=("rows", 1, SIDE, SIDE), label=("rows",))
    filtered = graph.add(Conv2d("conv-1", 1, config.filters, KERNEL), image)
    pooled = graph.add(MaxPool("pool-1", POOL), filtered)
    filtered = graph.add(Conv2d("conv-2", config.filters, config.more_filters, KERNEL), pooled)
    flat = graph.add(Flatten("flatten"), graph.add(MaxPool("pool-2", POOL), filtered))
    width = config.more_filters * SIDE_LEFT**2
    hidden = graph.add(ReLU("relu"), graph.add(Linear("linear-1", width, config.hidden), flat))
    logits = graph.add(Linear("linear-2", config.hidden, CLASSES), hidden)
    graph.end(SoftmaxCrossEntropy("loss"), logits, label)
    return graph


def pump(instance: int, batch: ImageBatch) -> list[Pumped]:
    """Send images of one channel, and labels."""
    state = Batch(instance)
    images = batch.images.reshape(-1, 1, SIDE, SIDE)
    return [("image", state, images), ("label", state, batch.labels)]


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
        name="lenet",
        config=config,
        make_graph=lambda: lenet(config),
        make_data=data,
        pump=pump,
        optimizer=config.make_optimizer(),
        target=0.98,
        min_update_interval=config.min_update_interval,
        items="images",
        dtype=config.dtype,
    )
