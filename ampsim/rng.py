"""Random streams, one per purpose, so that adding a consumer changes nobody else's numbers."""

from __future__ import annotations

import hashlib
import operator
from numbers import Integral
from typing import Final

import numpy as np

from ampsim.errors import OptionError
from ampsim.text import short

SEED_MAX: Final = 2**63 - 1
"""Largest seed: a manifest's whole numbers have 64 bits."""


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """The stream of random numbers for one purpose of a run, independent of every other.

    The same arguments give the same numbers in every process and under every `PYTHONHASHSEED`:
    the purpose and its indices enter through SHA-256, the seed through `numpy`'s `SeedSequence`,
    which makes streams of neighbouring seeds independent too.

    Args:
        seed: the run's seed, a whole number >= 0.
        purpose: what the numbers are for, such as "placement" or "order".
        indices: which of several of that purpose, such as the epoch.

    Raises:
        OptionError: the seed is negative or no whole number.

    >>> float(stream(0, "order", 1).random()) == float(stream(0, "order", 1).random())
    True
    >>> float(stream(0, "order", 1).random()) == float(stream(0, "order", 2).random())
    False
    """
    # The length in front keeps a purpose that ends in digits apart from one with an index.
    text = ":".join([str(len(purpose)), purpose, *(str(operator.index(i)) for i in indices)])
    words = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype="<u4").tolist()
    sequence = np.random.SeedSequence(require_seed(seed), spawn_key=words)
    return np.random.Generator(np.random.PCG64(sequence))


def require_seed(seed: object) -> int:
    """`seed` as a Python int; NumPy's integers are welcome, truth values are not."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or int(seed) < 0:
        raise OptionError(f"seed must be a whole number >= 0, got {short(seed)}; try seed=0")
    if int(seed) > SEED_MAX:
        raise OptionError(f"seed must be below 2**63, got {short(seed)}; try seed=0")
    return int(seed)
