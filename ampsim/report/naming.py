"""File names made of names that users chose, of letters that every file system accepts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_LONGEST = 60  # chosen: file systems allow 255 bytes with prefix and suffix


def slug(name: str) -> str:
    """`name` as lower-case letters, digits, "-" and "_": no path, no hidden file, never empty.

    >>> slug("../../x"), slug("AMP, mak 8"), slug("<>")
    ('x', 'amp-mak-8', 'unnamed')
    """
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    words = re.sub(r"[^a-z0-9_]+", "-", ascii_only.lower()).strip("-_")
    return words[:_LONGEST].rstrip("-_") or "unnamed"


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A slug per name, different ones for different names: the second "x" becomes "x-2".

    >>> slugs(["x", "../x"])
    {'x': 'x', '../x': 'x-2'}
    """
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        base = candidate = slug(name)
        turn = 1
        while candidate in found.values():
            turn += 1
            candidate = f"{base}-{turn}"
        found[name] = candidate
    return found
