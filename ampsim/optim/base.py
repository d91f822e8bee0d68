"""An optimizer is a pair of pure functions over flat vectors, and a learning rate.

Source: the `(init, update)` pair of Optax, `optax/_src/base.py`; here `update` returns the new
weights themselves, since they are what a later weight version keeps.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from ampsim.arguments import as_float
from ampsim.errors import DivergenceError, OptionError
from ampsim.ir.work import DESCENT, Calls
from ampsim.text import shown

if TYPE_CHECKING:
    from jaxtyping import Float

    from ampsim.ir import ParameterizedNode

Vector: TypeAlias = "Float[np.ndarray, ' parameters']"
"""Parameters or their gradient, all of a node's arrays in one flat vector."""

State: TypeAlias = tuple[Any, ...]
"""What a method carries from step to step; only the method that made it looks inside."""

LearningRate: TypeAlias = Callable[[Any], float]
"""Learning rate of an epoch; epochs count from 0, and 2.5 is the middle of the third.

It is asked once an epoch, with a whole number, unless its attribute `is_within_epochs` is true."""

Init: TypeAlias = Callable[[Vector], State]
Update: TypeAlias = Callable[..., tuple[Vector, State]]
"""Called as `update(gradient, state, theta, rate)`; an elementwise one takes `in_place`."""

ByTensor: TypeAlias = "Callable[[Sequence[tuple[int, ...]]], tuple[Init, Update]]"
"""The two functions for a vector of tensors of these shapes."""


BLOCK: Final = 1 << 17
"""Parameters that are stepped at once; measured: an optimizer's passes over them stay in cache."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A method with its options: `init(theta)` and `update(gradient, state, theta, rate)`.

    `update` gives `(new_theta, new_state)`. Both functions are pure: they write into none of
    their arguments and keep none, so that old weights stay valid as versions. Results have the
    data type of `theta`.

    Where each element is stepped by itself, and arrays of the state have the shape of `theta`, a
    part of a vector can be stepped alone. Such an `update` takes `in_place=True` from a caller that
    needs gradient and state no more: the new weights are then written over the gradient, the new
    state's arrays over the old ones.

    Args:
        name: the method's name in `OPTIMIZERS`.
        rate: learning rate of an epoch, to be passed to `update`.
        init: state before the first step.
        update: one step.
        is_elementwise: whether each element is stepped by itself, and `update` takes `in_place`.
        scaling: how the rate grows with the gradients of which one update takes the mean:
            "linear", with their number, "sqrt", with its root, or "none", where no rule is known.
        touches_all: whether a step depends on all of a vector, or changes all of it, so that rows
            of a table cannot be stepped alone.
        calls: of a library in a step; those of plain gradient descent unless given.
        by_tensor: gives both functions for a vector of several tensors, where a step depends on
            where they begin; None where it does not.
        first: the method of an earlier stage, at rates that do not say `is_second`; None without.
        first_epochs: how long that stage lasts.
    """

    name: str
    rate: LearningRate
    init: Init
    update: Update
    is_elementwise: bool = False
    scaling: Literal["none", "linear", "sqrt"] = "none"
    touches_all: bool = False
    calls: Calls = DESCENT
    by_tensor: ByTensor | None = None
    first: Optimizer | None = None
    first_epochs: float = 0.0

    def stage(self, rate: float) -> Optimizer:
        """The method that steps at a rate."""
        return self if self.first is None or getattr(rate, "is_second", False) else self.first

    def charge(self, node: ParameterizedNode, rate: float) -> None:
        """Let an update of a node cost what the method of the rate's stage does."""
        if self.first is not None:
            stage = self.stage(rate)
            node.step_by(stage.arrays, stage.calls)

    def of_tensors(self, shapes: Sequence[tuple[int, ...]]) -> Optimizer:
        """The method for a vector of tensors of these shapes, one after the other."""
        if self.by_tensor is None:
            return self
        init, update = self.by_tensor(shapes)
        return replace(self, init=init, update=update)

    @property
    def arrays(self) -> int:
        """Count of arrays of the parameters' size that it carries from step to step."""
        return sum(isinstance(part, np.ndarray) for part in self.init(np.zeros(1)))

    def step(
        self,
        gradient: Vector,
        state: State,
        theta: Vector,
        rate: float,
        told: Callable[[], str],
    ) -> tuple[Vector, State]:
        """Step from `theta`; `gradient` and `state` may be written over, for nobody needs them.

        Where the method is elementwise, the new weights take the place of the gradient, block by
        block if they are many. The bits are those of `update`.

        Raises:
            DivergenceError: a weight would stop being finite; `told` gives the line.
        """
        if not self.is_elementwise or len(gradient) <= BLOCK:
            in_place = {"in_place": True} if self.is_elementwise else {}
            theta, state = self.update(gradient, state, theta, rate, **in_place)
            _require_finite(theta, told)
            return theta, state
        is_array, after = [isinstance(part, np.ndarray) for part in state], state
        for start in range(0, len(gradient), BLOCK):
            block = slice(start, start + BLOCK)
            parts = zip(state, is_array, strict=True)
            of_block = tuple(part[block] if is_cut else part for part, is_cut in parts)
            stepped, of_block = self.update(
                gradient[block], of_block, theta[block], rate, in_place=True
            )
            _require_finite(stepped, told)
            after = tuple(map(_whole, is_array, state, of_block))
        return gradient, after

    def with_decay(self, weight_decay: object) -> Optimizer:
        """The method with a weight decay; itself where that is 0. It must be elementwise.

        Source: gradient <- gradient + decay * theta before anything else, the L2 term of
        `torch.optim`'s methods. It is the gradient of decay / 2 · ‖theta‖².

        Raises:
            OptionError: the decay is no finite number of at least 0.
        """
        decay = strength(weight_decay)
        if not decay:
            return self
        update = partial(_decayed, update=self.update, decay=decay)
        operations, passes, roots = self.calls  # the weights times it, and the gradient with that
        calls = Calls(operations + 2, passes + 5, roots)
        return replace(self, update=update, touches_all=True, calls=calls)


