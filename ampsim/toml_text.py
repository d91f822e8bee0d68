"""A writer for TOML 1.0: nested tables of strings, numbers, booleans and lists."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_toml(document: Mapping[str, Any]) -> str:
    """`document` as TOML text in the order of its keys.

    TOML has no null: a key whose value is None is left out, None in a list is written "none".
    Values of other types are written as their text.
    """
    return "".join(_table(document, ())).lstrip("\n")


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Lines of a table: first its own keys, then its subtables."""
    lines: list[str] = []
    below: list[str] = []
    for key, value in table.items():
        inner = (*path, str(key))
        if isinstance(value, Mapping):
            below += [f"\n[{_dotted(inner)}]\n", *_table(mapping(value), inner)]
        elif is_tables(value):
            for item in value:
                below += [f"\n[[{_dotted(inner)}]]\n", *_table(mapping(item), inner)]
        elif value is not None:
            lines.append(f"{_key(str(key))} = {_value(value)}\n")
    return [*lines, *below]


def is_tables(value: Any) -> bool:
    """Whether `value` is a list of one table and more and of nothing else."""
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


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(key) for key in path)


def _key(key: str) -> str:
    return key if _BARE_KEY.match(key) else _string(key)


def _value(value: Any) -> str:
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        known = {key: item for key, item in mapping(value).items() if item is not None}
        return f"{{ {', '.join(f'{_key(key)} = {_value(known[key])}' for key in known)} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_value(item) for item in sequence(value))}]"
    return _string("none" if value is None else str(value))


def _float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def _string(text: str) -> str:
    """A basic string; control characters and lone surrogates are written as escapes or replaced."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(_SHORT.get(c) or _character(c) for c in text) + '"'


def _character(c: str) -> str:
    return f"\\u{ord(c):04X}" if ord(c) < 0x20 or ord(c) == 0x7F else c
