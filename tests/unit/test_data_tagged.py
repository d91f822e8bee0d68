"""Reader of tagged sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampsim.data.wikiner import Tagged, read_tagged
from ampsim.errors import FileFormatError


def read(tmp_path: Path, text: str) -> list[Tagged]:
    path = tmp_path / "train.txt"
    path.write_bytes(text.encode())
    return read_tagged(path)


def test_a_token_is_split_at_its_last_bar(tmp_path: Path) -> None:
    assert read(tmp_path, "a|O ||||I-PER b|c|I-LOC\n") == [
        Tagged(["a", "|||", "b|c"], ["O", "I-PER", "I-LOC"])
    ]


def test_lines_may_end_as_on_other_systems_and_have_spaces_to_spare(tmp_path: Path) -> None:
    two = [Tagged(["a", "b"], ["O", "O"]), Tagged(["c"], ["O"])]
    for text in ("a|O  b|O \r\nc|O", "a|O\tb|O\t\nc|O", "\ufeffa|O b|O\nc|O"):
        assert read(tmp_path, text) == two
    with pytest.raises(
        FileFormatError, match="line 2: expected lines that end in a line feed, got"
    ):
        read(tmp_path, "d|O\na|O b|O\rc|O")


@pytest.mark.parametrize("token", ["word", "|O", "word|", "|", "word|O\xa0"])
def test_a_token_without_word_or_tag_is_refused_with_its_line(tmp_path: Path, token: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(tmp_path, f"a|O\na|O {token} b|O\n")
    assert str(caught.value).endswith(f"train.txt: line 2: expected word|TAG, got {token!r}")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="is empty"):
        read(tmp_path, "")


def test_words_with_parts_of_speech_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"train.txt: expected word\|TAG, got word\|POS"):
        read(tmp_path, "He|PRP|O met|VBD|O\nAnn|NNP|I-PER\n")
