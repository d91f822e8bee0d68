"""Figures as elements of a page: vector graphics with a light and a dark set of colours."""

from __future__ import annotations

import re
from html import escape
from typing import Final

from matplotlib.figure import Figure

from ampsim.report.saving import encode
from ampsim.report.words import plain

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


def dark_colours() -> str:
    """The dark page's colours as properties of a style sheet."""
    return " ".join(f"--f{light}: #{dark};" for light, dark in DARK.items())


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
    text = _STYLE.sub(lambda style: _COLOUR.sub(_variable, style[0]), text)
    said = f'<svg role="img" aria-label="{escape(plain(description, 400))}"'
    return text.replace("<svg", said, 1).strip()


def _variable(colour: re.Match[str]) -> str:
    code = colour[1]
    return f"var(--f{code}, #{code})" if code in DARK else colour[0]
