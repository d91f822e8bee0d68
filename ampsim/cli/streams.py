"""Standard streams that may be closed: results are written all the same, and nothing into them."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class Lost(io.TextIOWrapper):
    """A stream that leads nowhere, and remembers whether something was to be said.

    Attributes:
        is_used: whether anything was written.
    """

    is_used = False

    def write(self, text: str, /) -> int:
        """Take note of it."""
        self.is_used = self.is_used or bool(text)
        return len(text)


def open_streams() -> Lost | None:
    """Make standard streams that are closed lead nowhere; return standard output if it does.

    Their numbers are taken, too, or the next file that is opened would get what is said.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    streams: Any = sys  # has None for a stream that was closed when Python started
    if streams.stderr is None:
        sys.stderr = Lost(io.BytesIO(), encoding="utf-8")
    if streams.stdout is not None:
        return None
    lost = Lost(io.BytesIO(), encoding="utf-8")
    sys.stdout = lost
    return lost
