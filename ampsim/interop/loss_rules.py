"""Rules for losses, in which a graph ends: cross-entropy and squared error.

The loss that a user wrote is exported with the module, so that its own reshaping is part of the
graph.
"""

from __future__ import annotations

from typing import Any, Final

from ampsim.interop.lowering import Arguments, LogSoftmax, LossValue, Lowering, Value, shape_of
from ampsim.interop.plan import Spec
from ampsim.nodes import Permute, Reshape, SoftmaxCrossEntropy, SquaredError

WITHOUT_IGNORED: Final = -100
"""PyTorch's label that a loss ignores; no label of ours is below 0."""


def log_softmax(low: Lowering, given: Arguments) -> Value:
    """What only a loss takes."""
    count = len(given.shape)
    if given["dim"] % count != (1 if count > 1 else 0):
        raise low.refused("log_softmax is not over the classes, axis 1", "take dim=1")
    return LogSoftmax(given["self"])


def cross_entropy(low: Lowering, given: Arguments) -> Value:
    """nn.CrossEntropyLoss of logits, or nn.NLLLoss of their log_softmax; classes on axis 1."""
    if (given.operation.target.__name__.startswith("nll")) != isinstance(given["self"], LogSoftmax):
        raise low.refused("NLLLoss is of no log_softmax", "take nn.CrossEntropyLoss() of logits")
    usual = {
        "weight": None,
        "reduction": 1,
        "ignore_index": WITHOUT_IGNORED,
        "label_smoothing": 0.0,
    }
    _require_usual(low, given, usual)
    value = given["self"].of if isinstance(given["self"], LogSoftmax) else given["self"]
    shape, labels = given.shape_of("self"), given.shape_of("target")
    if len(shape) < 2 or len(labels) != len(shape) - 1:
        raise low.refused(
            "the target of a cross-entropy is no class for each row",
            "give labels (rows,) for logits (rows, classes)",
        )
    logits, target = low.wire(value), low.wire(given["target"])
    if low.learns(target):
        raise low.refused("the target of a cross-entropy learns", "give it the data's labels")
    low.classes = shape[1] or 0
    if len(shape) > 2:
        axes = (0, *range(2, len(shape)), 1)
        logits = low.light(Reshape, low.light(Permute, logits, axes=axes), shape=(-1, shape[1]))
        target = low.light(Reshape, target, shape=(-1,))
    low.call(Spec(SoftmaxCrossEntropy, low.free("loss")), logits, target, outputs=0)
    return LossValue()


def squared_error(low: Lowering, given: Arguments) -> Value:
    """nn.MSELoss."""
    _require_usual(low, given, {"reduction": 1})
    shape = given.shape_of("self")
    if shape != given.shape_of("target"):
        raise low.refused(
            "prediction and target of a squared error differ in shape",
            "bring both to one shape, such as with target.unsqueeze(1)",
        )
    wires = sorted((low.wire(given[one]) for one in ("self", "target")), key=low.learns)[::-1]
    if low.learns(wires[1]):
        raise low.refused("both operands of a squared error learn", "give it the data's target")
    if len(shape) > 2:
        wires = [low.light(Reshape, one, shape=(-1, shape[-1])) for one in wires]
    low.call(Spec(SquaredError, low.free("loss")), *wires, outputs=0)
    return LossValue()


def broadcast(low: Lowering, given: Arguments) -> Value:
    """What nn.MSELoss does to its operands; nothing, where they have one shape."""
    if len({shape_of(one) for one in given.operation.args[0]}) > 1:
        raise low.refused(
            "prediction and target of a loss differ in shape",
            "bring both to one shape, such as with target.unsqueeze(1)",
        )
    return tuple(given["tensors"])


def _require_usual(low: Lowering, given: Arguments, usual: dict[str, Any]) -> None:
    for name in given.unlike(usual):
        raise low.refused(f"the loss has {name}", "leave it at its default")
