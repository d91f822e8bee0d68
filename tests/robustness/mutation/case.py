"""A case: one call of ampsim with one wrong input, made again from its name and a seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where a case is made.

    Args:
        folder: an empty folder of its own, in which the call runs.
        shared: what was made once for all cases; only to be copied from.
        random: what decides everything in the case.
    """

    folder: Path
    shared: Path
    random: random.Random

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file of the case; return its name."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return name


@dataclass(frozen=True)
class Command:
    """A call of the program.

    Args:
        words: behind `ampsim`.
        streams: what is wrong with standard output or standard error, such as "stdout closed".
        environment: variables that differ from usual; None for one that is not set.
        is_real: whether Python is to be started anew for it, as a user would.
    """

    words: list[str]
    streams: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    is_real: bool = False

    def __str__(self) -> str:
        variables = [f"{name}={value!a} " for name, value in self.environment.items()]
        streams = f"  [{self.streams}]" if self.streams else ""
        return f"{''.join(variables)}ampsim {' '.join(map(ascii, self.words))}{streams}"


@dataclass(frozen=True)
class Function:
    """A call of something public in Python.

    Args:
        name: what is called, for a person.
        call: does it.
        arguments: what it is called with, for a person.
    """

    name: str
    call: Callable[[], Any]
    arguments: str = field(default="")

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


Call = Command | Function
Maker = Callable[[Place], Call]


def shown(value: Any) -> str:
    """A value in a line, though its own `repr` may fail or take pages."""
    try:
        text = ascii(repr(value))[1:-1]
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= 90 else f"{text[:80]}...({len(text)})"
