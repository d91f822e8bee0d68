r"""Sentiment trees: binary trees of phrases, read from the Treebank's files or drawn.

Source: Socher et al. 2013; AMPNet, Appendix B.3: 8,544 trees for training, 1,101 for validation, an
accuracy over all nodes. Chosen: words are taken as they are written, upper and lower
case apart, as GloVe's larger files have them; the vocabulary is that of all training trees,
whatever `train_count` says, and a word that is not in it counts as unknown. A tree is one instance.

The synthetic set: words of sentiment -2..2 and a word of negation in random binary trees. A branch
whose left child is the negation has the opposite sentiment of its right child; any other has the
sum of its children, within -2..2. The label is the sentiment plus 2.

A file has a tree a line, in Penn Treebank brackets with a label 0..4 at every node:
`(3 (2 It) (4 works))` is a node of label 3 over two words. The tree that comes out is binary:

* A node over one node is left out; the node under it takes the label of the one above, which says
  the same of the same words.
* A node over more than two nodes is split from the left: `(L a b c)` becomes `(L (L a b) c)`. The
  node in between, which the file does not know, takes the label of its parent.
* `\/` and `\*` stand for `/` and `*`, `-LRB-` and its like for brackets, as in the original text.
* Only spaces and tabs part one thing from the next. Three words of the sentiment treebank, such as
  `8 1\/2`, hold a no-break space; who splits there meets three leaves with two words in each, and
  nodes that are not binary. Taken as one word each, all its trees are binary.

The parser keeps a stack of its own, so that depth is no limit.
"""

from __future__ import annotations

import os
import re
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
    from jaxtyping import Int


LABELS: Final = 5

_TOKEN: Final = re.compile(r"[()]|[^() \t\r]+")
_LABEL: Final = {str(label): label for label in range(LABELS)}
_BRACKETS: Final = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
}


class Bracketed(NamedTuple):
    """A binary tree: leaves 0..L-1 in the order of the text, then branches, children first."""

    words: list[str]  # of the leaves
    labels: list[int]  # of all nodes
    left: list[int]  # first child of each branch
    right: list[int]  # second child of each branch


class _Open:
    """A bracket that is not closed yet: its label and what has been found in it."""

    __slots__ = ("children", "has_word", "label", "node")

    def __init__(self, label: int) -> None:
        self.label = label
        self.children = 0
        self.has_word = False
        self.node = 0  # leaf i is i, branch k is ~k, until the number of leaves is known


