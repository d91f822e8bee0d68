"""The case study of MXNet's engine: layers trained on several devices.

The cost of a matrix product is that of AMPNet's Appendix C, as everywhere in this package.

Each GPU has its part of every batch and a copy of all weights. The CPU adds up the gradients,
updates the weights, and copies them back. Written in that order, the program says nothing of what
may run in parallel; the engine finds it.

Source: "Dependency Engine for Deep Learning", section "Case Study". There the update uses GPU 0's
gradient, not the sum of the line before (``fc1_weight[cpu] -= lr * fc1_wgrad[gpu0]``); with the sum
the weights are those of one device on the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from ampsim.arguments import check_fields
from ampsim.dependency.array import Array, Arrays, Expression, Named, require_array, summed
from ampsim.dependency.engine import DependencyEngine
from ampsim.errors import OptionError
from ampsim.ir.work import Work
from ampsim.rng import stream


def fullc_forward(data: Array, weight: Array) -> Expression:
    """The layer's output, (k, d_in) @ (d_in, d_out). The weight remembers what it was applied to.

    Raises:
        OptionError: the shapes do not fit.
    """
    rows, width = _matrix(data)
    weight_rows, outputs = _matrix(weight)
    if width != weight_rows:
        raise OptionError(
            f"{data.name} @ {weight.name} must have as many columns as rows, got {data.shape} and "
            f"{weight.shape}"
        )
    weight.layer_input = data
    return Expression(
        "forward", (data, weight), np.matmul, (rows, outputs), _product(data, weight, outputs),
        rows, width * outputs,
    )  # fmt: skip


def fullc_backward(gradient: Array, weight: Array) -> tuple[Expression, Expression]:
    """The gradients of the layer's input and of its weight, from that of its output.

    They are two operations, as in Appendix C; the first layer needs none of its input, and pushes
    none where nobody asks for it. The layer's input is what the weight's last forward step got.

    Raises:
        OptionError: the weight had no forward step.
    """
    data = require_array(weight, "weight").layer_input
    require_array(gradient, "gradient")
    if data is None:
        raise OptionError(f"{weight.name} has had no forward step; push fullc_forward first")
    rows, width = _matrix(data)
    outputs = _matrix(weight)[1]
    work, size = _product(data, weight, outputs), width * outputs

    def input_gradient(gradient: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return gradient @ weight.T

    def weight_gradient(gradient: np.ndarray, data: np.ndarray) -> np.ndarray:
        return data.T @ gradient

    to_data = Expression(
        "backward", (gradient, weight), input_gradient, (rows, width), work, rows, size,
        is_backward=True,
    )  # fmt: skip
    to_weight = Expression(
        "gradient", (gradient, data), weight_gradient, (width, outputs), work, rows, size,
        is_backward=True,
    )  # fmt: skip
    return to_data, to_weight


def loss_gradient(output: Array, label: Array) -> Expression:
    """The gradient of the summed softmax cross-entropy: softmax(output) less 1 at each label.

    A light operation: it moves bytes, takes a function of each element, and counts no FLOP.

    Raises:
        OptionError: the shapes do not fit.
    """
    rows, classes = _matrix(output)
    if require_array(label, "label").known_shape != (rows,):
        raise OptionError(
            f"{label.name} must hold a class for each of {rows} rows, got shape {label.shape}"
        )

    def compute(output: np.ndarray, label: np.ndarray) -> np.ndarray:
        shares = np.exp(output - output.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(shares)), label.astype(np.int64)] -= 1.0
        return shares

    work = Work(bytes=2 * output.size_bytes, functions=rows * classes)
    return Expression("loss", (output, label), compute, (rows, classes), work)


def _matrix(array: Array) -> tuple[int, int]:
    shape = require_array(array, "what a layer uses").known_shape
    if len(shape) != 2:
        raise OptionError(f"{array.name} must be a matrix, got shape {shape}")
    return shape[0], shape[1]


def _product(data: Array, weight: Array, outputs: int) -> Work:
    """The work of each of a layer's three products, which have one size."""
    rows, width = _matrix(data)
    output_bytes, weight_bytes = rows * outputs * data.arrays.dtype.itemsize, weight.size_bytes
    moved_bytes = data.size_bytes + output_bytes + weight_bytes
    return Work(flop=2 * rows * width * outputs, bytes=moved_bytes, weight_bytes=weight_bytes)


CPU = "host"


