"""Why a run cannot go on: which nodes wait for what, and which messages wait for their turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from ampsim.ir import Node
from ampsim.model_parallel.turn_queue import TurnQueue

PARTS_TOLD: Final = 8
"""Nodes and workers named in a message, at most; chosen."""

STATES_TOLD: Final = 3
"""States named of each node, at most; chosen."""

LENGTH_MAX: Final = 300
"""Characters of one part of a message, at most; chosen."""


def why_stuck(
    nodes: Iterable[Node], turn_queues: Iterable[TurnQueue], unfinished: list[int]
) -> str | None:
    """Say what is left although nothing happens any more: one line; None where nothing is left.

    First come workers whose messages wait out of turn, then nodes that wait for an input, then
    those that wait for a backward message, which is most often what the others hold up.

    Args:
        nodes: of the graph.
        turn_queues: of the workers that serve stages in turns.
        unfinished: instances in flight.
    """
    out_of_turn = [told for queue in turn_queues if (told := queue.told())]
    waits = sorted((part for node in nodes for part in _waits_of(node)), key=itemgetter(0))
    parts = [*out_of_turn, *(text for _is_backward, text in waits)]
    if not parts and not unfinished:
        return None
    what = f"instances {unfinished[:5]} are unfinished" if unfinished else "caches remain"
    if not parts:
        return f"{what}; no node holds anything of them"
    more = [f"and {len(parts) - PARTS_TOLD} more"] if len(parts) > PARTS_TOLD else []
    told = "; ".join([*(_short(part) for part in parts[:PARTS_TOLD]), *more])
    turns = "the schedule's turns do not fit what comes, or " if out_of_turn else ""
    return f"{what}: {told}; {turns}a node swallowed a message or changed its state"


def _waits_of(node: Node) -> Iterator[tuple[bool, str]]:
    """What a node waits for: (whether that is a backward message, sentence) for each such thing."""
    states: dict[str, list[str]] = {}
    for state in node.pending():
        states.setdefault(node.awaits(state), []).append(str(state))
    for what, held in states.items():
        more = f" and {len(held) - STATES_TOLD} more" if len(held) > STATES_TOLD else ""
        text = f"{node.describe()} waits for {what} of {', '.join(held[:STATES_TOLD])}{more}"
        yield what == Node.awaits(node, None), text


def _short(text: str) -> str:
    """One line, and not a long one."""
    line = " ".join(text.split())
    return line if len(line) <= LENGTH_MAX else f"{line[: LENGTH_MAX - 3]}..."
