"""Dropout: zeroes elements at random while training (Srivastava et al., 2014)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import Direction, Node, Payload, Sends, Shape, State, Work
from ampsim.ir.shapes import known
from ampsim.nodes.light import elementwise_work
from ampsim.nodes.masks import Masks
from ampsim.options import Seed


class Dropout(Node):
    """Inverted dropout: 0 with probability `rate`, else x / (1 − rate); identity in validation.

    The mask depends on seed, name and state alone, so that the order of messages does not change
    it. Instances are numbered through all epochs: each epoch has masks of its own.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, rate: float, seed: Seed, *, masks_of: str | None = None) -> None:
        """Drop with probability `rate`; have the masks of the node `masks_of` instead of its own.

        Raises:
            GraphError: the rate is not a number from 0 to below 1.
            OptionError: the seed is negative or no whole number.
        """
        self._masks = Masks(masks_of or name, rate, seed)
        super().__init__(name)
        self._saved: dict[State, np.ndarray | None] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the payload times its mask, and record the mask under the state."""
        if not self.is_training:
            return ((0, state, payload),)
        if self.is_abstract:
            self._saved[state] = None
            return ((0, state, payload),)
        mask = self._saved[state] = self._masks.of(state, payload.shape, payload.dtype)
        return ((0, state, payload * mask),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient times the mask."""
        mask = self._saved.pop(state)
        if gradient is None or mask is None:
            return ((0, state, gradient),)
        return ((0, state, gradient * mask),)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """The mask, as large as what it is for."""
        return taken_bytes

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once."""
        return elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()
