"""Ranges of numbers and their sources, which all records of hardware have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ampsim.options import SECONDS_MAX
from ampsim.toml_file import FileKind, Record, Text

HARDWARE = FileKind("hardware", "a device file has at least flop_per_s = 1e12")
"""What is said of a file that is neither device nor cluster."""

NUMBER_MAX = 1e24
"""Largest rate that a file may name; chosen: far beyond any machine, so a larger one is a slip."""

RATE_MIN = 1e-6
"""Smallest rate that a file may name; chosen: it keeps every duration finite."""

BYTES_MAX = 10**15
"""Largest memory that a file may name, a petabyte; chosen, to catch a slip."""

POWER_W_MAX = 1e9
"""Largest power that a file may name, a gigawatt; chosen, to catch wrong units."""

PRICE_USD_PER_H_MAX = 1e6
"""Largest price that a file may name; chosen, to catch wrong units."""

VARIATION_MAX = 10.0
"""Largest coefficient of variation; chosen: beyond it a few steps would be most of the time."""


def wrong(text: str) -> PydanticCustomError:
    """Make the error that a record's check raises."""
    return PydanticCustomError("wrong", "{text}", {"text": text})


def _check_rate(value: float) -> float:
    """A rate that is no slip; apart from `gt`, so that -1 is told that it must be > 0."""
    if value < RATE_MIN:
        raise PydanticCustomError("greater_than_equal", "too small", {"ge": RATE_MIN})
    return value


Rate = Annotated[float, Field(gt=0, le=NUMBER_MAX), AfterValidator(_check_rate)]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]
Bytes = Annotated[int, Field(ge=1, le=BYTES_MAX)]
Power = Annotated[float, Field(ge=0, le=POWER_W_MAX)]
Price = Annotated[float, Field(ge=0, le=PRICE_USD_PER_H_MAX)]
Variation = Annotated[float, Field(ge=0, le=VARIATION_MAX)]


class Consistent(Record):
    """A record whose values must fit each other."""

    def _faults(self) -> Iterator[str]:
        """Yield what is wrong, in words; the first is told."""
        yield from ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for fault in self._faults():
            raise wrong(fault)
        return self


class Source(Consistent):
    """A source says where a number comes from, so that a reader can judge it.

    Args:
        kind: chosen without evidence, measured (here, or by whom the text names), derived by a
            formula, from a datasheet, or fitted to throughputs that somebody published.
        text: which paper, measurement, formula or datasheet, in a sentence.
        low: lower end of the number's 95 % interval, in its unit; None where it has none.
        high: its upper end, likewise.
    """

    kind: Literal["assumed", "measured", "formula", "datasheet", "fitted"]
    text: Text
    low: Annotated[float, Field(gt=0)] | None = None
    high: Annotated[float, Field(gt=0)] | None = None

    def _faults(self) -> Iterator[str]:
        if (self.low is None) != (self.high is None):
            yield "low and high are the ends of one interval; give both, or neither"
        if self.low is not None and self.high is not None and self.low >= self.high:
            yield f"low must be < high, got {self.low:g} and {self.high:g}; exchange them"

    def plain(self) -> dict[str, Any]:
        """Return all that it says, without an interval that is not there."""
        return self.model_dump(mode="json", exclude_none=True)


class Machine(Record):
    """The machine that a device's numbers were measured on.

    Args:
        cpu: the processor's name.
        linear_algebra: what computed matrix products: library, version and kernels.
        date: of the measurement, such as 2026-01-31.
    """

    cpu: Text
    linear_algebra: Text
    date: Text


UNSOURCED = Source(kind="assumed", text="given in code or as an option, without a source")
"""What is said of a number that no file vouches for."""


def digest_of(content: Any) -> str:
    """SHA-256 over the canonical JSON of `content`: sorted keys, shortest exact numbers.

    The interval of a source, and what an outage says of weights, count where there are any, so that
    digests of before stay.
    """
    text = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(content: Any) -> Any:
    """Leave out ends of intervals and the fate of weights where nothing is said of them."""
    if isinstance(content, list | tuple):
        return [_plain(one) for one in cast("list[Any]", content)]
    if not isinstance(content, dict):
        return content
    named = cast("dict[str, Any]", content)
    gone = ("low", "high") if {"kind", "text", "low", "high"} <= set(named) else ()
    gone = ("weights",) if {"kind", "worker", "loses_step"} <= set(named) else gone
    return {
        key: _plain(value) for key, value in named.items() if not (key in gone and value is None)
    }
