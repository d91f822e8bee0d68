"""What --json writes: one object, which names the version that wrote it; unknown is null."""

from __future__ import annotations

import json as writer
from typing import Any

from ampsim.cli.resources import hold
from ampsim.cli.say import write


def prepare_json(json: str | None) -> None:
    """Try the file of --json before the long work."""
    from ampsim.files import prepared_file

    if json not in (None, "-"):
        hold(prepared_file(json))


def write_json(text: str, json: str) -> None:
    """Write JSON text to the file of --json, or alone to standard output."""
    from ampsim.files import write_text

    if json == "-":
        write(text.rstrip("\n"))
    else:
        write_text(json, text)


def object_of(**content: Any) -> str:
    """The JSON text of an object of these keys, after `ampsim`, the version."""
    import ampsim
    from ampsim.json_values import finite

    return writer.dumps(finite({"ampsim": ampsim.__version__, **content}), indent=2) + "\n"
