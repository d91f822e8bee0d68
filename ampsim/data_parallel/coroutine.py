"""Coroutines that go on within the call that brings what they await.

A rank is one coroutine, read top down. What it awaits is begun when it has stopped, and goes on
with it in the very call that ends that: no event of the clock lies between. So what happens at one
instant keeps the order in which it was brought about (docs/decisions/0004-instants.md), on any
clock.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

Value = TypeVar("Value")

Resume: TypeAlias = Callable[[Any], None]
"""Lets a coroutine go on, with what it awaited."""


@types.coroutine
def until(begin: Callable[[Callable[[Value], None]], None]) -> Generator[Any, Any, Value]:
    """Await something that is begun now and ends later, perhaps at once.

    Args:
        begin: called when the coroutine has stopped, with what lets it go on.
    """
    return (yield begin)


def run(
    coroutine: Coroutine[Any, Any, Value], ended: Callable[[Value], None] | None = None
) -> None:
    """Run a coroutine up to what it awaits first; `ended` is called with what it returns."""

    def go_on(value: Any) -> None:
        try:
            begin = coroutine.send(value)
        except StopIteration as end:
            if ended is not None:
                ended(end.value)
            return
        begin(go_on)

    go_on(None)


def all_of(coroutines: Sequence[Coroutine[Any, Any, Value]]) -> Awaitable[Value]:
    """Await all of them, begun in their order; gives what the last one to end returns."""

    def begin(resume: Callable[[Value], None]) -> None:
        left = len(coroutines)

        def ended(value: Value) -> None:
            nonlocal left
            left -= 1
            if not left:
                resume(value)

        for coroutine in coroutines:
            run(coroutine, ended)

    return until(begin)
