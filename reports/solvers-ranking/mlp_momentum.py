"""The shipped perceptron with momentum, which the shipped one has not.

Momentum is Polyak's, of the optimizer that each rank has of its own under elastic averaging.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

import ampsim
from ampsim.optim import momentum


@dataclass(frozen=True)
class Config:
    """Options.

    Args:
        hidden: units of each hidden layer.
        batch: images in an instance.
        learning_rate: of SGD.
        momentum: of SGD; 0 for none.
    """

    hidden: Annotated[int, Field(ge=1)] = 100
    batch: Annotated[int, Field(ge=1)] = 25
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0


def build(config: Config) -> ampsim.Model:
    """The shipped model with another optimizer."""
    options = {"hidden": config.hidden, "batch": config.batch}
    plain = ampsim.load_model("mlp", learning_rate=config.learning_rate, **options)
    if not config.momentum:
        return replace(plain, config=config)
    optimizer = momentum(config.learning_rate, config.momentum)
    return replace(plain, config=config, optimizer=optimizer)
