"""Sentiment trees: binary trees of phrases, read from the Treebank's files or drawn.

Source: Socher et al. 2013; AMPNet, Appendix B.3: 8,544 trees for training, 1,101 for validation, an
accuracy over all nodes. How trees of other forms become binary stands in `ampsim.data.ptb`. Chosen:
words are taken as they are written, upper and lower case apart, as GloVe's larger files have them;
the vocabulary is that of all training trees, whatever `train_count` says, and a word that is not in
it counts as unknown. A tree is one instance.

The synthetic set: words of sentiment -2..2 and a word of negation in random binary trees. A branch
whose left child is the negation has the opposite sentiment of its right child; any other has the
sum of its children, within -2..2. The label is the sentiment plus 2.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ampsim.arguments import checked
from ampsim.data.content import once
from ampsim.data.dataset import Split, limit, order, pick
from ampsim.data.ptb import Bracketed, read_trees
from ampsim.data.registry import DATASETS, find_file
from ampsim.data.vocabulary import Vocabulary, frozen
from ampsim.options import Count, Seed, require_room
from ampsim.rng import stream

if TYPE_CHECKING:
    from jaxtyping import Int


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A binary tree with a label at every node; all arrays are read-only `intp`.

    Nodes are numbered so that children come before their parents: leaves 0..L-1 in the order of
    the text, then branches from the bottom up; the root is the last. Branch k is node L + k.

    Args:
        words: id of each leaf's word.
        labels: of each node.
        left: first child of each branch.
        right: second child of each branch.
        parent: of each node; -1 for the root.
    """

    words: Int[np.ndarray, " leaves"]
    labels: Int[np.ndarray, " nodes"]
    left: Int[np.ndarray, " branches"]
    right: Int[np.ndarray, " branches"]
    parent: Int[np.ndarray, " nodes"]

    @classmethod
    def of(cls, tree: Bracketed, vocabulary: Vocabulary) -> Tree:
        """The arrays of a tree as it was read."""
        labels, left, right = (np.array(one, np.intp) for one in tree[1:])
        parent = np.full(len(labels), -1, np.intp)
        parent[left] = parent[right] = np.arange(len(tree.words), len(labels))
        arrays = (frozen(one) for one in (labels, left, right, parent))
        return cls(vocabulary.encode(tree.words), *arrays)

    @property
    def rows(self) -> int:
        """How many items an instance counts for: a tree is one."""
        return 1

    @property
    def leaves(self) -> int:
        """How many words; there is one branch fewer."""
        return len(self.words)

    @property
    def nodes(self) -> int:
        """How many leaves and branches."""
        return len(self.labels)


LEAVES_MAX: Final = 12
NEGATION: Final = "not"
WORDS: Final = {
    -2: ("awful", "terrible", "hateful", "dreadful"),
    -1: ("dull", "weak", "slow", "bland"),
    0: ("film", "the", "plot", "actors", "scene", "story", "and", "a"),
    1: ("good", "nice", "warm", "clever"),
    2: ("superb", "brilliant", "wonderful", "moving"),
}
"""Words of the synthetic trees by their sentiment."""


