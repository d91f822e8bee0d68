"""The five shipped models as plain loops of NumPy: forward, backward, update, and no simulator.

Each is what one would write by hand. It takes the model's parameters by name, which it changes, and
gives a function that trains on one instance, with an update of all layers. Rows that the
model's graph multiplies by themselves, such as those of a tree's branch, are so here.
`tests/oracle/test_plain_loops.py` shows that they train as the simulator does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plain_loops import bilstm_tagger, ggnn, mlp, rnn, tree_lstm

Parameters = dict[str, np.ndarray]
LOOPS: dict[str, Callable[[Parameters], Callable[[Any], None]]] = {
    "mlp": mlp.loop,
    "rnn": rnn.loop,
    "tree_lstm": tree_lstm.loop,
    "ggnn": ggnn.loop,
    "bilstm_tagger": bilstm_tagger.loop,
}
"""By the model's name: what takes parameters, and gives what trains on an instance."""
