"""The options of a forecast that decide how fairly, and how surely, its rows are compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from ampsim.cli.options import ValidateEveryOption, optional

TRIALS: Final = 8
"""Learning rates that a row tries unless told otherwise; a test compares it with the tuner's."""


class ScalingName(StrEnum):
    """How a learning rate grows with the gradients that an update averages."""

    NONE = "none"
    LINEAR = "linear"
    SQRT = "sqrt"


@dataclass(frozen=True, slots=True)
class Comparing:
    """Options by which rows are compared; None of what was not given."""

    repeats: Annotated[
        int, optional("N", "Runs of each schedule, with one seed after the other.  [default: 1]")
    ] = 1
    sure: Annotated[
        float | None,
        optional(
            "X",
            "Go on with more runs of each schedule until it is this sure which is first, 0.9 is "
            "90 %, or --max-repeats are made.",
        ),
    ] = None
    max_repeats: Annotated[
        int | None, optional("N", "Runs of each schedule at most, with --sure.  [default: 40]")
    ] = None
    scale_rate: Annotated[
        ScalingName | None,
        optional(
            None,
            "How a schedule's learning rate grows with the gradients of which its updates take "
            "the mean.  [default: linear for sgd and momentum, sqrt for adam and adagrad]",
        ),
    ] = None
    tune: Annotated[
        bool,
        optional(
            None,
            "Try learning rates for each schedule, as many for each, before they are compared "
            "with the best of each.",
        ),
    ] = False
    trials: Annotated[
        int | None,
        optional("N", f"Learning rates that each schedule tries; tunes.  [default: {TRIALS}]"),
    ] = None
    validate_every: ValidateEveryOption = None

    def given(self) -> dict[str, Any]:
        """As `ampsim.forecast` takes them.

        Raises:
            OptionError: an option would have no effect.
        """
        from ampsim.errors import OptionError
        from ampsim.study.repeats import MAX_REPEATS

        if self.max_repeats is not None and self.sure is None:
            raise OptionError(
                f"--max-repeats {self.max_repeats} ends what --sure goes on with; "
                "give --sure 0.9 too, or --repeats instead"
            )
        tune = self.trials if self.trials is not None else TRIALS if self.tune else None
        return {
            "repeats": self.repeats,
            "sure": self.sure,
            "max_repeats": MAX_REPEATS if self.max_repeats is None else self.max_repeats,
            "scale_rate": None if self.scale_rate is None else self.scale_rate.value,
            "tune": tune,
            "validate_every": self.validate_every,
        }
