"""Data and optimizers as PyTorch users have them become ours.

Tensors, data sets and loaders become arrays in batches; an optimizer the same method with the same
numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.constant import unmasked
from ampsim.data import ArrayDataset, Split
from ampsim.data.arrays import ArrayBatch
from ampsim.data.dataset import limit, order, pick
from ampsim.errors import FileFormatError, OptionError
from ampsim.files import sha256_of
from ampsim.optim import Optimizer, adam, momentum, nesterov, sgd
from ampsim.user_code import text_of

Arrays = tuple[np.ndarray, ...]

Method: TypeAlias = "partial[Optimizer]"
"""A maker of `ampsim.optim` with its options."""


@dataclass(frozen=True, eq=False)
class BatchList:
    """Batches, also of several sizes or lengths; "train" comes in another order in each epoch.

    Args:
        train: for each batch its arrays, the batch along the first axis of each.
        valid: likewise.
        name: as in reports.
        description: what an item holds, in one line.
    """

    train: Sequence[Arrays]
    valid: Sequence[Arrays]
    name: str = "batches"
    description: str = "batches in memory, of several sizes or lengths"

    def for_run(self, seed: int, train_count: int | None) -> BatchList:
        """The data set with its first `train_count` training items, also where that cuts a batch.

        Raises:
            OptionError: there are fewer.
        """
        left, kept = limit("instances", train_count, self.count("train")), list[Arrays]()
        for arrays in self.train:
            if left > 0:
                kept.append(tuple(array[:left] for array in arrays))
            left -= len(arrays[0])
        return replace(self, train=kept)

    def count(self, split: Split) -> int:
        """Count of items that a split has."""
        return sum(len(arrays[0]) for arrays in pick(split, self.train, self.valid))

    def batch_count(self, split: Split) -> int:
        """Count of batches that `batches` gives."""
        return len(pick(split, self.train, self.valid))

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[ArrayBatch]:
        """Every batch of a split once."""
        of = pick(split, self.train, self.valid)
        return (ArrayBatch(of[one]) for one in order(split, len(of), epoch=epoch, seed=seed))


def dataset_of(data: Any, batch: int | None, dtype: str, rows: int) -> ArrayDataset | BatchList:
    """The data set of (train, valid), in batches of `batch` items, or `rows`, if they come in none.

    Each is a tuple of tensors or arrays with a row an item, a map-style `torch.utils.data.Dataset`,
    or a list or loader of batches of such tuples; else that is an OptionError. Floats get `dtype`.
    """
    splits: Any = data
    if not isinstance(data, tuple | list) or len(splits) != 2:
        raise OptionError(
            "data must be (train, valid), each a tuple of tensors, a Dataset or a DataLoader, got "
            f"{type(splits).__name__}"
        )
    train, valid = map(_batches, splits)
    if isinstance(train, list) != isinstance(valid, list):
        raise OptionError("train and valid must both come in batches, or both as whole tensors")
    if not isinstance(train, list) or not isinstance(valid, list):
        batch = rows if batch is None else batch
        return ArrayDataset(cast("Arrays", train), cast("Arrays", valid), batch, dtype)
    if batch is not None:
        raise OptionError("batch has no effect on data that come in batches; leave it out")
    both = [
        [tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in one) for one in split]
        for split in (train, valid)
    ]
    batch = len(train[0][0])
    sizes = [[len(one[0]) for one in split] for split in both]
    is_even = all({*most} <= {batch} and last <= batch for *most, last in sizes)
    if is_even and all(len({tuple(a.shape[1:] for a in b) for b in split}) == 1 for split in both):
        whole = [[np.concatenate(column) for column in zip(*split, strict=True)] for split in both]
        return ArrayDataset(whole[0], whole[1], batch, dtype)
    return BatchList(both[0], both[1])


def _batches(given: Any) -> Arrays | list[Arrays]:
    """The arrays of a split, or those of each of its batches."""
    kind, reason = cast("type[Any]", type(given)), ""
    is_one = hasattr(given, "shape") or kind in (str, dict)
    try:
        if kind is tuple:
            return tuple(map(_array, given))
        if hasattr(given, "__getitem__") and kind is not list and not is_one:
            columns = zip(*(given[place] for place in range(len(given))), strict=True)
            return tuple(np.stack([_array(one) for one in column]) for column in columns)
        if not is_one and (found := [*map(_arrays, given)]):
            return found
    except (TypeError, ValueError) as error:  # no such thing, or items of several shapes
        reason = f": {text_of(error)}"
    raise OptionError(
        "each split of data must be a tuple of tensors (inputs, target), a Dataset, or a list or "
        f"DataLoader of batches (inputs, target), got {kind.__name__}{reason}"
    )


def _arrays(batch: Any) -> Arrays:
    """The arrays of a batch; a ValueError of what has no rows, such as one item."""
    arrays = () if isinstance(batch, dict) else tuple(map(_array, batch))
    if not arrays or not all(one.ndim for one in arrays):
        what = "dict" if isinstance(batch, dict) else "single item"
        raise ValueError(f"a batch is a {what}; DataLoader has batch_size and collate_fn")
    return arrays


def _array(given: Any) -> np.ndarray:
    given = given.detach().cpu().numpy() if hasattr(given, "detach") else given
    return np.array(unmasked("an array of data", given))


def examples(data: ArrayDataset | BatchList) -> list[Arrays]:
    """Two batches of training data whose shapes differ but for the rows, or one if none do."""
    if isinstance(data, ArrayDataset):
        return [tuple(array[:2] for array in data.train)]
    first = data.train[0]
    shapes = [one.shape[1:] for one in first]
    for arrays in (*data.train, *data.valid):
        if [one.shape[1:] for one in arrays] != shapes:
            return [first, arrays]
    return [first]


def held_arrays(model_file: str, sha256: str) -> dict[str, np.ndarray]:
    """The arrays beside a model file that was imported, ``NAME.npz`` of ``NAME.py``.

    Nothing in them is executed.

    Args:
        model_file: its path.
        sha256: of the arrays' file, when the model file was written.

    Raises:
        FileFormatError: the file is not there, or another one.
    """
    path = Path(model_file).with_suffix(".npz")
    if not os.path.isfile(path):
        raise FileFormatError(
            f"{path}: no such file; it belongs beside {Path(model_file).name}, under its name"
        )
    if sha256_of(path) != sha256:
        raise FileFormatError(
            f"{path}: is not what {Path(model_file).name} was written with; run ampsim import again"
        )
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def split_of(held: Mapping[str, np.ndarray], split: Split) -> list[Arrays]:
    """The arrays of each batch of a split, as a model file that was imported holds them."""
    batches: dict[str, list[np.ndarray]] = {}
    for name in (one for one in held if one.startswith(f"{split}/")):  # in the order written
        batches.setdefault(name.split("/")[1], []).append(held[name])
    return [tuple(arrays) for arrays in batches.values()]


_USUAL: Final[dict[str, dict[str, Any]]] = {
    "SGD": {"dampening": 0, "maximize": False},
    "Adam": {"amsgrad": False, "maximize": False, "decoupled_weight_decay": False},
}
"""Options that must be as usual, by the names of PyTorch's classes."""


