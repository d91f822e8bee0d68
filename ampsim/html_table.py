"""A table of HTML for notebooks, in which every text is shown letter for letter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    caption: str, rows: Iterable[Sequence[str]], *, headings: Sequence[str] = (), note: str = ""
) -> str:
    """A small table: the first cell of each row names it, the others are values.

    Args:
        caption: over the table.
        rows: their cells.
        headings: over the columns; none if empty.
        note: below the table; none if empty.

    >>> html_table("a & b", [["x"]])
    '<table><caption>a &amp; b</caption><tbody><tr><th scope="row">x</th></tr></tbody></table>'
    """
    over = "".join(f'<th scope="col">{escape(text)}</th>' for text in headings)
    head = f"<thead><tr>{over}</tr></thead>" if over else ""
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(caption)}</caption>{head}<tbody>{body}</tbody></table>{below}"


def _cells(row: Sequence[str]) -> str:
    name, *values = row
    cells = "".join(f"<td>{escape(value)}</td>" for value in values)
    return f'<th scope="row">{escape(name)}</th>{cells}'
