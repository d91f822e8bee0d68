"""A route: a link of its own from one place of a cluster to another."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ampsim.hardware.link import Link
from ampsim.hardware.topology import HOST, WORKERS_MAX
from ampsim.toml_file import Record

Place = Annotated[int, Field(ge=HOST, lt=WORKERS_MAX)]


class Route(Record):
    """A link of its own from one place to another; the way back is another route.

    Args:
        source: index of the sending worker, or `HOST`.
        target: index of the receiving worker, or `HOST`.
        link: what a message on this way waits for.
    """

    source: Place
    target: Place
    link: Link


def fault_of_route(pair: tuple[int, int], workers: int, twin: int | None) -> str | None:
    """What is wrong with a route, if anything."""
    for key, place in zip(("from", "to"), pair, strict=True):
        if place >= workers:
            return f"{key} must be a worker below {workers} or 'host', got {place}"
    if pair[0] == pair[1]:
        return f"from and to must differ, got {pair[0]} twice; messages within a worker are free"
    if twin is not None:
        return f"repeats from and to of links[{twin}]; keep one of the two"
    return None
