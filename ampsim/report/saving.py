"""Figures and pages as files: PNG, SVG, PDF, and HTML that loads nothing.

Every value is escaped unless a template marks it as safe, and a page's own policy forbids to load
anything (`templates/page.html`), so a name that a user chose can do no harm.
"""

from __future__ import annotations

import io
import json
import platform
import re
from collections.abc import Collection
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import jinja2
import numpy as np
from matplotlib import ft2font
from matplotlib.figure import Figure
from PIL import Image

from ampsim.arguments import checked
from ampsim.errors import OptionError
from ampsim.files import replacing
from ampsim.report.style import styled
from ampsim.report.words import plain
from ampsim.text import finite

# No dates and no library versions: they would change the bytes without changing the picture.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": "ampsim"},
    ".svg": {"Creator": "ampsim", "Date": None},
    ".pdf": {"Creator": "ampsim", "Producer": "ampsim", "CreationDate": None},
}
KNOWN_SUFFIXES: tuple[str, ...] = tuple(_METADATA)

SHADES: Final = 2
"""Levels of 255 by which a pixel may differ that is drawn again; chosen: one was seen."""


@cache
def drawn_with() -> str:
    """The libraries and the processor that decide the bytes of a picture."""
    letters: Any = ft2font
    versions = [f"{name} {version(name)}" for name in ("matplotlib", "pillow")]
    return ", ".join([*versions, f"freetype {letters.__freetype_version__}", platform.machine()])


def look_alike(before: bytes, now: bytes) -> bool:
    """Tell whether the pixels of two PNG files are the same, but for rounding.

    The last bit of a logarithm depends on the processor, and with it a shade at the edge of a line.
    """
    try:
        old, new = (np.asarray(Image.open(io.BytesIO(one)), dtype=float) for one in (before, now))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # no picture
        return False
    return old.shape == new.shape and bool(np.abs(old - new).max() <= SHADES)


def check_suffix(
    path: Path, known: Collection[str] = KNOWN_SUFFIXES, what: str = "a figure"
) -> str:
    """The lower-case suffix of the path that something is to be written to.

    Raises:
        OptionError: not a format that it is written in.
    """
    suffix = path.suffix.lower()
    if suffix not in known:
        raise OptionError(
            f"cannot write {what} to {str(path)!r}: its suffix must be one of "
            f"{', '.join(known)}, got {suffix or 'none'!r}"
        )
    return suffix


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
        temporary.write_bytes(encode(figure, suffix))
    return target


@styled
def encode(figure: Figure, suffix: str) -> bytes:
    """The bytes that `save` writes into a file of that suffix."""
    content = io.BytesIO()
    untyped: Any = figure
    untyped.savefig(content, format=suffix[1:], metadata=_METADATA[suffix])
    return content.getvalue()


_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """The page that a template makes of these values, escaped."""
    return _environment().get_template(template).render(**values)


def json_for_page(value: Any) -> str:
    r"""JSON for a script element; no character in it ends the element.

    >>> json_for_page({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _environment() -> jinja2.Environment:
    environment: Any = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), undefined=jinja2.StrictUndefined,
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["json"] = json_for_page
    environment.globals["dark"] = " ".join(f"--f{light}: #{dark};" for light, dark in DARK.items())
    return environment


DARK: Final = {
    "222222": "e8eaec", "000000": "f2f4f5", "ffffff": "15181b", "70757a": "a5adb5",
    "e9ecef": "2a2f34", "f6f7f8": "1e2226", "dfe3e6": "343a40", "b8bec4": "5a636b",
    "b4bac0": "59626a", "332288": "9a8ff0", "882255": "d0689c", "117733": "4cb56c",
    "661100": "c96a52",
}  # fmt: skip
"""Colours of figures on a dark page, in hexadecimal; a colour not listed stays the same."""

_NOT_DRAWN: Final = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
_COLOUR: Final = re.compile(r"#([0-9a-f]{6})\b")
_STYLE: Final = re.compile(r'style="[^"]*"')
_ATTRIBUTE: Final = re.compile(r'\b(fill|stroke)="(#[0-9a-f]{6})"')
_NAME: Final = re.compile(r'(\bid="|href="#|url\(#)')


def page_colours(style: str) -> str:
    """Colours of figures in a style, such as "#000000" or "fill: #000000", as a page has them."""
    return _COLOUR.sub(
        lambda found: f"var(--f{found[1]}, {found[0]})" if found[1] in DARK else found[0], style
    )


def page_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an element of a page of HTML.

    Args:
        figure: the figure, as matplotlib has it.
        name: prefix of the identifiers of its parts, different for each figure of a page.
        description: the figure in words, for a screen reader.
    """
    text = encode(figure, ".svg").decode("utf-8")
    text = _NOT_DRAWN.sub("", text[text.index("<svg") :])
    text = _NAME.sub(rf"\g<1>{name}-", text)
    text = _ATTRIBUTE.sub(r'style="\1: \2"', text)
    text = _STYLE.sub(lambda style: page_colours(style[0]), text)
    said = f'<svg role="img" aria-label="{escape(plain(description, 400))}"'
    return text.replace("<svg", said, 1).strip()
