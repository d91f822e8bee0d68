"""Which shipped models are programs only: schedules of messages refuse them."""

from __future__ import annotations

from typing import Final

from ampsim import assets

PROGRAMS_ONLY: Final = frozenset(
    name
    for name in assets.names("models")
    if "make_graph=None" in assets.named("models", name).read_text(encoding="utf-8")
)
"""By what their files say, which are not executed for it; `test_models` compares."""
