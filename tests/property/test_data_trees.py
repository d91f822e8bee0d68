"""Trees: what is written in brackets is read back, and arrays are a tree, whatever its shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ampsim.data import Tree, Vocabulary
from ampsim.data.sentiment_trees import Bracketed, parse_tree
from ampsim.errors import FileFormatError

ESCAPES = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
LETTERS = st.characters(codec="utf-8", exclude_characters=" \t\r\n()\\", exclude_categories=("Cs",))
WORDS = st.one_of(
    st.sampled_from(sorted(ESCAPES)),
    st.text(LETTERS, min_size=1, max_size=6).filter(lambda word: word not in ESCAPES.values()),
)
LABELS = st.integers(0, 4)
LEAVES = st.tuples(LABELS, WORDS)


def nested(sizes: tuple[int, int]) -> st.SearchStrategy[Any]:
    """Trees as (label, word) or (label, [trees])."""
    low, high = sizes
    return st.recursive(
        LEAVES,
        lambda inner: st.tuples(LABELS, st.lists(inner, min_size=low, max_size=high)),
        max_leaves=30,
    )


BINARY, ANY = nested((2, 2)), nested((1, 4))


def write(tree: Any) -> str:
    label, content = tree
    if isinstance(content, str):
        text = ESCAPES.get(content, content.replace("/", "\\/").replace("*", "\\*"))
        return f"({label} {text})"
    return f"({label} {' '.join(map(write, content))})"


def words_of(tree: Any) -> list[str]:
    _, content = tree
    return [content] if isinstance(content, str) else [w for one in content for w in words_of(one)]


def rebuild(tree: Bracketed, node: int) -> Any:
    leaves = len(tree.words)
    if node < leaves:
        return tree.labels[node], tree.words[node]
    children = (tree.left[node - leaves], tree.right[node - leaves])
    return tree.labels[node], [rebuild(tree, child) for child in children]


@given(BINARY)
def test_a_binary_tree_is_read_as_it_was_written(tree: Any) -> None:
    read = parse_tree(write(tree))
    assert rebuild(read, len(read.labels) - 1) == tree


@given(ANY)
def test_any_tree_is_read_as_a_binary_one_of_the_same_words_and_root(tree: Any) -> None:
    read = parse_tree(write(tree))
    assert read.words == words_of(tree)
    assert read.labels[-1] == tree[0]
    assert len(read.left) == len(read.right) == len(read.words) - 1


@given(ANY)
def test_arrays_of_a_tree_are_a_tree(tree: Any) -> None:
    read = parse_tree(write(tree))
    made = Tree.of(read, Vocabulary.of(read.words))
    branches = np.arange(made.leaves, made.nodes)
    assert made.nodes == 2 * made.leaves - 1
    assert (made.left < branches).all()
    assert (made.right < branches).all()
    children = np.concatenate((made.left, made.right))
    assert sorted(children.tolist()) == list(range(made.nodes - 1))
    np.testing.assert_array_equal(made.parent[children], np.tile(branches, 2))
    assert made.parent[-1] == -1
    assert (made.words > 0).all()
    reached, spans = made.nodes - 1, {}
    for node in range(made.nodes):
        spans[node] = (node, node) if node < made.leaves else _joined(spans, made, node)
    assert spans[reached] == (0, made.leaves - 1)


def _joined(spans: dict[int, tuple[int, int]], tree: Tree, node: int) -> tuple[int, int]:
    """The words under a branch: its right child goes on where the left one ends."""
    left, right = spans[tree.left[node - tree.leaves]], spans[tree.right[node - tree.leaves]]
    assert left[1] + 1 == right[0]
    return left[0], right[1]


@given(st.text(st.sampled_from("()0123456789 ab"), max_size=30))
def test_any_text_is_a_tree_or_one_line_of_what_is_wrong(text: str) -> None:
    try:
        said = "here: " if parse_tree(text, "here").words else ""
    except FileFormatError as error:
        said = str(error)
    assert said.startswith("here: ")
    assert "\n" not in said
