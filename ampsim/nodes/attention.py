"""Attention: each query's mean of values, weighted by how its key fits."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Final, NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State, standin
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import Work, elementwise_work
from ampsim.nodes.arithmetic import unspread
from ampsim.nodes.elementwise import Masks, masked_work
from ampsim.options import Seed

OF_SOFTMAX: Final = ((7, 10), (5, 11))
"""Operations beside the products, and arrays of weights that they read and write: of a forward
step, and of a backward step to queries or keys."""


class _Attended(NamedTuple):
    """A forward step, kept for backward; without numbers, the three inputs alone."""

    inputs: list[Payload]
    weights: np.ndarray | None = None
    mask: np.ndarray | None = None


class Attention(CachingNode):
    """y = softmax(Q Kᵀ · scale) V, for each of the axes before the last two.

    Inputs: ``query`` (…, queries, width), ``key`` (…, keys, width), ``value`` (…, keys, columns),
    and, if it is masked, ``mask``, which is added to the products: (queries, keys), or with more
    axes before; output (…, queries, columns). Heads are an axis like any other. A query that sees
    no key gets 0. It has no parameters, so it is light: its two products count
    2·queries·keys·(width + columns) FLOP, which devices that charge light operations charge. An
    extent that an instance decides is taken for that of the largest payload.

    Source: A. Vaswani and others, "Attention is all you need", 2017, equation 1; the same function
    as PyTorch's `scaled_dot_product_attention`, dropout of the weights included.

    Args:
        name: the node's name.
        is_causal: whether query i is kept from keys after the i-th.
        is_masked: whether it has the input ``mask``; −∞ keeps a query from a key.
        scale: of the products; None for 1 / √width.
        dropout: probability of a weight to be dropped in training.
        seed: of the masks.

    Raises:
        GraphError: the dropout is not a number from 0 to below 1.
        OptionError: the seed is negative or no whole number.
    """

    inputs = ("query", "key", "value")
    keeps_state = True
    multiplies = True
    uncharged_port = 3  # a mask may lack axes, and be larger than all else
    _extents: Shape = ("queries", "keys", "width", "columns")

    @checked
    def __init__(
        self,
        name: str,
        *,
        is_causal: bool = False,
        is_masked: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
        seed: Seed = 0,
    ) -> None:
        self.inputs = (*Attention.inputs, "mask") if is_masked else Attention.inputs
        super().__init__(name)
        self._is_causal = is_causal
        self._scale = scale
        self._masks = Masks(name, dropout, seed) if dropout else None
        if not 0 <= dropout < 1:
            raise GraphError(f"{name}: dropout must be >= 0 and < 1, got {dropout}")

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send y once all inputs are there; record them and the softmax under the state."""
        inputs = self._arrived.put(port, state, payload)
        if inputs is None:
            return ()
        query, key, value, *masks = inputs
        if self.is_abstract:
            if self.is_training:
                self._saved[state] = _Attended(inputs)
            shape = (*query.shape[:-1], value.shape[-1])
            return ((0, state, standin(shape, query.itemsize)),)
        weights = query @ key.swapaxes(-1, -2)
        weights *= self._scale_of(query)
        if self._is_causal:
            hidden = ~np.tri(*weights.shape[-2:], dtype=bool)
            weights[..., hidden] = -np.inf
        for added in masks:
            weights += added
        lowest = np.finfo(weights.dtype).min  # where all is hidden
        weights -= weights.max(axis=-1, keepdims=True, initial=lowest)
        np.exp(weights, out=weights)
        weights /= np.maximum(weights.sum(axis=-1, keepdims=True), -1 / lowest)
        mask, used = None, weights
        if self._masks is not None and self.is_training:
            mask = self._masks.of(state, weights.shape, weights.dtype)
            used = weights * mask
        if self.is_training:
            self._saved[state] = _Attended(inputs, weights, mask)
        return ((0, state, used @ value),)

    def _scale_of(self, query: np.ndarray) -> float:
        return 1 / math.sqrt(query.shape[-1]) if self._scale is None else self._scale

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send query, key and value their gradients, as far as they are needed."""
        inputs, weights, mask = self._saved.pop(state)
        query, key, value = inputs[:3]
        needed = self.input_needs_gradient
        if gradient is None or weights is None:
            parts = [None if gradient is None else part for part in inputs]
            return [(i, state, part if needed[i] else None) for i, part in enumerate(parts)]
        to_query = to_key = to_value = to_mask = None
        if needed[2]:
            used = weights if mask is None else weights * mask
            to_value = used.swapaxes(-1, -2) @ gradient
        if needed[0] or needed[1] or needed[3:] == (True,):
            slopes = gradient @ value.swapaxes(-1, -2)
            if mask is not None:
                slopes *= mask
            slopes -= (slopes * weights).sum(axis=-1, keepdims=True)
            slopes *= weights
            to_mask = unspread(slopes, inputs[3].shape) if needed[3:] == (True,) else None
            slopes = slopes * self._scale_of(query)
            to_query = slopes @ key if needed[0] else None
            to_key = slopes.swapaxes(-1, -2) @ query if needed[1] else None
        parts = (to_query, to_key, to_value, to_mask)
        return [(i, state, part) for i, part in enumerate(parts[: len(inputs)])]

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count all inputs and the softmax; with dropout also the mask."""
        query, key = self._saved[state].inputs[:2]
        square = math.prod(query.shape[:-1]) * key.shape[-2] * self.element_bytes
        return taken_bytes + square * (1 if self._masks is None else 2)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count the products, two forward and one more for each gradient and that of the softmax.

        Of these, the products with queries and keys are of the width, those with values of the
        columns.
        """
        moved = elementwise_work(shape, self.element_bytes)
        if shape is None:
            return moved
        given = (shape[-2], shape[-2], shape[-1], shape[-1])
        queries, keys, width, columns = (
            own if isinstance(one, str) else one
            for one, own in zip(self._extents, given, strict=True)
        )
        rows = math.prod(shape[:-2])
        square = rows * queries * keys
        to_query, to_key, to_value = self.input_needs_gradient[:3]
        is_back, fits, means, times, written = direction is Direction.BACKWARD, 1, 1, 1, 0
        if is_back:
            times = int(to_query or to_key)
            fits, means = to_query + to_key, to_value + times
            written = (to_query * queries + to_key * keys) * width + to_value * keys * columns
        operations, arrays = (fits + means + times * one for one in OF_SOFTMAX[is_back])
        masks = sum(self.input_needs_gradient[3:]) if is_back else len(self.inputs[3:])
        operations += masks + 3 * (self._is_causal and not is_back)
        arrays += masks * (1 if is_back else 3)
        columns_of_products = fits * width + means * columns
        ends = rows * (queries + keys)
        work = Work(
            2 * square * columns_of_products,
            (ends * (width + columns) + rows * written) * self.element_bytes,
            operations,
            pass_bytes=(ends * columns_of_products + arrays * square) * self.element_bytes,
            functions=0 if is_back else square,
        )
        if self._masks is None or not self.is_training:
            return work
        mask = masked_work(square, self.element_bytes, direction)
        return reduce(add, [mask] * (to_value + times if is_back else 1), work)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (…, queries, width), (…, keys, width) and (…, keys, columns)."""
        query, key, value, *masks = known(shapes)
        fits = (
            len(query) >= 3
            and len(query) == len(key) == len(value)
            and query[:-2] == key[:-2] == value[:-2]
            and query[-1] == key[-1]
            and key[-2] == value[-2]
        )
        square = (*query[:-1], key[-2])
        for mask in masks:
            ends = zip(mask[::-1], square[::-1], strict=False)
            fits = fits and len(mask) <= len(square) and all(a in (b, 1) for a, b in ends)
        wanted = "(…, queries, width), (…, keys, width) and (…, keys, columns)"
        wanted += ", with a mask (queries, keys)" if masks else ""
        require(fits, self, wanted, query, key, value, *masks)
        self._extents = (*square[-2:], key[-1], value[-1])
        return ((*query[:-1], value[-1]),)
