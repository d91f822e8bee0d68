"""Device groups and topologies in a word, as users type them on the command line."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from pydantic import ValidationError

from ampsim.errors import OptionError, one_of
from ampsim.files import expanded
from ampsim.hardware.topology import DIMENSIONS_MAX, WORKERS_MAX, Level, Link, Topology
from ampsim.text import short
from ampsim.toml_file import explain

TOPOLOGIES: Final = (
    "fully-connected", "ring", "mesh:4x4", "torus:4x4", "star", "fat-tree:4", "hierarchy:8x2",
)  # fmt: skip
"""Each kind as users type it, with numbers of an example."""

_GROUPS: Final = re.compile(r",|:[^/\\]*$")


class DeviceGroup(NamedTuple):
    """So many equal devices.

    Args:
        device: a shipped name, or a path.
        workers: how many.
    """

    device: str
    workers: int


def is_groups(text: str) -> bool:
    """Whether a text names groups of devices, and not one device or a file that is there.

    >>> is_groups("p100:8,cpu-core:1"), is_groups("p100"), is_groups("mine/p100.toml")
    (True, False, False)
    """
    return _GROUPS.search(text) is not None and not os.path.exists(expanded(text))


def groups_of(text: str) -> list[DeviceGroup]:
    """The groups of a text such as "p100:8,cpu-core:1"; one device where no count stands.

    Raises:
        OptionError: a group is none; the message shows one.
    """
    groups: list[DeviceGroup] = []
    for part in text.split(","):
        name, colon, count = part.strip().rpartition(":")
        if not colon:
            name, count = count, "1"
        is_count = re.fullmatch("[0-9]{1,7}", count) and 1 <= int(count) <= WORKERS_MAX
        if not name or not is_count:
            raise OptionError(
                f"a group of devices must be NAME:COUNT with a count of 1 to {WORKERS_MAX}, such "
                f"as p100:8, got {short(part)}"
            )
        groups.append(DeviceGroup(name, int(count)))
    return groups


def topology_of(text: str, link: Link) -> Topology:
    """The topology of a text such as "ring" or "torus:4x4", each edge as `link`.

    After the colon stand the extents of a mesh or torus, the radix of a fat tree, or the members of
    a hierarchy's levels from the devices up.

    Raises:
        OptionError: there is no such kind, or it needs other numbers.
    """
    kind, colon, tail = text.partition(":")
    kinds = [one.partition(":")[0] for one in TOPOLOGIES]
    if kind not in kinds:
        raise OptionError(one_of("topology", kind, kinds, label="there are"))
    example = TOPOLOGIES[kinds.index(kind)]
    numbers = tuple(int(one) for one in re.findall("[0-9]{1,7}", tail))
    is_like_example = bool(colon) == (":" in example) and tail == "x".join(map(str, numbers))
    if not is_like_example or (kind == "fat-tree" and len(numbers) != 1):
        raise OptionError(f"topology {kind} must be given as {example}, got {short(text)}")
    if len(numbers) > DIMENSIONS_MAX:
        raise OptionError(
            f"topology {kind} must have at most {DIMENSIONS_MAX} numbers, got {len(numbers)}"
        )
    cost = link.model_dump(exclude={"source"})
    try:
        if kind == "hierarchy":
            levels = tuple(_level(count, cost, link) for count in numbers)
            return Topology.model_validate({"kind": kind, "levels": levels})
        own = {"fat-tree": {"radix": numbers[0] if numbers else None}}
        keys = own.get(kind, {"shape": numbers} if numbers else {})
        return Topology.model_validate({"kind": kind, **keys, **cost, "source": link.source})
    except ValidationError as error:
        raise OptionError(f"topology {text}: {explain(error, Topology)}") from error


def _level(members: int, cost: dict[str, float | None], link: Link) -> Level:
    return Level.model_validate({"members": members, **cost, "source": link.source})
