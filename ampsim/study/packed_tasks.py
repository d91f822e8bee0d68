"""Runs that are to be made, as bytes, for a process that starts with nothing.

A model is Python objects with functions of a file that was loaded by its path, or of a notebook.
The process executes the same source under the same name first, whatever the file says by now; then
functions of a file are found by name, and the rest, such as lambdas and what was defined in a
notebook, is carried whole by cloudpickle.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ampsim.errors import OptionError
from ampsim.study.loading import Source, loaded_sources, restore
from ampsim.study.task import Task

_CACHED: Final[Any] = type(lru_cache(None)(len))


@dataclass(slots=True)
class PackedTasks:
    """Tasks on their way.

    Args:
        sources: of the model files that are loaded.
        content: the tasks.
    """

    sources: dict[str, Source]
    content: bytes
    _tasks: list[Task] | None = None

    def tasks(self) -> list[Task]:
        """Unpack them, once."""
        tasks = self._tasks
        if tasks is None:
            restore(self.sources)
            tasks = self._tasks = pickle.loads(self.content)
        assert tasks is not None, "tasks are a list"
        return tasks


def packed(tasks: Sequence[Task]) -> PackedTasks:
    """Pack tasks.

    Raises:
        OptionError: a model holds something that only this process can have.
    """
    try:
        return PackedTasks(loaded_sources(), bytes_of(list(tasks)))
    except Exception as error:  # whatever an object raises that cannot be taken apart
        names = ", ".join(sorted({task.plan.model.name for task in tasks}))
        raise OptionError(
            f"jobs must be 1 here, for model {names} cannot be sent to another process: "
            f"{type(error).__name__}: {error}; make such objects within make_graph and make_data"
        ) from error


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
