"""One pass over a split of the data: what the losses reported, and how long it took."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ampsim.ir import LossReport


@dataclass(slots=True)
class PassTotals:
    """What the losses reported during one pass over a split."""

    instances: int = 0
    rows: int = 0
    loss_sum: float = 0.0
    correct: float = 0
    absolute_error_sum: float = 0.0

    @property
    def loss(self) -> float:
        """Mean loss per row; NaN where nothing was reported."""
        return self.loss_sum / self.rows if self.rows else math.nan

    @property
    def accuracy(self) -> float:
        """Fraction of rows classified rightly; NaN where nothing was reported."""
        return self.correct / self.rows if self.rows else math.nan

    @property
    def absolute_error(self) -> float:
        """Mean absolute error per row of a regression; NaN where nothing was reported."""
        return self.absolute_error_sum / self.rows if self.rows else math.nan

    def include(self, other: PassTotals) -> None:
        """Add another part of the same pass."""
        self.instances += other.instances
        self.rows += other.rows
        self.loss_sum += other.loss_sum
        self.correct += other.correct
        self.absolute_error_sum += other.absolute_error_sum

    def add(self, report: LossReport) -> None:
        """Add what a loss reported; what it does not know is NaN in the sum."""
        self.loss_sum += report.loss_sum
        self.correct += math.nan if report.correct is None else report.correct
        error = report.absolute_error
        self.absolute_error_sum += math.nan if error is None else error
        self.rows += report.rows


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass over a split: virtual times, and what the losses said."""

    start_s: float
    end_s: float
    totals: PassTotals

    @property
    def per_s(self) -> float:
        """Items per virtual second; NaN where the pass took no time."""
        seconds = self.end_s - self.start_s
        return self.totals.instances / seconds if seconds else float("nan")
