"""Reader of idx files: what it reads, and what it says about files that are none."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from ampsim.data.mnist import read_idx
from ampsim.errors import FileFormatError


def idx(array: np.ndarray, kind: int = 0x08) -> bytes:
    header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


@pytest.mark.parametrize(
    ("kind", "dtype"), [(8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_type_of_number_is_read(tmp_path: Path, kind: int, dtype: str, suffix: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    content = idx(array, kind)
    path = tmp_path / f"array{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    read = read_idx(path, 3)
    np.testing.assert_array_equal(read, array)
    assert not read.flags.writeable


WHOLE = idx(np.zeros((5, 2), np.uint8))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG" + WHOLE, "byte 0: expected the magic number of an idx file of 2 axes"),
        (b"\0\0", "such as 0x00000802, got 0x0000;"),
        (idx(np.zeros(5, np.uint8)), "got 0x00000801"),
        (idx(np.zeros((5, 2), np.uint8), 7), "got 0x00000702"),
        (WHOLE[:9], "byte 9: is cut off within its header of 12 bytes"),
        (WHOLE[:-1], "byte 21: its header says 5 x 2 numbers, so 22 bytes, got 21"),
        (WHOLE + b"1", "byte 22: its header says 5 x 2 numbers, so 22 bytes, got 23"),
        (b"", "is empty"),
    ],
)
def test_what_is_no_idx_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "array"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=said) as caught:
        read_idx(path, 2)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
