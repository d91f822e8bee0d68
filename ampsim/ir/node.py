"""The node contract: what every operation of the intermediate representation can do.

A node has named input and output ports, lives on one worker, and owns its caches and parameters.
Four methods make an operation: `forward` and `backward` return the messages to send, `work` says
what a step cost, `check` infers shapes when the graph is built (paper, Section 4). A loss is the
node where a message turns around and becomes a gradient.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State
from ampsim.ir.work import DESCENT, NO_WORK, Calls, Work
from ampsim.text import short

Shape: TypeAlias = tuple[int | str, ...]
"""A payload's shape while a graph is built; an extent that an instance decides has a name."""

MISSING: Any = object()

NAMES_TOLD: Final = 4
"""Names of ports in one message to people, at most; chosen."""

SINGLE_BYTES: Final = 4
"""Bytes of a number in single precision."""


class Node(ABC):
    """One operation of a static graph.

    Attributes:
        name: unique within its graph; parameters are called ``NAME.weight`` and so on.
        inputs: names of the input ports, in order. A step is told a port's index.
        outputs: names of the output ports, in order.
        is_training: False during a validation pass: record nothing, expect nothing back.
        is_abstract: True in `sleep` mode: float payloads are of class `Standin`.
        element_bytes: of one number of a payload, by the model's data type; 4 unless told.
        input_needs_gradient: for each input port, whether any parameter lies upstream of it. Where
            that depends on the message, as in a loop whose first turn gets what was pumped, the
            engine sets it before each backward step.
        decided_by: for each input port, the nodes that know, by a message's state, whether any
            parameter lies upstream of it; none where all messages are alike.
    """

    inputs: tuple[str, ...] = ("input",)
    outputs: tuple[str, ...] = ("output",)
    is_parameterized: ClassVar[bool] = False
    is_loss: ClassVar[bool] = False
    waits_for_all: ClassVar[bool] = True
    """Whether a step needs all inputs of a state; False for a `Phi`, which passes on any one."""
    keeps_state: ClassVar[bool] = False
    """Whether what a forward step sends has the state of what it took."""
    heeds_need: ClassVar[bool] = True
    """Whether a backward step depends on `input_needs_gradient`, not on the gradient alone."""
    uncharged_port: ClassVar[int] = -1
    """An input whose payloads never say what a step is charged for, as a mask's; -1 for none."""
    multiplies: ClassVar[bool] = False
    """Whether a node without parameters multiplies matrices, which devices may not charge for."""
    reads_values: ClassVar[bool] = False
    """Whether control flow depends on a payload's numbers, which `sleep` mode does not have."""

    is_shape_only: ClassVar[bool] = False
    """Whether it has no numbers, and can be served in `sleep` mode alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_training = True
        self.is_abstract = False
        self.element_bytes = SINGLE_BYTES
        self.input_needs_gradient: tuple[bool, ...] = (True,) * len(self.inputs)
        self.decided_by: tuple[tuple[Node, ...], ...] = ((),) * len(self.inputs)

    @abstractmethod
    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message; return (output port, state, payload) for each one to send.

        Returning nothing means that the node waits for more; such a step costs nothing.
        """

    @abstractmethod
    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve the gradient of output `port`; return (input port, state, gradient) to send.

        A gradient is None where nothing upstream has parameters; it is passed on as None, so that
        every forward message has its backward.
        """

    @abstractmethod
    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Infer the output shapes from the input shapes.

        An input shape is None only at a `Phi` whose loop has not been followed yet.

        Raises:
            GraphError: the shapes do not fit; the message names the node and the shapes.
        """

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Say what a step on a payload of `shape` costs; nothing, unless overridden."""
        return NO_WORK

    def product_rows(self, direction: Direction, shape: tuple[int, ...]) -> int:
        """Rows of the matrix that a step multiplies, on which a device's efficiency depends."""
        return shape[0]

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Bytes that a forward step of training has kept for its backward step.

        A node without parameters keeps nothing unless it says so. Control information is free.

        Args:
            state: of the message that was served last.
            taken_bytes: of the payloads that the step took, those that had waited among them.
        """
        return 0

    def joins(self, direction: Direction, state: State) -> State:
        """Name what a message waits for at this node: messages of one name are served together."""
        return state

    def gradients_needed(self, state: State) -> tuple[bool, ...]:
        """For each input port, whether any parameter lies upstream of what came with `state`.

        Known from the forward step of a training pass until the state's backward messages have
        reached the nodes of `decided_by`.
        """
        needed = self.input_needs_gradient
        for port, nodes in enumerate(self.decided_by):
            if nodes:
                is_needed = False
                for node in nodes:  # as `any`, in half the time: it is asked for each message
                    if node.sent_needs_gradient(state):
                        is_needed = True
                        break
                if needed[port] != is_needed:
                    needed = (*needed[:port], is_needed, *needed[port + 1 :])
        return needed

    def sent_needs_gradient(self, state: State) -> bool:
        """Tell whether any parameter lies upstream of what was sent with `state`; a `Phi` knows."""
        return any(self.gradients_needed(state))

    def pending(self) -> Iterable[State]:
        """Return the states that some cache of this node still holds; none once drained."""
        return ()

    def awaits(self, state: State) -> str:
        """Say in a few words what a state of `pending` waits for, when a run cannot go on."""
        return "the backward message"

    def describe(self) -> str:
        """Name and kind, for messages to people."""
        return f"{self.name} ({type(self).__name__})"


class Join:
    """Waits until a payload has arrived at each of `ports` ports for one state, in any order."""

    __slots__ = ("_empty", "waiting")

    def __init__(self, ports: int) -> None:
        self._empty = [*[MISSING] * ports, ports]  # last: how many are missing
        self.waiting: dict[State, list[Any]] = {}

    def put(self, port: int, state: State, payload: Payload) -> list[Payload] | None:
        """Take one payload; return all of them in port order once the last has arrived."""
        parts = self.waiting.get(state)
        if parts is None:
            parts = self.waiting[state] = self._empty.copy()
        assert parts[port] is MISSING, f"port {port} got {state} twice"
        parts[port] = payload
        left = parts[-1] - 1
        if left:
            parts[-1] = left
            return None
        del self.waiting[state]
        parts.pop()
        return parts

    def lacks(self, state: State, kind: str, names: Sequence[str]) -> str:
        """Say which ports a state waits for and which it has; nothing, where it does not wait.

        Args:
            state: any.
            kind: what arrives at the ports, such as "input".
            names: of the ports, in order.

        >>> join = Join(3)
        >>> join.put(1, "s", 0.5)
        >>> join.lacks("s", "input", ("x", "h", "label"))
        'input x, label (has h)'
        """
        parts = self.waiting.get(state)
        if parts is None:
            return ""
        arrived = [part is not MISSING for part in parts[:-1]]
        missing = [name for name, is_there in zip(names, arrived, strict=True) if not is_there]
        there = [name for name, is_there in zip(names, arrived, strict=True) if is_there]
        return f"{kind} {_few(missing)} (has {_few(there)})"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return ", ".join(names[:NAMES_TOLD]) + more


class CachingNode(Node):
    """A node whose caches are by state: what waits for other messages, and what backward needs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._arrived, self._returned = Join(len(self.inputs)), Join(len(self.outputs))
        self._saved: dict[State, Any] = {}

    def pending(self) -> Iterable[State]:
        """States that wait for an input or a gradient, or whose backward message has not come."""
        return dict.fromkeys((*self._arrived.waiting, *self._saved, *self._returned.waiting))

    def awaits(self, state: State) -> str:
        """Inputs or gradients that have not come, or the backward message."""
        gradients = self._returned.lacks(state, "gradient of", self.outputs)
        inputs = self._arrived.lacks(state, "input", self.inputs)
        return gradients or inputs or super().awaits(state)


