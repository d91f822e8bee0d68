"""Arrays in memory as a data set, for a model of one's own.

>>> import numpy as np
>>> points, labels = np.zeros((50, 2)), np.zeros(50, int)
>>> data = ArrayDataset(train=(points, labels), valid=(points[:10], labels[:10]), batch=20)
>>> [batch.rows for batch in data.batches("train", epoch=0, seed=0)]
[20, 20, 10]
>>> [(port, state, payload.shape) for port, state, payload in pump_arrays(7, next(
...     data.batches("valid", epoch=0, seed=0)))]
[(0, Instance(instance=7), (10, 2)), (1, Instance(instance=7), (10,))]

Batches may grow: the warm-up of the batch, in place of that of the learning rate.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Figure 3: "warmup means we gradually increase
the batch size in the first few epochs"; that a larger batch does what a lower rate does, S. Smith,
P. Kindermans, C. Ying and Q. Le, "Don't decay the learning rate, increase the batch size", ICLR
2018. Neither says how it grows; here it is in a straight line, as rates do
(`ampsim.optim.warmup`), and the same throughout an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from ampsim.constant import unmasked
from ampsim.data.dataset import Split, chunks, limit, pick
from ampsim.data.vocabulary import frozen
from ampsim.errors import OptionError
from ampsim.ir import Pumped
from ampsim.options import require_count, require_dtype


class Instance(NamedTuple):
    """State of a message that needs no more than to say which batch it belongs to."""

    instance: int


class ArrayBatch(NamedTuple):
    """Some rows of each array, in the order in which the arrays were given."""

    arrays: tuple[np.ndarray, ...]

    @property
    def rows(self) -> int:
        """Items of the batch."""
        return len(self.arrays[0])


@dataclass(frozen=True, slots=True, eq=False)
class ArrayDataset:
    """Row i of each array is item i; "train" is shuffled anew in each epoch, "valid" never.

    Args:
        train: arrays of equally many rows, such as ``(points, labels)``.
        valid: as many arrays, of the same widths, to validate on.
        batch: items of an instance; the last batch may have fewer.
        dtype: what floating-point arrays become, "float32" or "float64": that of the model.
        name: as in reports.
        description: what an item holds, in one line.

    Raises:
        OptionError: arrays do not fit each other, or an option has a value that it cannot have.
    """

    train: Sequence[Any]
    valid: Sequence[Any]
    batch: int = 100
    dtype: str = "float32"
    name: str = "arrays"
    description: str = "arrays in memory"

    def __post_init__(self) -> None:
        """Take the arrays as they are to be handed out, and check that they fit."""
        require_count("batch", self.batch)
        require_dtype(str(self.dtype))
        train, valid = (_arrays(one, getattr(self, one), self.dtype) for one in ("train", "valid"))
        forms = [[(one.shape[1:], one.dtype.kind) for one in arrays] for arrays in (train, valid)]
        if forms[0] != forms[1]:
            raise OptionError(
                f"train and valid must be alike but for their rows, got {_shown(train)} and "
                f"{_shown(valid)}"
            )
        object.__setattr__(self, "train", train)
        object.__setattr__(self, "valid", valid)

    def for_run(self, seed: int, train_count: int | None) -> ArrayDataset:
        """The data set with its first `train_count` training items; None for all.

        It is what `Model.make_data` may be; `seed` changes nothing.

        Raises:
            OptionError: there are fewer.
        """
        count = limit("instances", train_count, self.count("train"))
        return replace(self, train=[array[:count] for array in self.train])

    def count(self, split: Split) -> int:
        """Count of items that a split has."""
        return len(pick(split, self.train, self.valid)[0])

    def batch_count(self, split: Split) -> int:
        """Count of batches that `batches` gives."""
        return -(-self.count(split) // self.batch)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[ArrayBatch]:
        """Every item of a split once."""
        arrays = pick(split, self.train, self.valid)
        for chosen in chunks(split, self.count(split), self.batch, epoch=epoch, seed=seed):
            yield ArrayBatch(tuple(frozen(array[chosen]) for array in arrays))


def pump_arrays(instance: int, batch: ArrayBatch) -> list[Pumped]:
    """Send each array of a batch to the controller's port of the same place.

    It is what `Model.pump` may be where nothing but the arrays goes into the graph.
    """
    state = Instance(instance)
    return [(port, state, array) for port, array in enumerate(batch.arrays)]


def _arrays(split: str, given: Any, dtype: str) -> tuple[np.ndarray, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise OptionError(
            f"{split} must be a tuple of arrays such as (points, labels), got "
            f"{type(cast('object', given)).__name__}"
        )
    arrays = tuple(_array(split, one, dtype) for one in cast("Sequence[Any]", given))
    if len({len(array) for array in arrays}) > 1:
        raise OptionError(f"arrays of {split} must have equally many rows, got {_shown(arrays)}")
    return arrays


def _array(split: str, given: Any, dtype: str) -> np.ndarray:
    try:
        array = np.asarray(unmasked(f"an array of {split}", given))
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise OptionError(f"{split} must hold arrays of numbers: {error}") from None
    if array.dtype.kind not in "fiub" or not array.ndim:
        raise OptionError(
            f"{split} must hold arrays of numbers with a row for each item, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(dtype, copy=False) if array.dtype.kind == "f" else array


def _shown(arrays: Sequence[np.ndarray]) -> str:
    return ", ".join(f"{array.dtype}{array.shape}" for array in arrays)


START = 0.1
"""Of the whole batch in the first epoch; as that of a rate's warm-up."""


