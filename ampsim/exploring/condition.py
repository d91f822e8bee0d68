"""Conditions such as "time_s(pipeline:4) >= 2 * time_s(amp:4)": until when something is asked for.

    condition  =  product ("<=" | ">=" | "<" | ">") product
    product    =  factor { ("*" | "/") factor }
    factor     =  NUMBER  |  COLUMN  |  COLUMN "(" SCHEDULE ")"

A column without a schedule is that of each schedule asked about. Columns are those of a forecast;
some follow from timing alone, others are learned. Two sides without a number are of one unit.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ampsim.errors import OptionError, one_of
from ampsim.text import short
from ampsim.units import product_unit

TIMED: Final = {
    "epoch_s": "s",  # of an epoch with validation
    "train_per_s": "1/s",  # training items
    "valid_per_s": "1/s",  # validation items
    "utilisation": "",  # share of the workers' time in which they are busy
    "peak_bytes": "bytes",  # in the fullest worker's memory
    "staleness_mean": "",  # of gradients
    "staleness_max": "",  # of a gradient
}
"""Columns that follow from timing, with their units; of what is counted, or a share, none."""

LEARNED: Final = {  # of those to the target, a run that does not arrive has no end
    "time_to_target_s": "s",
    "epochs_to_target": "",
    "cost_to_target_usd": "USD",
    "energy_to_target_j": "J",
    "best_accuracy": "",  # of a validation
    "best_error": "error",  # the least of a validation
}

SHORT: Final = {  # names of columns
    "time_s": "time_to_target_s", "dollars": "cost_to_target_usd", "joules": "energy_to_target_j",
    "epochs": "epochs_to_target",
}  # fmt: skip

# A column, and the schedule that it is of as written; "" for each one asked about.
Value: TypeAlias = "tuple[str, str]"
# A product: its factors, numbers above 0 or columns, each behind "*" or "/".
Side: TypeAlias = tuple[tuple[str, "float | Value"], ...]

_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


class Condition(NamedTuple):
    """A condition on columns of forecasts: its text as it was written, and a sign between sides."""

    text: str
    left: Side
    sign: str
    right: Side

    @property
    def values(self) -> tuple[Value, ...]:
        """The columns in it, each once."""
        factors = [factor for _sign, factor in (*self.left, *self.right)]
        return tuple(dict.fromkeys(one for one in factors if isinstance(one, tuple)))

    @property
    def schedules(self) -> list[str]:
        """The schedules that it names."""
        return [one for one in dict.fromkeys(name for _column, name in self.values) if one]

    @property
    def is_learned(self) -> bool:
        """Tell whether it needs runs that learn."""
        return any(column in LEARNED for column, _schedule in self.values)

    def sides(self, values: Mapping[Value, float]) -> tuple[float, float]:
        """Compute both sides; NaN where one is not known, as of two runs that do not arrive."""
        found = [1.0, 1.0]
        for place, side in enumerate((self.left, self.right)):
            for sign, factor in side:
                value = values[factor] if isinstance(factor, tuple) else factor
                over = found[place] / value if value else math.nan
                found[place] = found[place] * value if sign == "*" else over
        return found[0], found[1]

    def holds(self, values: Mapping[Value, float]) -> bool:
        """Tell whether it holds; it does not where a side is unknown, or neither arrives."""
        left, right = self.sides(values)
        return not left == right == math.inf and _SIGNS[self.sign](left, right)


def condition_of(text: str) -> Condition:
    """Read a condition.

    Raises:
        OptionError: it is none, or names no column; the message says where.

    >>> found = condition_of("time_s(pipeline:4) >= 2 * time_s(amp:4)")
    >>> found.left, found.sign
    ((('*', ('time_to_target_s', 'pipeline:4')),), '>=')
    """
    parts = re.split(r"(<=|>=|<|>)", text)
    if len(parts) != 3:
        raise OptionError(
            "until must be two sides with one of <=, >=, < and > between them, such as "
            f"'time_s <= 0.5', got {short(text)}"
        )
    left, sign, right = parts
    found = Condition(text.strip(), _product(left, text), sign, _product(right, text))
    if not found.values:
        raise OptionError(
            f"until must name a column, such as 'time_s <= 0.5', got {short(text)}; there are "
            f"{', '.join(_KNOWN)}"
        )
    units = [_unit(side) for side in (found.left, found.right)]
    if None not in units and units[0] != units[1]:
        raise OptionError(
            f"until compares {units[0]} with {units[1]} in {short(text)}; take columns of one "
            "unit, or a number that has the other, such as 'joules <= 300 * time_s'"
        )
    return found


def _unit(side: Side) -> str | None:
    """The unit of a product; None with a number in it, which may have any."""
    columns = [(sign, (TIMED | LEARNED)[of[0]]) for sign, of in side if isinstance(of, tuple)]
    return product_unit(columns) if len(columns) == len(side) else None


_KNOWN: Final = [*SHORT, *TIMED, *LEARNED]
_FACTOR: Final = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<column>[A-Za-z_]+)\s*(?:\(\s*(?P<schedule>[^()]*?)\s*\))?"
)
_BETWEEN: Final = re.compile(r"([*/])(?![^(]*\))")  # not the sign in "sync-sgd:4/amp:8"


def _product(side: str, text: str) -> Side:
    words = ["*", *map(str.strip, _BETWEEN.split(side))]
    pairs = zip(words[::2], words[1::2], strict=True)
    return tuple((sign, _factor(part, text)) for sign, part in pairs)


def _factor(part: str, text: str) -> float | Value:
    found = _FACTOR.fullmatch(part)
    if found is None:
        where = f"{short(part)} in {short(text)}" if part else f"the end of {short(text)}"
        raise OptionError(
            "until: expected a number, a column or a column with a schedule, such as "
            f"time_s(amp:8), joined by * and /, got {where}"
        )
    if found["number"] is not None:
        if not 0 < (value := float(found["number"])) < math.inf:
            told = f"until: numbers must be finite and above 0, got {part} in {short(text)}"
            raise OptionError(told)
        return value
    column = SHORT.get(found["column"], found["column"])
    if column not in _KNOWN:
        raise OptionError(f"until: {one_of('column', column, _KNOWN)}")
    if found["schedule"] == "":
        raise OptionError(f"until: {column}() must name a schedule, such as {column}(amp:8)")
    return column, found["schedule"] or ""
