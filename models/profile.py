"""Networks known by their layers' shapes alone, for mode "sleep": time without learning.

A node is a block, whose layers' parameters and multiplications follow from their shapes: a layer,
an Inception module, a residual block, a layer of a dense block. Blocks are a chain, for one tensor
goes from each to the next. An instance is a batch. Mode "numeric" is refused: there are no weights.

Networks, and where their shapes are from:

* alexnet: Krizhevsky, Sutskever and Hinton (2012), with its two groups, as
  `models/bvlc_alexnet/train_val.prototxt` of Caffe has it: 61 M parameters, 0.72 G
  multiplications.
* cifar10-full: `examples/cifar10/cifar10_full_train_test.prototxt` of Caffe.
* densenet-40: Huang et al. (2017), L = 40 and k = 12, without bottlenecks: 1.0 M parameters.
* googlenet: Szegedy et al. (2015), Table 1, without the auxiliary classifiers: 1.5 G
  multiplications.
* resnet-50: He et al. (2016), Table 1, the stride in a block's first layer: 25.6 M parameters,
  3.8 G multiplications.

What is chosen here: multiplications are those of convolutions and linear layers, at 2 FLOP each
with their addition. All other layers are free; the two numbers for each channel of a batch
normalisation count as parameters. The bytes of a step are those of each layer's input, output and
weights. Images are counted as the data set has them, CIFAR-10 or ImageNet's of 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim.data import Split
from ampsim.ir import (
    Direction,
    Graph,
    ParameterizedNode,
    Payload,
    Pumped,
    Sends,
    Shape,
    Standin,
    State,
    Work,
)
from ampsim.ir.shapes import known, require
from ampsim.nodes import Flatten, SoftmaxCrossEntropy
from ampsim.optim import Learning, OptimizerName

Size = tuple[int, int, int]
"""Channels, height and width of one image."""

Network = Literal["alexnet", "cifar10-full", "densenet-40", "googlenet", "resnet-50"]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config(Learning):
    """Options of a network of which only shapes are known.

    Args:
        network: which.
        batch: images in an instance.
        optimizer: the method, whose state takes memory and time: sgd, momentum, nesterov, adam,
            adagrad, lars or two-stage.
        learning_rate: of the method; in two-stage of gradient descent. Nothing is learned.
        momentum: of momentum, nesterov and lars; None for 0.9.
        weight_decay: times the weights is added to the gradient.
        rate_policy: constant, exponential:FACTOR, polynomial:EPOCHS[:POWER] or
            multistep:EPOCH,EPOCH,…[:FACTOR].
        warmup_epochs: in which the rate grows from a tenth; in two-stage those of gradient descent.
        second_rate: of Adam in two-stage; None for 0.001.
        min_update_interval: gradients between updates under AMP.
    """

    network: Network = "resnet-50"
    batch: Count = 256
    optimizer: OptimizerName = "momentum"
    learning_rate: Rate = 0.1
    min_update_interval: Count = 1


class Layer(NamedTuple):
    """What one layer does with one image.

    Args:
        name: of it within its block.
        shapes: of its parameters.
        weights: how many of these are multiplied.
        multiplications: how many there are.
        moved: numbers of its input and output.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    weights: int
    multiplications: int
    moved: int