@dataclass(frozen=True, slots=True, eq=False)
class SentimentTrees:
    """The data set of the paper's Tree-LSTM; see the module for what it holds.

    >>> data = SentimentTrees.synthetic(seed=0, train_count=20, valid_count=5)
    >>> data.count("train"), sum(tree.rows for tree in data.batches("train", epoch=0, seed=0))
    (20, 20)
    """

    train: tuple[Tree, ...]
    valid: tuple[Tree, ...]
    vocabulary: Vocabulary

    @classmethod
    @checked
    def load(
        cls,
        folder: str | os.PathLike[str] | None = None,
        *,
        train_count: Count | None = None,
        valid_count: Count | None = None,
    ) -> SentimentTrees:
        """The real data set.

        Args:
            folder: the data folder; see `data_folder`.
            train_count: how many of the training trees, the first in the file; None for all.
            valid_count: the same of the validation trees.

        Raises:
            MissingDataError: a file is not there.
            FileFormatError: a file does not hold what it must.
            OptionError: a count is no whole number >= 1, or more than there are.
        """
        paths = (find_file("sst", part, folder) for part in ("train", "valid"))
        whole = _read(*paths)
        return cls(
            whole.train[: limit("train_count", train_count, len(whole.train))],
            whole.valid[: limit("valid_count", valid_count, len(whole.valid))],
            whole.vocabulary,
        )

    @classmethod
    @checked
    def synthetic(
        cls, seed: Seed, *, train_count: Count = 1_000, valid_count: Count = 200
    ) -> SentimentTrees:
        """A data set of the same form, drawn; a smaller one holds the first of a larger one.

        Raises:
            OptionError: a count is no whole number >= 1.
        """
        vocabulary = Vocabulary.of(
            [NEGATION, *(word for words in WORDS.values() for word in words)]
        )
        train = _draw(
            seed,
            "train",
            require_room("train_count", train_count, 1000),
        )
        valid = _draw(
            seed,
            "valid",
            require_room("valid_count", valid_count, 1000),
        )
        return cls(_arrays(train, vocabulary), _arrays(valid, vocabulary), vocabulary)

    @property
    def name(self) -> str:
        """Name as in reports and data folders."""
        return "sst"

    @property
    def description(self) -> str:
        """One line: what an item holds and what is to be told from it."""
        return DATASETS[self.name].description

    def count(self, split: Split) -> int:
        """How many trees a split has."""
        return len(pick(split, self.train, self.valid))

    def batch_count(self, split: Split) -> int:
        """How many instances `batches` gives: one for each tree."""
        return self.count(split)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Tree]:
        """Every tree of a split once; "train" shuffled anew in each epoch."""
        trees = pick(split, self.train, self.valid)
        return map(trees.__getitem__, order(split, len(trees), epoch=epoch, seed=seed))


@once
def _read(train_path: Path, valid_path: Path) -> SentimentTrees:
    train, valid = read_trees(train_path), read_trees(valid_path)
    vocabulary = Vocabulary.of(word for tree in train for word in tree.words)
    return SentimentTrees(_arrays(train, vocabulary), _arrays(valid, vocabulary), vocabulary)


def _arrays(trees: Iterable[Bracketed], vocabulary: Vocabulary) -> tuple[Tree, ...]:
    return tuple(Tree.of(tree, vocabulary) for tree in trees)


def _draw(seed: int, split: Split, count: int) -> Iterator[Bracketed]:
    random = stream(seed, f"sst.{split}")
    return (_draw_tree(random) for _ in range(count))


def _draw_tree(random: np.random.Generator) -> Bracketed:
    """A tree: neighbours are joined in a random order until one is left."""
    leaves = int(random.integers(1, LEAVES_MAX + 1))
    words, values = _draw_words(leaves, random)
    left: list[int] = []
    right: list[int] = []
    roots = list(range(leaves))
    while len(roots) > 1:
        place = int(random.integers(len(roots) - 1))
        first, second = roots[place : place + 2]
        is_negated = first < leaves and words[first] == NEGATION
        total = -values[second] if is_negated else values[first] + values[second]
        roots[place : place + 2] = [len(values)]
        values.append(max(-2, min(2, total)))
        left.append(first)
        right.append(second)
    return Bracketed(words, [value + 2 for value in values], left, right)


def _draw_words(count: int, random: np.random.Generator) -> tuple[list[str], list[int]]:
    """Words and their sentiments; the negation's own is 0."""
    words: list[str] = []
    values: list[int] = []
    kinds: list[int] = random.integers(7, size=count).tolist()
    choices: list[int] = random.integers(8, size=count).tolist()
    for kind, choice in zip(kinds, choices, strict=True):
        value = kind - 2 if kind < 5 else 0
        words.append(NEGATION if kind == 6 else WORDS[value][choice % len(WORDS[value])])
        values.append(value)
    return words, values
