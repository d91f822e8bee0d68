"""Where a worker's messages wait until it is their turn, for schedules with fixed turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ampsim.ir import Direction
from ampsim.machine import Processor
from ampsim.model_parallel.placed_node import Message, PlacedNode
from ampsim.model_parallel.schedules.turns import Turn, Turns


class TurnQueue:
    """Hands its worker one message of a stage at a time, in training; in validation, each at once.

    Args:
        processor: whom it wakes.
        queues: the inbox that it fills, by direction.
        turns: the order.
    """

    def __init__(
        self, processor: Processor, queues: Mapping[Direction, deque[Message]], turns: Turns
    ) -> None:
        self._processor = processor
        self._queues = queues
        self._turns = turns
        self._is_out = False
        self._waiting: dict[Turn, deque[Message]] = {}
        self._names: dict[Turn, str] = {}

    def acceptor(
        self, placed: PlacedNode, stage: int, direction: Direction
    ) -> Callable[[Message], None]:
        """Return who accepts the messages of `direction` for the node of `stage`."""
        waiting = self._waiting.setdefault((direction, stage), deque())
        self._names[direction, stage] = (
            f"{direction.name.lower()} of {placed.node.describe()}, stage {stage}"
        )
        node, inbox = placed.node, self._queues[direction]

        def accept(message: Message) -> None:
            if node.is_training:
                waiting.append(message)
                self._hand_out()
            else:
                inbox.append(message)
                self._processor.wake()

        return accept

    def served(self) -> None:
        """Note that the worker has ended a step of a stage."""
        if self._is_out:
            self._is_out = False
            self._turns.served()
            self._hand_out()

    def told(self) -> str:
        """Say whose turn it is and what waits out of turn; nothing, where nothing waits."""
        turn = self._turns.next()
        waiting = [
            f"{self._names[place]}: {messages[0][2]}"
            + f" and {len(messages) - 1} more" * (len(messages) > 1)
            for place, messages in self._waiting.items()
            if messages
        ]
        if not waiting:
            return ""
        whose = "nobody's turn" if turn is None else f"the turn of {self._names[turn]}"
        return f"worker {self._processor.index} has {whose}, but holds {', '.join(waiting)}"

    def _hand_out(self) -> None:
        turn = None if self._is_out else self._turns.next()
        if turn is None or not self._waiting[turn]:
            return
        self._is_out = True
        self._queues[turn[0]].append(self._waiting[turn].popleft())
        self._processor.wake()
