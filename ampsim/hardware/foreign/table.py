"""Tables of foreign files, and the numbers in them."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple, cast

from ampsim.errors import FileFormatError
from ampsim.files import expanded, read_limited
from ampsim.text import printable, short

SIZE_BYTES_MAX = 16_000_000
"""Largest file; chosen: those of SimuMax with a factor for each shape have some 100 kB."""

NUMBER_MAX = 1e12
"""Largest number that is read, in TFLOP/s, GB/s or GiB; chosen, to catch a slip."""


class JsonTable(NamedTuple):
    """A table of a JSON file.

    Args:
        label: what to call the file in a message.
        path: where in the file the table is, such as "accelerator.op"; empty for the whole.
        content: its keys and values.
    """

    label: str
    path: str
    content: dict[str, Any]

    def at(self, key: str) -> str:
        """Where in the file a key of this table is."""
        return f"{self.path}.{printable(key)}" if self.path else printable(key)

    def table(self, key: str) -> JsonTable:
        """The table under a key."""
        value = self._value(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "a table", value)
        return JsonTable(self.label, self.at(key), cast("dict[str, Any]", value))

    def number(self, key: str) -> float:
        """The number under a key, above 0."""
        return self.checked(key, self._value(key), NUMBER_MAX)

    def fraction(self, key: str) -> float:
        """The number under a key, above 0 and at most 1."""
        return self.checked(key, self._value(key), 1.0)

    def checked(self, key: str, value: Any, most: float) -> float:
        """A value as a number above 0 and at most `most`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= most:  # which infinity and NaN are not
            raise self.wrong(key, f"a number above 0 and at most {most:g}", value)
        return float(value)

    def wrong(self, key: str, expected: str, value: Any) -> FileFormatError:
        """The error that a value is not what it must be."""
        return FileFormatError(
            f"{self.label}: {self.at(key)}: expected {expected}, got {short(value)}"
        )

    def _value(self, key: str) -> Any:
        if key not in self.content:
            raise FileFormatError(f"{self.label}: missing key {self.at(key)!r}")
        return self.content[key]


def read_json(path: str | os.PathLike[str]) -> JsonTable:
    """The table that a JSON file holds.

    Raises:
        FileFormatError: it cannot be read, is no JSON, or holds no table.
    """
    label, place = os.fspath(path), expanded(path)
    if os.path.isdir(place):
        raise FileFormatError(f"{label}: expected a .json file, got a folder; name a file in it")
    noun = "a device of another simulator"
    found = read_limited(place, label, size_bytes_max=SIZE_BYTES_MAX, noun=noun)
    content = _parsed(found, label)
    if not isinstance(content, dict):
        raise FileFormatError(f"{label}: expected a table in braces, got {short(content)}")
    return JsonTable(label, "", cast("dict[str, Any]", content))


def _parsed(content: bytes, label: str) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{label}: expected UTF-8 text; save it as UTF-8") from error
    except RecursionError as error:
        raise FileFormatError(f"{label}: is nested too deeply") from error
    except ValueError as error:  # of json, and of int for a number of thousands of digits
        reason = " ".join(str(error).split())
        raise FileFormatError(f"{label}: is not valid JSON: {reason}") from error


class Taken(NamedTuple):
    """A number of ours, and how it follows from the foreign file.

    Args:
        value: in our unit.
        how: which keys it comes from, and what was done with them.
    """

    value: float | int
    how: str


class Reading(NamedTuple):
    """What a foreign file says of a device.

    Args:
        simulator: whose file it is.
        numbers: by our keys.
        left_out: a sentence for each thing that a device of ours cannot say.
        flop_format: of the numbers of its FLOP rate, by our word; None where nobody says.
    """

    simulator: str
    numbers: dict[str, Taken]
    left_out: list[str]
    flop_format: str | None = None
