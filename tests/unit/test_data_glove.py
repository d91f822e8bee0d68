"""Reader of word vectors."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, cast

import pytest

import ampsim
from ampsim.cli.options import make_model
from ampsim.data import Vocabulary, WordVectors, read_vectors
from ampsim.errors import FileFormatError
from ampsim.forecasting.making import RunMaker, entries_of
from ampsim.runs.task import RunPlan
from ampsim.study.simulation import RunOptions

WORDS = Vocabulary.of(["good", "good", "film", "at"])


def read(tmp_path: Path, text: str, width: int = 2) -> WordVectors:
    path = tmp_path / "glove.txt"
    path.write_text(text, encoding="utf-8")
    return read_vectors(path, WORDS, width)


def test_vectors_stand_at_the_ids_of_their_words(tmp_path: Path) -> None:
    vectors, found = read(tmp_path, "the 9 9\ngood 1 -2.5\nbad 7 7\nfilm 3e-1 4\ngood 8 8\n")
    assert vectors.tolist() == [[0, 0], [1, -2.5], [pytest.approx(0.3), 4], [0, 0]]
    assert found.tolist() == [False, True, True, False]


def test_a_word_with_spaces_in_it_is_none_of_the_vocabulary(tmp_path: Path) -> None:
    found = read(tmp_path, "good 1 1\nat name@domain.com 2 2\n").found
    assert not found[WORDS.ids["at"]]


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt.gz"
    path.write_bytes(gzip.compress(b"good 1 2\n"))
    assert read_vectors(path, WORDS, 2).vectors[1].tolist() == [1, 2]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(FileFormatError, match="is cut off"):
        read_vectors(path, WORDS, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the 1 2 3\n", "line 1: expected a word and 2 numbers, got 3 after the word"),
        ("the\n", "line 1: expected a word and 2 numbers, got 0 after the word"),
        ("the 1 2\ngood 1\n", "line 2: expected a word and 2 numbers, got 1 after the word"),
        ("the 1 2\ngood 1 2 3\n", "line 2: expected a word and 2 numbers, got 3"),
        ("the 1 2\ngood 1 x\n", "line 2: expected a finite number, got 'x'"),
        ("the 1 2\nfilm nan 1\n", "line 2: expected a finite number, got 'nan'"),
        ("the 1 2\n", "has none of the 4 words asked for; is it in GloVe's form?"),
        ("", "has none of the 4 words asked for"),
    ],
)
def test_what_is_no_vector_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FileFormatError, match=said):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be read: no such file"):
        read_vectors(tmp_path / "nothing", WORDS, 2)


def test_finished_runs_are_known_by_the_vectors_that_they_started_from(tmp_path: Path) -> None:
    """By the file's content: the last words of it are in no tree that a witness reads."""
    path, keys, executor = tmp_path / "glove.txt", list[str](), cast("Any", None)
    settings = ["data=synthetic", "hidden=2", "embedding=2", "words=40", f"vectors={path}"]
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    for last in (1, 2):
        path.write_text(f"good 1 -2.5\nmoving 7 {last}\n", encoding="utf-8")
        plan = RunPlan(make_model("tree_lstm", settings), cluster, RunOptions(instances=1))
        (row,) = entries_of(plan, [ampsim.Sequential()])
        keys.append(RunMaker(executor, None, None).known(row.task(0)).key)
    assert keys[0] != keys[1]
