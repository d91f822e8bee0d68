"""What the records of hardware have in common: frozen, nothing unknown, finite numbers only."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

NUMBER_MAX = 1e24
"""Largest rate that a file may name; chosen: far beyond any machine, so a larger one is a slip."""

RATE_MIN = 1e-6
"""Smallest rate that a file may name; chosen: it keeps every duration finite."""

SECONDS_MAX = 1e9
"""Longest delay that a file may name, thirty years; chosen, to catch wrong units."""


def _check_rate(value: float) -> float:
    """A rate that is no slip; apart from `gt`, so that -1 is told that it must be > 0."""
    if value < RATE_MIN:
        raise PydanticCustomError("greater_than_equal", "too small", {"ge": RATE_MIN})
    return value


Rate = Annotated[float, Field(gt=0, le=NUMBER_MAX), AfterValidator(_check_rate)]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX)]
Text = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    """Base of what is read from a hardware file.

    Booleans and strings are not numbers, infinity and NaN are not values, and a key that has no
    effect does not exist.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Source(Record):
    """Where a number comes from, so that a reader can judge it.

    Args:
        kind: chosen without evidence, measured here, derived by a formula, or from a datasheet.
        text: which paper, measurement, formula or datasheet, in a sentence.
    """

    kind: Literal["assumed", "measured", "formula", "datasheet"]
    text: Text


UNSOURCED = Source(kind="assumed", text="given in code or as an option, without a source")
"""What is said of a number that no file vouches for."""


def digest_of(content: Any) -> str:
    """SHA-256 over the canonical JSON of `content`: sorted keys, shortest exact numbers."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
