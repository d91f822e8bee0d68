"""Words of reports: lists in sentences, Markdown, and names of files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ampsim.text import distinct

IN_FULL: Final = 200  # chosen: of a name or title where there is room for it, as in traces


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


def told_apart(names: Iterable[str], longest: int = 48) -> dict[str, str]:
    """Each name as of `plain`; shorter and numbered where unlike ones would be alike.

    >>> told_apart(["abcdeXfghij", "abcdeYfghij"], longest=10)
    {'abcdeXfghij': 'ab…ij', 'abcdeYfghij': 'ab…ij (2)'}
    """
    every = dict.fromkeys(names)
    cut = [plain(one, longest) for one in every]
    if len({*cut}) < len(cut):
        cut = distinct(plain(one, longest - 5) for one in every)
    return dict(zip(every, cut, strict=True))


def listed(names: Sequence[str]) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


_MEANINGFUL = frozenset("\\`*_{}[]|~$#!")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
LONGEST: Final = 400  # chosen: of a note, a cell or a user's text; enough for two sentences
PARAGRAPH: Final = 4000  # chosen: a verdict names up to a dozen rows, each with its time


def paragraph(text: object) -> str:
    """Escape sentences that ampsim wrote itself, with names that are short already."""
    return escape(text, PARAGRAPH)


def escape(text: object, longest: int = LONGEST) -> str:
    r"""`text` on one line, shown letter for letter by any Markdown reader, in a table cell too.

    >>> print(escape("<b> a|b *c*"))
    &lt;b&gt; a\|b \*c\*
    """
    line = plain(text, longest)
    marked = (f"\\{c}" if c in _MEANINGFUL else _ENTITIES.get(c, c) for c in line)
    return "".join(marked)


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[str],
    bold: Collection[int] = (),
) -> str:
    """A pipe table of plain texts, escaped; columns in `left` are aligned left, others right.

    Of the rows whose places are in `bold`, the first cell is bold.
    """
    sides = ["---" if heading in left else "---:" for heading in headings]
    lines = [[escape(heading) for heading in headings], sides]
    for place, row in enumerate(rows):
        cells = [escape(cell) for cell in row]
        lines.append([f"**{cells[0]}**", *cells[1:]] if place in bold else cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


_SLUG_LONGEST = 60  # chosen: file systems allow 255 bytes with prefix and suffix


def slug(name: str) -> str:
    """`name` as lower-case letters, digits, "-" and "_": no path, no hidden file, never empty.

    >>> slug("../../x"), slug("AMP, mak 8"), slug("<>")
    ('x', 'amp-mak-8', 'unnamed')
    """
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    words = re.sub(r"[^a-z0-9_]+", "-", ascii_only.lower()).strip("-_")
    return words[:_SLUG_LONGEST].rstrip("-_") or "unnamed"
