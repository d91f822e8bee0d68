"""A barrier behind the losses: gradients wait there until every forward step has ended."""

from __future__ import annotations

from collections.abc import Callable

from ampsim.model_parallel.footprint import MESSAGES
from ampsim.model_parallel.placed_node import Message, Route, send
from ampsim.trace import Cause


class Barrier:
    """Holds what losses send, until it is told to let go.

    It lets go when nothing else is left to do: then all in flight have ended their forward steps,
    whatever the loops and branches of the graph, and not a moment later. Where activations are
    still on their way to the host, something else is left, and it is the count of messages that
    says so.

    Args:
        note_held: told after each message how many are held; None where nobody asks.
    """

    def __init__(self, note_held: Callable[[int], None] | None = None) -> None:
        self._held: list[tuple[Route, int, Message]] = []
        self._note_held = note_held

    def before(self, route: Route, source: int) -> Route:
        """Return a route from node `source` that ends here instead of where `route` does.

        What is held lies in the memory of its sender.
        """

        def accept(message: Message) -> None:
            self._held.append((route, source, message))
            if self._note_held is not None:
                self._note_held(len(self._held))

        memories = None if route.memories is None else (None, route.memories[0])
        return Route(accept, route.placed, route.port, None, False, None, memories)

    @property
    def last_cause(self) -> Cause:
        """What brought the message that came last, of those that are held."""
        return self._held[-1][2][4]

    def let_go(self, cause: Cause) -> bool:
        """Send what is held, the last first, after `cause`; tell whether there was anything."""
        held, self._held = self._held, []
        for route, source, (_placed_node, _port, state, payload, _cause) in reversed(held):
            memory = None if route.memories is None else route.memories[0]
            if memory is not None and payload is not None:
                memory.give(MESSAGES, payload.nbytes)
            send([route], source, ((0, state, payload),), cause)
        return bool(held)
