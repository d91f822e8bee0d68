"""Checks of options and arguments, each with its one line for a person."""

from __future__ import annotations

import math
from numbers import Integral, Real

from ampsim.errors import OptionError


def require_count(option: str, value: object) -> int:
    """Return an option that counts something, as a Python int.

    Raises:
        OptionError: it is no whole number of at least 1.

    >>> require_count("repeats", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise OptionError(f"{option} must be a whole number >= 1, got {value!r}")
    return int(value)


def require_amount(option: str, value: object) -> float:
    """Return an option that measures something, as a Python float.

    Raises:
        OptionError: it is no finite number of at least 0.

    >>> require_amount("staleness_budget", 4)
    4.0
    """
    is_flag: bool = isinstance(value, bool)
    number = float(value) if isinstance(value, Real) and not is_flag else math.nan
    if not 0 <= number < math.inf:
        raise OptionError(f"{option} must be a number >= 0, got {value!r}")
    return number


def require_flag(option: str, value: object) -> bool:
    """Return an option that is on or off.

    Raises:
        OptionError: it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise OptionError(f"{option} must be True or False, got {value!r}")
    return value


def require_target(value: object, metric: str = "accuracy") -> float | None:
    """Return a target as a Python float; None, for no target, stays None.

    Args:
        value: what the user gave.
        metric: "accuracy", a number in (0, 1], or "error", any number > 0.

    Raises:
        OptionError: it is no such number.
    """
    if value is None:
        return None
    is_flag: bool = isinstance(value, bool)
    number = float(value) if isinstance(value, Real) and not is_flag else math.nan
    if metric == "error":
        if not 0 < number < math.inf:
            raise OptionError(
                f"target must be an error above 0, got {value!r}; it is reached at or below"
            )
    elif not 0 < number <= 1:
        raise OptionError(
            f"target must be an accuracy above 0 and at most 1, got {value!r}; for 97 % write 0.97"
        )
    return number
