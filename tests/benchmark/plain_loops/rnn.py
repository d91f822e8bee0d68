"""List reduction: a ReLU network reads a bucket of lists token by token, Adam with 3e-3."""

from __future__ import annotations

import numpy as np

from ampsim.constant import constant
from plain_loops.parts import Adam, Layer, softmax_gradient

RATE = 3e-3


def loop(parameters):
    """What trains on one instance."""
    table = parameters["embedding.weight"] = parameters["embedding.weight"].copy()
    vocabulary, width = np.arange(len(table))[:, None], table.shape[1]
    zero = constant(0.0, table.dtype)
    step_table = Adam(table, RATE)
    recurrent, last = (Layer(parameters, f"linear-{place}", Adam, RATE) for place in (1, 2))

    def train(batch):
        tokens = batch.tokens
        embedded, taken = table[tokens], []
        h = np.zeros((tokens.shape[1], width), table.dtype)
        for x in embedded:
            joined = np.concatenate([h, x], axis=1)
            h = np.maximum(recurrent.forward(joined), zero)
            taken.append((joined, h))
        logits = last.forward(h)
        gradient, _loss = softmax_gradient(logits, batch.labels)
        d_h = last.backward(h, gradient)
        last.update()
        to_tokens = []
        for step in range(len(tokens) - 1, -1, -1):
            joined, h = taken[step]
            d_joined = recurrent.backward(joined, d_h * (h > zero))
            d_h = d_joined[:, :width]
            to_tokens.append(d_joined[:, width:])
        recurrent.update()
        one_hot = (vocabulary == tokens.reshape(-1)).astype(table.dtype)
        step_table.step(one_hot @ np.concatenate(to_tokens[::-1]))

    return train
