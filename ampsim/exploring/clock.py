"""The time that a question may take on this machine's clock."""

from __future__ import annotations

import math
import time

from ampsim.errors import OptionError
from ampsim.study.progress import OnProgress, Progress
from ampsim.units import format_seconds


class BudgetSpentError(KeyboardInterrupt):
    """The time that a question was given is over; it ends as Ctrl-C ends it."""


class TimeBudget:
    """The wall clock of a question: says when its time is over, to runs under way as well."""

    def __init__(self, budget_s: float | None, on_progress: OnProgress | None) -> None:
        self._end_s = math.inf if budget_s is None else time.monotonic() + budget_s
        self._budget_s, self._on_progress = budget_s, on_progress

    def tell(self, progress: Progress) -> None:
        """Hand news on.

        Raises:
            BudgetSpentError: time is over.
        """
        self.require_left()
        if self._on_progress is not None:
            self._on_progress(progress)

    def require_left(self) -> None:
        """Go on only if there is time.

        Raises:
            BudgetSpentError: time is over.
        """
        if self.is_over:
            raise BudgetSpentError

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self._end_s

    def refuse(self) -> None:
        """Tell that the budget is too small, if it is over.

        Raises:
            OptionError: it is.
        """
        if self.is_over:
            raise OptionError(
                f"budget_s must be enough to time a point, got {self._budget_s:g}; give more"
            ) from None

    def sentence(self, done: str) -> str:
        """Why it ended, and how far it is."""
        spent = f"the budget of {format_seconds(self._budget_s)} was spent"
        return f"{spent if self.is_over else 'interrupted'}: {done}; the same call goes on"
