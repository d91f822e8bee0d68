"""The tagger's options, what it pumps, and sentences of rare words only."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import Sequential, load_cluster, load_model, simulate
from ampsim.data import Sentence, WikiNer
from ampsim.errors import OptionError
from ampsim.ir import Partition

SIZES = {"word_width": 8, "character_width": 3, "hidden": 5, "tanh_units": 4}

SENTENCE = Sentence(
    np.array([7, 0, 3, 0]),
    np.array([True, False, True, False]),
    (np.array([1, 5, 1]), np.array([1, 6, 7, 1]), np.array([1, 8, 1]), np.array([1, 1])),
    np.array([0, 1, 2, 0]),
)


def tagger(**options: Any) -> Any:
    return load_model("bilstm_tagger", **SIZES, data="synthetic", **options)


def parts(partition: Partition) -> list[list[int]]:
    return [partition.rows[cut].tolist() for cut in partition.cuts]


def pumped(sentence: Sentence) -> list[Any]:
    model = tagger()
    sends = model.pump(4, sentence)
    names = model.graph().nodes[0].outputs
    assert [port for port, _state, _payload in sends] == list(names)
    assert {state[0] for _port, state, _payload in sends} == {4}
    return sends


def test_a_sentence_is_pumped_in_reading_order_with_the_way_of_each_number():
    sends = pumped(SENTENCE)
    numbers, route, order, starts, start, tags = (payload for _port, _state, payload in sends)
    assert numbers.tolist() == [7, 1, 6, 7, 1, 3, 1, 1]
    assert parts(route) == [[0, 5], [1, 2, 3, 4, 6, 7]]
    assert parts(order) == [[0, 2], [1, 3]]
    assert (starts.shape, start.shape, tags.tolist()) == ((2, 8), (1, 10), [0, 1, 2, 0])
    assert sends[0][1] == (4, 4, (4, 2))


@pytest.mark.parametrize("field", ["words", "characters", "tags"])
def test_data_that_the_tables_do_not_hold_are_refused(field):
    data = WikiNer.synthetic(0, train_count=1, valid_count=1)
    needed = len(data.vocabulary if field == "words" else getattr(data, field))
    assert tagger(**{field: needed}).make_data(0, 3).count("train") == 3
    text = (
        f"bilstm_tagger: field {field!r}: the data has {needed}, but the model is made for "
        f"{needed - 1}; try --set {field}={needed}"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        tagger(**{field: needed - 1}).make_data(0, 3)


def test_halves_of_a_word_need_an_even_width():
    with pytest.raises(OptionError, match="field 'word_width': input should be a multiple of 2"):
        load_model("bilstm_tagger", word_width=7)


def test_nodes_that_meet_a_sentence_once_update_as_often_as_those_in_loops():
    model = tagger(min_update_interval=75)
    assert model.update_interval("word-forward") == 75
    assert model.update_interval("character-embedding") == 3
    assert tagger(min_update_interval=1).update_interval("tags") == 1


def test_a_sentence_of_rare_words_leaves_the_word_table_as_it_was():
    """Each schedule that updates after a sentence does so with no row at all."""
    rare = replace(
        SENTENCE, words=np.zeros(4, int), frequent=np.zeros(4, bool), tags=np.zeros(4, int)
    )
    data = replace(WikiNer.synthetic(0, train_count=1, valid_count=1), train=(rare,) * 3)
    model = replace(tagger(), make_data=lambda _seed, _count: data)
    before = model.parameters()
    after = simulate(model, load_cluster("tflops-1", workers=4), Sequential()).model.parameters()
    changed = {name.split(".")[0] for name in after if (before[name] != after[name]).any()}
    assert changed == {name.split(".")[0] for name in after} - {"word-embedding"}


@pytest.mark.slow
def test_it_learns_its_synthetic_data():
    result = simulate(
        load_model("bilstm_tagger", data="synthetic", learning_rate=1e-2),
        load_cluster("tflops-1", workers=16),
        Sequential(),
        epochs=2,
        instances=60,
    )
    assert result.epochs["accuracy"].iloc[-1] > 0.9
