"""NumPy, watched: what is called, and how many bytes each call reads and writes.

An array that is watched counts every call that takes or makes it: functions, operators, methods and
indices that copy. Views are no calls. What a function of NumPy calls inside is part of its call.
Payloads are in single precision. Whole numbers move no bytes, as control information is free; truth
values move a byte, and four where they meet numbers, to which they are cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.ir import SINGLE_BYTES

_GENERATOR = np.random.Generator
PRODUCTS = {"matmul", "dot", "vdot", "inner"}
MAKERS = ("arange", "empty", "full", "ones", "tri", "zeros")
METHODS = (
    "argmax", "argsort", "astype", "copy", "dot", "max", "mean", "min", "repeat", "reshape", "sum",
    "take",
)  # fmt: skip


class Call(NamedTuple):
    """A call: its name, and the bytes that it read and wrote."""

    name: str
    bytes: int

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices, which counts as FLOP."""
        return self.name in PRODUCTS


class Watched(np.ndarray):
    """An array that counts."""

    calls: list[Call] | None = None
    """Of what is watched now; None within a call."""

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        more = {"out": out} if out else {}
        found = called(ufunc.__name__, getattr(ufunc, method), inputs, {**options, **more})
        return out[0] if out else found

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(function.__name__, function, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        return called("take", np.ndarray.__getitem__, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        target = plain(self)[plain(index)]
        if isinstance(value, Watched) and place_of(value) == place_of(target):
            return  # as NumPy skips it, after an operation in place on a slice
        called("put", np.ndarray.__setitem__, (self, index, value), {})


def called(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call it with plain arrays; a view is no call, and an index reads or writes what it names."""
    calls, Watched.calls = Watched.calls, None
    args, kwargs = plain(tuple(args)), {key: plain(one) for key, one in kwargs.items()}
    try:
        found = function(*args, **kwargs)
    finally:
        Watched.calls = calls
    out = kwargs.pop("out", None)
    given, made = arrays((*args, *kwargs.values())), arrays(found)
    if (out is None and is_view(found, (*args, *kwargs.values()))) or name.startswith("empty"):
        return watched(found)
    if name.startswith("take"):  # what it reads is as large as what it gives
        given = arrays((found, *args[1:]))
    elif name == "copyto":
        given, made = arrays(args[1]), arrays(args[0])
    elif name == "put_along_axis":
        given, made = arrays(args[2]), arrays(args[2])
    elif name == "put":
        given, made = arrays(args[1:]), arrays(args[0][args[1]])
    if calls is not None:
        calls.append(Call(name, moved_bytes(given, made)))
    return watched(found)


def is_view(found: Any, given: Any) -> bool:
    """Whether no number is copied; of none there is nothing to copy."""
    if not isinstance(found, np.ndarray):
        return False
    others = [one for one in given if isinstance(one, np.ndarray)]
    return not found.size or any(np.shares_memory(found, one) for one in others)


def moved_bytes(given: list[np.ndarray], made: list[np.ndarray]) -> int:
    """Bytes of what is read, once even if it stands twice, and of what is written."""
    read = {place_of(one): one for one in given}
    every = [*read.values(), *made]
    truth = SINGLE_BYTES if any(one.dtype.kind == "f" for one in every) else 1
    return sum(one.size * {"f": one.itemsize, "b": truth}.get(one.dtype.kind, 0) for one in every)


def place_of(array: np.ndarray) -> tuple[Any, ...]:
    return array.ctypes.data, array.shape, array.strides


def arrays(one: Any) -> list[np.ndarray]:
    """All arrays of more than one number, in it or in its parts."""
    if isinstance(one, tuple | list):
        return [array for part in one for array in arrays(part)]
    return [one] if isinstance(one, np.ndarray) and one.size > 1 else []


def plain(one: Any) -> Any:
    """Of what is watched the array that is not."""
    if isinstance(one, tuple | list):
        return type(one)(map(plain, one))
    return one.view(np.ndarray) if isinstance(one, Watched) else one


def watched(one: Any) -> Any:
    """Of arrays such that count."""
    if isinstance(one, tuple | list):
        return type(one)(map(watched, one))
    return one.view(Watched) if type(one) is np.ndarray else one


@contextmanager
def watching() -> Iterator[list[Call]]:
    """Watch all arrays that are made meanwhile; gives the calls, which go on."""
    calls = Watched.calls = list[Call]()
    with pytest.MonkeyPatch.context() as patch:
        for name in MAKERS:
            patch.setattr(np, name, _maker(getattr(np, name)))
        for name in METHODS:
            patch.setattr(Watched, name, _method(name), raising=False)
        patch.setattr(np.random, "Generator", Drawing)
        yield calls
    Watched.calls = None


class Drawing:
    """A generator whose draws count."""

    def __init__(self, bits: Any) -> None:
        self._real = _GENERATOR(bits)

    def random(self, *args: Any, **kwargs: Any) -> Any:
        """Uniform numbers."""
        return called("random", self._real.random, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _maker(maker: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        made = called(maker.__name__, maker, args, kwargs)
        return made if Watched.calls is not None and made.dtype.kind != "u" else plain(made)

    return make


def _method(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return called(name, getattr(np.ndarray, name), (self, *args), kwargs)

    return method
