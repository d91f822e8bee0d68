"""MNIST: images of digits, read from its files or drawn.

The form of a file (source: LeCun, Cortes and Burges, the page of MNIST): the first two bytes are 0,
the third names the type of the numbers, the fourth counts the axes; lengths are 32-bit, everything
big-endian.

Source: LeCun, Cortes and Burges 1998; AMPNet, Appendix B.1: batches of 100. Chosen: the 10,000 test
images are what accuracy is measured on, as usual; grey values are divided by 255 and nothing else.
The synthetic set has ten drawn patterns instead of digits, shifted by up to two pixels and noisy.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.data.content import REMEDY, once, read_bytes
from ampsim.data.dataset import Registered, Split, chunks, drawn, limit, pick
from ampsim.data.registry import find_file
from ampsim.data.vocabulary import frozen
from ampsim.errors import FileFormatError
from ampsim.options import Count, Seed, require_count, require_dtype
from ampsim.rng import stream

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8


_TYPES: Final = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str], axes: int) -> np.ndarray[Any, np.dtype[Any]]:
    """The array of an idx file, plain or packed, as a read-only view of what was read.

    Args:
        path: of the file; its suffix says whether it is packed.
        axes: how many axes the array must have.

    Raises:
        FileFormatError: the file is damaged, cut off, too long, or no idx file of so many axes.
    """
    content = read_bytes(path)
    magic = content[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] != axes:
        raise FileFormatError(
            f"{path}: byte 0: expected the magic number of an idx file of {axes} axes,"
            f" such as 0x{0x0800 + axes:08x}, got 0x{magic.hex()}; {REMEDY}"
        )
    start = 4 + 4 * axes
    if len(content) < start:
        raise FileFormatError(
            f"{path}: byte {len(content)}: is cut off within its header of {start} bytes; {REMEDY}"
        )
    shape = struct.unpack(f">{axes}I", content[4:start])
    kind = np.dtype(_TYPES[magic[2]])
    expected = start + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        sizes = " x ".join(map(str, shape))
        raise FileFormatError(
            f"{path}: byte {min(len(content), expected)}: its header says {sizes} numbers, so"
            f" {expected} bytes, got {len(content)}; {REMEDY}"
        )
    return np.frombuffer(content, kind, offset=start).reshape(shape)


SIDE: Final = 28
PIXELS: Final = SIDE * SIDE
CLASSES: Final = 10

SHIFT_MAX: Final = 2
NOISE: Final = 48.0
"""Standard deviation of the synthetic images' noise, of 255; chosen: not to be told at a glance."""


class ImageBatch(NamedTuple):
    """Images, a row each, with values from 0 to 1; both arrays are read-only and contiguous."""

    images: Float[np.ndarray, "rows 784"]
    labels: Int[np.ndarray, " rows"]

    @property
    def rows(self) -> int:
        """Count of images."""
        return len(self.labels)


class ImageSplit(NamedTuple):
    """Images with values from 0 to 255, and what they show; both arrays are read-only."""

    images: UInt8[np.ndarray, "images 784"]
    labels: Int[np.ndarray, " images"]