class Block:
    """Layers between one tensor and the next; each method adds one and returns what it sends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.layers: list[Layer] = []

    def conv(
        self, size: Size, filters: int, kernel: int, *, stride: int = 1, padding: int = 0,
        groups: int = 1, has_bias: bool = True,
    ) -> Size:  # fmt: skip
        """A convolution."""
        channels, height, width = size
        high = (height + 2 * padding - kernel) // stride + 1
        wide = (width + 2 * padding - kernel) // stride + 1
        weight = (filters, channels // groups, kernel, kernel)
        multiplied = math.prod(weight)
        shapes = (weight, (filters,)) if has_bias else (weight,)
        moved = math.prod(size) + filters * high * wide
        self._add("conv", shapes, multiplied, multiplied * high * wide, moved)
        return filters, high, wide

    def norm(self, size: Size) -> Size:
        """A batch normalisation: a factor and a term for each channel; free."""
        self._add("norm", ((size[0],), (size[0],)), 0, 0, 0)
        return size

    def linear(self, size: Size, units: int) -> Size:
        """A linear layer on all numbers of an image."""
        d_in = math.prod(size)
        self._add("linear", ((d_in, units), (units,)), d_in * units, d_in * units, d_in + units)
        return units, 1, 1

    def _add(self, kind: str, shapes: tuple[tuple[int, ...], ...], *numbers: int) -> None:
        self.layers.append(Layer(f"{kind}-{len(self.layers) + 1}", shapes, *numbers))


def pool(size: Size, *, stride: int = 2) -> Size:
    """A pool of 3 x 3, of which the last window may leave the image, as Caffe's do; free."""
    channels, height, width = size
    return channels, -(-(height - 3) // stride) + 1, -(-(width - 3) // stride) + 1


def averaged(size: Size) -> Size:
    """The mean of each channel; free."""
    return size[0], 1, 1


Built = list[tuple[Block, Size]]
"""Blocks in their order, and what each sends."""


def alexnet() -> tuple[Size, Built]:
    """Five convolutions and three linear layers, for images of 227 x 227."""
    first = size = (3, 227, 227)
    built: Built = []
    for number, (filters, kernel, stride, padding, groups, is_pooled) in enumerate(
        (
            (96, 11, 4, 0, 1, True),
            (256, 5, 1, 2, 2, True),
            (384, 3, 1, 1, 1, False),
            (384, 3, 1, 1, 2, False),
            (256, 3, 1, 1, 2, True),
        ),
        1,
    ):
        block = Block(f"conv-{number}")
        size = block.conv(size, filters, kernel, stride=stride, padding=padding, groups=groups)
        size = pool(size) if is_pooled else size
        built.append((block, size))
    return first, [*built, *classifier(size, 4096, 4096, 1000)]


def cifar10_full() -> tuple[Size, Built]:
    """Three convolutions and a linear layer, for images of 32 x 32."""
    first = size = (3, 32, 32)
    built: Built = []
    for number, filters in enumerate((32, 32, 64), 1):
        block = Block(f"conv-{number}")
        size = pool(block.conv(size, filters, 5, padding=2))
        built.append((block, size))
    return first, [*built, *classifier(size, 10)]


def densenet_40() -> tuple[Size, Built]:
    """Three dense blocks of 12 layers that add 12 channels each, for images of 32 x 32."""
    first = (3, 32, 32)
    block = Block("conv")
    size: Size = block.conv(first, 16, 3, padding=1, has_bias=False)
    built: Built = [(block, size)]
    for stage in range(1, 4):
        for number in range(1, 13):
            block = Block(f"dense-{stage}.{number}")
            block.conv(block.norm(size), 12, 3, padding=1, has_bias=False)
            size = (size[0] + 12, size[1], size[2])
            built.append((block, size))
        if stage < 3:
            block = Block(f"transition-{stage}")
            block.conv(block.norm(size), size[0], 1, has_bias=False)
            size = (size[0], size[1] // 2, size[2] // 2)
            built.append((block, size))
    block = Block("norm")
    block.norm(size)
    built.append((block, averaged(size)))
    return first, [*built, *classifier(averaged(size), 10)]


INCEPTION = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Filters of 1 x 1; before 3 x 3, and these; before 5 x 5, and these; after the pool. Table 1."""


def googlenet() -> tuple[Size, Built]:
    """Three convolutions, nine Inception modules and a classifier, for images of 224 x 224."""
    first = (3, 224, 224)
    stem, second = Block("conv-1"), Block("conv-2")
    size = pool(stem.conv(first, 64, 7, stride=2, padding=3))
    built: Built = [(stem, size)]
    size = pool(second.conv(second.conv(size, 64, 1), 192, 3, padding=1))
    built.append((second, size))
    for name, widths in INCEPTION.items():
        block = Block(f"inception-{name}")
        ones, before_threes, threes, before_fives, fives, after_pool = widths
        block.conv(size, ones, 1)
        block.conv(block.conv(size, before_threes, 1), threes, 3, padding=1)
        block.conv(block.conv(size, before_fives, 1), fives, 5, padding=2)
        block.conv(size, after_pool, 1)
        size = (ones + threes + fives + after_pool, size[1], size[2])
        size = pool(size) if name in ("3b", "4e") else size
        size = averaged(size) if name == "5b" else size
        built.append((block, size))
    return first, [*built, *classifier(size, 1000)]


def resnet_50() -> tuple[Size, Built]:
    """A convolution, 16 residual blocks of three, and a classifier, for images of 224 x 224."""
    first = (3, 224, 224)
    block = Block("conv")
    size = block.norm(block.conv(first, 64, 7, stride=2, padding=3, has_bias=False))
    size = (size[0], size[1] // 2, size[2] // 2)
    built: Built = [(block, size)]
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 2):
        for number in range(1, blocks + 1):
            block = Block(f"block-{stage}.{number}")
            stride = 2 if number == 1 and stage > 2 else 1
            plain = partial(block.conv, has_bias=False)
            inner = block.norm(plain(size, width, 1, stride=stride))
            inner = block.norm(plain(inner, width, 3, padding=1))
            sent = block.norm(plain(inner, 4 * width, 1))
            if number == 1:
                block.norm(plain(size, 4 * width, 1, stride=stride))
            size = sent
            built.append((block, size))
    built[-1] = (built[-1][0], averaged(size))
    return first, [*built, *classifier(averaged(size), 1000)]


def classifier(size: Size, *units: int) -> Built:
    """Linear layers, the last of which classifies."""
    built: Built = []
    for number, count in enumerate(units, 1):
        block = Block(f"linear-{number}")
        size = block.linear(size, count)
        built.append((block, size))
    return built


NETWORKS: dict[str, Callable[[], tuple[Size, Built]]] = {
    "alexnet": alexnet,
    "cifar10-full": cifar10_full,
    "densenet-40": densenet_40,
    "googlenet": googlenet,
    "resnet-50": resnet_50,
}
IMAGES = {
    "cifar10": {"train": 50_000, "valid": 10_000},
    "imagenet": {"train": 1_281_167, "valid": 50_000},
}
ON_CIFAR = ("cifar10-full", "densenet-40")


class Profile(ParameterizedNode):
    """A block that takes as long as its layers, and computes nothing."""

    is_shape_only = True

    def __init__(self, block: Block, taken: Size, sent: Size) -> None:
        names = ("weight", "bias")
        super().__init__(
            block.name,
            {
                f"{layer.name}.{names[place]}": shape
                for layer in block.layers
                for place, shape in enumerate(layer.shapes)
            },
        )
        self._taken, self._sent = taken, sent
        self._saved: dict[State, tuple[Payload, int]] = {}
        self.multiplications = sum(layer.multiplications for layer in block.layers)
        self._weights = sum(layer.weights for layer in block.layers)
        self._moved = sum(layer.moved for layer in block.layers)
        self._operations = len(block.layers)

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Nothing is known of the weights: zeros."""
        return np.zeros(self.parameter_count)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send a stand-in of the block's output."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        return ((0, state, Standin((payload.shape[0], *self._sent), payload.itemsize)),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send a stand-in of the gradient of its input."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        self.count_gradient(state, version)
        return ((0, state, saved if self.input_needs_gradient[0] else None),)

    def take_gradient(self) -> np.ndarray:
        """Nothing was computed."""
        raise AssertionError(f"{self.name} has shapes alone")

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """2 FLOP a multiplication; as many again for each of the two gradients (Appendix C)."""
        itemsize = self.theta.itemsize
        weight_bytes = self.parameter_count * itemsize
        if direction is Direction.UPDATE:
            return Work(self._weights, (4 + 2 * self.state_arrays) * weight_bytes, self._operations)
        if shape is None:
            return Work()
        products = 1
        if direction is Direction.BACKWARD and self.input_needs_gradient[0]:
            products = 2
        flop = 2 * shape[0] * self.multiplications * products
        moved = shape[0] * self._moved * itemsize * products + weight_bytes
        return Work(flop, moved, self._operations * products, weight_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require the block's input."""
        (shape,) = known(shapes)
        wanted = ", ".join(map(str, self._taken))
        require(shape[1:] == self._taken, self, f"(rows, {wanted})", shape)
        return ((shape[0], *self._sent),)

    def pending(self) -> list[State]:
        """States whose backward message has not come."""
        return list(self._saved)


class Images(NamedTuple):
    """A batch of so many images of which nothing is known."""

    rows: int


@dataclass(frozen=True)
class Unknown:
    """So many images, in batches."""

    counts: dict[str, int]
    batch: int
    name = "unknown"
    description = "images of which only the number is known"

    def count(self, split: Split) -> int:
        """How many images a split has."""
        return self.counts[split]

    def batch_count(self, split: Split) -> int:
        """How many batches; the last may be smaller."""
        return -(-self.counts[split] // self.batch)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Images]:
        """Each image of a split once."""
        for start in range(0, self.counts[split], self.batch):
            yield Images(min(self.batch, self.counts[split] - start))


class Instance(NamedTuple):
    """State of a message: which batch."""

    instance: int


def chain(config: Config) -> Graph:
    """Build the chain of blocks."""
    size, built = NETWORKS[config.network]()
    graph = Graph(config.network)
    wire, label = graph.controller(image=("rows", *size), label=("rows",))
    for block, sent in built:
        wire = graph.add(Profile(block, size, sent), wire)
        size = sent
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Flatten("flatten"), wire), label)
    return graph


def build(config: Config) -> ampsim.Model:
    """Build the model."""
    size, _built = NETWORKS[config.network]()
    counts = IMAGES["cifar10" if config.network in ON_CIFAR else "imagenet"]

    def data(_seed: int, train_count: int | None) -> Unknown:
        if train_count is None:
            return Unknown(counts, config.batch)
        valid = min(counts["valid"], max(config.batch, train_count // 10))
        return Unknown({"train": train_count, "valid": valid}, config.batch)

    def pump(instance: int, batch: Images) -> list[Pumped]:
        state = Instance(instance)
        images = np.broadcast_to(np.float32(0), (batch.rows, *size))  # takes no memory
        return [("image", state, images), ("label", state, np.zeros(batch.rows, int))]

    return ampsim.Model(
        name="profile",
        config=config,
        make_graph=lambda: chain(config),
        make_data=data,
        pump=pump,
        optimizer=config.make_optimizer(),
        min_update_interval=config.min_update_interval,
        items="images",
    )
