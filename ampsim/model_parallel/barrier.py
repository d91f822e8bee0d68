"""A barrier behind the losses: gradients wait there until every forward step has ended."""

from __future__ import annotations

from ampsim.model_parallel.placed_node import Message, Route, send
from ampsim.trace import Cause


class Barrier:
    """Holds what losses send, until it is told to let go.

    It lets go when nothing else is left to do: then all in flight have ended their forward steps,
    whatever the loops and branches of the graph, and not a moment later.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Route, int, Message]] = []

    def before(self, route: Route, source: int) -> Route:
        """Return a route from node `source` that ends here instead of where `route` does."""

        def accept(message: Message) -> None:
            self._held.append((route, source, message))

        return Route(accept, route.placed, route.port, None, is_free=False, channel=None)

    def let_go(self, cause: Cause) -> bool:
        """Send what is held, the last first, after `cause`; tell whether there was anything."""
        held, self._held = self._held, []
        for route, source, (_placed_node, _port, state, payload, _cause) in reversed(held):
            send([route], source, ((0, state, payload),), cause)
        return bool(held)
