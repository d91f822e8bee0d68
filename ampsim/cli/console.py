"""The console of all commands: words to a terminal or as JSON, groups of options, what is held."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json as writer
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from enum import IntEnum
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

import ampsim
from ampsim.cli import completion
from ampsim.cli.option_table import EVERY, PANELS
from ampsim.errors import AmpsimError, Failure, OptionError
from ampsim.files import prepared_file, write_text
from ampsim.text import finite, printable, sequence

_LAYOUT = "\n\t"
_LINE_MAX = 2000  # chosen: twenty lines of a terminal; what counts is around the value
_ROOM = 24  # chosen: a last column that is narrower stands below the others
_WIDTH_IN_PIPE = 160  # chosen: nobody reads a pipe by eye, so little is left out


class Code(IntEnum):
    """Exit codes."""

    FINE = 0
    STALE = 1
    FAILED = 2
    INTERRUPTED = 130


def complain(text: object) -> None:
    """Say one line on standard error, with the program's name in front."""
    line = printable(" ".join(str(text).split()))
    if len(line) > _LINE_MAX:  # a value that came, such as a path, takes all of it
        line = f"{line[: _LINE_MAX // 2]}...{line[-_LINE_MAX // 2 :]}"
    with contextlib.suppress(OSError, ValueError):  # nobody listens: what was made counts
        sys.stderr.write(f"ampsim: {line}\n")


def write(text: str) -> None:
    """Say one or more lines on standard output, unless that is for the JSON object alone.

    What would command a terminal is shown as text. On a terminal lines are broken between words.
    """
    if _ALONE.get(None) is not None:
        return
    lines = printable(text, keep=_LAYOUT).split("\n")
    if sys.stdout.isatty():
        lines = [part for line in lines for part in _broken(line, width())]
    sys.stdout.write("\n".join(lines) + "\n")


def _broken(line: str, room: int) -> list[str]:
    """A line in parts of so many characters, where words are no longer, behind its indent."""
    if len(line) <= room:
        return [line]
    indent = " " * (len(line) - len(line.lstrip(" ")))
    return textwrap.wrap(
        line, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def width() -> int:
    """Characters in a line of standard output."""
    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _WIDTH_IN_PIPE if is_free else shutil.get_terminal_size().columns


def in_columns(rows: Iterable[Sequence[str]], *, indent: str = "") -> str:
    """Rows as aligned columns; the last is wrapped to the width of the output, or stands below."""
    lines = [[printable(cell, keep=_LAYOUT) for cell in row] for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*(line[:-1] for line in lines), strict=True)]
    before = len(indent) + sum(widths) + 2 * len(widths)
    is_below = width() - before < min(_ROOM, max(len(line[-1]) for line in lines))
    return "\n".join(_line(line, widths, indent, is_below) for line in lines)


def _line(line: list[str], widths: list[int], indent: str, is_below: bool) -> str:
    head = indent + "".join(f"{cell:<{wide}}  " for cell, wide in zip(line, widths, strict=False))
    before = ""
    if is_below:
        before, head = f"{head.rstrip()}\n", f"{indent}    "
    wrapped = textwrap.wrap(line[-1], max(1, width() - len(head))) or [""]
    below = f"\n{' ' * len(head)}".join([f"{head}{wrapped[0]}", *wrapped[1:]])
    return f"{before}{below}".rstrip()


T = TypeVar("T")

_HELD: Final[ContextVar[ExitStack]] = ContextVar("_HELD")


def hold(resource: AbstractContextManager[T]) -> T:
    """Enter a context which is left when the command under way ends."""
    return _HELD.get().enter_context(resource)


_ALONE: Final[ContextVar[Any]] = ContextVar("_ALONE")


@contextlib.contextmanager
def _json_alone() -> Generator[None]:
    """Keep standard output for the JSON object: what a model's own code prints goes to the other.

    Processes that make runs keep to that, too (`ampsim.runs.local_slots`).
    """
    token = _ALONE.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _ALONE.reset(token)


