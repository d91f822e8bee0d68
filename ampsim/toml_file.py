"""Reading a file that a user writes: TOML into a record, and every mistake into one line.

Those of hardware and the recipes of reports are such files.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from ampsim.errors import FileFormatError, OptionError
from ampsim.files import read_limited
from ampsim.text import is_commanding, short, shown

SIZE_BYTES_MAX = 1_000_000
"""Largest file; chosen: a thousand times what one needs, so a larger one is a slip."""

Text = Annotated[str, Field(min_length=1)]
"""Text that says something."""


class _Told(type(BaseModel)):
    """Lets a record's constructor say what is wrong in one line, as its file would be told."""

    def __call__(cls, *given: Any, **values: Any) -> Any:
        if given:
            keys = ", ".join(cast("Any", cls).model_fields)
            raise OptionError(
                f"{cls.__name__} takes its values by name, such as {cls.__name__}(name=...), got "
                f"{shown(given[0])}; names: {keys}"
            )
        plain = {key: _plain(value) for key, value in values.items()}
        for fault in faults_of_values(plain):
            raise OptionError(f"{cls.__name__}: {fault}")
        try:
            return super().__call__(**plain)
        except ValidationError as error:
            record = cast("type[BaseModel]", cls)
            told = explain(error, record, is_file=False)
            raise OptionError(f"{cls.__name__}: {told}") from error


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's number; one that is masked is NaN, without NumPy's warning."""
    if type(value).__name__ == "MaskedConstant":
        return math.nan
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar and hasattr(value, "item") else value


class Record(BaseModel, metaclass=_Told):
    """Base of what is read from a file that a user writes.

    Booleans and strings are not numbers, infinity and NaN are not values, and a key that has no
    effect does not exist.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
    IN_PYTHON: ClassVar[str] = ""  # what it is there, and how one is made, for messages


class FileKind(NamedTuple):
    """The words for a kind of file, for messages where one is none.

    Args:
        noun: what it is, such as "hardware".
        least: a sentence on the least that it must hold.
    """

    noun: str
    least: str


INTEGER_MAX: Final = 2**63 - 1
"""Largest whole number of a file. Source: TOML 1.0, which demands no more."""

_RecordT = TypeVar("_RecordT", bound=BaseModel)

_BOUNDS = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("<=", "le"),
}
_EXPECTED = {
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "string_type": "text in quotes",
    "string_too_short": "text that is not empty",
    "too_short": "a list of at least one",
    "too_long": "a list of at most {max_length}",
    "model_type": "a table",
    "dict_type": "a table",
    "tuple_type": "a list or tuple",
    "bool_type": "true or false",
    "place": "a worker's index or 'host'",
}


_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
"""A key that TOML has without quotes."""


def read_table(path: Path, label: str, kind: FileKind) -> dict[str, Any]:
    """The table that a TOML file holds.

    Args:
        path: the file.
        label: what to call it in a message: the path as the user gave it.
        kind: what it should be.

    Raises:
        FileFormatError: it cannot be read, is no TOML, or is empty.
    """
    if os.path.isdir(path):
        raise FileFormatError(f"{label}: expected a .toml file, got a folder; name a file in it")
    noun = f"a {kind.noun} file"
    content = read_limited(path, label, size_bytes_max=SIZE_BYTES_MAX, noun=noun)
    table = parsed(content, label)
    if not table:
        raise FileFormatError(f"{label}: is empty; {kind.least}")
    for fault in faults_of_values(table):
        raise FileFormatError(f"{label}: {fault}")
    return table


