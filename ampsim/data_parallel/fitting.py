"""What a solver needs of a model and a cluster, and what it makes of the model's optimizer."""

from __future__ import annotations

from typing import Final

from ampsim.data_parallel.outer import nesterov
from ampsim.data_parallel.solver import Solver
from ampsim.data_parallel.solvers.async_sgd import AsyncSGD
from ampsim.data_parallel.solvers.diloco import DiLoCo
from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.ir import Graph
from ampsim.model_parallel import stages_of
from ampsim.optim import Optimizer, momentum, sgd

BARE: Final = sgd(1.0)
"""Of ranks whose gradients a server applies: they keep nothing of an optimizer."""


def optimizer_of(solver: Solver, optimizer: Optimizer) -> Optimizer:
    """The model's optimizer, with the solver's momentum where it has one.

    Raises:
        OptionError: the model's optimizer is another than "sgd", or has a weight decay.
    """
    if not isinstance(solver, AsyncSGD) or not solver.momentum:
        return optimizer
    if optimizer.name != "sgd":
        raise OptionError(
            f"{solver.name}: momentum={solver.momentum:g} needs a model whose optimizer is sgd, "
            f"got {optimizer.name}; leave momentum out"
        )
    if optimizer.touches_all:
        raise OptionError(
            f"{solver.name}: momentum={solver.momentum:g} would lose the weight decay of the "
            "model's sgd; leave momentum out, or take a model whose optimizer is momentum"
        )
    return momentum(optimizer.rate, solver.momentum)


def outer_of(solver: Solver) -> Optimizer:
    """What makes the centre's own steps; nothing asks it where the solver has none."""
    if not isinstance(solver, DiLoCo):
        return BARE
    return nesterov(solver.outer_rate, solver.outer_momentum)


def with_groups(solver: Solver) -> list[Solver]:
    """The solver, and those of groups inside it, the outermost first."""
    return [solver] if solver.group is None else [solver, *with_groups(solver.group)]


def require_fit(graph: Graph, solver: Solver, *, is_abstract: bool) -> None:
    """Check that copies of a network can be trained.

    Raises:
        OptionError: an update writes weights in place, nodes are replicas of each other, or layers
            are no chain where gradients are sent as soon as they are there.
    """
    for node in graph.parameterized:
        if node.is_sparse:
            raise OptionError(
                f"{solver.name}: {node.describe()} updates rows of its table in place, so that "
                "ranks cannot share its versions; take is_sparse=False, or a model without it"
            )
    for one in with_groups(solver):
        if is_abstract and one.reads_values:
            raise OptionError(
                f"mode 'sleep' has no numbers, but {one.name} decides by them; use mode 'numeric'"
            )
        if one.overlaps_backward:
            stages_of(graph, f"{one.name} with overlap", "leave overlap out")
    if graph.replica_groups:
        names = ", ".join(node.name for node in graph.replica_groups[0])
        raise OptionError(
            f"{solver.name}: ranks are copies already, but nodes {names} are replicas within one; "
            "take replicas=1"
        )


def require_plain(cluster: Cluster, solver: Solver) -> None:
    """Check that a cluster charges for nothing that servers and meetings know nothing of.

    Raises:
        OptionError: it does.
    """
    if cluster.checkpoints is not None:
        raise OptionError(
            f"{solver.name}: cluster {cluster.name} has checkpoints, which are of the nodes of one "
            "copy of a model, and ranks exchange their weights; leave them out, or take a schedule"
        )
    fault = None
    if cluster.host is not None and not cluster.is_host_free:
        fault = "a host that takes time"
    elif cluster.has_lanes:
        fault = "dispatch or copy lanes"
    elif cluster.memory is not None:
        fault = "a remedy for memory"
    elif any(one.message_overhead_s for one in cluster.devices):
        fault = "message_overhead_s"
    if fault is not None:
        raise OptionError(
            f"{solver.name}: cluster {cluster.name} has {fault}, which is not charged for "
            "exchanges between ranks; leave it out, or take a schedule"
        )