def write_json(text: str, json: str) -> None:
    """Write JSON text to the file of --json, or alone to standard output."""
    if json == "-":
        _ALONE.get().write(printable(text, keep=_LAYOUT))
    else:
        write_text(json, text)


def answer(json: str | None, content: Callable[[], str], text: Callable[[], str]) -> None:
    """Write a command's answer as JSON, if that is wanted, and as text.

    Args:
        json: the file of --json; "-" for standard output, on which the JSON then stands alone.
        content: gives the JSON text.
        text: gives the lines for a person.
    """
    if json is not None:
        write_json(content(), json)
    if json != "-":
        write(text())


def object_of(**content: Any) -> str:
    """The JSON text of an object of these keys, after `ampsim`, the version."""
    return writer.dumps(finite({"ampsim": ampsim.__version__, **content}), indent=2) + "\n"


OPTIONS_MAX: Final = 15
"""Options of a command from which on help lists them by panels (chosen: a screen of help)."""


class Panelled(TyperCommand):
    """A command whose help lists many options by what they are about."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments first, then each panel, then what is in none."""
        parameters = self.get_params(ctx)
        panel_of = {name: panel for panel, names in PANELS.items() for name in names}
        if len(parameters) <= OPTIONS_MAX:
            panel_of = {}
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        rows |= {panel: [] for panel in (*PANELS, "Options")}
        for one in parameters:
            is_argument = one.param_type_name == "argument"
            panel = "Arguments" if is_argument else panel_of.get(one.name or "", "Options")
            if (row := one.get_help_record(ctx)) is not None:
                rows[panel].append(row)
        for panel, of_panel in rows.items():
            if of_panel:
                with formatter.section(panel):
                    formatter.write_dl(of_panel)


_IS_ASKED: Final = ContextVar("_IS_ASKED", default=False)
_CONTEXT: Final[ContextVar[typer.Context]] = ContextVar("_CONTEXT")


def typed_options() -> dict[str, str]:
    """Options that were given to the command under way, by their names here, as they are typed."""
    context = _CONTEXT.get()

    def is_given(name: str | None) -> bool:
        source = context.get_parameter_source(name or "")
        return source is not None and source.name == "COMMANDLINE"

    def words(one: Any) -> str:
        is_off = context.params.get(one.name) is False and one.secondary_opts
        return one.secondary_opts[0] if is_off else one.opts[0]

    options = [one for one in context.command.params if one.param_type_name == "option"]
    return {str(one.name): words(one) for one in options if is_given(one.name)}


def require_effect(names: Iterable[str], why: str) -> None:
    """Refuse options that were given to the command under way and would change nothing.

    Args:
        names: of the options, by their arguments.
        why: that is so, as the end of a sentence.

    Raises:
        OptionError: one was given.
    """
    for said in _without_effect(names, why):
        raise OptionError(f"{said}; leave it out")


def note_no_effect(names: Iterable[str], why: str) -> None:
    """Note options that were given and change nothing, as it is asked, as of `require_effect`."""
    for said in _without_effect(names, why):
        complain(f"note: {said}")


def _without_effect(names: Iterable[str], why: str) -> list[str]:
    typed = typed_options()
    return [f"{typed[name]} has no effect {why}" for name in names if name in typed]


