"""Remedies for delayed gradients, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ampsim.errors import UnknownNameError, one_of
from ampsim.model_parallel.prediction import Prediction
from ampsim.model_parallel.site import Site

NONE: Final = "none"
"""Gradients are applied as they come, as the paper does."""


def leave(site: Site) -> None:
    """Change nothing."""


REMEDIES: Final[Mapping[str, Callable[[Site], Any]]] = {
    NONE: leave,
    "weight-prediction": Prediction,
}
"""Each is called with every site of a node that learns, before anything runs."""


def require_remedy(name: object) -> None:
    """Check that there is a remedy of that name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in REMEDIES:
        raise UnknownNameError(one_of("remedy", name, REMEDIES))
