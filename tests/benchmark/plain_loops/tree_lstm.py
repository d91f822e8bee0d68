"""Sentiment trees: leaves as one matrix, branches one by one, a label at every node; Adam, 1e-3."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plain_loops.parts import (
    Adam,
    Layer,
    Table,
    lstm_backward,
    lstm_forward,
)

RATE = 1e-3


def gradient_of_one(logits, label):
    """The gradient of the cross-entropy of a single row, and the cross-entropy."""
    gradient = logits - logits.max()
    right = gradient[0, label]
    np.exp(gradient, out=gradient)
    total = gradient.sum()
    gradient /= total
    gradient[0, label] -= 1
    return gradient, math.log(total) - right


def loop(parameters):
    """What trains on one instance."""
    words = Table(parameters, "embedding", RATE)
    leaf, branch, classifier = (
        Layer(parameters, name, Adam, RATE) for name in ("leaf-lstm", "branch-lstm", "classifier")
    )

    def train(tree):
        count, leaves = len(tree.labels), len(tree.words)
        children = list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
        h, c, of_leaves = lstm_forward(leaf, words.weight[tree.words], ())
        hs = [h[i : i + 1] for i in range(leaves)]
        cs = [c[i : i + 1] for i in range(leaves)]
        kept = []
        for left, right in children:
            joined = np.concatenate([hs[left], hs[right]], axis=1)
            h, c, one = lstm_forward(branch, joined, (cs[left], cs[right]))
            hs.append(h)
            cs.append(c)
            kept.append(one)
        d_hs: list[Any] = []
        d_cs: list[Any] = [None] * count
        for h, label in zip(hs, tree.labels.tolist(), strict=True):
            gradient, _loss = gradient_of_one(classifier.forward(h), label)
            d_hs.append(classifier.backward(h, gradient))
        for place in range(count - leaves - 1, -1, -1):
            node = leaves + place
            d_joined, to_cells = lstm_backward(branch, kept[place], d_hs[node], d_cs[node])
            units = d_joined.shape[1] // 2
            left, right = children[place]
            d_hs[left] = d_hs[left] + d_joined[:, :units]
            d_hs[right] = d_hs[right] + d_joined[:, units:]
            d_cs[left], d_cs[right] = to_cells
        d_c = np.concatenate(d_cs[:leaves]) if kept else None
        d_words, _none = lstm_backward(leaf, of_leaves, np.concatenate(d_hs[:leaves]), d_c)
        for layer in (leaf, branch, classifier) if kept else (leaf, classifier):
            layer.update()
        words.update(tree.words, d_words)

    return train
