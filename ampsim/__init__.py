"""Simulate how a network trains, and what it learns, on hardware that need not exist.

The public names stand in ``__init__.pyi``, which type checkers read too. Each is imported when it
is first asked for, so that the command line starts at once.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import lazy_loader  # pyright: ignore[reportMissingTypeStubs]  # it has none

try:
    __version__ = version("ampsim")
except PackageNotFoundError:
    __version__ = "0.0.0+unknown"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(  # pyright: ignore[reportUnknownVariableType]  # likewise
    __name__, __file__
)
