"""Models and what holds them as bytes, functions of a model's file among it.

A model is pickled with the source of its file, so that it is whole wherever it is read. Functions
of that file are found by name in the source, which is executed again; what has no
name, such as lambdas and what was defined in a notebook, is carried by cloudpickle. Everything that
holds a model, such as a result or a forecast, is then pickled like anything else. As with any
pickle, reading one runs what is in it: read only those that you would run.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from ampsim.study.loading import ModelSource, loaded_sources, restore
from ampsim.study.model import Model

_CACHED: Final[Any] = type(lru_cache(None)(len))


def bytes_of(value: object) -> bytes:
    """Pickle a value, functions without a name among its parts."""
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs]  # has none

    pickler: Any = cloudpickle.Pickler

    class Pickler(pickler):
        """Cloudpickle's, which also takes functions with `functools.cache` that have no name."""

        def reducer_override(self, one: Any) -> Any:
            if type(one) is _CACHED and not _has_name(one):
                return _cached, (one.__wrapped__, one.cache_parameters()["maxsize"])
            above: Any = super()
            return above.reducer_override(one)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def _has_name(function: Any) -> bool:
    """Whether it is found again by its name."""
    return getattr(sys.modules.get(function.__module__), function.__qualname__, None) is function


def _cached(function: Callable[..., Any], size: int | None) -> Callable[..., Any]:
    return lru_cache(size)(function)


_MAKING: Final = threading.RLock()


def _reduce(model: Model) -> tuple[Any, ...]:
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return _made, (loaded_sources(), bytes_of(values))


def _made(sources: dict[str, ModelSource], content: bytes) -> Model:
    with _MAKING:  # of two threads, neither finds the other's file half executed, or another's
        restore(sources)
        return Model(**pickle.loads(content))


copyreg.pickle(Model, _reduce)
