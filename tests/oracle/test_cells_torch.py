"""LSTM, GRU and Tree-LSTM cells equal PyTorch's, forward and backward, in double precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from torch_oracle import torch

from ampsim.nodes import BranchLSTM, GRUCell, LeafLSTM, LSTMCell

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load

D_IN, HIDDEN = 5, 7


class State(NamedTuple):
    instance: int


def ready(node: Any) -> Any:
    node.adopt(node.initialise(np.random.default_rng(3)))
    return node


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape)


def tensor(values: np.ndarray, requires_grad: bool = True) -> Any:
    return torch.tensor(values, dtype=torch.float64, requires_grad=requires_grad)


def served(node: Any, payloads: list[np.ndarray], weight: np.ndarray) -> tuple[np.ndarray, Any]:
    """(output, input gradients) of one message; `weight` is the output's gradient."""
    for port, payload in enumerate(payloads):
        sends = node.forward(port, State(0), payload)
    ((_port, _state, output),) = sends
    returned = [gradient for _port, _state, gradient in node.backward(0, State(0), weight)]
    return output, returned


def close(found: np.ndarray, expected: Any) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-10, atol=1e-13)


def columns(values: np.ndarray, order: str, wanted: str) -> np.ndarray:
    """Blocks of `HIDDEN` columns named `order`, put in the order `wanted`."""
    blocks = dict(zip(order, np.split(values, len(order), axis=-1), strict=True))
    return np.concatenate([blocks[gate] for gate in wanted], axis=-1)


@pytest.mark.parametrize("rows", [1, 4])
def test_lstm_cell_is_that_of_pytorch(rows):
    node, theirs = ready(LSTMCell("lstm", D_IN, HIDDEN)), torch.nn.LSTMCell(D_IN, HIDDEN).double()
    weight = torch.tensor(columns(node.weight, "oifg", "ifgo").T)
    with torch.no_grad():
        theirs.weight_ih.copy_(weight[:, :D_IN])
        theirs.weight_hh.copy_(weight[:, D_IN:])
        theirs.bias_ih.copy_(torch.tensor(columns(node.bias, "oifg", "ifgo")))
        theirs.bias_hh.zero_()
    x, state, back = normal(rows, D_IN), normal(rows, 2 * HIDDEN), normal(2 * HIDDEN, rows).T
    leaves = [tensor(x), tensor(state)]
    expected = torch.cat(theirs(leaves[0], leaves[1].split(HIDDEN, dim=1)), dim=1)
    expected.backward(tensor(back, requires_grad=False))
    output, returned = served(node, [x, state], back)
    close(output, expected)
    for gradient, leaf in zip(returned, leaves, strict=True):
        close(gradient, leaf.grad)
    found = node.views(node.take_gradient())
    ours = columns(found["weight"], "oifg", "ifgo").T
    close(ours[:, :D_IN], theirs.weight_ih.grad)
    close(ours[:, D_IN:], theirs.weight_hh.grad)
    close(columns(found["bias"], "oifg", "ifgo"), theirs.bias_ih.grad)


@pytest.mark.parametrize(
    "messages", [[1], [4], [18], [40], [4, 18], [40, 50], [18, 40, 33, 9]], ids=str
)
def test_gru_cell_is_that_of_pytorch_over_messages_of_few_and_many_rows(messages):
    node, theirs = ready(GRUCell("gru", D_IN, HIDDEN)), torch.nn.GRUCell(D_IN, HIDDEN).double()
    names = {"weight_input": "weight_ih", "weight_state": "weight_hh"}
    names |= {"bias_input": "bias_ih", "bias_state": "bias_hh"}
    with torch.no_grad():
        for name, other in names.items():
            getattr(theirs, other).copy_(torch.tensor(node.views(node.theta)[name].T))
    for rows in messages:
        x, state, back = normal(rows, D_IN), normal(rows, HIDDEN), normal(HIDDEN, rows).T
        leaves = [tensor(x), tensor(state)]
        expected = theirs(*leaves)
        expected.backward(tensor(back, requires_grad=False))
        output, returned = served(node, [x, state], back)
        close(output, expected)
        for gradient, leaf in zip(returned, leaves, strict=True):
            close(gradient, leaf.grad)
    found = node.views(node.take_gradient())
    for name, other in names.items():
        close(found[name].T, getattr(theirs, other).grad)


