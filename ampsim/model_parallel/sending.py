"""Messages on their way: from a step, or the controller, to where they wait to be served."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ampsim.ir import Send, Sends
from ampsim.model_parallel.site import Route
from ampsim.trace import Cause


def send(routes: Sequence[Route], source: int, sends: Sends, cause: Cause) -> None:
    """Put messages of the node at place `source` on their way; then the agenda is to be served.

    What costs nothing arrives at once, and its worker is told; what crosses a link is delivered by
    the same route without it.
    """
    for port, state, payload in sends:
        accept, site, far_port, worker, is_free, channel = routes[port]
        if channel is not None:
            size_bytes = 0 if payload is None else payload.nbytes
            arrive = partial(_arrive, routes[port], source, (0, state, payload))
            channel.send(size_bytes, (source, site.index), cause, arrive)
            continue
        entry = (site, far_port, state, payload, cause)
        accept(entry)
        if worker is None:
            continue
        if not is_free:
            if worker.is_waiting:
                worker.wake()
        elif not worker.is_busy and not worker.is_listed:
            worker.agenda.add(worker)


def _arrive(route: Route, source: int, message: Send, cause: Cause) -> None:
    """Deliver a message that has crossed the link of its route."""
    accept, site, port, worker, is_free, _channel = route
    send([(accept, site, port, worker, is_free, None)], source, (message,), cause)