@dataclass(frozen=True, slots=True, eq=False)
class Mnist(Registered):
    """The data set of the paper's perceptron; see the module for what it holds.

    >>> data = Mnist.synthetic(seed=0, train_count=250, valid_count=50)
    >>> [batch.rows for batch in data.batches("train", epoch=0, seed=0)]
    [100, 100, 50]

    Raises:
        OptionError: `batch` is below 1, or `dtype` is neither "float32" nor "float64".
    """

    name = "mnist"
    train: ImageSplit
    valid: ImageSplit
    batch: int = 100
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_count("batch", self.batch)
        require_dtype(self.dtype)

    @classmethod
    @checked
    def load(
        cls,
        folder: str | os.PathLike[str] | None = None,
        *,
        train_count: Count | None = None,
        valid_count: Count | None = None,
        batch: Count = 100,
        dtype: str = "float32",
    ) -> Mnist:
        """The real data set.

        Args:
            folder: the data folder; see `data_folder`.
            train_count: how many of the training images, the first in the file; None for all.
            valid_count: the same of the validation images.
            batch: images in a batch.
            dtype: of the images handed out.

        Raises:
            MissingDataError: a file is not there.
            FileFormatError: a file does not hold what it must.
            OptionError: an option has a value that it cannot have.
        """
        train, valid = (
            _read(*(find_file("mnist", f"{part}-{what}", folder) for what in ("images", "labels")))
            for part in ("train", "valid")
        )
        return cls(
            _first(train, limit("instances", train_count, len(train.labels))),
            _first(valid, limit("valid_count", valid_count, len(valid.labels))),
            batch,
            dtype,
        )

    @classmethod
    @checked
    def synthetic(
        cls,
        seed: Seed,
        *,
        train_count: Count = 2_000,
        valid_count: Count = 500,
        batch: Count = 100,
        dtype: str = "float32",
    ) -> Mnist:
        """A data set of the same form, drawn; a smaller one holds the first of a larger one.

        Raises:
            OptionError: an option has a value that it cannot have.
        """
        draw = partial(_draw, seed, _patterns(seed))
        return cls(*drawn(draw, train_count, valid_count, PIXELS), batch, dtype)

    def count(self, split: Split) -> int:
        """Count of images that a split has."""
        return len(pick(split, self.train, self.valid).labels)

    def batch_count(self, split: Split) -> int:
        """Count of batches that `batches` gives; the last may be smaller."""
        return -(-self.count(split) // self.batch)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[ImageBatch]:
        """Every image of a split once; "train" shuffled anew in each epoch."""
        images, labels = pick(split, self.train, self.valid)
        scale = np.dtype(self.dtype).type(255)
        for chosen in chunks(split, len(labels), self.batch, epoch=epoch, seed=seed):
            yield ImageBatch(frozen(images[chosen] / scale), frozen(labels[chosen]))


@once
def _read(images_path: Path, labels_path: Path) -> ImageSplit:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8:
        size = " x ".join(map(str, images.shape[1:]))
        raise FileFormatError(
            f"{images_path}: expected images of {SIDE} x {SIDE} bytes, got {size} {images.dtype}"
        )
    if not len(images):
        raise FileFormatError(f"{images_path}: has no images; {REMEDY}")
    if len(labels) != len(images):
        raise FileFormatError(
            f"{labels_path}: expected {len(images)} labels, as many as there are images in"
            f" {images_path.name}, got {len(labels)}"
        )
    if labels.dtype.kind not in "iu":
        raise FileFormatError(f"{labels_path}: expected whole numbers, got {labels.dtype.name}")
    wrong = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if len(wrong):
        raise FileFormatError(
            f"{labels_path}: label {wrong[0]}: expected 0 to {CLASSES - 1}, got {labels[wrong[0]]}"
        )
    return ImageSplit(images.reshape(-1, PIXELS), frozen(labels.astype(np.intp)))


def _first(split: ImageSplit, count: int) -> ImageSplit:
    return ImageSplit(split.images[:count], split.labels[:count])


def _patterns(seed: int) -> UInt8[np.ndarray, "10 28 28"]:
    coarse = stream(seed, "mnist.patterns").random((CLASSES, 7, 7)) > 0.6
    fine = np.kron(coarse, np.ones((4, 4)))
    for axis in (1, 2):
        fine = (fine + np.roll(fine, 1, axis) + np.roll(fine, -1, axis)) / 3
    return (fine * 255).astype(np.uint8)


def _draw(seed: int, patterns: np.ndarray, split: Split, count: int) -> ImageSplit:
    """Noisy, shifted patterns, from streams of their own."""
    labels = stream(seed, f"mnist.{split}.labels").integers(0, CLASSES, count, np.intp)
    shifts = stream(seed, f"mnist.{split}.shifts").integers(-SHIFT_MAX, SHIFT_MAX + 1, (count, 2))
    noise = stream(seed, f"mnist.{split}.noise").standard_normal((count, SIDE, SIDE), np.float32)
    place = np.arange(SIDE)
    rows, columns = ((place + shifts[:, axis, None]) % SIDE for axis in (0, 1))
    clean = patterns[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    images = np.clip(clean + NOISE * noise, 0, 255).astype(np.uint8)
    return ImageSplit(frozen(images.reshape(-1, PIXELS)), frozen(labels))
