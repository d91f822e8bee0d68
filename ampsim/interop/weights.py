"""Weights there and back: how the parameters of nodes lie in those of a PyTorch module.

PyTorch's linear layer has (out, in) where ours has (in, out); the gates of its LSTM are in the
order i, f, g, o, ours o, i, f, g, and its two weights lie below each other in ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

Arrays: TypeAlias = "Sequence[np.ndarray]"
Shapes: TypeAlias = "Sequence[tuple[int, ...]]"

OURS_OF_LSTM: Final = (3, 0, 1, 2)
"""Which of i, f, g, o each of o, i, f, g is."""

THEIRS_OF_LSTM: Final = (1, 2, 3, 0)


def _gates(weights: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Put the gates, which lie along the first axis, in another order."""
    cut = weights.reshape(len(order), -1, *weights.shape[1:])
    return cut[list(order)].reshape(weights.shape)


def _lstm_to_ours(arrays: Arrays) -> np.ndarray:
    return np.concatenate([_gates(one, OURS_OF_LSTM).T for one in arrays])


def _lstm_to_theirs(ours: np.ndarray, shapes: Shapes) -> list[np.ndarray]:
    parts = np.split(ours, [shapes[0][1]])
    return [_gates(part.T, THEIRS_OF_LSTM) for part in parts]


_WAYS: Final[
    dict[str, tuple[Callable[[Arrays], np.ndarray], Callable[[np.ndarray, Shapes], Arrays]]]
] = {
    "reshaped": (lambda arrays: arrays[0], lambda ours, shapes: [ours.reshape(shapes[0])]),
    "transposed": (lambda arrays: arrays[0].T, lambda ours, _shapes: [ours.T]),
    "lstm": (_lstm_to_ours, _lstm_to_theirs),
    "lstm-bias": (
        lambda arrays: _gates(arrays[0], OURS_OF_LSTM),
        lambda ours, _shapes: [_gates(ours, THEIRS_OF_LSTM)],
    ),
}
"""For each way in which numbers can lie: theirs to ours, and ours to theirs, of these shapes."""


@dataclass(frozen=True)
class Laid:
    """Which parameters of the module a parameter of a node is, and how they lie in it."""

    way: str
    names: tuple[str, ...]

    def ours(self, theirs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The node's, up to its shape."""
        return _WAYS[self.way][0]([theirs[name] for name in self.names])

    def theirs(self, ours: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """The module's, by their names."""
        parts = _WAYS[self.way][1](ours, [shapes[name] for name in self.names])
        return dict(zip(self.names, parts, strict=True))


Layout: TypeAlias = dict[str, Laid]
"""For each parameter of a node, without the node's name, how it lies."""
