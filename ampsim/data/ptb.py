r"""Reader of trees in Penn Treebank brackets with a label 0..4 at every node, one tree a line.

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
from typing import Final, NamedTuple

from ampsim.data.content import read_lines
from ampsim.errors import FileFormatError
from ampsim.text import short

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
    """A binary tree: leaves 0..L-1 in the order of the text, then branches, children first.

    Args:
        words: of the leaves.
        labels: of all nodes.
        left: first child of each branch.
        right: second child of each branch.
    """

    words: list[str]
    labels: list[int]
    left: list[int]
    right: list[int]


class _Open:
    """A bracket that is not closed yet: its label and what has been found in it."""

    __slots__ = ("children", "has_word", "label", "node")

    def __init__(self, label: int) -> None:
        self.label = label
        self.children = 0
        self.has_word = False
        self.node = 0  # leaf i is i, branch k is ~k, until the number of leaves is known


class _Parser:
    """One tree while it is read."""

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
        """The whole tree."""
        if self.open:
            raise _Mistake(f"brackets are unbalanced: {len(self.open)} '(' are not closed")
        if not self.is_done:
            raise _Mistake("expected a tree, got nothing")
        leaves = len(self.words)
        left = [node if node >= 0 else leaves + ~node for node in self.left]
        right = [node if node >= 0 else leaves + ~node for node in self.right]
        return Bracketed(self.words, self.leaf_labels + self.branch_labels, left, right)


class _Mistake(Exception):
    """What is wrong with a line, before it is known which line it is."""


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