class BatchWarmup:
    """A data set with smaller batches in its first epochs; validation has the whole one.

    In epoch e of E, counted from 0, a batch has B (s + (1 - s) e / E) items, rounded, and at least
    1; from then on it has B. Under a solver that is what a rank takes.

    Args:
        data: a frozen dataclass with a field `batch`, such as `ArrayDataset`.
        epochs: E, in which batches are smaller.
        start: s, the part of the batch in the first epoch.

    Raises:
        OptionError: `data` has no `batch`, there are no epochs, `start` is not above 0 and below 1,
            or no batch would be smaller.
    """

    def __init__(self, data: Any, epochs: int, start: float = START) -> None:
        whole = getattr(data, "batch", None)
        if not hasattr(data, "__dataclass_fields__") or not isinstance(whole, int):
            raise OptionError(
                "data of a warm-up of the batch must be a dataclass with a field batch, got a "
                f"{type(data).__name__}; ampsim.ArrayDataset is one"
            )
        self._data = data
        length = require_count("epochs of a warm-up of the batch", epochs)
        if not 0 < start < 1:
            raise OptionError(
                f"start of a warm-up of the batch must be > 0 and < 1, got {start}; try {START}"
            )
        parts = (start + (1 - start) * epoch / length for epoch in range(length))
        self._sizes = [max(1, round(whole * part)) for part in parts]
        if self._sizes[0] == whole:
            raise OptionError(
                f"a warm-up of the batch must begin with fewer items, but {start} of {whole} is "
                f"{whole} too; take a larger batch, or leave the warm-up out"
            )

    def of_epoch(self, epoch: int) -> Any:
        """The data with the batches of an epoch, counted from 0."""
        if epoch >= len(self._sizes):
            return self._data
        return replace(self._data, batch=self._sizes[epoch])

    def count(self, split: Split) -> int:
        """Count of items that a split has."""
        return self._data.count(split)

    def batch_count(self, split: Split) -> int:
        """Count of batches that `batches` gives; of "train", in the first epoch."""
        return self._data.batch_count(split) if split == "valid" else self.epoch_batches(0)

    def epoch_batches(self, epoch: int) -> int:
        """Count of training batches that an epoch has."""
        return self.of_epoch(epoch).batch_count("train")

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Any]:
        """Every item of a split once, in the order of the data."""
        data = self._data if split == "valid" else self.of_epoch(epoch)
        return data.batches(split, epoch=epoch, seed=seed)
