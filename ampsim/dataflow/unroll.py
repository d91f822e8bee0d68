"""Static unrolling: a loop becomes as many copies of its body as one instance needs.

Whether it goes on is worked out while the graph is built, from what is known by then: constants,
single integers that are fed, and shapes of what is fed. The paper compares with this (Yu et al.,
2018, Section 6.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Tensor, constant
from ampsim.errors import GraphError

Key: TypeAlias = tuple[Any, ...]


class KnownInstance:
    """What is known of an instance before it runs.

    Args:
        feeds: values of the inputs, of which shapes and single integers count.
    """

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self._feeds = {name: np.asarray(value) for name, value in feeds.items()}
        self._values: dict[Tensor, Any] = {}

    def key(self) -> Key:
        """Equal for instances that need the same graph."""
        return tuple(
            (name, value.shape, int(value) if _is_count(value) else None)
            for name, value in sorted(self._feeds.items())
        )

    def value(self, tensor: Tensor) -> Any:
        """A tensor's value; None where that is not known."""
        if tensor not in self._values:
            self._values[tensor] = self._worked_out(tensor)
        return self._values[tensor]

    def _worked_out(self, tensor: Tensor) -> Any:
        node = tensor.node
        operator = node.operator
        if operator is op.CONSTANT:
            return node.attributes["value"]
        if operator is op.INPUT and node.name in self._feeds:
            value = self._feeds[node.name]
            return value if _is_count(value) else None
        if operator.kernel is None or operator.is_stateful or operator.needs_tag:
            return None
        if operator.reads_shapes:
            given = [self._shaped(one) for one in node.inputs]
        elif tensor.is_float:
            return None
        else:
            given = [self.value(one) for one in node.inputs]
        if any(one is None for one in given):
            return None
        return operator.kernel(*given, **node.attributes)

    def _shaped(self, tensor: Tensor) -> Any:
        """Something of a tensor's shape; None where that is not known."""
        if tensor.node.operator is op.INPUT and tensor.node.name in self._feeds:
            return self._feeds[tensor.node.name]
        shape = tensor.static_shape
        return None if shape is None else np.broadcast_to(np.zeros(()), shape)

    def truth(self, tensor: Tensor, what: str) -> bool:
        """Whether a predicate is true.

        Raises:
            GraphError: that is not known.
        """
        value = self.value(tensor)
        if value is None:
            raise GraphError(
                f"{tensor.node.told}: {what} is not known before the program runs, so it cannot be "
                "unrolled; take shapes and single integers that are fed, or run it by dataflow"
            )
        return bool(value)

    def folded(self, tensor: Tensor) -> Tensor:
        """A constant in place of an integer or truth value that is known."""
        value = None if tensor.is_float else self.value(tensor)
        return tensor if value is None else constant(value)


def _is_count(value: np.ndarray) -> bool:
    return value.ndim == 0 and value.dtype.kind in "ib"
