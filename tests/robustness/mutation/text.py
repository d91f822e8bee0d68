"""Damage to files: of a table's keys and values, and of any file's bytes."""

from __future__ import annotations

import copy
import datetime
import json
import math
import random
from collections.abc import Iterator
from typing import Any

from mutation.values import toml_value


def to_toml(table: dict[str, Any]) -> str:
    """A table as TOML, each value on the line of its key; None is written as it cannot be."""
    return "".join(f"{_key(key)} = {_inline(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return json.dumps(key)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return json.dumps(value)


def _places(value: Any, parent: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with a key of it, the deepest too."""
    if parent is not None:
        yield parent, key
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for inner, each in list(items):
            yield from _places(each, value, inner)


def bent(table: dict[str, Any], random: random.Random) -> dict[str, Any]:
    """A copy of a table in which something is wrong, as a rule in one place."""
    table = copy.deepcopy(table)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        places = list(_places(table, None, None))
        numbers = [(parent, key) for parent, key in places if type(parent[key]) in (int, float)]
        if numbers and random.random() < 0.3:
            parent, key = random.choice(numbers)
            parent[key] = random.choice(_NUMBERS)
        elif places:
            _bend(*random.choice(places), random)
    return table


_NUMBERS = (
    *(
        0,
        1,
        2,
        3,
        100,
        2**31 - 1,
        2**31,
        2**53 + 1,
        2**63 - 1,
        10**30,
        -1,
        0.0,
        0.5,
        1.0,
        1e-9,
        1e9,
    ),
    *(
        10**9,
        10**400,
        1e-300,
        5e-324,
        1e300,
        1.7976931348623157e308,
        1e18,
        1e-18,
        999_999,
        1_000_000,
        1_000_001,
    ),
)
"""Numbers, most of which are right in some place and too large or too small in another."""


def _bend(parent: Any, key: Any, random: random.Random) -> None:
    kind = random.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[random.choice((f"{key}s", str(key).upper(), "", "\x1b[31m", "x" * 300, "name"))] = (
            parent.pop(key)
        )
    elif kind == 2:
        parent[key] = [parent[key]]
    elif kind == 3 and isinstance(parent, dict):
        parent["unknown"] = toml_value(random)
    elif kind == 4 and isinstance(parent, list):
        parent.append(parent[key])
    elif kind == 5 and isinstance(parent[key], int | float):
        parent[key] = random.choice((-1, 0.5, 10**9, 1e18)) * parent[key]
    else:
        parent[key] = toml_value(random)


def damaged(content: bytes, random: random.Random) -> bytes:
    """A file's bytes, with one or a few of them gone, changed or doubled."""
    for _ in range(random.choice((1, 1, 1, 3, 20))):
        content = _damage(content, random)
    return content


def _damage(content: bytes, random: random.Random) -> bytes:
    if not content:
        return random.choice((b"\x00", b"[", b"=", b"\xef\xbb\xbf", b"\xff\xfe"))
    at = random.randrange(len(content))
    to = min(len(content), at + random.choice((1, 4, 16, 64)))
    ways = (
        lambda: content[:at],
        lambda: (
            content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :]
        ),
        lambda: content[:at] + content[to:],
        lambda: content[:at] + content[at:to] + content[at:],
        lambda: content[:at] + random.randbytes(to - at) + content[to:],
        lambda: content[:at] + random.choice(_TOKENS) + content[to:],
        lambda: content[:at] + random.choice(_TOKENS) + content[at:],
        lambda: content[:at] + b"\x00" * (to - at) + content[to:],
        lambda: content[:at] + b"\xff" * (to - at) + content[to:],
        lambda: _token_for_number(content, random),
        lambda: random.choice(
            (b"", b"\n", b"\xef\xbb\xbf" + content, content + content, content[::-1])
        ),
    )
    return random.choice(ways)()


def _token_for_number(content: bytes, random: random.Random) -> bytes:
    """Put a token where a number stands."""
    digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    if not digits:
        return content[1:]
    at = random.choice(digits)
    end = at
    while end < len(content) and chr(content[end]) in "0123456789.e_":
        end += 1
    return content[:at] + random.choice(_TOKENS) + content[end:]


_TOKENS = (
    *(b"nan", b"-inf", b"1e999", b"-1", b"9" * 400, b"1" + b"0" * 30, b"true", b'""', b"[]", b"{}"),
    *(
        b"[[[",
        b"]]",
        b"((((",
        b"))",
        b"\x1b[31m",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"=",
        b"#",
        b'"""',
        b"'''",
    ),
    *(
        b"[" * 3000,
        b"(" * 3000,
        b"\xe2\x80\xae",
        b"\xed\xb3\xbf",
        b"\\u0000",
        b"1979-05-27",
        b"0x",
        b"\t",
    ),
    *(b"\\u001b[31m", b"\\u009b1m", b"\\u202e", b"\xc2\x9b1m", b"\x1b]0;t\x07"),
    *(b"x" * 300, b"99999999999999999999", b"-9223372036854775808", b"1.5", b"\x00"),
)
