"""Weight decay: what pulls every weight towards 0, as a part of its gradient.

Source: gradient <- gradient + decay * theta before anything else, the L2 term of `torch.optim`'s
methods. It is the gradient of decay / 2 · ‖theta‖².
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ampsim.arguments import as_float
from ampsim.errors import OptionError
from ampsim.optim.base import State, Update, Vector, check_alike
from ampsim.text import shown


def strength(value: object) -> float:
    """A weight decay as a Python float.

    Raises:
        OptionError: it is no finite number of at least 0.
    """
    number = as_float(value)
    if not 0 <= number < math.inf:
        raise OptionError(f"weight_decay must be a number >= 0, got {shown(value)}; try 0.0001")
    return number


def with_decay(update: Update, decay: float) -> Update:
    """An elementwise step whose gradient has the decay; the step itself, where that is 0."""
    return partial(_update, update=update, decay=decay) if decay else update


def _update(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    in_place: bool = False,
    *,
    update: Update,
    decay: float,
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    pull = theta * decay
    whole = np.add(gradient, pull, out=gradient if in_place else pull)
    return update(whole, state, theta, rate, in_place=in_place)
