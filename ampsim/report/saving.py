"""Figures as files: the suffix names the format; the same figure gives the same bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ampsim.arguments import checked
from ampsim.errors import OptionError
from ampsim.files import replacing
from ampsim.report.style import styled

# No dates and no library versions: they would change the bytes without changing the picture.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": "ampsim"},
    ".svg": {"Creator": "ampsim", "Date": None},
    ".pdf": {"Creator": "ampsim", "Producer": "ampsim", "CreationDate": None},
}
KNOWN_SUFFIXES: tuple[str, ...] = tuple(_METADATA)


def check_suffix(path: Path) -> str:
    """The lower-case suffix of a picture's path.

    Raises:
        OptionError: not a format that figures are written in.
    """
    suffix = path.suffix.lower()
    if suffix not in _METADATA:
        raise OptionError(
            f"cannot write a figure to {str(path)!r}: its suffix must be one of "
            f"{', '.join(KNOWN_SUFFIXES)}, got {suffix or 'none'!r}"
        )
    return suffix


@styled
@checked
def save(figure: Figure, path: str | Path) -> Path:
    """Writes `figure` as PNG, SVG or PDF, by the suffix of `path`; gives the path written.

    Raises:
        OptionError: unknown suffix.
        OutputError: the file cannot be written.
    """
    target = Path(path)
    suffix = check_suffix(target)
    with replacing(target) as temporary:
        untyped: Any = figure
        untyped.savefig(temporary, format=suffix[1:], metadata=_METADATA[suffix])
    return target


@styled
def encode(figure: Figure, suffix: str) -> bytes:
    """The bytes that `save` writes into a file of that suffix."""
    content = io.BytesIO()
    untyped: Any = figure
    untyped.savefig(content, format=suffix[1:], metadata=_METADATA[suffix])
    return content.getvalue()
