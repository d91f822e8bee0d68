"""GPipe: all forwards of a mini-batch, then all its backwards, then one update (flush)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.model_parallel.schedules.pipeline import Draining
from ampsim.model_parallel.schedules.values import Order


@dataclass(frozen=True)
class GPipe(Draining):
    """Synchronous pipeline of m micro-batches, forwards first.

    A gradient leaves its loss when the forward steps of all micro-batches have ended, that of the
    last micro-batch first; this needs no chain, so that graphs with loops and branches run too.
    Each stage stashes m activations. A chain of p equal stages takes (m + p − 1)(f + b) seconds, of
    which it idles (p − 1)/(m + p − 1). Nodes apply the mean gradient of the micro-batches.

    Activations are kept, not computed anew as GPipe may do.

    Source: Huang et al., GPipe (NeurIPS 2019), Section 2.3 and Figure 2(c).

    Args:
        max_active_keys: m, the micro-batches of a mini-batch.

    Raises:
        OptionError: m is below 1.
    """

    name: ClassVar[str] = "gpipe"
    order = Order(holds_gradients=True)
