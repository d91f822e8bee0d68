"""A step is charged for the calls of NumPy that it makes, and for what these read and write.

Each listed node is served with arrays that count (`watched`): in training and in validation, with
gradients for all inputs, for one of them, and for none. Then its `work` is asked, as the engine
asks it. Calls are as many, and passes within an eighth. What is meant to differ stands in a table,
with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from covering import of_each
from watched import Call, plain, watched, watching

from ampsim.ir import NO_WORK, Direction, LossNode, Node, ParameterizedNode, Partition, Work
from ampsim.model_parallel.price import largest_but
from ampsim.model_parallel.update import Updater
from ampsim.nodes import (
    Attention,
    Collect,
    Conv2d,
    Distribute,
    Embedding,
    GRUCell,
    LayerNorm,
    Linear,
    MatrixProduct,
    MaxPool,
    RMSNorm,
    Softmax,
    SoftmaxCrossEntropy,
    Sum,
    losses,
)
from ampsim.nodes.linear import LARGE_ROWS, MatrixNode
from ampsim.optim import OPTIMIZERS

FORWARD, BACKWARD, UPDATE = Direction.FORWARD, Direction.BACKWARD, Direction.UPDATE
OFF: Final = 1 / 8  # chosen: numbers of rows are not counted apart, a pass too many is found
MESSAGES: Final = 4  # whose gradients make one update

MEANT: Final = {
    "Conv2d": "columns and folds are how it is computed here, not on every device",
    "Replicate": "how many copies there are is a state's, and a work is asked for a shape",
    "Pointwise, erf": "an error function is one call where a library has it",
    "Pointwise, gelu": "an error function is one call where a library has it",
    "Pointwise, elu": "a truth value times a number is in double precision here",
    "Pointwise, leaky_relu": "a truth value times a number is in double precision here",
    "Pointwise, hardtanh": "two truth values together are charged as numbers",
    "Compare": "truth values are charged as numbers",
}
"""What is charged otherwise than NumPy takes here, and why."""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape)


def many(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, count, shape)


TWICE = Partition((range(60), range(3)), size=60)
WIDE: Final[dict[str, tuple[Callable[[], Node], tuple[Any, ...]]]] = {
    "LayerNorm": (lambda: LayerNorm("node", 60), (normal(40, 60),)),
    "LayerNorm, a sequence": (lambda: LayerNorm("node", 50), (normal(5, 9, 50),)),
    "LayerNorm, no bias": (lambda: LayerNorm("node", 50, has_bias=False), (normal(40, 50),)),
    "RMSNorm": (lambda: RMSNorm("node", 50), (normal(5, 9, 50),)),
    "Softmax": (lambda: Softmax("node", 1), (normal(4, 50, 2),)),
    "Softmax, log": (lambda: Softmax("node", is_log=True), (normal(40, 50),)),
    "SoftmaxCrossEntropy": (
        lambda: SoftmaxCrossEntropy("node"), (normal(5, 30), np.arange(5)),
    ),
    "Sum, spread": (
        lambda: Sum("node", 3), (normal(40, 7, 40), normal(7, 40), normal(1, 7, 1)),
    ),
    "MatrixProduct, one matrix": (
        lambda: MatrixProduct("node"), (normal(6, 9, 4), normal(4, 3)),
    ),
    "Attention": (lambda: Attention("node"), tuple(normal(3, 2, 12, 12))),
    "Attention, masked": (
        lambda: Attention("node", is_masked=True), (*normal(3, 2, 12, 12), normal(12, 12)),
    ),
    "Attention, large mask": (
        lambda: Attention("node", is_masked=True), (*normal(3, 4, 3, 30, 4), normal(3, 30, 30)),
    ),
    "Attention, few queries": (
        lambda: Attention("node"), (normal(6, 5, 12), normal(6, 90, 12), normal(6, 90, 40)),
    ),
    "Attention, many queries": (
        lambda: Attention("node"), (normal(6, 90, 12), normal(6, 5, 12), normal(6, 5, 4)),
    ),
    "Attention, causal with dropout": (
        lambda: Attention("node", is_causal=True, dropout=0.4), tuple(normal(3, 2, 12, 12)),
    ),
    "Distribute": (lambda: Distribute("node", 2), (normal(60, 400), TWICE)),
    "Distribute, one axis": (lambda: Distribute("node", 2), (normal(60, 400), TWICE)),
    "Collect": (lambda: Collect("node", 2), (normal(60, 400), normal(3, 400), TWICE)),
    "Collect, one axis": (lambda: Collect("node", 2), (normal(60, 400), normal(3, 400), TWICE)),
    "Linear, one row": (lambda: Linear("node", 40, 30), (normal(7, 40),)),
    "MaxPool, one row of pixels": (
        lambda: MaxPool("node", (1, 2), stride=(1, 3), padding=(0, 1)), (normal(2, 3, 1, 61),),
    ),
    "Embedding": (lambda: Embedding("node", 100, 9), (many(100, 50, 9),)),
    "Embedding, large": (lambda: Embedding("node", 900, 9), (many(900, 50, 9),)),
    "Embedding, sparse": (
        lambda: Embedding("node", 900, 9, is_sparse=True), (many(900, 50, 9),),
    ),
}  # fmt: skip
"""Larger cases of nodes that take few columns in the table of nodes."""


SHAPES_OF_IMAGES: Final = (5, 3, 12, 12), (5, 8, 10, 10)
"""What a convolution of 8 filters of 3 x 3 takes, and what it gives."""


class Took(NamedTuple):
    """What steps took: calls of NumPy and bytes that they pass over."""

    calls: float
    passed: float

    def __add__(self, other: Any) -> Took:
        return Took(self.calls + other.calls, self.passed + other.passed)

    def is_near(self, other: Took) -> bool:
        is_near = abs(self.passed - other.passed) <= OFF * other.passed
        return self.calls == other.calls and is_near


def counted(node: Node, calls: list[Call]) -> Took:
    """Products of nodes that learn move no bytes: they are FLOP, and weights and payloads."""
    own = [one for one in calls if not (node.is_parameterized and one.is_product)]
    return Took(len(calls), sum(one.bytes for one in own))


def charged(node: Node, work: Work) -> Took:
    """As a device that names a bandwidth of passes and an overhead of operations charges it."""
    if work == NO_WORK:
        return Took(0, 0)
    is_all_passes = not node.is_parameterized or not work.flop
    return Took(work.operations, work.pass_bytes or (work.bytes if is_all_passes else 0))


def payload_of(given: Any) -> Any:
    """In single precision, and counting."""
    if not isinstance(given, np.ndarray):
        return given
    return watched(given.astype(np.float32) if given.dtype.kind == "f" else given.copy())


class Bench:
    """A node that is served in single precision, and what its steps take and are charged."""

    def __init__(self, kit: Any, trial: Any, calls: list[Call]) -> None:
        make, payloads = WIDE.get(trial.name, (trial.make, None))
        self.node = node = trial._replace(make=make).node(dtype="float32")
        self.name, self._kit, self._calls = trial.name, kit, calls
        messages = [(m.port, m.state.step, m.payload) for m in trial.messages]
        if payloads is not None:
            messages = [(port, 0, payload) for port, payload in enumerate(payloads)]
        self._messages = messages
        self.took: dict[Direction, Took] = {}
        self.charged: dict[Direction, Took] = {}
        shapes: list[Any] = [None] * len(node.inputs)
        for port, _step, payload in self._messages:
            shapes[port] = payload.shape
        node.check(tuple(shapes))
        if isinstance(node, ParameterizedNode):
            node.adopt(watched(node.theta))

    def serve(self, instance: int) -> None:
        """Serve all messages, and their gradients in training."""
        self.took = dict.fromkeys(Direction, Took(0, 0))
        self.charged = dict.fromkeys(Direction, Took(0, 0))
        sent: list[Any] = []
        for port, step, payload in self._messages:
            state = self._kit.State(instance, step)
            sent += self._step(FORWARD, port, state, payload_of(payload))
        if self.node.is_training and not self.node.is_loss:
            for port, state, payload in sent:
                answer = payload_of(np.random.default_rng(0).standard_normal(payload.shape))
                self._step(BACKWARD, port, state, answer)

    def _step(self, direction: Direction, port: int, state: Any, payload: Any) -> Any:
        node = self.node
        self._calls.clear()
        if isinstance(node, LossNode):
            evaluated = node.evaluate(port, state, payload)
            sends: Any = () if evaluated is None else evaluated.gradients
            shape = () if evaluated is None else evaluated.prediction.shape
        else:
            step = node.forward if direction is FORWARD else node.backward
            sends = step(port, state, payload)
            light = largest_but(node.uncharged_port, port, payload, sends)
            shape = payload.shape if node.is_parameterized else light
        self.took[direction] += counted(node, self._calls)
        if sends:
            self.charged[direction] += charged(node, node.work(direction, shape))
        return sends

    def update(self, optimizer: str) -> None:
        """Update a node that learns. To look for what is not finite is no part of what is charged.

        A message's gradients may be summed up by calls of their own, which its step is charged.
        """
        node, method = self.node, OPTIMIZERS[optimizer](0.1)
        assert isinstance(node, ParameterizedNode)
        node.step_by(method.arrays, method.calls)
        state = tuple(map(watched, method.init(plain(node.theta))))
        placed: Any = SimpleNamespace(node=node, index=0, stash=None, prediction=None)
        placed.optimizer_state = state
        recorder: Any = SimpleNamespace(updates=[])
        self._calls.clear()
        shape = Updater(method, recorder, averages_instances=False).update(placed, 0.0)
        size = node.theta.nbytes  # a product that makes a matrix of weights moves more
        calls = [one for one in self._calls if one.name != "dot" or one.bytes > size]
        self.took[UPDATE] = counted(node, calls)
        self.charged[UPDATE] = charged(node, node.work(UPDATE, shape))


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look whether labels name classes is no part of what is charged."""
    monkeypatch.setattr(losses, "require_labels", lambda _label, _classes: None)


