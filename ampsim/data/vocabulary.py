"""Words, or characters, the whole numbers that stand for them, and vectors of words.

Vectors are read in the text form of GloVe: a word and its numbers a line.

Source: Pennington et al. 2014, nlp.stanford.edu/projects/glove. Some words of the largest file
have spaces in them: a line's last `width` fields are the numbers, what stands before is the word.
"""

from __future__ import annotations

import math
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.data.content import UNREADABLE, explain, open_content
from ampsim.errors import FileFormatError
from ampsim.files import expanded
from ampsim.options import require_room

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


UNKNOWN: Final = "<unk>"


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Words by their ids; id 0 is `UNKNOWN`, which every other word gets.

    Args:
        words: by id.
        ids: the inverse of `words`.

    >>> vocabulary = Vocabulary.of(["a", "b", "b"])
    >>> vocabulary.words, vocabulary.encode(["a", "b", "c"]).tolist()
    (('<unk>', 'b', 'a'), [2, 1, 0])
    """

    words: tuple[str, ...]
    ids: Mapping[str, int]

    @classmethod
    def of(
        cls, words: Iterable[str], *, min_count: int = 1, reserved: tuple[str, ...] = ()
    ) -> Vocabulary:
        """The vocabulary of a text: most frequent first, of equally frequent the first met.

        Args:
            words: of the text, in order.
            min_count: a word that occurs less often is unknown.
            reserved: words that stand after `UNKNOWN` whether they occur or not.
        """
        counts = Counter(words)
        first = (UNKNOWN, *reserved)
        frequent = [word for word, count in counts.most_common() if count >= min_count]
        known = (*first, *(word for word in frequent if word not in first))
        return cls(known, {word: number for number, word in enumerate(known)})

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> Int[np.ndarray, " words"]:
        """Ids of words, 0 for the unknown; the array is read-only."""
        get = self.ids.get
        return frozen(np.array([get(word, 0) for word in words], np.intp))


def frozen(array: np.ndarray) -> np.ndarray:
    """Make an array read-only, and return it."""
    array.setflags(write=False)
    return array


SHOWN_MAX: Final = 40
"""How much of a wrong line an error shows; chosen, so that it stays one line."""

LINE_BYTES_MAX: Final = 1_000_000
"""What no line has; chosen: a hundred times a word and the numbers of the widest vectors."""


class WordVectors(NamedTuple):
    """Vectors of the words of a vocabulary, by id; both arrays are read-only.

    Args:
        vectors: float32; zeros for a word that the file does not have.
        found: which words the file has.
    """

    vectors: Float[np.ndarray, "words width"]
    found: Bool[np.ndarray, " words"]


@checked
def read_vectors(path: str | os.PathLike[str], vocabulary: Vocabulary, width: int) -> WordVectors:
    """The vectors of a vocabulary's words; the file may be packed, and larger than the memory.

    Only the first line and those of the vocabulary's words are looked at closely. A word's first
    line counts.

    Raises:
        FileFormatError: the file cannot be read, a line has not `width` finite numbers, or none of
            the words is in it.
        OptionError: `width` is no count, or such vectors would not fit into memory.
    """
    path = expanded(path)
    require_room("width", width, 4 * len(vocabulary))
    ids = {word.encode(): number for number, word in enumerate(vocabulary.words)}
    vectors = np.zeros((len(vocabulary), width), np.float32)
    found = np.zeros(len(vocabulary), np.bool_)
    try:
        with open_content(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), 1):
                if len(line) == LINE_BYTES_MAX:
                    raise FileFormatError(
                        f"{path}: line {number}: expected fewer than {LINE_BYTES_MAX} bytes; is it "
                        "in GloVe's form?"
                    )
                line = line.removeprefix(BOM_UTF8) if number == 1 else line
                word, _, rest = line.rstrip().partition(b" ")
                row = ids.get(word, -1)
                if number > 1 and (row < 0 or found[row] or _goes_on(rest, width)):
                    continue
                values = _numbers(rest, width, f"{path}: line {number}")
                if row >= 0:
                    vectors[row], found[row] = values, True
    except (*UNREADABLE, OSError) as error:
        raise explain(path, error) from error
    if not found.any():
        raise FileFormatError(
            f"{path}: has none of the {len(vocabulary)} words asked for; is it in GloVe's form?"
        )
    return WordVectors(frozen(vectors), frozen(found))


def _goes_on(rest: bytes, width: int) -> bool:
    """Tell whether a word goes on after a space: its first part alone is in the vocabulary."""
    fields = rest.split(b" ")
    return len(fields) > width and _number(fields[0]) is None


def _numbers(rest: bytes, width: int, where: str) -> list[float]:
    fields = rest.split(b" ") if rest else []
    if len(fields) != width:
        raise FileFormatError(
            f"{where}: expected a word and {width} numbers, got {len(fields)} after the word"
        )
    values = [_number(field) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if value is None or not math.isfinite(value):
            shown = field[:SHOWN_MAX].decode("utf-8", "replace")
            raise FileFormatError(f"{where}: expected a finite number, got {shown!r}")
    return [value for value in values if value is not None]


def _number(field: bytes) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None
