"""Tagged sentences: LSTMs spell rare words, two more read the sentence, one row a step; Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.constant import constant
from plain_loops.parts import (
    Adam,
    Layer,
    Table,
    lstm_backward,
    lstm_forward,
    softmax_gradient,
)

RATE = 1e-3
NAMES = (
    *("character-forward", "character-backward", "word-forward", "word-backward"),
    *("hidden", "tags"),
)


def read(layer, rows):
    """One LSTM over rows, one at a time: h of each, and what is kept."""
    units = layer.weight.shape[1] // 4
    h = c = np.zeros((1, units), rows.dtype)
    hs, kept = [], []
    for place in range(len(rows)):
        joined = np.concatenate([rows[place : place + 1], h], axis=1)
        h, c, one = lstm_forward(layer, joined, (c,))
        hs.append(h)
        kept.append(one)
    return hs, kept


def read_back(layer, kept, d_hs, width):
    """The gradients of the rows; those of h may be None but at the end."""
    d_state, d_c = None, None
    d_rows: list[Any] = [None] * len(kept)
    for place in range(len(kept) - 1, -1, -1):
        d_h = d_hs[place]
        if d_state is not None:
            d_h = d_state if d_h is None else d_h + d_state
        d_joined, (d_c,) = lstm_backward(layer, kept[place], d_h, d_c)
        d_rows[place], d_state = d_joined[:, :width], d_joined[:, width:]
    return np.concatenate(d_rows)


class Network:
    """Layers of the network, and a step of each instance."""

    def __init__(self, parameters):
        self.words = Table(parameters, "word-embedding", RATE)
        self.characters = Table(parameters, "character-embedding", RATE)
        self.layers = [Layer(parameters, name, Adam, RATE) for name in NAMES]
        self.there, self.back, self.ahead, self.behind, self.hidden, self.tags = self.layers
        self.width, self.narrow = (table.weight.shape[1] for table in (self.words, self.characters))

    def spell(self, numbers):
        letters = self.characters.weight[numbers]
        hs, kept = read(self.there, letters)
        mirrored, kept_back = read(self.back, letters[::-1])
        return np.concatenate([hs[-1], mirrored[-1]], axis=1), (kept, kept_back)

    def spell_back(self, kept, d_word):
        d_last = [None] * (len(kept[0]) - 1)
        ways = zip(
            (self.there, self.back),
            kept,
            (d_word[:, : self.width // 2], d_word[:, self.width // 2 :]),
            strict=True,
        )
        d_letters, d_mirrored = (
            read_back(layer, one, [*d_last, d_h], self.narrow) for layer, one, d_h in ways
        )
        return d_letters + d_mirrored[::-1]

    def train(self, sentence):
        frequent, rare = np.flatnonzero(sentence.frequent), np.flatnonzero(~sentence.frequent)
        spelled = [self.spell(sentence.characters[word]) for word in rare.tolist()]
        rows = np.empty((len(sentence.tags), self.width), self.words.weight.dtype)
        rows[frequent] = self.words.weight[sentence.words[frequent]]
        if spelled:
            rows[rare] = np.concatenate([one for one, _kept in spelled])
        hs, kept = read(self.ahead, rows)
        mirrored, kept_back = read(self.behind, rows[::-1])
        both = np.concatenate([np.concatenate(hs), np.concatenate(mirrored)[::-1]], axis=1)
        bent = np.tanh(self.hidden.forward(both))
        gradient, _loss = softmax_gradient(self.tags.forward(bent), sentence.tags)
        slope = constant(1.0, bent.dtype) - bent * bent
        slope *= self.tags.backward(bent, gradient)
        d_both = self.hidden.backward(both, slope)
        units = d_both.shape[1] // 2
        d_ahead, d_behind = d_both[:, :units], d_both[::-1, units:]
        count = range(len(rows))
        d_rows = read_back(self.ahead, kept, [d_ahead[i : i + 1] for i in count], self.width)
        d_mirrored = read_back(
            self.behind, kept_back, [d_behind[i : i + 1] for i in count], self.width
        )
        d_rows += d_mirrored[::-1]
        if len(frequent):
            self.words.update(sentence.words[frequent], d_rows[frequent])
        else:
            self.words.rest()
        d_rare = d_rows[rare]
        d_letters = [
            self.spell_back(kept, d_rare[place : place + 1])
            for place, (_, kept) in enumerate(spelled)
        ]
        for layer in self.layers:
            layer.update()
        numbers = [sentence.characters[word] for word in rare.tolist()]
        if numbers:
            self.characters.update(np.concatenate(numbers), np.concatenate(d_letters))
        else:
            self.characters.rest()


def loop(parameters):
    """What trains on one instance."""
    return Network(parameters).train