@contextmanager
def bench_of(kit: Any, trial: Any) -> Iterator[Bench]:
    """A node that has met such messages before, so that what it keeps for all of them is there."""
    with watching() as calls:
        made = Bench(kit, trial, calls)
        for optimizer in ("sgd", "adam"):
            for instance in range(MESSAGES):
                made.serve(instance)
            if isinstance(made.node, ParameterizedNode):
                made.update(optimizer)
        yield made


def agree(bench: Bench, pairs: Iterable[tuple[Took, Took]]) -> None:
    """What is charged is what was taken; or it is not, for a reason that stands in the table."""
    is_meant = any(bench.name.startswith(one) for one in MEANT)
    far = [(charged, took) for charged, took in pairs if not charged.is_near(took)]
    assert not far or is_meant, f"charged, taken: {far}"


@pytest.mark.parametrize("is_training", [True, False])
@of_each("trial")
def test_a_step_takes_the_calls_and_passes_that_it_is_charged(kit, trial, is_training):
    with bench_of(kit, trial) as bench:
        bench.node.is_training = is_training
        bench.serve(MESSAGES)
    learns = bench.node.is_parameterized  # which has its backward step with its update, below
    directions = (FORWARD,) if learns else (FORWARD, BACKWARD)
    agree(bench, [(bench.charged[one], bench.took[one]) for one in directions])


