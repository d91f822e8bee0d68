"""WikiNER: named entities in sentences, read from its files or drawn.

A word may hold a `|` itself: the last one of a token is what parts it from its tag.

Source: Nothman et al. 2013; AMPNet, Appendix B.5, and the DyNet benchmark suite that it follows
(Neubig et al. 2017): a word that occurs more than 5 times in the training sentences has a row of
its own, every other is read character by character, between two boundary marks. Chosen: the words
and characters known are those of all training sentences, whatever `train_count` says; tags are
those of both files, a closed list that no unknown can stand for. A sentence is one instance. The
whole `train.txt` is read where it is there, else `train-10k.txt`.

The synthetic set: sentences from templates, with names that are mostly rare and whose endings tell
what they name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.data.content import once, read_lines
from ampsim.data.dataset import Split, SplitFiles, drawn
from ampsim.data.vocabulary import Vocabulary, frozen
from ampsim.errors import FileFormatError
from ampsim.options import Count, Seed
from ampsim.rng import stream
from ampsim.text import short

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


class Tagged(NamedTuple):
    """A sentence: its words, and as many tags."""

    words: list[str]
    tags: list[str]


def read_tagged(path: str | os.PathLike[str]) -> list[Tagged]:
    """The sentences of a file, plain or packed; blank lines are skipped.

    Raises:
        FileFormatError: the file cannot be read or is empty, a token lacks its word or tag, or all
            have a part of speech between these.
    """
    found = [_parse(line, f"{path}: line {number}") for number, line in read_lines(path)]
    if all("|" in word for sentence in found for word in sentence.words):
        raise FileFormatError(f"{path}: expected word|TAG, got word|POS|TAG; leave POS out")
    return found


def _parse(line: str, where: str) -> Tagged:
    tokens = [token for token in line.rstrip("\r").replace("\t", " ").split(" ") if token]
    pairs = [token.rpartition("|") for token in tokens]
    for token, (word, _, tag) in zip(tokens, pairs, strict=True):
        if not word or tag.split() != [tag]:
            raise FileFormatError(f"{where}: expected word|TAG, got {short(token)}")
    return Tagged([word for word, _, _ in pairs], [tag for _, _, tag in pairs])


FREQUENT_MIN: Final = 6
"""Occurrences from which on a word has a row of its own: more than 5, as in the paper."""

BOUNDARY: Final = "<w>"
"""Stands before the first character of a word and after the last."""

TEMPLATES: Final = (
    "PER lives in LOC .",
    "PER met PER near LOC .",
    "the river flows through LOC and LOC .",
    "ORG was founded by PER in LOC .",
    "the company ORG bought ORG last year .",
    "PER , who works for ORG , wrote a book .",
    "it rained all day and nobody came .",
    "in LOC the offices of ORG were closed .",
)
STARTS: Final = ("Al", "Bran", "Cor", "Dan", "Er", "Fal", "Gor", "Hal", "Is", "Jor", "Kel", "Lin")
MIDDLES: Final = ("", "a", "be", "di", "fo", "la", "mi", "no", "ra", "su", "ti", "vo")
ENDINGS: Final = {
    "PER": ("son", "ez", "ina"),
    "LOC": ("ville", "burg", "stadt"),
    "ORG": ("corp", "soft", "works"),
}
"""Last letters of the synthetic names by what they name."""


@dataclass(frozen=True, slots=True, eq=False)
class Sentence:
    """A sentence, a tag for each word; all arrays are read-only.

    Args:
        words: ids of the frequent words, 0 for all others.
        frequent: which words have a row of their own.
        characters: ids of each word's characters, `BOUNDARY` first and last; words that are equal
            share an array.
        tags: ids.
    """

    rows = 1  # items that an instance counts for
    words: Int[np.ndarray, " words"]
    frequent: Bool[np.ndarray, " words"]
    characters: tuple[Int[np.ndarray, " characters"], ...]
    tags: Int[np.ndarray, " words"]

    @property
    def length(self) -> int:
        """Count of words."""
        return len(self.tags)


@dataclass(frozen=True, slots=True, eq=False)
class WikiNer(SplitFiles[Sentence]):
    """The data set of the paper's tagger; see the module for what it holds.

    Args:
        train: sentences to learn from.
        valid: sentences to measure accuracy on.
        vocabulary: frequent words by id; 0 stands for all others.
        characters: known characters by id; 0 is the unknown, 1 `BOUNDARY`.
        tags: by id.

    >>> data = WikiNer.synthetic(seed=0, train_count=20, valid_count=5)
    >>> data.count("train"), data.tags
    (20, ('I-LOC', 'I-ORG', 'I-PER', 'O'))
    """

    name = "wikiner"
    train: tuple[Sentence, ...]
    valid: tuple[Sentence, ...]
    vocabulary: Vocabulary
    characters: Vocabulary
    tags: tuple[str, ...]

    @classmethod
    @once
    def read(cls, train_path: Path, valid_path: Path) -> WikiNer:
        """Read both files; words and characters are those of training, tags those of both."""
        train, valid = read_tagged(train_path), read_tagged(valid_path)
        words = [word for sentence in train for word in sentence.words]
        coder = _Coder(
            Vocabulary.of(words, min_count=FREQUENT_MIN),
            Vocabulary.of("".join(words), reserved=(BOUNDARY,)),
            tuple(sorted({tag for sentence in (*train, *valid) for tag in sentence.tags})),
        )
        return coder.dataset(train, valid)

    @classmethod
    @checked
    def synthetic(
        cls, seed: Seed, *, train_count: Count = 1_000, valid_count: Count = 200
    ) -> WikiNer:
        """A data set of the same form, drawn; a smaller one holds the first of a larger one.

        What is known are the words of the templates and the letters of the alphabet.

        Raises:
            OptionError: a count is no whole number >= 1.
        """
        plain = [word for line in TEMPLATES for word in line.split() if word not in ENDINGS]
        names = [*STARTS, *MIDDLES, *(end for ends in ENDINGS.values() for end in ends)]
        coder = _Coder(
            Vocabulary.of(plain),
            Vocabulary.of("".join(plain + names), reserved=(BOUNDARY,)),
            (*sorted(f"I-{kind}" for kind in ENDINGS), "O"),
        )
        return coder.dataset(*drawn(partial(_draw, seed), train_count, valid_count, 1000))


@dataclass(frozen=True, slots=True)
class _Coder:
    vocabulary: Vocabulary
    characters: Vocabulary
    tags: tuple[str, ...]

    def dataset(self, *parts: Iterable[Tagged]) -> WikiNer:
        spelled: dict[str, np.ndarray] = {}
        numbers = {tag: number for number, tag in enumerate(self.tags)}
        train, valid = (
            tuple(self._sentence(one, numbers, spelled) for one in part) for part in parts
        )
        return WikiNer(train, valid, self.vocabulary, self.characters, self.tags)

    def _sentence(
        self, sentence: Tagged, numbers: dict[str, int], spelled: dict[str, np.ndarray]
    ) -> Sentence:
        for word in sentence.words:
            if word not in spelled:
                spelled[word] = self.characters.encode((BOUNDARY, *word, BOUNDARY))
        words = self.vocabulary.encode(sentence.words)
        return Sentence(
            words,
            frozen(words > 0),
            tuple(spelled[word] for word in sentence.words),
            frozen(np.array([numbers[tag] for tag in sentence.tags], np.intp)),
        )


def _draw(seed: int, split: Split, count: int) -> Iterator[Tagged]:
    random = stream(seed, f"wikiner.{split}")
    return (_draw_sentence(random) for _ in range(count))


def _draw_sentence(random: np.random.Generator) -> Tagged:
    words: list[str] = []
    tags: list[str] = []
    for token in TEMPLATES[random.integers(len(TEMPLATES))].split():
        words.append(_draw_name(token, random) if token in ENDINGS else token)
        tags.append(f"I-{token}" if token in ENDINGS else "O")
    return Tagged(words, tags)


def _draw_name(kind: str, random: np.random.Generator) -> str:
    parts = (STARTS, MIDDLES, MIDDLES, ENDINGS[kind])
    return "".join(part[random.integers(len(part))] for part in parts)
