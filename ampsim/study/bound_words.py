"""The bound of a run in words: below a half of the time, nothing alone bounds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ampsim.model_parallel.placements.base import rounded
from ampsim.units import format_percent

BOUND_FROM = 0.5
"""The least share of the time that makes something the bound (chosen: more than all else)."""

NO_SINGLE_THING = "no single thing"
"""In place of a bound where the largest share is less than that."""

_LONGEST = 40


def bound_by(largest: str | None, shares: Iterable[float]) -> str | None:
    """Name what bounds a run, if anything alone does; None where it is unknown.

    >>> bound_by("worker 3", [0.92, 0.1]), bound_by("worker 3", [0.38, 0.1]), bound_by(None, [])
    ('worker 3', 'no single thing', None)
    """
    if not largest:
        return None
    return largest if max(shares) >= BOUND_FROM else NO_SINGLE_THING


def some_nodes(at: str, longest: int = _LONGEST) -> str:
    """Give as many names of a list "linear-3, relu-3" as fit, and how many more there are.

    >>> some_nodes("linear-3, relu-3, loss", 18)
    'linear-3 +2'
    """
    ends = at.split(" to ")
    if len(ends) > 1:
        return " to ".join(some_nodes(end, longest // len(ends)) for end in ends)
    return fitting(at.split(", "), longest)


def fitting(names: Sequence[str], longest: int) -> str:
    """Give as many names as fit, at least the first, and the count of the others.

    >>> fitting(["linear-1", "relu-1", "loss"], 28), fitting(["linear-1", "relu-1", "loss"], 16)
    ('linear-1, relu-1, loss', 'linear-1 +2')
    """
    for count in range(len(names), 0, -1):
        more = f" +{len(names) - count}" if count < len(names) else ""
        said = ", ".join(names[:count]) + more
        if len(said) <= longest or count == 1:
            return said
    return ""


def named(name: str, at: str) -> str:
    """A part by the nodes at it: a worker is what it hosts, a link what it joins.

    >>> named("worker 3", "linear-3, relu-3"), named("critical path", ""), named("worker 3", "")
    ('linear-3, relu-3', 'critical path', 'worker 3')
    >>> named("link 0 to 1", "linear-0 to linear-1"), named("critical path", "embedding")
    ('link linear-0 to linear-1', 'critical path (embedding)')
    """
    kind = name.partition(" ")[0]
    if not at:
        return name
    if kind == "worker":
        return some_nodes(at)
    return f"link {some_nodes(at)}" if kind == "link" else f"{name} ({some_nodes(at)})"


def behind_messages(name: str | None, at: str, parts: Any) -> str:
    """The nodes at a bound, behind "messages" at a path on which these take longer than steps."""
    if name != "critical path":
        return at
    sign = parts["kind"].map({"transfer": 1, "compute": -1, "dispatch": -1, "copy": -1})
    is_moving = (sign.astype(float) * parts["seconds"]).sum() > 0
    return ", ".join(filter(None, ("messages", at))) if is_moving else at


def bound_words(name: str, at: str, share: float, longest: int = _LONGEST) -> str:
    """Tell the largest share, in words for a cell, a line or the end of a bar.

    >>> bound_words("worker 3", "linear-3", 0.92), bound_words("worker 1", "1", 1.0)
    ('linear-3 (92.0 %)', 'worker 1 (100 %)')
    >>> bound_words("worker 3", "linear-3", 0.38)
    'no single thing; largest: linear-3 (38.0 %)'
    """
    if not name:
        return ""
    kind, _, number = name.partition(" ")
    at = "" if at == number else at  # a worker that hosts nothing of its own
    nodes = some_nodes(at, longest)
    what = named(name, nodes) if kind in ("worker", "link") or not at else f"{name}: {nodes}"
    said = f"{what} ({format_percent(share)})"
    return said if share >= BOUND_FROM else f"{NO_SINGLE_THING}; largest: {said}"


def nodes_at(name: str, placed: Mapping[str, int], busy_s: Mapping[str, float]) -> str:
    """The nodes of a worker, or of both ends of a link, those that work for longest first.

    >>> nodes_at("link 0 to 1", {"a": 0, "b": 1, "c": 1}, {"a": 1.0, "b": 1.0, "c": 2.0})
    'a to c, b'

    Of equal ones the first is first, whatever rounding says:

    >>> nodes_at("worker 0", {"a": 0, "b": 0}, {"a": 0.3, "b": 0.1 + 0.2})
    'a, b'
    """
    hosted: dict[str, list[str]] = {}
    for node in sorted(placed, key=lambda one: -rounded(busy_s[one])):
        hosted.setdefault(str(placed[node]), []).append(node)
    kind, _, rest = name.partition(" ")
    if kind not in ("worker", "link"):
        return ""
    return " to ".join(", ".join(hosted.get(end, [])) or end for end in rest.split(" to "))
