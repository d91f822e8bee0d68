"""The metric of a model on the validation data, and which of two values is the better one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ampsim.arguments import as_float
from ampsim.errors import OptionError, one_of
from ampsim.text import short
from ampsim.units import UNKNOWN, format_count, format_percent

Kind: TypeAlias = Literal["accuracy", "error"]
"""Name of the metric, and of its column among a run's epochs."""

KINDS: Final[tuple[Kind, ...]] = ("accuracy", "error")


@dataclass(frozen=True, slots=True)
class Metric:
    """An accuracy, which is to rise to 1, or an error, which is to fall to 0.

    Args:
        kind: "accuracy", a fraction, or "error", a mean absolute error in `unit`.
        unit: of an error, as it stands behind a number; may be empty.

    Raises:
        OptionError: the kind is neither, or an accuracy has a unit.

    >>> Metric("error", "eV").reaches(0.2, 0.25), Metric().reaches(0.2, 0.25)
    (True, False)
    """

    kind: Kind = "accuracy"
    unit: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(one_of("metric", self.kind, KINDS))
        if self.kind == "accuracy" and self.unit:
            raise OptionError(f"an accuracy has no unit, got {self.unit!r}; leave it out")

    @property
    def best_column(self) -> str:
        """Name of the column that holds the best value of a table's row."""
        return f"best_{self.kind}"

    @property
    def is_rising(self) -> bool:
        """Whether more is better."""
        return self.kind == "accuracy"

    def reaches(self, score: float, target: float) -> bool:
        """Tell whether a value is at least as good as the target; NaN never is."""
        return score >= target if self.is_rising else score <= target

    def best(self, scores: Iterable[float]) -> float | None:
        """The best of the values that are known; None where none is."""
        known = [score for score in scores if math.isfinite(score)]
        choose = max if self.is_rising else min
        return choose(known) if known else None

    def require_target(self, value: object) -> float | None:
        """Return a target as a Python float; None, for no target, stays None.

        Raises:
            OptionError: the metric cannot have such a value: an accuracy is in (0, 1], an error is
                any number > 0.
        """
        if value is None:
            return None
        number = as_float(value)
        if not 0 < number < math.inf and not self.is_rising:
            raise OptionError(
                f"target must be an error above 0, got {short(value)}; it is reached at or below"
            )
        if not 0 < number <= 1 and self.is_rising:
            raise OptionError(
                f"target must be an accuracy above 0 and at most 1, got {short(value)}; "
                "for 97 % write 0.97"
            )
        return number

    def text(self, score: float | None) -> str:
        """A value with its unit, three significant digits.

        >>> Metric().text(0.9731), Metric("error", "eV").text(0.123456)
        ('97.3 %', '0.123 eV')
        """
        if self.is_rising or score is None or not math.isfinite(score):
            return format_percent(score) if self.is_rising else UNKNOWN
        return f"{format_count(score)} {self.unit}".rstrip()

    def target_text(self, target: float) -> str:
        """A target as it was typed, with its unit.

        >>> Metric().target_text(0.97), Metric("error", "eV").target_text(4.6)
        ('97 %', '4.6 eV')
        """
        if self.is_rising:
            return f"{100 * target:.6g} %"
        return f"{target:.6g} {self.unit}".rstrip()


ACCURACY: Final = Metric()
"""Fraction of rows that are classified rightly: what a model is measured by unless it says."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The metric that is measured, and the value of it aimed at; None where none is.

    >>> Goal(Metric("error"), 0.5).reached_by([0.9, 0.4, 0.6])
    1
    """

    metric: Metric
    target: float | None

    @property
    def value_text(self) -> str:
        """The target with its unit."""
        assert self.target is not None, "there is no target to name"
        return self.metric.target_text(self.target)

    @property
    def text(self) -> str:
        """The target in words that a sentence can hold.

        >>> Goal(Metric(), 0.97).text, Goal(Metric("error", "eV"), 4.6).text
        ('97 %', 'an error of 4.6 eV')
        """
        return self.value_text if self.metric.is_rising else f"an error of {self.value_text}"

    def score_text(self, score: float | None) -> str:
        """A value with its unit, in as many digits as tell whether it is at the target.

        >>> Goal(Metric(), 0.97).score_text(0.9697), Goal(Metric("error"), 4.6).score_text(4.6004)
        ('96.97 %', '4.6004')
        """
        said, metric = self.metric.text(score), self.metric
        if self.target is None or score is None or not math.isfinite(score):
            return said
        scale, unit = (100.0, "%") if metric.is_rising else (1.0, metric.unit)
        is_there = metric.reaches(score, self.target)
        for digits in range(3, 16):
            told = f"{scale * score:.{digits}g}"
            if metric.reaches(float(told) / scale, self.target) == is_there:
                return said if digits == 3 else f"{told} {unit}".rstrip()
        return said

    def reached_by(self, scores: Iterable[float]) -> int | None:
        """Index of the first value that is at the target or better; None without one."""
        if self.target is None:
            return None
        hits = (i for i, one in enumerate(scores) if self.metric.reaches(one, self.target))
        return next(hits, None)
