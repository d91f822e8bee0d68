"""What a node refuses of the mode and the optimizer that it is to run with."""

from __future__ import annotations

from ampsim.errors import OptionError
from ampsim.ir import Node, ParameterizedNode
from ampsim.optim import Optimizer


def require_mode(node: Node, *, is_abstract: bool) -> None:
    """Check that a node can run with numbers, or without.

    Raises:
        OptionError: it cannot.
    """
    if is_abstract and node.reads_values:
        raise OptionError(
            f"mode 'sleep' has no numbers, but {node.describe()} decides by them; "
            "use mode 'numeric'"
        )
    if node.is_shape_only and not is_abstract:
        raise OptionError(
            f"mode 'numeric' computes with weights, but {node.describe()} has shapes alone; "
            "use mode 'sleep'"
        )


def require_rows(node: ParameterizedNode, optimizer: Optimizer) -> None:
    """Check that an optimizer can step some rows of a table alone.

    Raises:
        OptionError: it takes all of the table.
    """
    if node.is_sparse and optimizer.touches_all:
        raise OptionError(
            f"{node.describe()} updates the rows of its table that were looked up, and "
            f"{optimizer.name} as given, with all of it at once, cannot; take no weight decay and "
            "another optimizer than lars, or is_sparse=False"
        )
