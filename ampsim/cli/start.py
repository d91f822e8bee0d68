"""Start of the program, before anything that takes a moment to import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from ampsim.cli.signals import forget_interruption


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit; see `ampsim.cli.entry.main`.

    Ctrl-C while it is still being imported ends it, too, in a line.

    Args:
        arguments: instead of those on the command line.
    """
    try:
        from ampsim.cli import entry
    except KeyboardInterrupt:
        sys.stderr.write("ampsim: interrupted\n")
        forget_interruption()
        sys.exit(130)
    entry.main(arguments)
