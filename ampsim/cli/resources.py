"""What a command holds until it ends, however that is: folders for files that may not come."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from ampsim.cli.say import Code

T = TypeVar("T")

_HELD: Final[ContextVar[ExitStack]] = ContextVar("_HELD")


def releasing(command: Callable[..., Code]) -> Callable[..., Code]:
    """Let go of what a command `holds` when it ends."""

    @functools.wraps(command)
    def wrapped(*given: Any, **named: Any) -> Code:
        with ExitStack() as held:
            token = _HELD.set(held)
            try:
                return command(*given, **named)
            finally:
                _HELD.reset(token)

    wrapped.__signature__ = inspect.signature(command, eval_str=True)  # pyright: ignore[reportAttributeAccessIssue]  # inspect reads it
    return wrapped


def hold(resource: AbstractContextManager[T]) -> T:
    """Enter a context which is left when the command under way ends."""
    return _HELD.get().enter_context(resource)
