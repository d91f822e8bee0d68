"""Simulate how a network trains, and what it learns, on hardware that need not exist.

The public names stand in ``__init__.pyi``, which type checkers read too. Each is imported when it
is first asked for, so that the command line starts at once.
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
    """Whether this is `ampsim` or ``python -m ampsim``, not a program that imports the library."""
    words = sys.orig_argv[-len(sys.argv) :] if sys.argv else []  # the program's name comes first
    name = os.path.basename(words[0]) if words else ""
    return name in ("ampsim", "ampsim.exe") or (name[:1] == "-" and name.endswith("mampsim"))


if _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_at_once)

from importlib.metadata import PackageNotFoundError, version  # noqa: E402  # Ctrl-C comes first

import lazy_loader  # noqa: E402  # pyright: ignore[reportMissingTypeStubs]  # it has none

try:
    __version__ = version("ampsim")
except PackageNotFoundError:
    __version__ = "0.0.0+unknown"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]  # likewise
    __name__, __file__
)
