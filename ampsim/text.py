"""Texts for people and files: numbers, names, TOML, CSV, JSON and HTML.

CSV: a spreadsheet computes a cell that begins with `=`, `+`, `-` or `@`, or with white space before
them, whoever wrote its text. Numbers are left as they are. A text that begins with an apostrophe
gets another one, so that taking the first one away gives back the text. Control characters, and
those that turn the direction of writing, are written as escapes.

Source: OWASP, "CSV Injection", for the characters.
"""

from __future__ import annotations

import inspect
import math
import re
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from numbers import Real
from typing import Any, Final, cast

import tomli_w

_TEXT_MAX: Final = 60  # chosen: a message stays one line


def shown(value: Any) -> str:
    """A value in a few words.

    >>> shown("x"), shown(int), shown(len)
    ("'x'", 'the class int', 'the function len')
    """
    if isinstance(value, type):
        return f"the class {getattr(cast('object', value), '__name__', '?')}"
    if inspect.isroutine(value):
        return f"the function {getattr(value, '__name__', '?')}"
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return short(value)
    if isinstance(value, Real) or hasattr(value, "dtype"):
        return f"{type(value).__name__} {short(value)}"
    text, kind = short(value), type(value).__name__
    return text if text.startswith(kind) else f"{text} ({kind})"


def short(value: Any) -> str:
    """A value's repr, cut where it is long; never an exception."""
    try:
        text = " ".join(reprlib.repr(value).split())
    except Exception:  # a user's own __repr__
        return "what cannot be shown"
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


_BIDIRECTIONAL: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Characters that turn the direction of the text after them. Source: Unicode, UAX 9, table 4."""

_LAYOUT: Final = "\n\r\t"


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


def is_commanding(text: str) -> bool:
    r"""Tell whether a text has a character that commands what shows it, beside tabs and line ends.

    Those are the control characters, ESC among them, and what turns the direction of writing.
    Joiners and other characters that are not seen are parts of words and flags.

    >>> [is_commanding(text) for text in ("a\tb\n", "\x1b[2J", "\x9b", "\u202e")]
    [False, True, True, True]
    """
    if text.isprintable():
        return False
    return any(
        c in _BIDIRECTIONAL or (unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in _LAYOUT)
        for c in text
    )


def _shown(character: str) -> str:
    if unicodedata.category(character) == "Zs":  # a space of another width
        return " "
    return character.encode("unicode_escape").decode("ascii")


MARK: Final = "'"
_FIRST: Final = (*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are wide


def to_cell(text: str) -> str:
    """The text of a cell that is no formula.

    >>> to_cell("=1+1"), to_cell("rnn"), to_cell("'a")
    ("'=1+1", 'rnn', "''a")
    """
    if is_commanding(text):
        text = printable(text, keep="\t\r\n")
    return MARK + text if text.startswith((*_FIRST, MARK)) else text


_FAILED: Final = re.compile(r"(?:^|; )(?=\d+ of \d+ runs failed: )")


def note_with(note: str, more: str) -> str:
    """A row's note and more of it; why runs failed comes last, for its words may have a "; ".

    >>> note_with("3 of 3 runs failed: no x; did you mean y?", "off the clock")
    'off the clock; 3 of 3 runs failed: no x; did you mean y?'
    """
    parts = [more, note] if _FAILED.search(note) else [note, more]
    return "; ".join(filter(None, parts))


def parts_of_note(note: str) -> list[str]:
    """The parts of a row's note.

    >>> parts_of_note("late; best 9 %; 3 of 3 runs failed: no x; did you mean y?")
    ['late', 'best 9 %', '3 of 3 runs failed: no x; did you mean y?']
    """
    told, *failed = _FAILED.split(note, 1)
    return [one for one in (*told.split("; "), *failed) if one]


def finite(value: Any) -> Any:
    """Write None for numbers that JSON does not know, and text for keys.

    >>> finite({1: [float("nan"), 0.5, ("a", float("inf"))]})
    {'1': [None, 0.5, ['a', None]]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # any JSON
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]  # pyright: ignore[reportUnknownVariableType]  # any JSON
    return value


def to_toml(document: Mapping[str, Any]) -> str:
    r"""`document` as TOML text in the order of its keys.

    TOML has no null: a key whose value is None is left out, None in a list is written "none".
    Values of other types are written as their text; lone surrogates in it become "?". Characters
    that are not seen are written as escapes, which whoever reads them undoes.

    >>> print(to_toml({"name": "\u202ea"}), end="")
    name = "\u202ea"
    """
    text = tomli_w.dumps(_table(document))  # what is not ASCII stands in double quotes
    return text if text.isascii() else "".join(map(_seen, text))


def is_tables(value: Any) -> bool:
    """Tell whether `value` is a list of one table and more and of nothing else."""
    items = sequence(value)
    return bool(items) and all(isinstance(item, Mapping) for item in items)


def sequence(value: Any) -> list[Any]:
    """A list's items; none of what is no list, such as a string."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return []
    return list(cast("Sequence[Any]", value))


def mapping(value: Any) -> dict[str, Any]:
    """A table with its keys as strings."""
    return {str(key): item for key, item in value.items()}


def _table(table: Mapping[Any, Any]) -> dict[str, Any]:
    known = {key: value for key, value in table.items() if value is not None}
    return {_text(key): _plain(value) for key, value in known.items()}


def _plain(value: Any) -> Any:
    """Convert to what the library takes: a table, a list, a text, a number or a boolean."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, Mapping):
        return _table(cast("Mapping[Any, Any]", value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in sequence(value)]
    if isinstance(value, int | float):
        return value
    return _text("none" if value is None else value)


def _seen(character: str) -> str:
    """A character of TOML text, or the escape of one that is not seen."""
    if character.isprintable() or character in "\n\t":
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode("utf-8")


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


def marked(
    names: Sequence[str], values: Sequence[str], say: Callable[[str, str], str]
) -> list[str]:
    """The names, each with its value where namesakes have others and it is not empty.

    >>> marked(["amp", "amp", "pipeline"], ["1", "2", "2"], "{}, {} in flight".format)
    ['amp, 1 in flight', 'amp, 2 in flight', 'pipeline']
    """
    pairs = list(zip(names, values, strict=True))
    namesakes = Counter(name for name, _value in set(pairs))
    return [say(name, one) if one and namesakes[name] > 1 else name for name, one in pairs]


def distinct(names: Iterable[str]) -> list[str]:
    """The names, numbered where one comes again.

    >>> distinct(["amp", "amp"])
    ['amp', 'amp (2)']
    """
    found: list[str] = []
    for name in names:
        turn, candidate = 1, name
        while candidate in found:
            turn += 1
            candidate = f"{name} ({turn})"
        found.append(candidate)
    return found
