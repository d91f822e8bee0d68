"""How many ranks so many workers have room for."""

from __future__ import annotations

from ampsim.errors import OptionError


def ranks_on(
    workers: int, servers: int, ranks: int | None, *, copies: int, each: int, name: str
) -> int:
    """`ranks`, or as many as there is room for beside servers.

    Args:
        workers: of the cluster.
        servers: workers that are servers.
        ranks: as asked for; None for as many as there is room for.
        copies: of the model in each rank.
        each: workers of each copy.
        name: of the solver.

    Raises:
        OptionError: there is no room for them.
    """
    of_rank = each * copies
    if servers >= workers:
        raise OptionError(
            f"{name}: servers must leave workers for ranks, got servers={servers} on "
            f"{workers} worker{'s' * (workers != 1)}; take fewer servers or more workers"
        )
    found = (workers - servers) // of_rank if ranks is None else ranks
    in_group = "" if copies == 1 else f"{copies} x "
    if not found or found * of_rank + servers > workers:
        raise OptionError(
            f"{name}: ranks and servers must fit the cluster, got {max(found, 1)} x "
            f"{in_group}{each} + {servers} on {workers} "
            f"worker{'s' * (workers != 1)}; take fewer ranks or more workers"
        )
    rest = workers - servers - found * of_rank
    if rest and ranks is None and in_group:
        raise OptionError(
            f"{name}: groups of {of_rank} workers must divide those of all ranks, got "
            f"{workers - servers}; take {workers - rest} or {workers - rest + of_rank} workers, "
            f"or say ranks={found}"
        )
    return found