def shares(node: Node) -> int:
    """Calls that a message is charged with its own step for its part of an update (decision 3)."""
    if isinstance(node, LayerNorm):
        return len(node.parameter_shapes)  # of which it makes each
    return int(isinstance(node, MatrixNode | Embedding)) + isinstance(node, GRUCell)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@of_each("learning")
def test_steps_that_learn_and_their_update_take_what_they_are_charged(kit, learning, optimizer):
    """Calls apart; passes together, as those of an update's product are charged with messages."""
    with bench_of(kit, learning) as bench:
        node, found = bench.node, list[tuple[Took, Took]]()
        ports, late = range(len(node.inputs)), Took(MESSAGES * shares(node), 0)
        made = late if isinstance(node, LayerNorm) else Took(0, 0)
        for needed in ({*ports}, *({port} for port in ports), set[int]()):
            node.input_needs_gradient = tuple(port in needed for port in ports)
            took, charged = Took(0, 0), Took(0, 0)
            for instance in range(MESSAGES):
                bench.serve(instance)
                took, charged = took + bench.took[BACKWARD], charged + bench.charged[BACKWARD]
            bench.update(optimizer)
            update, its = bench.charged[UPDATE], bench.took[UPDATE]
            found.append((Took(charged.calls - late.calls, 0), Took(took.calls, 0)))
            found.append((Took(update.calls, 0), Took(its.calls - made.calls, 0)))
            passed = charged.passed + update.passed, took.passed + its.passed
            found.append((Took(0, passed[0]), Took(0, passed[1])))
    agree(bench, found)


@pytest.mark.parametrize(
    ("rows", "messages", "made"), [(8, 1, 2), (8, 4, 4), (LARGE_ROWS, 1, 2), (LARGE_ROWS, 4, 14)]
)
def test_a_matrix_s_gradient_is_charged_as_one_product_and_a_share_for_each_message(
    rows, messages, made
):
    """Whatever is made, which decision 3 says: an update is not asked how many messages it has."""
    node = Linear("node", 40, 30)
    with watching() as calls:
        node.adopt(watched(np.zeros(node.parameter_count, np.float32)))
        for state in range(messages):
            node.accumulate((state,), payload_of(normal(rows, 40)), payload_of(normal(rows, 30)))
        calls.clear()
        node.take_gradient()
        assert sum(one.name != "ones" for one in calls) == made  # ones are kept
    node.input_needs_gradient = (False,)
    update = node.work(UPDATE, None).operations - node.step_calls.operations
    assert update + messages * node.work(BACKWARD, (rows, 30)).operations == 4 + messages


def test_a_convolution_is_charged_for_its_bias_as_it_is_computed_and_not_without_one():
    """What is left over is the same with one and without: columns, which are meant to be free."""
    of: dict[bool, list[Took]] = {}
    for has_bias in (True, False):
        node, (images, back) = Conv2d("node", 3, 8, 3, has_bias=has_bias), SHAPES_OF_IMAGES
        of[has_bias] = []
        with watching() as calls:
            node.adopt(watched(np.ones(node.parameter_count, np.float32)))
            node.input_needs_gradient = (False,)
            for direction, shape in ((FORWARD, images), (BACKWARD, back)):
                payload = payload_of(normal(*shape))
                calls.clear()
                step = node.forward if direction is FORWARD else node.backward
                step(0, (0,), payload)
                made = [one for one in calls if one.bytes > 1000 and not one.is_product]
                work = node.work(direction, shape)
                passed = sum(one.bytes for one in made)
                of[has_bias].append(Took(len(made) - work.operations, passed - work.pass_bytes))
    for with_bias, without in zip(of[True], of[False], strict=True):
        assert with_bias.calls == without.calls
        assert with_bias.passed == pytest.approx(without.passed, rel=0.01)


def test_what_is_meant_to_be_charged_otherwise_is_listed(listed):
    assert all(any(name.startswith(one) for name in listed) for one in MEANT)