def _require_finite(theta: Vector, told: Callable[[], str]) -> None:
    if not math.isfinite(float(theta.dot(theta))):
        raise DivergenceError(told())


def _whole(is_array: bool, whole: Any, of_block: Any) -> Any:
    """The part of a state that is there after a block: the array itself, or the latest scalar."""
    return whole if is_array else of_block


def copied(optimizer: Optimizer) -> Optimizer:
    """A copy to be tried, as far as there can be one: a rate may note what it is asked."""
    try:
        return copy.deepcopy(optimizer)
    except TypeError:  # a part cannot be copied
        return optimizer


def within_epochs(rate: LearningRate) -> bool:
    """Tell whether a learning rate changes within an epoch."""
    return bool(getattr(rate, "is_within_epochs", False))


def check_alike(gradient: Vector, theta: Vector) -> None:
    """Asserts what every method relies on: one flat shape, one floating data type."""
    assert gradient.shape == theta.shape and gradient.dtype == theta.dtype, (
        f"gradient {gradient.dtype}{gradient.shape} does not fit theta {theta.dtype}{theta.shape}"
    )


def zeros(theta: Vector) -> Vector:
    """Zeros like `theta`, which unlike those of `zeros_like` take no memory until written."""
    return np.zeros(theta.shape, theta.dtype)


def velocity_at_rest(theta: Vector) -> State:
    """The state of a method that has a velocity, before the first step."""
    return (zeros(theta),)


def positive(what: str, value: object, usual: float) -> float:
    """`value` as a Python float.

    Raises:
        OptionError: it is no finite number above 0.
    """
    number = as_float(value)  # Python's own, which leaves float32 arrays as they are
    if not 0 < number < math.inf:
        raise OptionError(f"{what} must be a number > 0, got {shown(value)}; try {usual}")
    return number


def decay_rate(what: str, value: object, usual: float) -> float:
    """`value` as a Python float.

    Raises:
        OptionError: it is no number from 0 to below 1.
    """
    number = as_float(value)  # Python's own, which leaves float32 arrays as they are
    if not 0 <= number < 1:
        raise OptionError(f"{what} must be a number >= 0 and < 1, got {shown(value)}; try {usual}")
    return number


def strength(value: object) -> float:
    """A weight decay as a Python float.

    Raises:
        OptionError: it is no finite number of at least 0.
    """
    number = as_float(value)
    if not 0 <= number < math.inf:
        raise OptionError(f"weight_decay must be a number >= 0, got {shown(value)}; try 0.0001")
    return number


def _decayed(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    in_place: bool = False,
    *,
    update: Update,
    decay: float,
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    pull = theta * decay
    whole = np.add(gradient, pull, out=gradient if in_place else pull)
    return update(whole, state, theta, rate, in_place=in_place)
