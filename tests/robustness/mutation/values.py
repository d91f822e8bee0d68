"""Values that nobody expects: as words of a command line, in a TOML file, and in Python."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ESCAPE = "\x1b]0;title\x07\x1b[31mred\u202e\x9b1m"

NUMBERS = (
    *("-1", "0", "-0", "1", "2", "3", "1.5", "-0.5", "1e400", "-1e400", "1e-400", "nan", "NaN"),
    *(
        "inf",
        "-inf",
        "Infinity",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
    ),
    *("2147483648", "4294967296", "18446744073709551616", "1" + "0" * 30, "9" * 400, "9" * 5000),
    *("1000000000", "1" + "0" * 400, "-1" + "0" * 400),
    *(
        "0x10",
        "1_000",
        "1,000",
        "1e3",
        "+5",
        "\u0665",
        "\u00bd",
        " 7 ",
        "1e",
        ".",
        "1.7976931348623157e308",
    ),
    *("5e-324", "0.1", "0.97", "97%", "true", "True", "none", "None", "--5"),
)

TEXTS = (
    *("", " ", "\t", "\n", "a\nb", ESCAPE, "\x00", "a\x00b", "\udcff", "\ufeff", "\U0001f600" * 3),
    *(
        "x" * 300,
        "x/" * 150,
        "x" * 5000,
        "../" * 20,
        "..",
        ".",
        "-",
        "--",
        "---",
        "=",
        "a=b",
        "==",
        ",",
    ),
    *(
        ",,,",
        "a,b",
        "'",
        '"',
        "`id`",
        "$(id)",
        "${HOME}",
        "%s%n",
        "{0}",
        "{",
        "[red]x[/red]",
        "[/]",
    ),
    *(
        "<script>alert(1)</script>",
        "=1+1",
        "@SUM(A1)",
        "CON",
        "~",
        "~nobody-here",
        "~root/x",
        "*",
        "?",
    ),
    *("model.py", "no-such", "no/such/file.toml", "file.toml", ":memory:", "file:///etc/hostname"),
    *("http://127.0.0.1:9/x", "rnn", "amp", "tflops-1", "paper", "3-hop", "0-hop", "-1-hop"),
    *("99999999999999999999-hop", "none", "weight-prediction", "numeric", "sleep", "wall"),
    *("", "", "sync-sgd:2/" * 400, "sync-sgd:2/" * 400 + "amp", "sync-sgd:1/sync-sgd:1/amp:2"),
    *("hierarchy:" + "1x" * 5000 + "2", "mesh:" + "x".join("1" * 400), "torus:1x2x1", "ring"),
    *("instance:3-7", "instance:-1", "instance:x", "0:1", "1:0", "0:20us", "nan:nan", "0:inf", ":"),
)

PATHS = (
    *("a-folder", "a-fifo", "empty", "empty.toml", "empty.py", "binary.toml", "binary.py", "loop"),
    *("dangling.toml", "missing.toml", "missing.py", "missing/deep/x.toml", "model.py/x", "locked"),
    *(
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/stdin",
        "/proc/self/mem",
        "a-fifo.toml",
        "a-fifo.py",
    ),
    *("a-folder.toml", "a-folder.py", "a-folder/recipe.toml", "socket", "a-fifo.json", "full.json"),
)
"""Paths that `lay_out` makes, or that every Linux has."""


def lay_out(folder: Path) -> None:
    """Make what `PATHS` names in a folder."""
    for name in ("a-folder", "a-folder.toml", "a-folder.py"):
        (folder / name).mkdir()
    (folder / "a-folder" / "recipe.toml").mkdir()
    for name in ("a-fifo", "a-fifo.toml", "a-fifo.py", "a-fifo.json"):
        os.mkfifo(folder / name)
    for name in ("empty", "empty.toml", "empty.py"):
        (folder / name).touch()
    for name in ("binary.toml", "binary.py"):
        (folder / name).write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")
    (folder / "dangling.toml").symlink_to("nowhere")
    (folder / "full.json").symlink_to("/dev/full")
    (folder / "locked").mkdir(mode=0)


def word(random: random.Random) -> str:
    """A word for a command line; one that no argument vector can hold never comes out."""
    found = random.choice(random.choice((NUMBERS, NUMBERS, TEXTS, PATHS)))
    return found.replace("\x00", "\ufffd")


def toml_value(random: random.Random) -> Any:
    """Something that TOML can hold."""
    plain = (
        *(
            -1,
            0,
            1,
            2,
            3,
            2**31,
            2**63 - 1,
            -(2**63),
            10**9,
            10**30,
            10**400,
            True,
            False,
            1.5,
            -0.5,
            0.0,
            -0.0,
        ),
        *(math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1e-320, "", " ", ESCAPE),
        *("x" * 300, "\ufeff", "nan", "1", "host", "\U0001f600", "a\nb", "~nobody/x", "/dev/zero"),
        *("a-fifo.toml", "a-folder", "../device.toml", "rnn", "tflops-1", "amp", "<b>&", "=1+1"),
        *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.time(1, 2)),
        *([], {}, [[]], [1, "a"], {"a": 1}, [{}], [[1, 0.5], [0, 2]], {"": {"": []}}, [None], None),
    )
    return random.choice(plain)


class _Loud:
    """Its text has escape sequences and more lines than one."""

    def __repr__(self) -> str:
        return f"<{ESCAPE}\nloud>"


class _Rude:
    """Whatever is asked of it, it raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __bool__ = __repr__  # pyright: ignore[reportAssignmentType]  # that is the point
    __eq__ = __lt__ = __repr__  # pyright: ignore[reportAssignmentType]  # likewise
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # likewise


class _Number(int):
    """A subclass of int."""


class _Text(str):
    """A subclass of str."""


def python_values() -> list[Any]:
    """All kinds of Python objects, most of them wrong wherever they come."""
    return [
        None, True, False, -1, 0, 1, 2, 3, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 1.5, -0.5,
        math.nan, math.inf, -math.inf, 0.0, 5e-324, 1e308, 1j, "", "a", "1", "amp", "rnn", ESCAPE,
        "x" * 300, "\x00", "\udcff", "~nobody-here", "a-fifo.toml", "a-folder", b"", b"rnn", "None",
        [], [1], [None], (), (1, 2), (0.0, 1e-6), {}, {"a": 1}, set[int](), {1}, frozenset({2}),
        [[]], object(), object, int, len, lambda: 1, lambda *a, **k: None, sys, NotImplemented, ...,
        np.int64(3), np.int8(-1), np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("a"),
        np.array([]), np.array(3), np.array([1.0, 2.0]), np.array("x"), np.array([None]),
        np.zeros((2, 2)), np.datetime64("2020"), np.ma.masked, pd.NA, pd.NaT, pd.DataFrame(),
        pd.Series([1]), Path("x"), Path("a-fifo.toml"), Path("a-folder"), decimal.Decimal("NaN"),
        decimal.Decimal(3), fractions.Fraction(1, 3), datetime.date(2020, 1, 1), range(3),
        iter([1]), (x for x in "ab"), memoryview(b"x"), Exception("x"), _Loud(), _Rude(),
        _Number(3), _Text("rnn"), slice(1), np.random.default_rng(0), random.Random(0),
        type("Anonymous", (), {})(),
    ]  # fmt: skip
