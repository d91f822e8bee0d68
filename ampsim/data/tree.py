"""A binary tree as arrays: what a model of trees needs of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ampsim.data.ptb import Bracketed
from ampsim.data.vocabulary import Vocabulary, frozen

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