@dataclass(frozen=True)
class CaseStudy:
    """The case study: its sizes, and the program that trains on an engine.

    Args:
        widths: of the input, of each layer's output, and so of k layers k + 1 numbers.
        gpus: how many workers compute; the batch must divide among them.
        batch: rows of a batch.
        learning_rate: of SGD on the gradient summed over a batch.
        has_overlap: whether synchronization may overlap with computing; otherwise the program
            waits for everything before it sums, and again before the next batch.
        uses_sum: whether the update uses the sum of all gradients; otherwise GPU 0's alone, as the
            source writes it.
        seed: of the first weights and of the data.
        dtype: of all arrays but labels, which are whole numbers of as many bytes, or of more where
            there are more classes.
        is_numeric: whether numbers are computed, or only time and memory counted.

    Raises:
        OptionError: a number is none of these.
    """

    widths: Sequence[int] = (784, 100, 10)
    gpus: Annotated[int, Ge(1), Le(10_000)] = 2
    batch: Annotated[int, Ge(1), Le(10**9)] = 100
    learning_rate: float = 0.001
    has_overlap: bool = True
    uses_sum: bool = True
    seed: int = 0
    dtype: str = "float64"
    is_numeric: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise OptionError(f"widths must be two whole numbers >= 1 or more, got {self.widths}")
        if self.batch % self.gpus:
            raise OptionError(f"batch must divide among {self.gpus} GPUs, got {self.batch}")

    @property
    def layers(self) -> int:
        """Count of layers."""
        return len(self.widths) - 1

    def first_weights(self) -> list[np.ndarray]:
        """The first weights of each layer, (d_in, d_out); zeros where no numbers are computed."""
        pairs = list(zip(self.widths[:-1], self.widths[1:], strict=True))
        if not self.is_numeric:
            return [np.zeros(pair) for pair in pairs]
        random = stream(self.seed, "weights")
        return [random.standard_normal((one, other)) / np.sqrt(one) for one, other in pairs]

    def data(self, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """A batch: (batch, d_in) numbers, and a class for each row; zeros without numbers."""
        if not self.is_numeric:
            return np.zeros((self.batch, self.widths[0])), np.zeros(self.batch)
        random = stream(self.seed, "batch", iteration)
        rows = random.standard_normal((self.batch, self.widths[0]))
        return rows, random.integers(0, self.widths[-1], self.batch).astype(float)

    def run(self, engine: DependencyEngine, iterations: int = 1) -> list[np.ndarray]:
        """Push so many iterations and wait for them.

        Returns: the CPU's weights, for each layer; zeros where no numbers are computed.

        Raises:
            OptionError: the engine's cluster has fewer workers than `gpus`.
        """
        if engine.cluster.workers < self.gpus:
            raise OptionError(
                f"the engine must have {self.gpus} workers, a GPU each, got "
                f"{engine.cluster.workers}; try load_cluster(..., workers={self.gpus})"
            )
        program = _Program(self, engine)
        for iteration in range(iterations):
            program.push_iteration(*self.data(iteration))
        engine.wait_for_all()
        if not self.is_numeric:
            return [np.zeros(each[CPU].known_shape) for each in program.weight]
        return [each[CPU].numpy() for each in program.weight]


class _Program:
    """The statements of the case study."""

    def __init__(self, study: CaseStudy, engine: DependencyEngine) -> None:
        self._study, self._engine = study, engine
        arrays = Arrays(engine, dtype=study.dtype, is_numeric=study.is_numeric)
        layers = range(1, study.layers + 1)

        def named(form: str) -> list[Named]:
            return arrays.new(*(form.format(layer) for layer in layers))

        self._data, self._label = arrays.new("data", "label")
        least = np.min_scalar_type(-study.widths[-1])
        self._whole = np.promote_types(f"i{arrays.dtype.itemsize}", least)
        self.weight, self._output = named("fc{}_weight"), named("fc{}")
        self._ograd, self._wgrad = named("fc{}_ograd"), named("fc{}_wgrad")
        for weight, first in zip(self.weight, study.first_weights(), strict=True):
            weight[CPU] = first
            weight[CPU].copyto(*(weight[gpu] for gpu in range(study.gpus)))

    def push_iteration(self, data: np.ndarray, label: np.ndarray) -> None:
        """Push the passes and updates of one batch."""
        study, share = self._study, self._study.batch // self._study.gpus
        self._data[CPU], self._label[CPU] = data, label.astype(self._whole)
        for gpu in range(study.gpus):
            self._data[gpu].copyfrom(self._data[gpu * share : (gpu + 1) * share])
        for gpu in range(study.gpus):
            self._push_passes(gpu, slice(gpu * share, (gpu + 1) * share))
        if not study.has_overlap:
            self._engine.wait_for_all()
        for layer in reversed(range(study.layers)):
            self._push_update(layer)
        if not study.has_overlap:
            self._engine.wait_for_all()

    def _push_passes(self, gpu: int, rows: slice) -> None:
        last = self._study.layers - 1
        before = self._data
        for output, weight in zip(self._output, self.weight, strict=True):
            output[gpu] = fullc_forward(before[gpu], weight[gpu])
            before = output
        self._ograd[last][gpu] = loss_gradient(self._output[last][gpu], self._label[rows])
        for layer in range(last, -1, -1):
            to_data, to_weight = fullc_backward(self._ograd[layer][gpu], self.weight[layer][gpu])
            if layer:
                self._ograd[layer - 1][gpu] = to_data
            self._wgrad[layer][gpu] = to_weight

    def _push_update(self, layer: int) -> None:
        study, weight, gradient = self._study, self.weight[layer], self._wgrad[layer]
        gpus = range(study.gpus)
        if study.gpus > 1:
            gradient[CPU] = summed(*(gradient[gpu] for gpu in gpus))
        else:
            gradient[0].copyto(gradient[CPU])
        weight[CPU] -= study.learning_rate * (gradient[CPU] if study.uses_sum else gradient[0])
        weight[CPU].copyto(*(weight[gpu] for gpu in gpus))
