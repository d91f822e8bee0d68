"""Tagged sentences: LSTMs spell rare words, two more read the sentence, one row a step; Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from plain_loops.parts import (
    Adam,
    Layer,
    Table,
    lstm_backward,
    lstm_forward,
    softmax_gradient,
)

RATE = 1e-3
NAMES = ("character-forward", "character-backward", "word-forward", "word-backward")


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


def loop(parameters):
    """What trains on one instance."""
    words = Table(parameters, "word-embedding", RATE)
    characters = Table(parameters, "character-embedding", RATE)
    there, back, ahead, behind = [Layer(parameters, name, Adam, RATE) for name in NAMES]
    hidden, tags = (Layer(parameters, name, Adam, RATE) for name in ("hidden", "tags"))
    width, narrow = words.weight.shape[1], characters.weight.shape[1]
    half = width // 2

    def spell(numbers):
        letters = characters.weight[numbers]
        hs, kept = read(there, letters)
        mirrored, kept_back = read(back, letters[::-1])
        return np.concatenate([hs[-1], mirrored[-1]], axis=1), (kept, kept_back)

    def spell_back(kept, d_word):
        d_last = [None] * (len(kept[0]) - 1)
        ways = zip((there, back), kept, (d_word[:, :half], d_word[:, half:]), strict=True)
        d_letters, d_mirrored = (
            read_back(layer, one, [*d_last, d_h], narrow) for layer, one, d_h in ways
        )
        return d_letters + d_mirrored[::-1]

    def train(sentence):
        frequent, rare = np.flatnonzero(sentence.frequent), np.flatnonzero(~sentence.frequent)
        spelled = [spell(sentence.characters[word]) for word in rare.tolist()]
        rows = np.empty((len(sentence.tags), width), words.weight.dtype)
        rows[frequent] = words.weight[sentence.words[frequent]]
        if spelled:
            rows[rare] = np.concatenate([one for one, _kept in spelled])
        hs, kept = read(ahead, rows)
        mirrored, kept_back = read(behind, rows[::-1])
        both = np.concatenate([np.concatenate(hs), np.concatenate(mirrored)[::-1]], axis=1)
        bent = np.tanh(hidden.forward(both))
        gradient, _loss = softmax_gradient(tags.forward(bent), sentence.tags)
        slope = 1 - bent * bent
        slope *= tags.backward(bent, gradient)
        d_both = hidden.backward(both, slope)
        units = d_both.shape[1] // 2
        d_ahead, d_behind = d_both[:, :units], d_both[::-1, units:]
        count = range(len(rows))
        d_rows = read_back(ahead, kept, [d_ahead[i : i + 1] for i in count], width)
        d_mirrored = read_back(behind, kept_back, [d_behind[i : i + 1] for i in count], width)
        d_rows += d_mirrored[::-1]
        if len(frequent):
            words.update(sentence.words[frequent], d_rows[frequent])
        else:
            words.rest()
        d_rare = d_rows[rare]
        d_letters = [
            spell_back(kept, d_rare[place : place + 1]) for place, (_, kept) in enumerate(spelled)
        ]
        for layer in (ahead, behind, hidden, tags, there, back):
            layer.update()
        numbers = [sentence.characters[word] for word in rare.tolist()]
        if numbers:
            characters.update(np.concatenate(numbers), np.concatenate(d_letters))
        else:
            characters.rest()

    return train
