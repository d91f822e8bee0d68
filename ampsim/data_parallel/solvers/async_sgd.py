"""Asynchronous SGD over a parameter server: each gradient is applied when it arrives.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Section 4.2, "Parameter Server": pull w, send
the gradient; the server steps w <- w - eta g on arrival. With momentum, at the server, it is their
"Async MSGD". The learning rate is of one rank's gradient: P of them make P steps.

With `staleness_rate` a gradient is applied with the rate over its staleness, that of fresh ones as
it is: W. Zhang, S. Gupta, X. Lian and J. Liu, "Staleness-aware Async-SGD for Distributed Deep
Learning", IJCAI 2016 (arXiv 1511.05950), Section 2. The staleness is that of each node: updates of
its weights between their reading by the rank and the merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks, Sends
from ampsim.data_parallel.solver import ParameterServerSolver, Sparsified
from ampsim.errors import OptionError
from ampsim.optim import Optimizer, momentum
from ampsim.text import shown


@dataclass(frozen=True)
class AsyncSGD(Sparsified, ParameterServerSolver):
    """First come, first served; a merge excludes other merges at the same server.

    Args:
        momentum: of the server's steps, for models whose optimizer is "sgd"; 0 for what the model
            says.
        staleness_rate: whether a gradient of staleness t > 1 is applied with a t-th of the rate.
    """

    name: ClassVar[str] = "async-sgd"
    sends: ClassVar[Sends] = "gradient"
    locks: ClassVar[Locks] = "update"

    momentum: float = field(default=0.0, kw_only=True)
    staleness_rate: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise OptionError(
                f"{self.name}: momentum must be a number >= 0 and < 1, got "
                f"{shown(self.momentum)}; try 0.9"
            )

    def optimizer(self, own: Optimizer) -> Optimizer:
        """The model's own, with the solver's momentum where it has one.

        Raises:
            OptionError: the model's optimizer is another than "sgd", or has a weight decay.
        """
        if not self.momentum:
            return own
        if own.name != "sgd":
            raise OptionError(
                f"{self.name}: momentum={self.momentum:g} needs a model whose optimizer is sgd, "
                f"got {own.name}; leave momentum out"
            )
        if own.touches_all:
            raise OptionError(
                f"{self.name}: momentum={self.momentum:g} would lose the weight decay of the "
                "model's sgd; leave momentum out, or take a model whose optimizer is momentum"
            )
        return momentum(own.rate, self.momentum)

    def merge_rate(self, rate: float, staleness: int) -> float:
        """The rate over the staleness, if so chosen."""
        return rate / staleness if self.staleness_rate and staleness > 1 else rate
