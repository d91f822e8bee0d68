"""The BiLSTM tagger with characters of the paper on WikiNER: a tag for each word of a sentence.

Source: AMPNet, Section 6 and Appendix B.5, after the "BiLSTM tagger w/ char model" of the DyNet
benchmark suite (Neubig et al. 2017b). An instance is a sentence.

The controller pumps a sentence as one list of numbers: of a frequent word its own, of a rare one
those of its characters. `Distribute` sends words and characters to their embeddings. Two LSTMs, one
in each direction, spell the rare words, each by itself; `Collect` puts the representations of all
words in order. Two more LSTMs read the sentence, and a layer of tanh units and a linear layer tell
the tags. The loops are nested in the states: `Ungroup` turns a sentence's state into that of a
character of a rare word, or of a word, `Group` turns it back, and for the LSTMs that read backward
both count from the other end.

What the paper leaves open, and what is chosen here:

* Sizes are the benchmark's. A rare word is spelled between two boundary marks.
* Cells are usual LSTMs; DyNet's couple input and forget gate and have peepholes. Embeddings start
  as DyNet's do, uniformly from ±√(6 / width), all else as PyTorch's. No noise on representations.
* A sentence's loss is the mean of its words' cross-entropies; accuracy is over words.
* Adam with a rate of 1e-3, constant; of embeddings it changes the rows looked up, as DyNet does.
* `min_update_interval` is 50 in the loops, two sentences' words, and 2 for nodes that meet a whole
  sentence. With 32 sentences in flight half as much was more stale and learned no better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import compress
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim.data import Sentence, WikiNer
from ampsim.errors import OptionError
from ampsim.ir import Cond, Graph, Isu, Partition, Phi, Pumped, Wire
from ampsim.nodes import (
    CellForm,
    Collect,
    Columns,
    Concat,
    Distribute,
    Embedding,
    Group,
    Linear,
    LSTMCell,
    SoftmaxCrossEntropy,
    Tanh,
    Ungroup,
    cell_adder,
)
from ampsim.optim import adam

WORDS_PER_SENTENCE = 25  # of WikiNER, on average
WHOLE = -1  # stands for the sentence, where a state tells what is read

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Config:
    """Options of the tagger.

    Args:
        word_width: numbers that represent a word; half of them are units of each character LSTM.
        character_width: numbers that represent a character.
        hidden: units of each word LSTM.
        tanh_units: units between the word LSTMs and the tags.
        words: rows of the word embedding; the data's frequent words are 4,651, one row is spare.
        characters: rows of the character embedding; the data has 263.
        tags: as many as the data has.
        learning_rate: of Adam.
        min_update_interval: gradients between updates under AMP, of nodes in loops.
        cell: "fused"; "composed" of single operations; or "by-gate", with a product for each gate.
        data: "wikiner", from files, or "synthetic", generated from the seed.
        folder: the data folder; empty for $AMPSIM_DATA, or the platform's cache folder.
        dtype: of parameters and activations.
    """

    word_width: Annotated[int, Field(ge=2, multiple_of=2)] = 128
    character_width: Count = 20
    hidden: Count = 50
    tanh_units: Count = 32
    words: Count = 4_652
    characters: Count = 263
    tags: Count = 9
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    min_update_interval: Count = 50
    cell: CellForm = "fused"
    data: Literal["wikiner", "synthetic"] = "wikiner"
    folder: str = ""
    dtype: Literal["float32", "float64"] = "float32"


class Text(NamedTuple):
    """State of a sentence: how many words it has, and how many characters each rare one.

    Where no word is rare, one of one character stands there; its payloads have no rows.
    """

    instance: int
    words: int
    spelled: tuple[int, ...]


class Reading(NamedTuple):
    """State in a loop: the sentence, a rare word of it or `WHOLE`, and a step of how many."""

    instance: int
    words: int
    spelled: tuple[int, ...]
    word: int
    step: int
    length: int


def more(state: Reading) -> str:
    """Whether another step follows."""
    return "again" if state.step + 1 < state.length else "last"


def moved(steps: int, state: Reading) -> Reading:
    """Count steps, or count them back."""
    return Reading(*state[:4], state.step + steps, state.length)


def mirrored(state: Reading) -> Reading:
    """Count from the other end."""
    return Reading(*state[:4], state.length - 1 - state.step, state.length)


@lru_cache(maxsize=256)
def spellings(spelled: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return word, place in the word, and its length for each of a sentence's characters."""
    return tuple((word, i, length) for word, length in enumerate(spelled) for i in range(length))


def to_character(state: Text, i: int) -> Reading:
    """Tag a character of a rare word."""
    return Reading(*state, *spellings(state.spelled)[i])


def to_rare_word(state: Text, word: int) -> Reading:
    """Tag what the character LSTMs start a word with."""
    return Reading(*state, word, 0, state.spelled[word])


def to_word(state: Text, i: int) -> Reading:
    """Tag a word of the sentence."""
    return Reading(*state, WHOLE, i, state.words)


def nth_rare_word(state: Reading) -> tuple[Text, int, int]:
    """Place a word that has been spelled among the rare ones."""
    return Text(*state[:3]), state.word, len(state.spelled)


def nth_word(state: Reading) -> tuple[Text, int, int]:
    """Place a word in the sentence."""
    return Text(*state[:3]), state.step, state.length


class Level(NamedTuple):
    """A pair of LSTMs: its widths, and how states become those of loops and of sentences again."""

    name: str
    width: int
    units: int
    tag: Callable[[Text, int], Reading]
    place: Callable[[Reading], tuple[Text, int, int]]
    rows: str
    cell: CellForm
    says_each: bool = False


