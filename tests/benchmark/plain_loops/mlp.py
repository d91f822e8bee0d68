"""The perceptron: ReLUs between linear layers, SGD with a rate of 0.1."""

from __future__ import annotations

import numpy as np

from ampsim.constant import constant
from plain_loops.parts import Layer, Sgd, softmax_gradient


def forward(layers: list[Layer], x: np.ndarray, *, is_end: bool = True) -> list[np.ndarray]:
    """What each layer takes, and the result last; the end of the network has no ReLU."""
    taken = [x]
    for place, layer in enumerate(layers):
        y = layer.forward(taken[-1])
        is_last = is_end and place == len(layers) - 1
        taken.append(y if is_last else np.maximum(y, constant(0.0, y.dtype)))
    return taken


def backward(
    layers: list[Layer], taken: list[np.ndarray], gradient: np.ndarray, *, is_start: bool = True
) -> np.ndarray | None:
    """Gradients and updates from the end; gives that of the input, but not at the start."""
    for place in range(len(layers) - 1, -1, -1):
        layer, x = layers[place], taken[place]
        if place == 0 and is_start:
            layer.keep(x, gradient)
            layer.update()
            return None
        before = layer.backward(x, gradient)
        layer.update()
        gradient = before * (x > constant(0.0, x.dtype)) if place else before
    return gradient


def stack(parameters, names) -> list[Layer]:
    return [Layer(parameters, name, Sgd, 0.1) for name in names]


def loop(parameters):
    """What trains on one instance."""
    names = [one.removesuffix(".weight") for one in parameters if one.endswith(".weight")]
    layers = stack(parameters, names)

    def train(batch):
        taken = forward(layers, batch.images)
        gradient, _loss = softmax_gradient(taken[-1], batch.labels)
        backward(layers, taken, gradient)

    return train