def faults_of_values(value: Any, place: str = "") -> Iterator[str]:
    """Find values that no key may have: whole numbers beyond 64 bits, and control characters.

    Args:
        value: a table, a list or a plain value.
        place: of it in the file.
    """
    if isinstance(value, Mapping):
        for key, one in cast("Mapping[Any, Any]", value).items():
            if is_commanding(str(key)):
                yield f"a key must be text without control characters, got {short(str(key))}"
            name = str(key) if _BARE_KEY.fullmatch(str(key)) else short(str(key))
            yield from faults_of_values(one, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for index, one in enumerate(cast("list[Any]", value)):
            yield from faults_of_values(one, f"{place}[{index}]")
    elif isinstance(value, str) and is_commanding(value):
        yield f"{place} must be text without control characters, got {short(value)}; leave them out"
    elif type(value) is int and not -INTEGER_MAX <= value <= INTEGER_MAX:
        yield f"{place} must be a number that fits in 64 bits, got {short(value)}"


def validate(record: type[_RecordT], table: Mapping[str, Any], label: str) -> _RecordT:
    """The record that a table describes.

    Raises:
        FileFormatError: naming `label`, the key, what was expected, and the value that came.
    """
    try:
        return record.model_validate(table)
    except ValidationError as error:
        raise FileFormatError(f"{label}: {explain(error, record)}") from error


def explain(error: ValidationError, record: type[BaseModel], *, is_file: bool = True) -> str:
    """The most telling mistake of a record in one sentence; of a file, or of a call in Python.

    An unknown key comes first, because misspelling a required key also makes that one missing.
    """
    details = error.errors(include_url=False)
    found = min(details, key=lambda one: one["type"] != "extra_forbidden")
    inner = _record_at(record, found["loc"])
    if found["type"] == "model_type" and not is_file and issubclass(inner, Record):
        wanted = inner.IN_PYTHON or f"of class {inner.__name__}"
        return f"{_dotted(found['loc'])} must be {wanted}, got {short(found['input'])}"
    return _sentence(found, record)


def parsed(content: bytes, label: str, remedy: str = "write flat tables") -> dict[str, Any]:
    """TOML text as a table; a byte-order mark, which some editors write, is skipped.

    Raises:
        FileFormatError: it is none, or too deep, against which `remedy` helps.
    """
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{label}: expected UTF-8 text, got byte 0x{content[error.start]:02x} "
            f"at offset {error.start}; save it as UTF-8"
        ) from error
    except RecursionError as error:
        raise FileFormatError(f"{label}: is nested too deeply; {remedy}") from error
    except ValueError as error:
        # tomllib's own error, and int's for a number of thousands of digits.
        reason = " ".join(str(error).split())
        raise FileFormatError(f"{label}: is not valid TOML: {reason}") from error


def _sentence(detail: ErrorDetails, record: type[BaseModel]) -> str:
    """One pydantic error as what was expected, the value that came, and what to try."""
    kind, location, context = detail["type"], detail["loc"], detail.get("ctx", {})
    key, parent = _dotted(location), _dotted(location[:-1])
    if kind == "extra_forbidden":
        name = str(location[-1])
        told = _unknown_key(name, _keys_at(record, location[:-1]), parent)
        if parent and name in _keys_at(record, ()):
            told += f"; {name} of the whole file stands above the first table"
        return told
    if kind == "missing":
        return f"missing key {key!r}; add it{' to ' + parent if parent else ''}"
    got = f"got {short(detail['input'])}"
    if kind in _BOUNDS:
        sign, bound = _BOUNDS[kind]
        return f"{key} must be {sign} {context[bound]:g}, {got}"
    if kind == "literal_error":
        return f"{key} must be {context['expected']}, {got}"
    if kind == "float_type" and type(detail["input"]) is int:
        return f"{key} must be a number that fits in 64 bits, {got}"
    if kind == "list_type":
        single = str(location[-1]).removesuffix("s")
        is_near = single != location[-1] and single in _keys_at(record, location[:-1])
        hint = f"; did you mean [{single}]?" * (is_near and isinstance(detail["input"], Mapping))
        return f"{key} must be {_list_at(record, location)}, {got}{hint}"
    if kind == "int_type" and type(detail["input"]) is float and detail["input"].is_integer():
        write = f"; write {detail['input']:.0f}" if abs(detail["input"]) <= 2**53 else ""
        return f"{key} must be a whole number, {got}{write}"
    if kind in _EXPECTED:
        return f"{key} must be {_EXPECTED[kind].format(**context)}, {got}"
    return f"{key}: {detail['msg']}" if key else detail["msg"]


def _unknown_key(key: str, known: list[str], parent: str) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown key {key!r}{' in ' + parent if parent else ''}; {hint}"


def _dotted(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in location)[1:]


def _keys_at(record: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    fields = _record_at(record, location).model_fields
    return [field.alias or name for name, field in fields.items()]


def _list_at(record: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Describe a list at a place in the file."""
    holder = _record_at(record, location[:-1])
    is_of_tables = _record_of(holder, str(location[-1])) is not None
    return "a list of tables, each under double brackets" if is_of_tables else "a list in brackets"


def _record_at(record: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    for step in location:
        if isinstance(step, str):
            record = _record_of(record, step) or record
    return record


def _record_of(record: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The record in the annotation of a key, inside `| None` and `list[...]` too, if any."""
    fields = {field.alias or name: field for name, field in record.model_fields.items()}
    pending: list[Any] = [fields[key].annotation] if key in fields else []
    while pending:
        if isinstance(pending[-1], type) and issubclass(pending[-1], BaseModel):
            return pending[-1]
        pending.extend(getattr(pending.pop(), "__args__", ()))
    return None