def both_ways(graph: Graph, level: Level, read: Wire, start: Wire) -> Wire:
    """Add LSTMs in both directions; give what they say at each step, or at the last."""

    def tag_mirrored(state: Text, i: int) -> Reading:
        return mirrored(level.tag(state, i))

    def place_mirrored(state: Reading) -> tuple[Text, int, int]:
        return level.place(mirrored(state))

    units, said, add_cell = level.units, list[Wire](), cell_adder(graph, level.cell)
    ways = {"forward": (level.tag, level.place), "backward": (tag_mirrored, place_mirrored)}
    for direction, (tag, place) in ways.items():
        name = f"{level.name}-{direction}"
        each = graph.add(Ungroup(f"{name}-ungroup", tag, keep_axis=True), read)
        entry = Phi(f"{name}-phi", ("start", "again"))
        state = add_cell(LSTMCell(name, level.width, units), each, graph.add(entry, start))
        again, last = graph.branch(Cond(f"{name}-more", more, ("again", "last")), state)
        count = Isu(f"{name}-isu", partial(moved, 1), partial(moved, -1))
        graph.connect(graph.add(count, again), entry, "again")
        if level.says_each:
            last = graph.add(Phi(f"{name}-each", ("again", "last")), again, last)
        grouped = graph.add(Group(f"{name}-group", place, rows=level.rows), last)
        said.append(graph.add(Columns(f"{name}-output", 2 * units, 0, units), grouped))
    return graph.add(Concat(f"{level.name}-both", (units, units)), *said)


def table(name: str, rows: int, width: int) -> Embedding:
    """Make an embedding that starts as DyNet's do."""
    bound, shape = math.sqrt(6 / width), (rows, width)
    return Embedding(name, *shape, is_sparse=True, start=lambda g: g.uniform(-bound, bound, shape))


def tagger_graph(config: Config) -> Graph:
    """Build the graph."""
    width, narrow = config.word_width, config.character_width
    graph = Graph("bilstm_tagger")
    sentence, route, order, starts, start, tags = graph.controller(
        sentence=("numbers",),
        route=("numbers",),
        order=("words",),
        starts=("rare", width),
        start=(1, 2 * config.hidden),
        tags=("words",),
    )
    frequent, rare = graph.branch(Distribute("distribute", 2), sentence, route)
    known = graph.add(table("word-embedding", config.words, width), frequent)
    letters = graph.add(table("character-embedding", config.characters, narrow), rare)
    begun = graph.add(Ungroup("character-starts", to_rare_word, keep_axis=True), starts)
    level = Level("character", narrow, width // 2, to_character, nth_rare_word, "rare", config.cell)
    spelled = both_ways(graph, level, letters, begun)
    words = graph.add(Collect("collect", 2), known, spelled, order)
    level = Level("word", width, config.hidden, to_word, nth_word, "words", config.cell, True)
    both = both_ways(graph, level, words, start)
    hidden = graph.add(Linear("hidden", 2 * config.hidden, config.tanh_units), both)
    tanh = graph.add(Tanh("tanh"), hidden)
    logits = graph.add(Linear("tags", config.tanh_units, config.tags), tanh)
    graph.end(SoftmaxCrossEntropy("loss"), logits, tags)
    return graph


def two_ways(first: np.ndarray) -> Partition:
    """Send the rows that are marked one way, and all others the other."""
    return Partition((np.flatnonzero(first), np.flatnonzero(~first)), size=len(first))


def pump(config: Config, instance: int, sentence: Sentence) -> list[Pumped]:
    """Send a sentence: its numbers, the ways that they go, zeros to start from, and the tags."""
    numbers = [
        sentence.words[i : i + 1] if is_frequent else sentence.characters[i]
        for i, is_frequent in enumerate(sentence.frequent.tolist())
    ]
    spelled = tuple(map(len, compress(sentence.characters, ~sentence.frequent)))
    text = Text(instance, sentence.length, spelled or (1,))
    return [
        ("sentence", text, np.concatenate(numbers)),
        ("route", text, two_ways(sentence.frequent.repeat([len(one) for one in numbers]))),
        ("order", text, two_ways(sentence.frequent)),
        ("starts", text, np.zeros((len(spelled), config.word_width), config.dtype)),
        ("start", to_word(text, 0), np.zeros((1, 2 * config.hidden), config.dtype)),
        ("tags", text, sentence.tags),
    ]


def load(config: Config, seed: int, train_count: int | None) -> WikiNer:
    """Read or generate the data.

    Raises:
        OptionError: it has more words, characters or tags than the model has rows for.
    """
    counts = {} if train_count is None else {"train_count": train_count}
    if config.data == "synthetic":
        data = WikiNer.synthetic(seed, **counts)
    else:
        data = WikiNer.load(config.folder or None, **counts)
    known = {"words": data.vocabulary, "characters": data.characters, "tags": data.tags}
    for field, found in known.items():
        count, expected = len(found), getattr(config, field)
        if count > expected:
            raise OptionError(
                f"bilstm_tagger: field {field!r}: the data has {count}, but the model is made for "
                f"{expected}; try --set {field}={count}"
            )
    return data


def build(config: Config) -> ampsim.Model:
    """Build the model."""
    once_a_sentence = ("word-embedding", "character-embedding", "hidden", "tags")
    interval = max(1, round(config.min_update_interval / WORDS_PER_SENTENCE))
    return ampsim.Model(
        name="bilstm_tagger",
        config=config,
        make_graph=lambda: tagger_graph(config),
        make_data=partial(load, config),
        pump=partial(pump, config),
        optimizer=adam(config.learning_rate),
        target=0.94,
        min_update_interval=config.min_update_interval,
        node_update_intervals=dict.fromkeys(once_a_sentence, interval),
        dtype=config.dtype,
        items="sentences",
    )
