"""Simulate how a network trains, and what it learns, on hardware that need not exist.

The public names stand in ``__init__.pyi``, which type checkers read too; those of schedules and
solvers are what their registries list. Each is imported when it is first asked for, so that the
command line starts at once.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # that of `typing`, whose import takes a moment, in which Ctrl-C may come
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the built-in part, for the same reason


def _end_at_once(number: int, frame: object) -> None:
    """End the program, which has made nothing yet, in a line instead of a traceback."""
    try:
        os.write(2, b"ampsim: interrupted\n")
    finally:
        os._exit(128 + number)


def _is_program() -> bool:
    """Tell whether this is `ampsim` or ``python -m ampsim``, not a program that imports it."""
    words = sys.orig_argv[-len(sys.argv) :] if sys.argv else []  # the program's name comes first
    name = os.path.basename(words[0]) if words else ""
    return name in ("ampsim", "ampsim.exe") or (name[:1] == "-" and name.endswith("mampsim"))


if _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_at_once)

import ast  # noqa: E402  # Ctrl-C comes first
from importlib.metadata import PackageNotFoundError, version  # noqa: E402  # likewise

import lazy_loader  # noqa: E402  # pyright: ignore[reportMissingTypeStubs]  # it has none


def _public(file: str) -> dict[str, list[str]]:
    """The names that a stub imports from each module; of a star, those in that file's `__all__`."""
    found: dict[str, list[str]] = {}
    for node in _written(file):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [one.name for one in node.names]
            if names == ["*"]:
                names = _listed(os.path.join(os.path.dirname(file), *module.split(".")) + ".py")
            found[module] = [*found.get(module, []), *names]
    return found


def _listed(file: str) -> list[str]:
    """Its `__all__`."""
    for node in _written(file):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{file}: there must be a list `__all__`")


def _written(file: str) -> list[ast.stmt]:
    with open(file, encoding="utf-8") as source:
        return ast.parse(source.read()).body


try:
    __version__ = version("ampsim")
except PackageNotFoundError:
    __version__ = "0.0.0+unknown"

_PUBLIC = _public(__file__.removesuffix("c") + "i")
__getattr__, __dir__, __all__ = lazy_loader.attach(  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  # likewise
    __name__, _PUBLIC.pop("", ()), _PUBLIC
)
