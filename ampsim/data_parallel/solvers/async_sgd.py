"""Solvers whose ranks push gradients to a server, which applies each when it arrives.

Source of asynchronous SGD: Wongpanich, You and Demmel (HPC Asia 2020), Section 4.2, "Parameter
Server": pull w, send the gradient; the server steps w <- w - eta g on arrival. With momentum, at
the server, it is their "Async MSGD". The learning rate is of one rank's gradient: P of them make P
steps.

With `staleness_rate` a gradient is applied with the rate over its staleness, that of fresh ones as
it is: W. Zhang, S. Gupta, X. Lian and J. Liu, "Staleness-aware Async-SGD for Distributed Deep
Learning", IJCAI 2016 (arXiv 1511.05950), Section 2. The staleness is that of each node: updates of
its weights between their reading by the rank and the merge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks, Sends
from ampsim.data_parallel.solver_bases import ParameterServerSolver, Sparsified
from ampsim.errors import OptionError
from ampsim.optim import Optimizer, momentum
from ampsim.optim.base import decay_rate
from ampsim.options import require_count


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
        super().__post_init__()
        decay_rate(f"{self.name}: momentum", self.momentum, usual=0.9)

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


@dataclass(frozen=True)
class Hogwild(Sparsified, ParameterServerSolver):
    """Asynchronous SGD in which nothing is locked: merges of different ranks interleave.

    Source: B. Recht, C. Ré, S. Wright and F. Niu, "Hogwild!: A Lock-Free Approach to Parallelizing
    Stochastic Gradient Descent", NIPS 2011. Here the ranks' memory is a server, and the atom is a
    node: the server merges a gradient node by node, in turn with the gradients of other ranks, so
    that what a rank reads may have one node's weights before another rank's update and another
    node's after it. Each addition is whole, as Hogwild! itself asks.
    """

    name: ClassVar[str] = "hogwild"
    sends: ClassVar[Sends] = "gradient"
    locks: ClassVar[Locks] = "nothing"


@dataclass(frozen=True)
class SSP(Sparsified, ParameterServerSolver):
    """Stale synchronous parallel: the server holds the answer to a rank that is ahead.

    Source: Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server", NIPS 2013: a rank that is more than s pushes ahead of the slowest waits. s = 0 is the
    bulk synchronous step, of all ranks' gradients added, not averaged. A push is of one batch, or
    of all that a rank takes at once: with `inner="pipeline:4"` four, of a group one for each copy.

    Args:
        staleness_bound: s, pushes that a rank may be ahead of the slowest.
    """

    name: ClassVar[str] = "ssp"
    sends: ClassVar[Sends] = "gradient"
    locks: ClassVar[Locks] = "update"

    staleness_bound: int = field(default=2, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.staleness_bound < 0:
            raise OptionError(
                f"ssp: staleness_bound must be a whole number >= 0, got {self.staleness_bound}; 0 "
                "lets no rank be ahead, and async-sgd has no bound"
            )
        if self.staleness_bound > 0:
            require_count("staleness_bound", self.staleness_bound)
