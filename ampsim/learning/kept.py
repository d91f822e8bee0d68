"""Learnings that are kept: what passes of training gave, by the digest of their orders.

A learning is a chain: the first weights, then one pass of training after the other, each with a
digest that stands for all before it. What is kept under a digest is what came of that pass, and, of
the last pass of a chain, the weights with which another one begins: whoever has the same orders
learns nothing twice, and orders that part do so in the first epoch, if not always. Files are arrays
without pickle, written whole, with a hash of their content in their last bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from filelock import FileLock

from ampsim.files import prepare_folder, read_regular, write_bytes
from ampsim.model_parallel import PassTotals

_TOTALS: Final = "totals"
_WEIGHTS: Final = "weights"
_HASH_BYTES: Final = 32

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class LearningStore:
    """A folder of learnings, which several processes may share."""

    folder: Path

    def totals(self, digest: str) -> PassTotals | None:
        """Return a pass's totals; None where nothing is kept, or it is not as it was written."""
        arrays = self._read(digest, _TOTALS)
        return None if arrays is None else _totals_of(arrays)

    def weights(self, digest: str) -> Arrays | None:
        """The weights after a pass, as of `Replay.weights`; None as of `totals`."""
        return self._read(digest, _WEIGHTS)

    def put(self, digest: str, totals: PassTotals, weights: Arrays | None = None) -> None:
        """Keep what a pass gave, and the weights after it, if it was one of training.

        The folder is there: who puts holds `learning`.

        Raises:
            OutputError: the folder cannot be written.
        """
        counts = np.array([totals.instances, totals.rows, totals.correct], np.float64)
        losses = np.array(totals.losses, np.float64)
        errors = np.array(totals.absolute_errors, np.float64)
        arrays = {"counts": counts, "losses": losses, "absolute_errors": errors}
        if weights is not None:
            self._write(digest, _WEIGHTS, weights)
        self._write(digest, _TOTALS, arrays)  # last, so that a pass is whole or not there

    def forget_weights(self, digest: str) -> None:
        """Let go of the weights after a pass that another one has followed."""
        self._path(digest, _WEIGHTS).unlink(missing_ok=True)

    @contextlib.contextmanager
    def learning(self, digest: str) -> Generator[None]:
        """While this lasts, other processes that want to learn the same wait for it."""
        prepare_folder(self.folder)
        with FileLock(self.folder / f"{digest}.lock"):
            yield

    def _path(self, digest: str, what: str) -> Path:
        return self.folder / f"{digest}.{what}"

    def _read(self, digest: str, what: str) -> Arrays | None:
        try:
            content = read_regular(self._path(digest, what))
        except OSError:
            return None
        body, written = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
        if hashlib.sha256(body).digest() != written:
            return None
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def _write(self, digest: str, what: str, arrays: Arrays) -> None:
        buffer, named = io.BytesIO(), cast("dict[str, Any]", arrays)
        np.savez(buffer, allow_pickle=False, **named)
        body = buffer.getvalue()
        content = body + hashlib.sha256(body).digest()
        write_bytes(self._path(digest, what), content, is_lasting=False)  # else it is learned again


def _totals_of(arrays: Mapping[str, np.ndarray]) -> PassTotals:
    instances, rows, correct = arrays["counts"].tolist()
    return PassTotals(
        instances=int(instances),
        rows=int(rows),
        correct=correct,
        losses=cast("list[float]", arrays["losses"].tolist()),
        absolute_errors=cast("list[float]", arrays["absolute_errors"].tolist()),
    )