def method_of(given: Any, parameters: Sequence[Any]) -> Method | Optimizer:
    """Our optimizer of the same method and numbers as PyTorch's; one of `ampsim.optim` as it is.

    Raises:
        OptionError: there is none, or it trains other than these parameters.
    """
    if isinstance(given, Optimizer):
        return given
    kind, home = type(given).__name__, type(given).__module__
    if kind not in _USUAL or not home.startswith("torch.optim."):  # where others may have its name
        raise OptionError(
            f"optimizer must be one of torch.optim's {' or '.join(_USUAL)}, or of ampsim.optim, "
            f"got {kind} of {home}; try torch.optim.Adam(module.parameters(), 1e-3)"
        )
    groups, own = given.param_groups, {*map(id, parameters)}
    trained = [{*map(id, one["params"])} for one in groups]
    if trained != [own]:
        count, mine = sum(map(len, trained)), sum(len(one & own) for one in trained)
        told = f"{count} in {len(groups)}" if mine == count else f"{count - mine} of another module"
        raise OptionError(
            f"optimizer must train all {len(own)} parameters of the module in one group, got "
            f"{told}; give it module.parameters()"
        )
    if given.state:
        raise OptionError(
            "optimizer must have taken no step, for what it keeps of gradients is not taken over; "
            f"give a new {kind}(module.parameters(), ...)"
        )
    if any(getattr(given, f"_optimizer_step_{one}_hooks", None) for one in ("pre", "post")):
        what = "optimizer must have no hooks of its steps, for they are not taken over"
        raise OptionError(f"{what}; leave register_step_pre_hook and register_step_post_hook out")
    (group,) = groups
    _require_usual(kind, group)
    options = {"weight_decay": group["weight_decay"]} if group["weight_decay"] else {}
    if kind == "Adam":
        beta1, beta2 = group["betas"]
        make, options = adam, {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"], **options}
    elif group["momentum"]:
        make = nesterov if group["nesterov"] else momentum
        options["momentum"] = group["momentum"]
    else:
        make = sgd
    return partial(make, rate=float(group["lr"]), **options)


def _require_usual(kind: str, group: Mapping[str, Any]) -> None:
    """Refuse a scheduler, and options that have no counterpart."""
    if "initial_lr" in group:
        raise OptionError(
            "optimizer must have no scheduler, for its rates are not taken over; give one of "
            "ampsim.optim with a rate of its own, such as sgd(multistep(...))"
        )
    for option, expected in _USUAL[kind].items():
        if group.get(option, expected) != expected:
            raise OptionError(
                f"optimizer {kind}: {option} must be {expected}, got {group[option]}; leave it out"
            )
