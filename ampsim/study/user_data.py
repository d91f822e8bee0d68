"""A model's data set as a run sees it: checked, and its exceptions told as the user's."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from numbers import Integral
from typing import Any, Final

from ampsim.data import Dataset, Split
from ampsim.errors import OptionError, SimulationError
from ampsim.text import short
from ampsim.user_code import user_code

NEEDED: Final = ("count", "batch_count", "batches")

_END: Final = object()


class UserData:
    """A data set whose methods are the user's code.

    Raises:
        OptionError: that is no data set.
    """

    def __init__(self, model: str, given: Any) -> None:
        missing = [name for name in NEEDED if not callable(getattr(given, name, None))]
        if missing or isinstance(given, type):
            raise OptionError(
                f"make_data of model {model} must return a data set with {', '.join(NEEDED)}, got "
                f"{_shown(given)}; ampsim.ArrayDataset makes one of arrays"
            )
        self._model = model
        self.given: Dataset[Any] = given

    def count(self, split: Split) -> int:
        """Items of a split.

        Raises:
            SimulationError: the user's method failed, or gave no whole number.
        """
        return self._asked("count", split)

    def batch_count(self, split: Split) -> int:
        """Batches of a split.

        Raises:
            SimulationError: the user's method failed, or gave no whole number.
        """
        return self._asked("batch_count", split)

    @property
    def grows(self) -> bool:
        """Whether epochs differ in their batches."""
        return callable(getattr(self.given, "epoch_batches", None))

    def epoch_batches(self, epoch: int) -> int:
        """Training batches of an epoch.

        Raises:
            SimulationError: the user's method failed, or gave no whole number.
        """
        if not self.grows:
            return self.batch_count("train")
        return self._asked("epoch_batches", epoch)

    def _asked(self, method: str, of: Split | int) -> int:
        what = f"{method}({of!r}) of the data of model {self._model}"
        with user_code(f"{what} failed"):
            count: Any = getattr(self.given, method)(of)
        try:
            whole = operator.index(count)
        except TypeError:
            whole = -1
        if whole < 0 or isinstance(count, bool):
            raise SimulationError(f"{what} must be a whole number >= 0, got {_shown(count)}")
        return whole

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Any]:
        """Every batch of a split, each with a number of `rows`.

        Raises:
            OptionError: there is none to train on.
            SimulationError: the user's method failed, or gave what is no batch.
        """
        what = f"batches({split!r}) of the data of model {self._model}"
        with user_code(f"{what} failed"):
            batches = iter(self.given.batches(split, epoch=epoch, seed=seed))
        is_needed = split == "train"
        while True:
            with user_code(f"{what} failed"):
                batch: Any = next(batches, _END)
            if batch is _END:
                break
            with user_code(f"rows of a batch that {what} gave failed"):
                rows: Any = getattr(batch, "rows", None)
            if not isinstance(rows, Integral) or int(rows) < 1:
                got = "" if rows is None else f" with {short(rows)} for its rows"
                raise SimulationError(
                    f"{what} gave {_shown(batch)}{got}; a batch must have rows, its number of items"
                )
            yield batch
            is_needed = False
        if is_needed:
            raise OptionError(f"{what} must give a batch to train on, gave none")


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
