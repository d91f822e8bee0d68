"""Options that commands share as a record: a dataclass whose fields are annotated as options."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

from ampsim.cli.say import Code

C = TypeVar("C", bound=Callable[..., Code])


def with_option_groups(command: Callable[..., Code]) -> Callable[..., Code]:
    """Give a command, for each argument that is such a record, an option for each of its fields."""
    signature = inspect.signature(command, eval_str=True)
    records: dict[str, Any] = {
        one.name: one.annotation
        for one in signature.parameters.values()
        if dataclasses.is_dataclass(one.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        parameters += _options_of(one) if one.name in records else [one]

    @functools.wraps(command)
    def wrapped(**given: Any) -> Code:
        made = {
            name: record(**{one.name: given.pop(one.name) for one in dataclasses.fields(record)})
            for name, record in records.items()
        }
        return command(**given, **made)

    return with_parameters(wrapped, parameters)


def with_parameters(command: C, parameters: Sequence[inspect.Parameter]) -> C:
    """Give a function that wraps a command these parameters instead of the command's own."""
    untyped: Any = command
    del untyped.__wrapped__
    untyped.__signature__ = inspect.Signature(parameters, return_annotation=Code)
    untyped.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _options_of(argument: inspect.Parameter) -> list[inspect.Parameter]:
    record: Any = argument.annotation
    types = get_type_hints(record, include_extras=True)
    return [
        argument.replace(name=one.name, annotation=types[one.name], default=one.default)
        for one in dataclasses.fields(record)
    ]
