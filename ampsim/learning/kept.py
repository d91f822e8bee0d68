"""Learnings that are kept: what passes of training gave, by the digest of their orders.

A learning is a chain: the first weights, then one pass of training after the other, each with a
digest that stands for all before it. What is kept under a digest is what came of that pass, and the
weights with which the next one begins, so that whoever has the same orders learns nothing twice.
Files are arrays without pickle, written whole, with a hash of their content in their last bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from filelock import FileLock

from ampsim.files import prepare_folder, read_regular, write_bytes
from ampsim.model_parallel import PassTotals

SUFFIX: Final = ".npz"
_HASH_BYTES: Final = 32

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one pass, and of the moment after it.

    Args:
        totals: of the pass.
        weights: parameters and what the optimizer keeps, by name, as of `Replay.weights`.
    """

    totals: PassTotals
    weights: Arrays = field(default_factory=Arrays)


@dataclass(frozen=True, slots=True)
class LearningStore:
    """A folder of learnings, which several processes may share."""

    folder: Path

    def get(self, digest: str, *, with_weights: bool) -> Learned | None:
        """What is kept under a digest; None where nothing is, or it is not as it was written."""
        try:
            content = read_regular(self._path(digest))
        except OSError:
            return None
        body, written = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
        if hashlib.sha256(body).digest() != written:
            return None
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            names = [name for name in arrays.files if "/" in name] if with_weights else []
            weights = {name: arrays[name] for name in names}
            return Learned(_totals_of(arrays), weights)

    def put(self, digest: str, learned: Learned) -> None:
        """Keep a learning.

        Raises:
            OutputError: the folder cannot be written.
        """
        prepare_folder(self.folder)
        buffer, totals = io.BytesIO(), learned.totals
        counts = np.array([totals.instances, totals.rows, totals.correct], np.float64)
        losses = {
            "losses": np.array(totals.losses, np.float64),
            "absolute_errors": np.array(totals.absolute_errors, np.float64),
        }
        arrays: dict[str, Any] = {"counts": counts, **losses, **learned.weights}
        np.savez(buffer, allow_pickle=False, **arrays)
        body = buffer.getvalue()
        write_bytes(self._path(digest), body + hashlib.sha256(body).digest())

    @contextlib.contextmanager
    def learning(self, digest: str) -> Generator[None]:
        """While this lasts, other processes that want to learn the same wait for it."""
        prepare_folder(self.folder)
        with FileLock(self.folder / f"{digest}.lock"):
            yield

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}{SUFFIX}"


def _totals_of(arrays: Mapping[str, np.ndarray]) -> PassTotals:
    instances, rows, correct = arrays["counts"].tolist()
    return PassTotals(
        instances=int(instances),
        rows=int(rows),
        correct=correct,
        losses=cast("list[float]", arrays["losses"].tolist()),
        absolute_errors=cast("list[float]", arrays["absolute_errors"].tolist()),
    )
