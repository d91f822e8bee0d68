"""Checks that a solver fits model and cluster, and the cluster of its first rank."""

from __future__ import annotations

import itertools
from typing import Final

from ampsim.data_parallel.solver import Solver
from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.hardware.topology import Route
from ampsim.ir import Graph
from ampsim.model_parallel import stages_of
from ampsim.optim import sgd


def cluster_of_rank(cluster: Cluster, solver: Solver) -> Cluster:
    """The workers of rank 0, and the links between them as idle ones are.

    Its devices are not checked again: what makes one faster may leave what its file vouches for.

    Raises:
        OptionError: ranks and servers do not fit the cluster.
    """
    solver.ranks_on(cluster.workers)
    each = solver.workers_per_rank
    links = [
        Route(source=source, target=target, link=cluster.link_between(source, target))
        for source, target in itertools.permutations(range(each), 2)
    ]
    return Cluster.model_construct(
        name=cluster.name,
        description=cluster.description,
        devices=cluster.devices[:each],
        links=tuple(links),
    )


BARE: Final = sgd(1.0)
"""Of ranks whose gradients a server applies: they keep nothing of an optimizer."""


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
        if is_abstract and one.decisions.reads_values:
            raise OptionError(
                f"mode 'sleep' has no numbers, but {one.name} decides by them; use mode 'numeric'"
            )
        if one.decisions.overlap:
            stages_of(graph, f"{one.name} with overlap", "leave overlap out")
    if graph.replica_groups:
        names = ", ".join(node.name for node in graph.replica_groups[0])
        raise OptionError(
            f"{solver.name}: ranks are copies already, but nodes {names} are replicas within one; "
            "take replicas=1"
        )


def require_plain(cluster: Cluster, solver: Solver) -> None:
    """Check that a cluster charges for nothing that servers and collectives know nothing of.

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
    else:
        fault = next((key for one in cluster.devices for key in one.message_numbers), None)
    if fault is not None:
        raise OptionError(
            f"{solver.name}: cluster {cluster.name} has {fault}, which is not charged for "
            "exchanges between ranks; leave it out, or take a schedule"
        )
