"""Words, or characters, and the whole numbers that stand for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int

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
    """The same array, read-only from now on."""
    array.setflags(write=False)
    return array