def command(function: Callable[..., Code]) -> Callable[..., Code]:
    """Make a command of a function; what it does not take by position are options.

    For each argument that is a record it has an option for each of the record's fields, and for
    those of records in it. With its own option --traceback an error that ends it is shown whole.
    The file of --json is tried before the long work. What the function `hold`s is let go when it
    ends.
    """
    given = inspect.signature(function, eval_str=True).parameters.values()

    def run(context: typer.Context, *, traceback: bool, **typed: Any) -> Code:
        asked, _of = _IS_ASKED.set(traceback), _CONTEXT.set(context)
        try:
            taken = {one.name: _taken(one.name, one.annotation, typed) for one in given}
            with ExitStack() as held:
                held.callback(_HELD.reset, _HELD.set(held))
                if (json := typed.get("json")) is not None:
                    hold(_json_alone() if json == "-" else _own_file(json, typed))
                return function(**taken)
        except AmpsimError as error:
            show_traceback(error)
            raise
        finally:
            _IS_ASKED.reset(asked)

    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    traceback = inspect.Parameter("traceback", keyword, annotation=bool, default=False)
    name = function.__name__
    parameters = [inspect.Parameter("context", either, annotation=typer.Context)]
    parameters += [of for one in (*given, traceback) for of in _declared(name, one)]
    untyped: Any = run
    untyped.__name__, untyped.__doc__ = function.__name__, function.__doc__
    untyped.__signature__ = inspect.Signature(parameters, return_annotation=Code)
    untyped.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _own_file(json: str, typed: dict[str, Any]) -> AbstractContextManager[Any]:
    """Try the file of --json; an OptionError where another argument names it, or its folder."""
    with contextlib.suppress(FileNotFoundError):  # one is in a folder that is gone
        place = os.path.realpath(os.path.expanduser(json.replace("\0", "")))  # is told below
        folder, usual = os.path.dirname(place), (f"{_CONTEXT.get().command.name}-", "calibration-")
        others = {name: value for name, value in typed.items() if name not in ("json", "data")}
        if not others.get("out") and os.path.basename(folder).startswith(usual):
            others["out"] = folder
        for name, value in others.items():
            for one in filter(None, map(str, sequence(value) or [value])):
                file = os.path.realpath(os.path.expanduser(re.sub(r"(?<=\.py):\w+$|\0", "", one)))
                is_in = file == folder and not place.endswith(".json")
                if is_in or (file == place and ("." in one or name == "out")):
                    of_folder = f"in the folder {one!r}; name one that ends in .json"
                    came = of_folder if is_in else f"and {one!r} besides; name another"
                    raise OptionError(f"--json must be a file of its own, got {json!r}, {came}")
    return prepared_file(json)


def _taken(name: str, kind: Any, typed: dict[str, Any]) -> Any:
    """Return what was typed for an argument, or a record of what was typed for its fields."""
    if not dataclasses.is_dataclass(kind):
        return typed[name]
    types = get_type_hints(kind)
    fields = [one.name for one in dataclasses.fields(kind)]
    record: Any = kind
    return record(**{one: _taken(one, types[one], typed) for one in fields})


def _declared(command: str, argument: inspect.Parameter) -> list[inspect.Parameter]:
    """An argument of a command with what help says of it; of a record, one for each field."""
    record: Any = argument.annotation
    if dataclasses.is_dataclass(record):
        types = get_type_hints(record)
        fields = [
            argument.replace(name=one.name, annotation=types[one.name], default=one.default)
            for one in dataclasses.fields(record)
        ]
        return [of for one in fields for of in _declared(command, one)]
    one = EVERY.get(f"{command}.{argument.name}") or EVERY[argument.name]
    offered = one.offered
    complete = offered if callable(offered) else completion.one_of(*offered) if offered else None
    how: Any = {
        "metavar": one.metavar,
        "help": one.text,
        "show_default": one.shows_default,
        "autocompletion": complete,
    }
    is_option = argument.kind is inspect.Parameter.KEYWORD_ONLY
    made = typer.Option(*one.names, **how) if is_option else typer.Argument(**how)
    return [argument.replace(annotation=Annotated[argument.annotation, made])]


def show_traceback(error: BaseException | str | None) -> None:
    """Write how an error came about to standard error, if --traceback asked for it."""
    if not _IS_ASKED.get():
        return
    if isinstance(error, BaseException):
        sys.stderr.write("".join(traceback.format_exception(error)))
    elif isinstance(error, Failure):
        sys.stderr.write(error.traceback)