def blocks(values: np.ndarray, names: str) -> dict[str, Any]:
    """Columns named by gate, as leaves of an automatic differentiation."""
    cut = np.split(values, len(names), axis=-1)
    return dict(zip(names, map(tensor, cut), strict=True))


def tree_lstm(children: list[Any], u: list[Any], b: Any, x: Any, w: Any) -> Any:
    """Tai et al. (2015), equations 9 to 14, term by term.

    Args:
        children: (h, c) of each.
        u: for each child l, U of each gate: "i", "o", "u", and the forget gates "1" and "2".
        b: of each gate.
        x: input, or None where it is zero.
        w: W of each gate, where there is an input.
    """

    def linear(gate: str) -> Any:
        total = b[gate]
        if x is not None:
            total = total + x @ w[gate]
        for (h, _c), ul in zip(children, u, strict=True):
            total = total + h @ ul[gate]
        return total

    i, o, candidate = (
        torch.sigmoid(linear("i")),
        torch.sigmoid(linear("o")),
        torch.tanh(linear("u")),
    )
    c = i * candidate
    for number, (_h, ck) in enumerate(children, 1):
        c = c + torch.sigmoid(linear(str(number))) * ck
    return torch.cat([o * torch.tanh(c), c], dim=1)


@pytest.mark.parametrize("rows", [1, 4])
def test_branch_lstm_follows_the_equations_of_tai_et_al(rows):
    node = ready(BranchLSTM("branch", HIDDEN))
    gates = "oi12u"
    u = [blocks(node.weight[:HIDDEN], gates), blocks(node.weight[HIDDEN:], gates)]
    b = blocks(node.bias, gates)
    left, right, back = normal(rows, 2 * HIDDEN), normal(2 * HIDDEN, rows).T, normal(rows, 14, 1)
    leaves = [tensor(left), tensor(right)]
    children = [leaf.split(HIDDEN, dim=1) for leaf in leaves]
    expected = tree_lstm(children, u, b, None, {})
    expected.backward(tensor(back[..., 0], requires_grad=False))
    output, returned = served(node, [left, right], back[..., 0])
    close(output, expected)
    for gradient, leaf in zip(returned, leaves, strict=True):
        close(gradient, leaf.grad)
    found = node.views(node.take_gradient())
    for half, child in zip(np.split(found["weight"], 2), u, strict=True):
        close(half, torch.cat([child[gate].grad for gate in gates], dim=1))
    close(found["bias"], torch.cat([b[gate].grad for gate in gates]))


@pytest.mark.parametrize("rows", [1, 4])
def test_leaf_lstm_follows_the_equations_of_tai_et_al(rows):
    node = ready(LeafLSTM("leaf", D_IN, HIDDEN))
    gates = "oiu"
    w, b = blocks(node.weight, gates), blocks(node.bias, gates)
    x, back = normal(rows, D_IN), normal(rows, 2 * HIDDEN)
    leaf = tensor(x)
    expected = tree_lstm([], [], b, leaf, w)
    expected.backward(tensor(back, requires_grad=False))
    output, (gradient,) = served(node, [x], back)
    close(output, expected)
    close(gradient, leaf.grad)
    found = node.views(node.take_gradient())
    close(found["weight"], torch.cat([w[gate].grad for gate in gates], dim=1))
    close(found["bias"], torch.cat([b[gate].grad for gate in gates]))


def test_recurrent_dropout_scales_the_candidate_alone():
    """Semeniuta et al. (2016): c = f c + i d(g); the same mask forward and backward."""
    plain, dropping = LeafLSTM("leaf", D_IN, HIDDEN), LeafLSTM("leaf", D_IN, HIDDEN, dropout=0.5)
    nodes = [ready(plain), ready(dropping)]
    x, back = normal(50, D_IN), np.concatenate([np.zeros((50, HIDDEN)), np.ones((50, HIDDEN))], 1)
    (whole, _), (dropped, _) = (served(node, [x], back) for node in nodes)
    ratio = dropped[:, HIDDEN:] / whole[:, HIDDEN:]
    assert set(np.round(ratio, 9).ravel()) == {0.0, 2.0}
    gates = [node.views(node.take_gradient())["bias"] for node in nodes]
    assert not np.allclose(*gates)
