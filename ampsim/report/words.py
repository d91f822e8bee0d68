"""Names that users chose, as one short line of text."""

from __future__ import annotations

from collections.abc import Sequence


def plain(text: object, longest: int = 48) -> str:
    r"""A name as one line without control characters, shortened in the middle if it is too long.

    >>> plain("two\nlines"), plain("abcdefgh", longest=5)
    ('two lines', 'ab…gh')
    """
    words = "".join(c if c.isprintable() else " " for c in str(text)).split()
    line = " ".join(words)
    if len(line) <= longest:
        return line
    head = longest // 2
    return f"{line[:head]}…{line[len(line) - (longest - head - 1) :]}"


def listed(names: Sequence[str]) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
