"""How a node is put to the test: served with messages, answered with gradients, differentiated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.ir import LossNode, LossReport, Node, ParameterizedNode

STEP = 1e-6  # of central differences


class State(NamedTuple):
    instance: int
    step: int = 0


class Message(NamedTuple):
    port: int
    state: State
    payload: Any

    @property
    def is_float(self) -> bool:
        return isinstance(self.payload, np.ndarray) and self.payload.dtype.kind == "f"


class Outcome(NamedTuple):
    """What left by output ports, and what returned by input ports: payloads by port and state."""

    sent: dict[tuple[int, State], Any]
    returned: dict[tuple[int, State], Any]


class Trial(NamedTuple):
    """A node, what comes to it, and what is known of it beforehand.

    Args:
        make: builds the node.
        messages: all that reach it before it owes a result.
        flop: of forward, backward to all inputs, and update, by Appendix C.
        wrong: symbolic shapes that do not fit; None where every shape fits.
        name: which of a table it is.
    """

    make: Callable[[], Node]
    messages: tuple[Message, ...]
    flop: tuple[int, int, int] = (0, 0, 0)
    wrong: tuple[tuple[int | str, ...], ...] | None = None
    name: str = ""

    def node(self, theta: np.ndarray | None = None, dtype: str = "float64") -> Any:
        """A new node, with `theta` as parameters, or with initial ones."""
        node = self.make()
        if isinstance(node, ParameterizedNode):
            initial = node.initialise(np.random.default_rng(1)) if theta is None else theta
            node.adopt(initial.astype(dtype))
        return node

    def serve(self, node: Node, messages: Iterable[Message] | None = None) -> list[Message]:
        """All that leaves `node` when `messages`, or those of the trial, arrive."""
        arriving = self.messages if messages is None else messages
        return [Message(*send) for message in arriving for send in node.forward(*message)]

    def report(
        self, node: LossNode, messages: Iterable[Message] | None = None
    ) -> LossReport | None:
        """What a loss says once `messages`, or those of the trial, have arrived."""
        arriving = self.messages if messages is None else messages
        *earlier, last = [node.evaluate(*message) for message in arriving]
        assert last is not None and not any(earlier)
        return last.report

    def answer(self, sent: Message) -> Message:
        """The gradient that comes back for a message: what it counts in `total`."""
        shape = sent.payload.shape
        random = np.random.default_rng([sent.port, sent.state.step, *shape])
        return sent._replace(payload=random.standard_normal(shape).astype(sent.payload.dtype))

    def send_back(self, node: Node, answers: Iterable[Message]) -> dict[tuple[int, State], Any]:
        """What each message that came gets back: one answer each, and nothing is left."""
        found = [Message(*send) for message in answers for send in node.backward(*message)]
        assert list(node.pending()) == [], "a cache is not empty after the last gradient"
        return by_address(found)

    def outcome(self, node: Node, messages: Iterable[Message] | None = None) -> Outcome:
        """Forward and back; what a loss sends is what returns."""
        sent = self.serve(node, messages)
        if node.is_loss:
            assert list(node.pending()) == []
            return Outcome({}, by_address(sent))
        return Outcome(by_address(sent), self.send_back(node, map(self.answer, sent)))

    def total(self, node: Node, messages: Iterable[Message] | None = None) -> float:
        """The scalar that is differentiated: the loss, or what leaves weighted by the answers."""
        if isinstance(node, LossNode):
            report = self.report(node, messages)
            assert report is not None
            return report.loss_sum / report.rows
        sent = self.serve(node, messages)
        return sum(float((self.answer(one).payload * one.payload).sum()) for one in sent)


def by_address(messages: list[Message]) -> dict[tuple[int, State], Any]:
    found = {(m.port, m.state): m.payload for m in messages}
    assert len(found) == len(messages), "two messages of one port and state"
    return found


def slope(value: np.ndarray, evaluate: Callable[[np.ndarray], float]) -> np.ndarray:
    """Central differences, one element after the other."""
    found = np.empty_like(value)
    for place in np.ndindex(value.shape):
        moved = value.copy()
        moved[place] = value[place] + STEP
        above = evaluate(moved)
        moved[place] = value[place] - STEP
        found[place] = (above - evaluate(moved)) / (2 * STEP)
    return found


class Kit(NamedTuple):
    """What the tests of nodes use."""

    Trial: type[Trial]
    State: type[State]
    Message: type[Message]
    slope: Callable[[np.ndarray, Callable[[np.ndarray], float]], np.ndarray]


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit(Trial, State, Message, slope)