class ParameterizedNode(Node):
    """A node that learns: it accumulates gradients and applies them in an update step.

    All parameters of a node are views into one flat vector, `theta`, which an update *replaces*:
    whoever holds an old vector keeps the old weights.

    Attributes:
        theta: the parameters, flat; None before `initialise`.
        version: how many updates have been applied.
        averaged: how often it took the mean of its replicas.
        gradient_count: gradients accumulated since the last update.
        min_update_interval: gradients after which the node updates itself; None where the
            controller says when (synchronous schedules).
        state_arrays: arrays of the parameters' size that the optimizer keeps for this node.
        step_calls: by which the optimizer steps them; of plain gradient descent until a run says
            otherwise.
        seed_name: names the random stream of the initial weights; equal for replicas.
        is_sparse: whether an update writes some rows of `theta` instead of replacing it.
    """

    is_parameterized: ClassVar[bool] = True
    is_sparse: bool = False

    def __init__(self, name: str, parameter_shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__(name)
        self.parameter_shapes = parameter_shapes
        sizes = [math.prod(shape) for shape in parameter_shapes.values()]
        edges = [0, *accumulate(sizes)]
        places = [slice(start, stop) for start, stop in pairwise(edges)]
        self._parts = list(zip(places, parameter_shapes.values(), strict=True))
        self.parameter_count = edges[-1]
        self.seed_name = name
        self.theta: np.ndarray = np.zeros(0)
        self.version = self.averaged = 0
        self.min_update_interval: int | None = None
        self.state_arrays = 0
        self.step_calls = DESCENT
        self.reset_accumulation()

    def step_by(self, arrays: int, calls: Calls) -> None:
        """Be stepped by an optimizer that keeps so many arrays of the parameters' size."""
        self.state_arrays, self.step_calls = arrays, calls

    @abstractmethod
    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw initial parameters, flat, float64."""

    def adopt_first(self, drawn: Any, dtype: str) -> None:
        """Take first parameters, as `initialise` drew them.

        Raises:
            GraphError: they do not fit, or `adopt` did not take them.
        """
        is_flat = getattr(drawn, "shape", None) == (self.parameter_count,)
        if is_flat and np.isfinite(drawn).all():
            self.adopt(drawn.astype(dtype))
        if not is_flat or self.theta.shape != drawn.shape:
            raise self._unfit(drawn)

    def _unfit(self, drawn: Any) -> GraphError:
        wanted, shown = f"a flat array of {self.parameter_count} finite numbers", short(drawn)
        if type(drawn) is np.ndarray:
            shown = f"shape {drawn.shape}"
            if drawn.shape == (self.parameter_count,):
                if np.isfinite(drawn).all():
                    return GraphError(f"adopt of {self.describe()} must call super().adopt(theta)")
                shown = "numbers that are not"
        return GraphError(f"initialise of {self.describe()} must return {wanted}, got {shown}")

    @abstractmethod
    def take_gradient(self) -> np.ndarray:
        """Return the accumulated gradient, summed over messages, and start anew.

        It is a new flat vector, which the caller may write and keep.
        """

    def take_rows(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the accumulated gradient of a table as (rows touched, their gradients).

        None, the default, for nodes whose gradient is dense: `take_gradient` has it. A node that
        returns rows has one parameter, a table; in `sleep` mode the gradients are empty.
        """
        return None

    @property
    def rows_touched(self) -> int | None:
        """Count of rows that `take_rows` would return now; None, the default, where it has none."""
        return None

    def adopt(self, theta: np.ndarray) -> None:
        """Use `theta` as parameters from now on; subclasses bind their views here."""
        self.theta = theta

    def adopt_mean(self, mean: np.ndarray | None) -> None:
        """Use a copy of the mean of all replicas; None is that of shapes."""
        self.averaged += 1
        if mean is not None:
            self.adopt(mean.copy())

    def read_as(self, version: int) -> None:
        """Let steps count the weights that they read as this version of them."""
        self.version = version

    def parts(self, vector: np.ndarray) -> list[np.ndarray]:
        """Cut a flat vector into this node's parameters, in their order; views, not copies."""
        return [vector[place].reshape(shape) for place, shape in self._parts]

    def views(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Cut a flat vector into this node's named parameters; views, not copies."""
        return dict(zip(self.parameter_shapes, self.parts(vector), strict=True))

    def count_gradient(self, state: State, version: int) -> None:
        """Note that a gradient was accumulated whose forward step met weights of `version`."""
        staleness = self.version - version
        self.gradient_count += 1
        self.staleness_sum += staleness
        if staleness > self.staleness_max:
            self.staleness_max = staleness
        self.instances.add(state[0])

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count what the node took: a gradient of weights needs the input."""
        return taken_bytes

    def asks_update(self) -> bool:
        """Tell whether the node should send itself an update message: once until it is served.

        Gradients that come meanwhile, as while a device issues it, go into the same update.
        """
        interval = self.min_update_interval
        if interval is None or self.gradient_count < interval or self._has_asked:
            return False
        self._has_asked = True
        return True

    def reset_accumulation(self) -> None:
        """Forget the counts of the accumulated gradients, as an update does."""
        self._has_asked = False
        self.gradient_count = 0
        self.staleness_sum = 0
        self.staleness_max = 0
        self.instances: set[int] = set()

    def updated(self) -> None:
        """Count an update and start accumulating anew."""
        self.version += 1
        self.reset_accumulation()

    def skip(self, updates: int) -> None:
        """Go on as after so many updates, whose weights somebody else has or needs."""
        self.version += updates
