"""What a library that writes TOML leaves to us: missing values, NumPy scalars, lone surrogates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import tomli_w


def to_toml(document: Mapping[str, Any]) -> str:
    """`document` as TOML text in the order of its keys.

    TOML has no null: a key whose value is None is left out, None in a list is written "none".
    Values of other types are written as their text; lone surrogates in it become "?".
    """
    return tomli_w.dumps(_table(document))


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


def _table(table: Mapping[Any, Any]) -> dict[str, Any]:
    known = {key: value for key, value in table.items() if value is not None}
    return {_text(key): _plain(value) for key, value in known.items()}


def _plain(value: Any) -> Any:
    """What the library takes: a table, a list, a text, a number or a boolean."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, Mapping):
        return _table(cast("Mapping[Any, Any]", value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in sequence(value)]
    if isinstance(value, int | float):
        return value
    return _text("none" if value is None else value)


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode("utf-8")
