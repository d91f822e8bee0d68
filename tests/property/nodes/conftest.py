"""The table of nodes: what is listed here gets every test of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.ir import Bcast, Cond, Isu, Node, Partition, Phi
from ampsim.nodes import (
    FUNCTIONS,
    Affine,
    Attention,
    BranchLSTM,
    Collect,
    Columns,
    Compare,
    Concat,
    Conv2d,
    Difference,
    Distribute,
    Dropout,
    Embedding,
    Flatten,
    Group,
    GRUCell,
    LayerNorm,
    LeafLSTM,
    Linear,
    LSTMCell,
    MatrixProduct,
    Max,
    MaxPool,
    Mean,
    Permute,
    Pick,
    Pointwise,
    Product,
    ReLU,
    Replicate,
    Reshape,
    RMSNorm,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropy,
    Split,
    SquaredError,
    Sum,
    Tanh,
    Ungroup,
    Where,
)


class Case(NamedTuple):
    """As `Trial` (tests/property/conftest.py); a message is (port, step of its state, payload)."""

    make: Callable[[], Node]
    messages: tuple[tuple[int, int, Any], ...]
    flop: tuple[int, int, int] = (0, 0, 0)
    wrong: tuple[tuple[int | str, ...], ...] | None = None


def at_step(state: Any, step: int) -> Any:
    return state._replace(step=step)


def later(state: Any) -> Any:
    return state._replace(step=state.step + 1)


def earlier(state: Any) -> Any:
    return state._replace(step=state.step - 1)


def of_three(state: Any) -> tuple[Any, int, int]:
    return state._replace(step=0), state.step, 3


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape)


def away_from_zero(*shape: int) -> np.ndarray:
    return normal(*shape) + np.sign(normal(*shape)) * 0.1


def indices(count: int, *shape: int) -> np.ndarray:
    """Some rows several times, some never."""
    return np.random.default_rng(count).integers(0, count // 2, shape)


def attending(queries: int, keys: int, width: int, columns: int) -> Attention:
    """Attention to other keys, whose extents it knows once it is in a graph."""
    node = Attention("node")
    node.check(((ROWS, queries, width), (ROWS, keys, width), (ROWS, keys, columns)))
    return node


def at_ports(*payloads: Any) -> tuple[tuple[int, int, Any], ...]:
    return tuple((port, 0, payload) for port, payload in enumerate(payloads))


PARTS = Partition(([0, 2, 2], [], [4, 0]), size=5)  # a row twice, an empty part, a row in no part
ROWS = "rows"

CASES: dict[str, Case] = {
    "Linear": Case(
        lambda: Linear("node", 4, 3), at_ports(normal(5, 4)), (120, 240, 12), ((ROWS, 5),)
    ),
    "Linear, one row": Case(
        lambda: Linear("node", 4, 3), at_ports(normal(1, 4)), (24, 48, 12), ((ROWS, 4, 1),)
    ),
    "Linear, a sequence": Case(
        lambda: Linear("node", 4, 3), at_ports(normal(2, 5, 4)), (240, 480, 12), ((ROWS, 4, 5),)
    ),
    "Linear, no bias": Case(
        lambda: Linear("node", 4, 3, has_bias=False),
        at_ports(normal(5, 4)),
        (120, 240, 12),
        ((4,),),
    ),
    "Embedding": Case(
        lambda: Embedding("node", 14, 3), at_ports(indices(14, 6, 5)), (0, 0, 42), ((),)
    ),
    "Embedding, large": Case(
        lambda: Embedding("node", 100, 3), at_ports(indices(100, 6, 5)), (0, 0, 300), ((),)
    ),
    "Embedding, sparse": Case(
        lambda: Embedding("node", 100, 3, is_sparse=True),
        at_ports(indices(100, 6)),
        (0, 0, 300),
        ((),),
    ),
    "Conv2d": Case(
        lambda: Conv2d("node", 2, 3, 3),
        at_ports(normal(2, 2, 5, 4)),
        (2 * 2 * 6 * 18 * 3, 4 * 2 * 6 * 18 * 3, 18 * 3),
        ((ROWS, 3, 5, 4),),
    ),
    "Conv2d, stride and padding": Case(
        lambda: Conv2d("node", 2, 3, 3, stride=2, padding=1),
        at_ports(normal(2, 2, 6, 5)),
        (2 * 2 * 9 * 18 * 3, 4 * 2 * 9 * 18 * 3, 18 * 3),
        ((ROWS, 2, "height", 5),),
    ),
    "Conv2d, one row of pixels": Case(
        lambda: Conv2d("node", 2, 3, (1, 3), stride=(1, 2), padding=(0, 1), has_bias=False),
        at_ports(normal(2, 2, 1, 7)),
        (2 * 2 * 4 * 6 * 3, 4 * 2 * 4 * 6 * 3, 6 * 3),
        ((ROWS, 2, 0, 7),),
    ),
    "Conv2d, one pixel": Case(
        lambda: Conv2d("node", 3, 2, 1), at_ports(normal(1, 3, 2, 2)), (48, 96, 6), ((ROWS, 3),)
    ),
    "Conv2d, stride over pixels": Case(
        lambda: Conv2d("node", 1, 2, 2, stride=3),
        at_ports(normal(2, 1, 6, 8)),
        (2 * 2 * 6 * 4 * 2, 4 * 2 * 6 * 4 * 2, 4 * 2),
        ((ROWS, 1, 1, 8),),
    ),
    "LSTMCell": Case(
        lambda: LSTMCell("node", 4, 3, forget_bias=0.5),
        at_ports(normal(5, 4), normal(5, 6)),
        (2 * 5 * 7 * 12, 4 * 5 * 7 * 12, 7 * 12),
        ((ROWS, 4), (ROWS, 3)),
    ),
    "LSTMCell, one row": Case(
        lambda: LSTMCell("node", 2, 3),
        at_ports(normal(1, 2), normal(1, 6)),
        (2 * 5 * 12, 4 * 5 * 12, 5 * 12),
        ((ROWS, 2), ("others", 6)),
    ),
    "LSTMCell, two biases": Case(
        lambda: LSTMCell("node", 2, 3, has_two_biases=True),
        at_ports(normal(4, 2), normal(4, 6)),
        (2 * 4 * 5 * 12, 4 * 4 * 5 * 12, 5 * 12),
        ((ROWS, 2), ("others", 6)),
    ),
    "LayerNorm": Case(
        lambda: LayerNorm("node", 4), at_ports(normal(5, 4)), (40, 80, 4), ((ROWS, 5),)
    ),
    "LayerNorm, a sequence": Case(
        lambda: LayerNorm("node", 3, epsilon=0.1), at_ports(normal(2, 5, 3)), (60, 120, 3), ((3,),)
    ),
    "LayerNorm, no bias": Case(
        lambda: LayerNorm("node", 4, has_bias=False),
        at_ports(normal(5, 4)),
        (40, 80, 4),
        ((ROWS, 5),),
    ),
    "RMSNorm": Case(
        lambda: RMSNorm("node", 4, epsilon=0.1), at_ports(normal(3, 2, 4)), (48, 96, 4), ((4,),)
    ),
    "Attention, masked": Case(
        lambda: Attention("node", is_masked=True),
        at_ports(*normal(4, 2, 3, 4, 4)),
        (2 * 2 * 6 * 16 * 4, 4 * 2 * 6 * 16 * 4, 0),
        ((ROWS, 3, 4, 2), (ROWS, 3, 4, 2), (ROWS, 3, 4, 2), (4, 3)),
    ),
    "MatrixProduct": Case(
        lambda: MatrixProduct("node"),
        at_ports(*normal(2, 3, 4, 4)),
        (2 * 3 * 64, 4 * 3 * 64, 0),
        ((ROWS, 3, 4), (ROWS, 3, 4)),
    ),
    "MatrixProduct, one matrix": Case(
        lambda: MatrixProduct("node"),
        at_ports(normal(1, 4, 4), normal(4, 4)),
        (2 * 64, 4 * 64, 0),
        ((ROWS, 3, 4), (3, 4)),
    ),
    "Attention": Case(
        lambda: Attention("node"),
        at_ports(*normal(3, 2, 5, 4)),
        (2 * 2 * 2 * 25 * 4, 4 * 2 * 2 * 25 * 4, 0),
        ((ROWS, 5, 4), (ROWS, 5, 3), (ROWS, 5, 4)),
    ),
    "Attention, large mask": Case(
        lambda: Attention("node", is_masked=True),
        at_ports(*normal(3, 1, 3, 5, 2), normal(3, 5, 5)),
        (2 * 2 * 3 * 25 * 2, 4 * 2 * 3 * 25 * 2, 0),
        ((ROWS, 3, 5, 2), (ROWS, 3, 5, 2), (ROWS, 3, 5, 2), (4, 5, 5)),
    ),
    "Attention, few queries": Case(
        lambda: attending(3, 7, 4, 6),
        at_ports(normal(2, 3, 4), normal(2, 7, 4), normal(2, 7, 6)),
        (2 * 2 * 3 * 7 * (4 + 6), 2 * 2 * 2 * 3 * 7 * (4 + 6), 0),
        ((ROWS, 3, 4), (ROWS, 7, 4), (ROWS, 3, 6)),
    ),
    "Attention, many queries": Case(
        lambda: attending(7, 3, 4, 2),
        at_ports(normal(2, 7, 4), normal(2, 3, 4), normal(2, 3, 2)),
        (2 * 2 * 7 * 3 * (4 + 2), 2 * 2 * 2 * 7 * 3 * (4 + 2), 0),
        ((ROWS, 7, 4), (ROWS, 3, 2), (ROWS, 3, 2)),
    ),
    "Attention, causal with dropout": Case(
        lambda: Attention("node", is_causal=True, scale=0.7, dropout=0.4, seed=1),
        at_ports(*normal(3, 2, 3, 4, 2)),
        (2 * 2 * 6 * 16 * 2, 4 * 2 * 6 * 16 * 2, 0),
        ((ROWS, 3, 4, 2), (ROWS, 4, 2), (ROWS, 4, 2)),
    ),
    "LeafLSTM": Case(
        lambda: LeafLSTM("node", 4, 3),
        at_ports(normal(5, 4)),
        (2 * 5 * 4 * 9, 4 * 5 * 4 * 9, 4 * 9),
        ((ROWS, 3),),
    ),
    "LeafLSTM, dropout": Case(
        lambda: LeafLSTM("node", 4, 3, dropout=0.5, seed=1),
        at_ports(normal(5, 4)),
        (2 * 5 * 4 * 9, 4 * 5 * 4 * 9, 4 * 9),
        ((ROWS,),),
    ),
    "BranchLSTM": Case(
        lambda: BranchLSTM("node", 3),
        at_ports(normal(1, 6), 0.5 * normal(1, 6)),
        (2 * 6 * 15, 4 * 6 * 15, 6 * 15),
        ((ROWS, 6), (ROWS, 3)),
    ),
    "BranchLSTM, dropout": Case(
        lambda: BranchLSTM("node", 3, dropout=0.5, seed=1),
        at_ports(normal(4, 6), 0.5 * normal(4, 6)),
        (2 * 4 * 6 * 15, 4 * 4 * 6 * 15, 6 * 15),
        ((ROWS, 6), (ROWS, 7)),
    ),
    "GRUCell": Case(
        lambda: GRUCell("node", 4, 3),
        at_ports(normal(5, 4), normal(5, 3)),
        (2 * 5 * 7 * 9, 4 * 5 * 7 * 9, 7 * 9),
        ((ROWS, 4), (ROWS, 6)),
    ),
    "GRUCell, one row": Case(
        lambda: GRUCell("node", 4, 3),
        at_ports(normal(1, 4), normal(1, 3)),
        (2 * 7 * 9, 4 * 7 * 9, 7 * 9),
        ((ROWS, 4), ("others", 3)),
    ),
    "ReLU": Case(lambda: ReLU("node"), at_ports(away_from_zero(5, 4))),
    "Tanh": Case(lambda: Tanh("node"), at_ports(normal(5, 4))),
    "Sigmoid": Case(lambda: Sigmoid("node"), at_ports(3 * normal(5, 4))),
    **{
        f"Pointwise, {name}": Case(
            lambda name=name: Pointwise("node", name), at_ports(np.abs(away_from_zero(5, 4)))
        )
        for name in FUNCTIONS
    },
    "Compare": Case(lambda: Compare("node", "ne", 2), at_ports(indices(9, 5, 4))),
    "Where": Case(
        lambda: Where("node"),
        at_ports(normal(2, 3, 4) > 0, normal(2, 3, 4), normal(3, 1)),
        wrong=((ROWS, 3, 4), (ROWS, 3, 4), (4, 1)),
    ),
    "Softmax": Case(lambda: Softmax("node", 1), at_ports(normal(4, 3, 2)), wrong=((ROWS,),)),
    "Softmax, log": Case(
        lambda: Softmax("node", is_log=True), at_ports(30 * normal(5, 4)), wrong=((),)
    ),
    "Sum": Case(
        lambda: Sum("node"), at_ports(normal(5, 4), 2 * normal(5, 4)), wrong=((ROWS, 4), (ROWS, 3))
    ),
    "Sum, three": Case(
        lambda: Sum("node", 3),
        at_ports(normal(5), 2 * normal(5), 3 * normal(5)),
        wrong=((ROWS,), (ROWS,), (ROWS, 1)),
    ),
    "Sum, spread": Case(
        lambda: Sum("node", 3),
        at_ports(normal(2, 3, 4), normal(3, 4), normal(1, 3, 1)),
        wrong=((ROWS, 3, 4), (4, 4), (1, 3, 1)),
    ),
    "Affine": Case(lambda: Affine("node", factor=0.5, shift=-1.0), at_ports(normal(5, 4))),
    "Reshape": Case(
        lambda: Reshape("node", (-1, 6)), at_ports(normal(4, 3, 2)), wrong=((5, 2, 4),)
    ),
    "Permute": Case(
        lambda: Permute("node", (2, 0, 1)), at_ports(normal(4, 3, 2)), wrong=((ROWS, 4),)
    ),
    "Pick": Case(
        lambda: Pick("node", (None, -1, (1, None, 2))),
        at_ports(normal(4, 3, 5)),
        wrong=((ROWS, 3),),
    ),
    "Mean": Case(lambda: Mean("node", 1), at_ports(normal(4, 3, 2)), wrong=((ROWS,),)),
    "Max": Case(lambda: Max("node", 2), at_ports(normal(4, 3, 5)), wrong=((ROWS, 3),)),
    "Difference": Case(
        lambda: Difference("node"),
        at_ports(normal(5, 4), 2 * normal(5, 4)),
        wrong=((ROWS, 4), (ROWS, 3)),
    ),
    "Product": Case(
        lambda: Product("node"),
        at_ports(normal(5, 4), 1 + normal(5, 4)),
        wrong=((ROWS, 4), ("others", 4)),
    ),
    "Product, spread": Case(
        lambda: Product("node"),
        at_ports(normal(2, 3, 4), normal(3, 1)),
        wrong=((ROWS, 3, 4), (4, 1)),
    ),
    "Product, three": Case(
        lambda: Product("node", 3),
        at_ports(normal(5), 1 + normal(5), 2 + normal(5)),
        wrong=((ROWS,), (ROWS,), (ROWS, 1)),
    ),
    "Dropout": Case(lambda: Dropout("node", 0.4, seed=2), at_ports(normal(5, 4))),
    "Concat": Case(
        lambda: Concat("node", (2, 1, 3)),
        at_ports(normal(4, 2), normal(4, 1), normal(4, 3)),
        wrong=((ROWS, 2), (ROWS, 1), (ROWS, 2)),
    ),
    "Concat, sequences": Case(
        lambda: Concat("node", (2, 1)),
        at_ports(normal(4, 3, 2), normal(4, 3, 1)),
        wrong=((ROWS, 3, 2), (ROWS, 4, 1)),
    ),
    "Columns, sequences": Case(
        lambda: Columns("node", 4, 1, 3), at_ports(normal(2, 3, 4)), wrong=((4,),)
    ),
    "Split, sequences": Case(
        lambda: Split("node", (2, 1)), at_ports(normal(2, 4, 3)), wrong=((3,),)
    ),
    "Columns": Case(lambda: Columns("node", 6, 2, 5), at_ports(normal(4, 6)), wrong=((ROWS, 5),)),
    "Split": Case(lambda: Split("node", (2, 1, 3)), at_ports(normal(4, 6)), wrong=((ROWS, 5),)),
    "Ungroup": Case(lambda: Ungroup("node", at_step), at_ports(normal(6, 3, 2)), wrong=((ROWS,),)),
    "Ungroup, keeping the axis": Case(
        lambda: Ungroup("node", at_step, keep_axis=True), at_ports(normal(3, 2)), wrong=((),)
    ),
    "Group": Case(
        lambda: Group("node", of_three),
        tuple((0, i, normal(rows, 4)) for i, rows in enumerate((2, 1, 3))),
        wrong=((ROWS,),),
    ),
    "Group, along a new axis": Case(
        lambda: Group("node", of_three, new_axis=True),
        tuple((0, i, normal(2, i + 4)[:, :4]) for i in range(3)),
        wrong=((ROWS,),),
    ),
    "MaxPool, one row of pixels": Case(
        lambda: MaxPool("node", (1, 2), stride=(1, 3), padding=(0, 1)),
        at_ports(normal(2, 3, 1, 7)),
        wrong=((ROWS, 3, 0, 7),),
    ),
    "MaxPool": Case(
        lambda: MaxPool("node", 2), at_ports(normal(2, 3, 4, 7)), wrong=((ROWS, 3, 1, 7),)
    ),
    "MaxPool, overlapping with padding": Case(
        lambda: MaxPool("node", 3, stride=2, padding=1),
        at_ports(normal(2, 2, 5, 6)),
        wrong=((ROWS, 2, 5),),
    ),
    "Flatten": Case(
        lambda: Flatten("node"), at_ports(normal(2, 3, 2, 4)), wrong=((ROWS, 3, "height"),)
    ),
    "Replicate": Case(lambda: Replicate("node", at_step, lambda _state: 3), at_ports(normal(4, 2))),
    "Distribute": Case(
        lambda: Distribute("node", 3),
        at_ports(normal(5, 2), PARTS),
        wrong=((ROWS, 2), ("others",)),
    ),
    "Distribute, one axis": Case(
        lambda: Distribute("node", 3), at_ports(normal(5), PARTS), wrong=((ROWS, 2, 2), (ROWS,))
    ),
    "Collect": Case(
        lambda: Collect("node", 3),
        at_ports(normal(3, 2), normal(0, 2), normal(2, 2), PARTS),
        wrong=(("a", 2), ("b", 3), ("c", 2), (ROWS,)),
    ),
    "Collect, one axis": Case(
        lambda: Collect("node", 3),
        at_ports(normal(3), normal(0), normal(2), PARTS),
        wrong=(("a",), ("b", 3), ("c",), (ROWS,)),
    ),
    "Bcast": Case(lambda: Bcast("node", 3), at_ports(normal(4, 2))),
    "Phi": Case(
        lambda: Phi("node", ("start", "again")),
        ((1, 0, normal(4, 2)),),
        wrong=((ROWS, 2), (ROWS, 3)),
    ),
    "Cond": Case(
        lambda: Cond("node", lambda _state: "right", ("left", "right")), at_ports(normal(4, 2))
    ),
    "Isu": Case(lambda: Isu("node", later, earlier), at_ports(normal(4, 2))),
    "SoftmaxCrossEntropy": Case(
        lambda: SoftmaxCrossEntropy("node"),
        at_ports(3 * normal(5, 4), np.arange(5) % 4),
        wrong=((ROWS, 4), ("others",)),
    ),
    "SoftmaxCrossEntropy, one row": Case(
        lambda: SoftmaxCrossEntropy("node"),
        at_ports(3 * normal(1, 4), np.array([2])),
        wrong=((ROWS,), (ROWS,)),
    ),
    "SquaredError": Case(
        lambda: SquaredError("node"),
        at_ports(normal(5, 2), 1 + normal(5, 2)),
        wrong=((ROWS, 2), (ROWS, 3)),
    ),
    "SquaredError, one column": Case(
        lambda: SquaredError("node"),
        at_ports(normal(5), 1 + normal(5)),
        wrong=((ROWS,), (ROWS, 1)),
    ),
}


def those(kit: Any, choose: Callable[[Node, Case], bool]) -> list[Any]:
    return [
        kit.Trial(
            case.make,
            tuple(kit.Message(port, kit.State(7, step), p) for port, step, p in case.messages),
            case.flop,
            case.wrong,
            name,
        )
        for name, case in CASES.items()
        if choose(case.make(), case)
    ]


@pytest.fixture(scope="session")
def listed() -> dict[str, Case]:
    return CASES


@pytest.fixture(scope="session")
def trial(kit: Any) -> list[Any]:
    """As all below, for `covering.of_each`."""
    return those(kit, lambda node, case: True)


@pytest.fixture(scope="session")
def returning(kit: Any) -> list[Any]:
    """Nodes to which gradients come back: all but losses."""
    return those(kit, lambda node, case: not node.is_loss)


@pytest.fixture(scope="session")
def learning(kit: Any) -> list[Any]:
    return those(kit, lambda node, case: node.is_parameterized)


@pytest.fixture(scope="session")
def joining(kit: Any) -> list[Any]:
    """Nodes that wait for several messages."""
    return those(kit, lambda node, case: len(case.messages) > 1)


@pytest.fixture(scope="session")
def fussy(kit: Any) -> list[Any]:
    """Nodes that not every shape fits."""
    return those(kit, lambda node, case: case.wrong is not None)
