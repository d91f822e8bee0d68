"""Pages of HTML made from `templates/`, which load nothing: no network, no other file.

Every value is escaped unless a template marks it as safe, and a page's own policy forbids to load
anything (`templates/page.html`), so a name that a user chose can do no harm.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jinja2

from ampsim.json_values import finite

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


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    untyped: Any = environment
    untyped.filters["json"] = json_for_page
    return environment
