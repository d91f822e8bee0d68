"""Reader of tagged sentences: one a line, `word|TAG` parted by spaces.

A word may hold a `|` itself: the last one of a token is what parts it from its tag.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ampsim.data.content import read_lines
from ampsim.errors import FileFormatError


class Tagged(NamedTuple):
    """A sentence: its words, and as many tags."""

    words: list[str]
    tags: list[str]


def read_tagged(path: str | os.PathLike[str]) -> list[Tagged]:
    """The sentences of a file, plain or packed; blank lines are skipped.

    Raises:
        FileFormatError: the file cannot be read or is empty, or a token lacks its word or tag.
    """
    return [_parse(line, f"{path}: line {number}") for number, line in read_lines(path)]


def _parse(line: str, where: str) -> Tagged:
    tokens = [token for token in line.rstrip("\r").split(" ") if token]
    pairs = [token.rpartition("|") for token in tokens]
    for token, (word, _, tag) in zip(tokens, pairs, strict=True):
        if not (word and tag):
            raise FileFormatError(f"{where}: expected word|TAG, got {token!r}")
    return Tagged([word for word, _, _ in pairs], [tag for _, _, tag in pairs])
