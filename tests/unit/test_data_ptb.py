"""Reader of bracketed trees: forms that are not binary, escapes, and every mistake in one line."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from ampsim.data.sentiment_trees import Bracketed, parse_tree, read_trees
from ampsim.errors import FileFormatError


def test_leaves_come_first_and_children_before_parents() -> None:
    tree = parse_tree("(3 (2 (1 a) (0 b)) (4 (2 c) (3 (1 d) (2 e))))")
    assert tree.words == ["a", "b", "c", "d", "e"]
    assert tree.labels == [1, 0, 2, 1, 2, 2, 3, 4, 3]
    assert (tree.left, tree.right) == ([0, 3, 2, 5], [1, 4, 6, 7])


def test_a_single_word_is_a_tree() -> None:
    assert parse_tree("(4 Yes)") == Bracketed(["Yes"], [4], [], [])


def test_a_node_over_one_node_is_left_out_and_gives_it_its_label() -> None:
    assert parse_tree("(3 (1 (0 a)))") == Bracketed(["a"], [3], [], [])
    assert parse_tree("(4 (3 (1 a) (0 b)))") == Bracketed(["a", "b"], [1, 0, 4], [0], [1])


def test_a_node_over_four_nodes_is_split_from_the_left_under_its_own_label() -> None:
    tree = parse_tree("(3 (0 a) (1 b) (2 c) (4 d))")
    assert tree == Bracketed(["a", "b", "c", "d"], [0, 1, 2, 4, 3, 3, 3], [0, 4, 5], [1, 2, 3])


def test_escapes_become_what_they_stand_for() -> None:
    tree = parse_tree(r"(2 (2 -LRB-) (2 (2 director\/co-writer) (2 (2 \*\*\*) (2 -RRB-))))")
    assert tree.words == ["(", "director/co-writer", "***", ")"]


def test_a_word_with_a_no_break_space_is_one_word() -> None:
    assert parse_tree("(2 (2 8\u00a01\\/2) (2 stars))").words == ["8\u00a01/2", "stars"]


def test_any_number_of_spaces_parts_things() -> None:
    assert parse_tree(" ( 3\t(2  It)(4 works ) )\r") == parse_tree("(3 (2 It) (4 works))")


def test_depth_is_no_limit() -> None:
    depth = 20_000
    tree = parse_tree("(2 (1 a) " * depth + "(3 b)" + ")" * depth)
    assert len(tree.words) == depth + 1
    assert len(parse_tree("(2 " * depth + "a" + ")" * depth).words) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(3 (2 It) (4 works)", r"brackets are unbalanced: 1 '\(' are not closed"),
        ("(3 (2 It) (4 works)))", r"brackets are unbalanced: a '\)' closes nothing"),
        ("(5 It)", r"expected a label 0..4 after '\(', got '5'"),
        ("(-1 It)", r"expected a label 0..4 after '\(', got '-1'"),
        ("((2 It) (4 works))", r"expected a label 0..4 after '\(', got '\('"),
        ("(", r"expected a label 0..4 after '\(', got 'the end of the line'"),
        ("(2 )", "a node of label 2 holds neither a word nor nodes"),
        ("(2 It works)", r"expected '\(' or '\)' after a word or a node, got 'works'"),
        ("(2 (2 It) works)", r"expected '\(' or '\)' after a word or a node, got 'works'"),
        ("(2 It (2 works))", r"expected '\)' after the word 'It', got '\('"),
        ("(2 It) (2 works)", r"expected one tree, got a second from '\(2'"),
        ("works", r"expected '\(' or the end of the line, got 'works'"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "train.txt.xz"
    path.write_bytes(lzma.compress(f"(2 fine)\n\n{line}\n(2 fine)\n".encode()))
    with pytest.raises(FileFormatError, match=f"train.txt.xz: line 3: {said}"):
        read_trees(path)


def test_no_text_is_no_tree() -> None:
    with pytest.raises(FileFormatError, match="tree: expected a tree, got nothing"):
        parse_tree(" ")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.touch()
    with pytest.raises(FileFormatError, match=r"train\.txt: is empty"):
        read_trees(path)
