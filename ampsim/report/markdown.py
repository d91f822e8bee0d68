"""Markdown in which every character of a user's name stands for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ampsim.report.words import plain

_MEANINGFUL = frozenset("\\`*_{}[]|~$#!")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LONGEST = 400  # chosen: of a note or a cell; enough for two sentences
_PARAGRAPH = 4000  # chosen: a verdict names up to a dozen rows, each with its time


def paragraph(text: object) -> str:
    """As `escape`, of sentences that ampsim wrote itself, with names that are short already."""
    return escape(text, _PARAGRAPH)


def escape(text: object, longest: int = _LONGEST) -> str:
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
