"""The file beside a report in which the witnesses of its rows lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ampsim.errors import FileFormatError
from ampsim.paths import read_regular
from ampsim.study.witness import Witness, from_plain

FILE: Final = "witness.json"
KIND: Final = "witnesses"
FORMAT: Final = 1


def to_text(witnesses: Mapping[str, Witness]) -> str:
    """The file that holds the witnesses of a report, by its rows: JSON, a line a row."""
    lines = [
        f"{json.dumps(label)}: {json.dumps(one.plain(), separators=(',', ':'), allow_nan=False)}"
        for label, one in witnesses.items()
    ]
    head = f'{{"kind": "{KIND}", "format": {FORMAT}, "rows": {{\n'
    return head + ",\n".join(lines) + "\n}}\n"


def read_witnesses(folder: Path) -> dict[str, Witness] | None:
    """The witnesses beside a report, by its rows; None where there are none.

    Raises:
        FileFormatError: the file is something else.
    """
    try:
        text = read_regular(folder / FILE, FILE).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{FILE} cannot be read: {' '.join(str(error).split())}") from error
    try:
        content = json.loads(text)
        if (content["kind"], content["format"]) != (KIND, FORMAT):
            raise KeyError
        return {str(label): from_plain(one) for label, one in content["rows"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{FILE} does not hold the witnesses of this version") from error