class _Parser:
    """Builds one tree from the tokens of its line."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.leaf_labels: list[int] = []
        self.branch_labels: list[int] = []
        self.left: list[int] = []
        self.right: list[int] = []
        self.open: list[_Open] = []
        self.is_done = False

    def start(self, text: str) -> None:
        """Open a node of the label `text`."""
        if self.is_done:
            raise _Mistake(
                f"expected one tree, got a second from {short('(' + text)}; end the line before"
            )
        if text not in _LABEL:
            raise _Mistake(f"expected a label 0..{LABELS - 1} after '(', got {short(text)}")
        if self.open and self.open[-1].has_word:
            raise _Mistake(f"expected ')' after the word {short(self.words[-1])}, got '('")
        self.open.append(_Open(_LABEL[text]))

    def word(self, text: str) -> None:
        """Put a word into the open node."""
        if not self.open:
            raise _Mistake(f"expected '(' or the end of the line, got {short(text)}")
        node = self.open[-1]
        if node.children:
            raise _Mistake(f"expected '(' or ')' after a word or a node, got {short(text)}")
        node.children, node.has_word, node.node = 1, True, len(self.words)
        self.words.append(unescape(text))
        self.leaf_labels.append(node.label)

    def end(self) -> None:
        """Close the open node and put it into the one around it."""
        if not self.open:
            raise _Mistake("brackets are unbalanced: a ')' closes nothing")
        node = self.open.pop()
        if not node.children:
            raise _Mistake(f"a node of label {node.label} holds neither a word nor nodes")
        if node.children == 1 and not node.has_word:
            self._relabel(node.node, node.label)
        if not self.open:
            self.is_done = True
            return
        parent = self.open[-1]
        parent.node = self._join(parent, node.node) if parent.children else node.node
        parent.children += 1

    def _join(self, parent: _Open, right: int) -> int:
        self.left.append(parent.node)
        self.right.append(right)
        self.branch_labels.append(parent.label)
        return ~(len(self.left) - 1)

    def _relabel(self, node: int, label: int) -> None:
        if node >= 0:
            self.leaf_labels[node] = label
        else:
            self.branch_labels[~node] = label

    def result(self) -> Bracketed:
        """Return the whole tree."""
        if self.open:
            raise _Mistake(f"brackets are unbalanced: {len(self.open)} '(' are not closed")
        if not self.is_done:
            raise _Mistake("expected a tree, got nothing")
        leaves = len(self.words)
        left = [node if node >= 0 else leaves + ~node for node in self.left]
        right = [node if node >= 0 else leaves + ~node for node in self.right]
        return Bracketed(self.words, self.leaf_labels + self.branch_labels, left, right)


class _Mistake(Exception):
    """A line is wrong, and it is not yet known which line it is."""


def parse_tree(text: str, where: str = "tree") -> Bracketed:
    """The binary tree of one line.

    Args:
        text: of the line.
        where: what an error's line begins with.

    Raises:
        FileFormatError: brackets are unbalanced, a label is missing or outside 0..4, or a node has
            no word and no nodes, or several words.

    >>> parse_tree("(3 (2 It) (4 works))")
    Bracketed(words=['It', 'works'], labels=[2, 4, 3], left=[0], right=[1])
    """
    parser = _Parser()
    tokens = iter(_TOKEN.findall(text))
    try:
        for token in tokens:
            if token == "(":
                parser.start(next(tokens, "the end of the line"))
            elif token == ")":
                parser.end()
            else:
                parser.word(token)
        return parser.result()
    except _Mistake as mistake:
        raise FileFormatError(f"{where}: {mistake}") from None


def read_trees(path: str | os.PathLike[str]) -> list[Bracketed]:
    """The trees of a file, plain or packed, one a line; blank lines are skipped.

    Raises:
        FileFormatError: the file cannot be read or is empty, or a line is no tree (`parse_tree`).
    """
    lines = read_lines(path)
    return [parse_tree(line, f"{path}: line {number}") for number, line in lines]


def unescape(word: str) -> str:
    r"""The word as it stood in the text.

    >>> unescape("-LRB-"), unescape(r"co-writer\/director")
    ('(', 'co-writer/director')
    """
    if "\\" in word:
        word = word.replace("\\/", "/").replace("\\*", "*")
    return _BRACKETS.get(word, word)


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

    rows = 1  # items that an instance counts for
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
    def leaves(self) -> int:
        """Count of words; there is one branch fewer."""
        return len(self.words)

    @property
    def nodes(self) -> int:
        """Count of leaves and branches."""
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
class SentimentTrees(SplitFiles[Tree]):
    """The data set of the paper's Tree-LSTM; see the module for what it holds.

    >>> data = SentimentTrees.synthetic(seed=0, train_count=20, valid_count=5)
    >>> data.count("train"), sum(tree.rows for tree in data.batches("train", epoch=0, seed=0))
    (20, 20)
    """

    name = "sst"
    train: tuple[Tree, ...]
    valid: tuple[Tree, ...]
    vocabulary: Vocabulary

    @classmethod
    @once
    def read(cls, train_path: Path, valid_path: Path) -> SentimentTrees:
        """Read both files; the vocabulary is that of all training trees."""
        train, valid = read_trees(train_path), read_trees(valid_path)
        vocabulary = Vocabulary.of(word for tree in train for word in tree.words)
        return cls(_arrays(train, vocabulary), _arrays(valid, vocabulary), vocabulary)

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
        train, valid = drawn(partial(_draw, seed), train_count, valid_count, 1000)
        return cls(_arrays(train, vocabulary), _arrays(valid, vocabulary), vocabulary)


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
