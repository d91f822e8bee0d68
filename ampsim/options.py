"""Checks of options and arguments, each with its one line for a person."""

from __future__ import annotations

import contextlib
import math
import re
from numbers import Integral
from typing import Annotated, Final, TypeAlias

from annotated_types import Ge, Le

from ampsim.errors import OptionError
from ampsim.text import short

COUNT_MAX: Final = 10**9
"""Largest count that an option may name (chosen: a billion instances take days; more is a slip)."""

REPEATS_MAX: Final = 100_000
"""Most runs of one schedule, and most runs at a time (chosen: far more than a machine makes)."""

NODES_MAX: Final = 20_000
"""Most nodes of a graph (chosen: a hundred times the largest that is shipped)."""

PORTS_MAX: Final = 10_000
"""Most inputs or outputs of a node (chosen: a thousand times what a shipped model's has)."""

PARAMETERS_MAX: Final = 10**9
"""Most parameters of a model (chosen: in single precision 4 GB, and twice that while drawn)."""

DATA_BYTES_MAX: Final = 8 * 10**9
"""Most memory that generated data may take (chosen: half of a small machine's)."""

SECONDS_MAX: Final = 10**9
"""Longest time that an option or a file may name, thirty years (chosen, to catch wrong units)."""

Count: TypeAlias = Annotated[int, Ge(1), Le(COUNT_MAX)]
"""How many of something there are, or may be."""

Ports: TypeAlias = Annotated[int, Le(PORTS_MAX)]
"""How many inputs or outputs a node has."""

Seed: TypeAlias = Annotated[int, "a whole number >= 0"]
"""What random numbers start from; `ampsim.rng` says which there are."""

Amount: TypeAlias = Annotated[float, Ge(0)]
"""How much of something there is, or may be."""

Seconds: TypeAlias = Annotated[float, Ge(0), Le(SECONDS_MAX)]
"""Virtual seconds that something takes, or waits."""


def require_count(option: str, value: object, most: int = COUNT_MAX, *, least: int = 1) -> int:
    """Return an option that counts something, as a Python int.

    Raises:
        OptionError: it is no whole number of at least `least`, or more than `most`.

    >>> require_count("repeats", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise OptionError(f"{option} must be a whole number >= {least}, got {short(value)}")
    if int(value) > most:
        raise OptionError(f"{option} must be at most {most:,}, got {short(int(value))}")
    return int(value)


def require_room(option: str, value: object, item_bytes: int) -> int:
    """Return how many items to generate, if they fit into `DATA_BYTES_MAX`.

    Args:
        option: what says how many.
        value: how many.
        item_bytes: what one of them takes at least.

    Raises:
        OptionError: that is no count, or they would take more.

    >>> require_room("train_count", 10, 784)
    10
    """
    count = require_count(option, value)
    if count * item_bytes > DATA_BYTES_MAX:
        raise OptionError(
            f"{option} = {count:,} would take {count * item_bytes / 1e9:,.0f} GB of memory; "
            f"take at most {DATA_BYTES_MAX // item_bytes:,}"
        )
    return count


def require_dtype(value: object) -> str:
    """Return the name of a precision.

    Raises:
        OptionError: it is neither "float32" nor "float64".

    >>> require_dtype("float32")
    'float32'
    """
    if not isinstance(value, str) or value not in ("float32", "float64"):
        raise OptionError(f"dtype must be float32 or float64, got {short(value)}")
    return value


_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(option: str, text: str) -> float:
    """Read a span of time such as "90", "90s", "30m", "2h" or "1d".

    Raises:
        OptionError: it is none, or not above 0.

    >>> seconds_of("budget", "1.5m")
    90.0
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([smhd]?)\s*", text)
    with contextlib.suppress(ValueError):
        if found and 0 < (seconds := float(found[1]) * _SECONDS[found[2]]) < math.inf:
            return seconds
    raise OptionError(f"{option} must be a time above 0 such as 60s, 30m or 2h, got {short(text)}")
