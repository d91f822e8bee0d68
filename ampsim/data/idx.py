"""Reader of idx files, the form of MNIST: a magic number, the lengths of the axes, the numbers.

Source: LeCun, Cortes and Burges, the page of MNIST. The first two bytes are 0, the third names the
type of the numbers, the fourth counts the axes; lengths are 32-bit, everything big-endian.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any, Final

import numpy as np

from ampsim.data.content import REMEDY, read_bytes
from ampsim.errors import FileFormatError

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
