"""Texts in cells of CSV: what a spreadsheet would take for a formula has an apostrophe before it.

A spreadsheet computes a cell that begins with `=`, `+`, `-` or `@`, or with white space before
them, whoever wrote its text. Numbers are left as they are. A text that begins with an apostrophe
gets another one, so that taking the first one away gives back every text.

Source: OWASP, "CSV Injection", for the characters.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "'"
_FIRST: Final = (*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are wide


def to_cell(text: str) -> str:
    """The text of a cell that is no formula.

    >>> to_cell("=1+1"), to_cell("rnn"), to_cell("'a")
    ("'=1+1", 'rnn', "''a")
    """
    return MARK + text if text.startswith((*_FIRST, MARK)) else text


def from_cell(cell: str) -> str:
    """The text that `to_cell` made a cell of.

    >>> from_cell("'=1+1"), from_cell("rnn"), from_cell("''a")
    ('=1+1', 'rnn', "'a")
    """
    return cell.removeprefix(MARK)
