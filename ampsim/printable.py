"""Text of users on a terminal: what would command it is seen instead of obeyed."""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with control characters, and others that are not seen, written as escapes.

    Args:
        text: any.
        keep: characters that stay although they are not seen, such as the end of a line.

    >>> print(printable("\x1b[31mred\x9b \u202e\u00a0 a\n", keep="\n"), end="")
    \x1b[31mred\x9b \u202e  a
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _shown(c) for c in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) == "Zs":  # a space of another width
        return " "
    return character.encode("unicode_escape").decode("ascii")
