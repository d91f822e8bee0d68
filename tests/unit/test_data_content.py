"""Content of packed and plain files: every way in which one can be damaged, in one line."""

from __future__ import annotations

import gzip
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ampsim.data import Vocabulary, read_vectors
from ampsim.data.content import KEPT_MAX, LINE_LETTERS_MAX, once, read_bytes, read_lines
from ampsim.data.sentiment_trees import read_trees
from ampsim.data.wikiner import read_tagged
from ampsim.errors import FileFormatError

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
TEXT = b"first\nsecond\n" * 200


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(PACK[path.suffix](content))
    return path


@pytest.mark.parametrize("suffix", PACK)
def test_a_file_is_unpacked_by_its_suffix(tmp_path: Path, suffix: str) -> None:
    assert read_bytes(write(tmp_path / f"text{suffix}", TEXT)) == TEXT


@pytest.mark.parametrize("suffix", PACK)
def test_a_file_that_is_longer_than_any_is_not_read_to_its_end(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampsim.data.content.CONTENT_BYTES_MAX", len(TEXT) - 1)
    path = write(tmp_path / f"text{suffix}", TEXT)
    with pytest.raises(FileFormatError, match=r"expected at most \d+ bytes unpacked, got more; "):
        read_bytes(path)


READERS: dict[str, Callable[[Path], object]] = {
    "tagged": read_tagged,
    "trees": read_trees,
    "vectors": lambda path: read_vectors(path, Vocabulary.of(["a"]), 3),
}


@pytest.mark.parametrize(
    ("name", "text"), [("tagged", "a|O\n"), ("trees", "(3 a)\n"), ("vectors", "a 1 2 3\n")]
)
def test_a_mark_of_the_encoding_is_no_part_of_a_word(tmp_path: Path, name: str, text: str) -> None:
    path, found = tmp_path / "text", list[str]()
    for content in (text, "\ufeff" + text):
        path.write_text(content, encoding="utf-8")
        found.append(str(READERS[name](path)))
    assert found[0] == found[1]


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("line", ["x", "(", "(x", "(3 (2 ", "a b", "a|", "x" * 999 + " ", ") "])
def test_a_line_of_megabytes_is_not_told_whole(
    tmp_path: Path, read: Callable[[Path], object], line: str
) -> None:
    path = tmp_path / "text"
    path.write_text(line * (2_000_000 // len(line)))
    with pytest.raises(FileFormatError) as caught:
        read(path)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path, suffix: str, keep: float) -> None:
    path = write(tmp_path / f"text{suffix}", os.urandom(5000))
    path.write_bytes(path.read_bytes()[: int(5000 * keep)])
    with pytest.raises(FileFormatError, match=r"is cut off: its .* data ends too early; remove it"):
        read_bytes(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_file_that_is_not_packed_as_its_suffix_says_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(TEXT)
    with pytest.raises(FileFormatError, match=f"expected whole {suffix} data, got: "):
        read_bytes(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_parts_behind_each_other_are_all_read_and_what_is_none_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    part, path = PACK[suffix](TEXT), tmp_path / f"text{suffix}"
    path.write_bytes(part + part + b"\0" * 8)
    assert read_bytes(path) == TEXT + TEXT
    for behind in (b"something else", b"x" + part[1:]):
        path.write_bytes(part + behind)
        with pytest.raises(FileFormatError, match=f"expected whole {suffix} data, got: "):
            read_bytes(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_bit_that_fell_over_is_noticed(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"text{suffix}", os.urandom(5000))
    content = bytearray(path.read_bytes())
    content[2500] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=re.escape(f"{path}: expected whole {suffix} data")):
        read_bytes(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be read: no such file or directory"):
        read_bytes(tmp_path / "nothing.txt")


@pytest.mark.parametrize("suffix", PACK)
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(FileFormatError, match="is empty; remove it and fetch it again"):
        read_bytes(write(tmp_path / f"text{suffix}", b""))


def test_a_file_of_blank_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="is empty but for blank lines"):
        read_lines(write(tmp_path / "text", b"\n \r\n\n"))


def test_a_line_that_is_no_sentence_is_refused_and_the_longest_one_is_not(tmp_path: Path) -> None:
    longest = "a" * LINE_LETTERS_MAX
    assert read_lines(write(tmp_path / "text", longest.encode())) == [(1, longest)]
    path = write(tmp_path / "text", f"a\n{longest}a".encode())
    with pytest.raises(FileFormatError, match="line 2: expected a sentence, of at most 50000 let"):
        read_lines(path)


def test_lines_keep_their_numbers_when_blank_ones_are_skipped(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "text", b"a\n\nb")) == [(1, "a"), (3, "b")]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x0bd\u00a0e"
    assert read_lines(write(tmp_path / "text", text.encode())) == [(1, text)]


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "a\nb\ncaf\u00e9\n".encode("latin-1"))
    with pytest.raises(FileFormatError, match="line 3: expected UTF-8 text, got byte 0xe9"):
        read_lines(path)


def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "text", []

    def read(path: Path, what: str) -> bytes:
        calls.append(what)
        return path.read_bytes()

    remembered = once(read)
    path.write_bytes(b"1")
    assert remembered(path, "a") is remembered(path, "a")
    path.write_bytes(b"22")
    assert remembered(path, "a") == b"22"
    assert remembered(path, "b") == b"22"
    assert calls == ["a", "a", "b"]
    for number in range(KEPT_MAX):
        remembered(path, str(number))
    remembered(path, "a")
    assert calls.count("a") == 3
