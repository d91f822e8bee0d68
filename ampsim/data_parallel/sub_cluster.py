"""The part of a cluster that one rank has, for placing its nodes."""

from __future__ import annotations

import itertools

from ampsim.data_parallel.solver import Solver
from ampsim.hardware import Cluster
from ampsim.hardware.cluster import Route


def cluster_of_rank(cluster: Cluster, solver: Solver) -> Cluster:
    """The workers of rank 0, and the links between them as idle ones are.

    Raises:
        OptionError: ranks and servers do not fit the cluster.
    """
    solver.ranks_on(cluster.workers)
    each = solver.workers_per_rank
    links = [
        Route(source=source, target=target, link=cluster.link_between(source, target))
        for source, target in itertools.permutations(range(each), 2)
    ]
    return Cluster(
        name=cluster.name,
        description=cluster.description,
        devices=cluster.devices[:each],
        links=tuple(links),
    )
