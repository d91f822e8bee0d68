"""Random masks of dropout, which depend on a message's state and on nothing else."""

from __future__ import annotations

import hashlib
from operator import index
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ampsim.errors import GraphError
from ampsim.ir import State
from ampsim.rng import stream

if TYPE_CHECKING:
    from jaxtyping import Float


class Masks:
    """Inverted dropout: each element is 0 with probability `rate`, else 1 / (1 − rate).

    The numbers come from a counter-based generator (Philox; Salmon et al., 2011) whose key is the
    seed and the purpose, and whose counter is a digest of the state. A message gets the same mask
    in whatever order messages are served, and setting a counter costs a microsecond.

    Args:
        purpose: what the masks are for; unique in a graph.
        rate: probability of an element to be dropped.
        seed: of the run.
    """

    def __init__(self, purpose: str, rate: float, seed: int) -> None:
        """Draw the key.

        Raises:
            GraphError: the rate is not a number from 0 to below 1.
            OptionError: the seed is negative or no whole number.
        """
        if not 0 <= rate < 1:
            raise GraphError(f"{purpose}: rate must be >= 0 and < 1, got {rate}")
        key = stream(seed, f"dropout/{purpose}").integers(0, 2**64, 2, np.uint64)
        self._philox = np.random.Philox(key=key)
        self._start: Any = self._philox.state
        self._generator = np.random.Generator(self._philox)
        self._rate = np.float32(rate)
        self._kept = 1.0 / (1.0 - rate)

    def of(
        self, state: State, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Float[np.ndarray, ...]:
        """The mask of `shape` for the message of `state`."""
        digest = hashlib.blake2b(_text(state).encode(), digest_size=24).digest()
        counter = self._start["state"]["counter"]
        counter[0] = 0  # counts the numbers drawn
        counter[1:] = np.frombuffer(digest, "<u8")
        self._philox.state = self._start
        is_kept = self._generator.random(shape, np.float32) >= self._rate
        return np.multiply(is_kept, self._kept, dtype=dtype)


def _text(state: State) -> str:
    """The numbers of a state, nested as it is; equal states have equal texts.

    >>> _text((3, (np.int64(1), ()), True))
    '(3,(1,()),1)'
    """
    if isinstance(state, tuple):
        return f"({','.join(map(_text, cast('tuple[Any, ...]', state)))})"
    try:
        return str(index(state))
    except TypeError:
        return repr(state)
