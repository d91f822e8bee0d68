"""Random chains of operators, as PyTorch users write them: outputs and gradients are PyTorch's."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_oracle import torch
from torch_zoo import case, served

import ampsim
from ampsim.interop import exported
from ampsim.interop.lowering import name_of
from ampsim.interop.operators import RULES
from ampsim.nodes import FUNCTIONS

nn, F = torch.nn, torch.nn.functional
ROWS, CLASSES = 3, 4
BOUNDS = {"clamp_max": (0.5,), "clamp_min": (0.5,), "pow": (3.0,)}
ALL_FUNCTIONS = [
    lambda x, name=name: getattr(torch.ops.aten, name)(x, *BOUNDS.get(name, ()))
    for name in FUNCTIONS
    if name not in ("gelu_tanh", "root")
]


class Link(NamedTuple):
    """An operator: layers that it needs, of the shape of an item, and what it does with them."""

    axes: int
    layer: Callable[..., Any]
    run: Callable[[Any, Any], Any]


def nothing(*shape: int) -> Any:
    return nn.Identity()


class FromState(nn.Module):
    """An LSTM that starts from what it learned."""

    def __init__(self, _steps: int, width: int):
        super().__init__()
        self.reader = nn.LSTM(width, 3, batch_first=True)
        self.start = nn.Parameter(torch.randn(1, 1, 3))

    def forward(self, x):
        h = self.start.expand(1, x.size(0), 3).contiguous()
        return self.reader(x, (h, torch.zeros_like(h)))[0]


class Causal(nn.Module):
    """Attention with a mask of truth values, as users write it."""

    def __init__(self, _steps: int, width: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 1, batch_first=True)

    def forward(self, x):
        later = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), diagonal=1)
        return self.attention(x, x, x, attn_mask=later, need_weights=False)[0]


FLAT: dict[str, Link] = {
    "linear": Link(1, lambda f: nn.Linear(f, 5), lambda m, x: m(x)),
    "linear, no bias": Link(1, lambda f: nn.Linear(f, 3, bias=False), lambda m, x: m(x)),
    "twice": Link(1, lambda f: nn.Linear(f, f), lambda m, x: m(torch.tanh(m(x)))),
    "tanh": Link(1, nothing, lambda m, x: torch.tanh(x)),
    "sigmoid": Link(1, nothing, lambda m, x: torch.sigmoid(x)),
    "silu": Link(1, nothing, lambda m, x: F.silu(x)),
    "all functions": Link(
        1, nothing, lambda m, x: sum(f(torch.tanh(x).abs() + 0.1) for f in ALL_FUNCTIONS)
    ),
    "gelu by tanh": Link(1, nothing, lambda m, x: F.gelu(x, approximate="tanh")),
    "clamped": Link(1, nothing, lambda m, x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + F.relu6(x)),
    "made of others": Link(1, nothing, lambda m, x: F.selu(x) + F.hardswish(x)),
    "quotient": Link(1, nothing, lambda m, x: x / (1 + x.abs()) + 1 / (x * x + 1)),
    "softmax": Link(1, nothing, lambda m, x: F.softmax(x, dim=1) + F.log_softmax(x, dim=-1)),
    "squared softmax": Link(1, nothing, lambda m, x: (x @ x.new_ones(x.size(1), 3)).softmax(-1)),
    "learned scale": Link(
        1, lambda f: nn.ParameterList([nn.Parameter(torch.rand(f))]), lambda m, x: x * m[0] / m[0]
    ),
    "standardised": Link(1, nothing, lambda m, x: x / (x.std(1, keepdim=True) + x.var(1)[:, None])),
    "normalised": Link(1, nothing, lambda m, x: F.normalize(x, dim=1)),
    "every other kept": Link(
        1, nothing, lambda m, x: torch.where(torch.arange(x.size(1)) % 2 == 0, x, -1.0)
    ),
    "filled": Link(
        1,
        nothing,
        lambda m, x: x.masked_fill(~(torch.arange(x.size(1)) > 0), 2.0) + x.new_ones(3, 1)[0],
    ),
    "with ones": Link(1, nothing, lambda m, x: torch.cat([x, torch.ones_like(x[:, :1])], dim=1)),
    "dropped": Link(1, lambda f: nn.Dropout(0.0), lambda m, x: m(x)),
    "by mm": Link(
        1, lambda f: nn.ParameterList([nn.Parameter(torch.randn(f, 3))]), lambda m, x: x.mm(m[0])
    ),
    "first part": Link(1, lambda f: nn.Linear(f, 6), lambda m, x: m(x).split([4, 2], dim=1)[0]),
    "more axes": Link(
        1,
        lambda f: nn.Linear(f, 6),
        lambda m, x: m(x).unflatten(1, (1, 6, 1)).squeeze().unflatten(1, (1, 6, 1)).squeeze((1, 3)),
    ),
    "filled with a tensor": Link(
        1,
        nothing,
        lambda m, x: x[:, : x.size(1)].masked_fill(torch.arange(x.size(1)) > 1, torch.tensor(2.0)),
    ),
    "by a transposed": Link(
        1,
        lambda f: nn.ParameterList([nn.Parameter(torch.randn(3, f))]),
        lambda m, x: torch.tanh(x @ m[0].t()) + (2 * x) @ m[0].t(),
    ),
    "parts of a weight": Link(
        1,
        lambda f: nn.ParameterList(
            [nn.Parameter(torch.randn(2, 3, f)), nn.Parameter(torch.ones(6))]
        ),
        lambda m, x: F.linear(x, m[0][0], m[1][:3]) * F.linear(x, m[0][1], m[1][3:]),
    ),
    "by a learned number": Link(
        1,
        lambda f: nn.ParameterList([nn.Parameter(torch.tensor([0.5]))]),
        lambda m, x: (x.sum(1) * m[0] + m[0].exp()).unsqueeze(1) + x,
    ),
    "rms norm": Link(1, nn.RMSNorm, lambda m, x: m(x)),
    "residual": Link(1, lambda f: nn.Linear(f, f), lambda m, x: x + F.relu(m(x))),
    "gate": Link(1, lambda f: nn.Linear(f, 2 * f), lambda m, x: torch.mul(*m(x).chunk(2, dim=1))),
    "scalars": Link(1, nothing, lambda m, x: (1 - x) * 0.5 + x / 3 - (-x)),
    "square": Link(1, nothing, lambda m, x: 0.1 * x**2 - x),
    "norm": Link(1, nn.LayerNorm, lambda m, x: m(x)),
    "cat": Link(1, lambda f: nn.Linear(f, 2), lambda m, x: torch.cat([m(x), x], dim=-1)),
    "split": Link(1, lambda f: nn.Linear(f, 6), lambda m, x: torch.sub(*m(x).split(3, dim=1))),
    "gru cell": Link(1, lambda f: nn.GRUCell(f, 4), lambda m, x: m(x)),
    "lstm cell": Link(1, lambda f: nn.LSTMCell(f, 4), lambda m, x: torch.cat(m(x), dim=1)),
    "learned shift": Link(
        1, lambda f: nn.ParameterList([nn.Parameter(torch.randn(f))]), lambda m, x: x + m[0]
    ),
    "learned number": Link(
        1, lambda f: nn.ParameterList([nn.Parameter(torch.tensor(0.5))]), lambda m, x: x + m[0]
    ),
    "own product": Link(
        1, lambda f: nn.ParameterList([nn.Parameter(torch.randn(f, 4))]), lambda m, x: x @ m[0]
    ),
    "alpha": Link(1, nothing, lambda m, x: torch.add(x, torch.tanh(x), alpha=-2)),
    "decomposed": Link(
        1, nothing, lambda m, x: torch.hstack([x.narrow(1, 0, 1), x[:, 1:].square()])
    ),
    "in place": Link(1, lambda f: nn.Linear(f, f), lambda m, x: m(x).mul_(2).add_(x)),
    "to sequence": Link(1, lambda f: nn.Linear(f, 12), lambda m, x: m(x).view(-1, 3, 4)),
    "to image": Link(1, lambda f: nn.Linear(f, 50), lambda m, x: m(x).reshape(x.size(0), 2, 5, 5)),
}
SEQUENCES: dict[str, Link] = {
    "linear": Link(2, lambda t, f: nn.Linear(f, 4), lambda m, x: m(x)),
    "norm": Link(2, lambda t, f: nn.LayerNorm(f), lambda m, x: m(x)),
    "transposed": Link(2, nothing, lambda m, x: x.transpose(1, 2)),
    "each with each": Link(
        2,
        lambda t, f: nn.ParameterList(
            [nn.Parameter(torch.rand(t, 1)), nn.Parameter(torch.rand(f))]
        ),
        lambda m, x: (
            (x.unsqueeze(2) - x.unsqueeze(1)).abs().mean(2)
            + (x[:, :, :1] * x[:, :1]) / (2 + m[0] * m[1])
        ),
    ),
    "lstm": Link(
        2, lambda t, f: nn.LSTM(f, 3, batch_first=True, bidirectional=True), lambda m, x: m(x)[0]
    ),
    "gru": Link(
        2,
        lambda t, f: nn.GRU(f, 4, num_layers=2),
        lambda m, x: m(x.permute(1, 0, 2))[0].transpose(0, 1),
    ),
    "attention": Link(
        2,
        lambda t, f: nn.Linear(f, 3 * f),
        lambda m, x: F.scaled_dot_product_attention(*m(x).chunk(3, dim=-1), is_causal=True),
    ),
    "masked attention": Link(
        2,
        lambda t, f: nn.ParameterList([nn.Parameter(torch.randn(t, t))]),
        lambda m, x: F.scaled_dot_product_attention(
            F.scaled_dot_product_attention(x, x, x, attn_mask=torch.eye(x.size(1)) == 0),
            x,
            x,
            attn_mask=m[0],
        ),
    ),
    "turned round": Link(2, nothing, lambda m, x: x.flip(1) + x.flip((-1, -2))),
    "pooled by a query": Link(
        2,
        lambda t, f: nn.ParameterList([nn.Parameter(torch.randn(f))]),
        lambda m, x: (x * (x @ m[0]).softmax(1).unsqueeze(-1)).sum(1),
    ),
    "attention to another": Link(
        2,
        lambda t, f: nn.MultiheadAttention(f, 1, batch_first=True),
        lambda m, x: m(x, y := torch.tanh(x.flip(1)), y, need_weights=False)[0],
    ),
    "below each other": Link(
        2,
        lambda t, f: nn.GRU(f, 3, batch_first=True),
        lambda m, x: m(torch.stack([x, x.flip(1)], 1).flatten(0, 1))[1][-1].view(-1, 6),
    ),
    "largest of all": Link(2, nothing, lambda m, x: x.amax((1, 2)).unsqueeze(1)),
    "own attention": Link(2, nothing, lambda m, x: torch.bmm((x @ x.mT).softmax(-1), x)),
    "conv": Link(
        2,
        lambda t, f: nn.Conv1d(t, 4, 2, stride=2, padding=1),
        lambda m, x: torch.relu(m(x)),
    ),
    "every other": Link(2, nothing, lambda m, x: x[:, ::2]),
    "last": Link(2, nothing, lambda m, x: x[:, -1]),
    "mean": Link(2, nothing, lambda m, x: x.mean(dim=1)),
    "largest": Link(2, nothing, lambda m, x: x.amax(dim=-1)),
    "unbound": Link(2, nothing, lambda m, x: torch.stack(x.unbind(1)[::-1], dim=1)),
    "sum": Link(2, nothing, lambda m, x: x.sum(1)),
    "matrix transposed": Link(2, nothing, lambda m, x: x.mT),
    "class token": Link(
        2,
        lambda t, f: nn.ParameterList([nn.Parameter(torch.randn(1, 1, f))]),
        lambda m, x: torch.cat([m[0].expand(x.size(0), -1, -1), x], dim=1),
    ),
    "learned first state": Link(2, FromState, lambda m, x: m(x)),
    "causal attention": Link(2, Causal, lambda m, x: m(x)),
    "all last states": Link(
        2,
        lambda t, f: nn.GRU(f, 2, num_layers=2, batch_first=True, bidirectional=True),
        lambda m, x: m(x)[1].permute(1, 0, 2),
    ),
    "flat": Link(2, nothing, lambda m, x: x.flatten(1)),
}
IMAGES: dict[str, Link] = {
    "conv": Link(
        3, lambda c, h, w: nn.Conv2d(c, 3, (3, 2), padding=1), lambda m, x: torch.tanh(m(x))
    ),
    "same": Link(
        3, lambda c, h, w: nn.Conv2d(c, 2, 3, padding="same", bias=False), lambda m, x: m(x)
    ),
    "pool": Link(3, nothing, lambda m, x: F.max_pool2d(x, 2)),
    "overlapping pool": Link(3, nothing, lambda m, x: F.max_pool2d(x, 3, stride=1, padding=1)),
    "mean": Link(3, nothing, lambda m, x: F.adaptive_avg_pool2d(x, 1).flatten(1)),
    "flat": Link(3, nothing, lambda m, x: torch.flatten(x, 1)),
}
BY_DATA: dict[str, Link] = {
    "a mask": Link(
        1, nothing, lambda m, x: (~(x > 0)).to(x.dtype) * x + torch.where(x.ge(0.5), 1.0, x)
    ),
    "masks of masks": Link(
        1,
        nothing,
        lambda m, x: torch.where((x < 0.5).logical_not(), torch.where(x <= 1, x, -x), 0.1),
    ),
    "numbers by a mask": Link(
        1,
        nothing,
        lambda m, x: torch.where(x == 0, 1.0, 2.0) + x.masked_fill(x != 0, -1),
    ),
}
"""What reads the data as they come, not what a layer gave."""

KINDS = {1: FLAT, 2: SEQUENCES, 3: IMAGES}


STEEP = {"learned scale", "normalised", "standardised"}
"""Links that divide by what may be next to nothing, so that a chain of them loses digits."""


class Chain(nn.Module):
    """Links one after the other; each is built for the shape that the one before gives."""

    def __init__(self, choose: Callable[[list[str]], str], count: int):
        super().__init__()
        self.layers, self.runs, self.names = nn.ModuleList(), [], []
        x = torch.randn(ROWS, 6, dtype=torch.float64)
        for _ in range(count):
            kind = KINDS[x.ndim - 1]
            fitting = [name for name in kind if name != "pool" or min(x.shape[2:]) > 1]
            name = choose(fitting)
            self.add(name, (kind | BY_DATA)[name], x)
            x = self.runs[-1](self.layers[-1], x)
        if x.ndim > 2:
            self.add("flat", KINDS[x.ndim - 1]["flat"], x)
            x = x.flatten(1)
        self.add("out", Link(1, lambda f: nn.Linear(f, CLASSES), lambda m, x: m(x)), x)

    def add(self, name: str, link: Link, x: Any) -> None:
        self.layers.append(link.layer(*x.shape[1:]).double())
        self.runs.append(link.run)
        self.names.append(name)

    def forward(self, x):
        for layer, run in zip(self.layers, self.runs, strict=True):
            x = run(layer, x)
        return x


def require_alike(chain: Any, shape: tuple[int, ...] = (6,), classes: int = CLASSES) -> None:
    """The gradients of a batch are PyTorch's, and so is what the loss is computed from."""
    x = torch.randn(2 * ROWS, *shape, dtype=torch.float64)
    y = torch.randint(0, classes, (2 * ROWS,))
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(chain.parameters(), 0.1)
    model = ampsim.from_torch(
        chain, x[:ROWS], loss=loss, data=((x, y), (x, y)), optimizer=optimizer
    )
    batch = next(model.data(0).batches("train", epoch=0, seed=0))
    prediction, gradients = served(model, batch)
    inputs, target = (torch.from_numpy(np.array(one)) for one in batch.arrays)
    output = chain(inputs)
    loss(output, target).backward()
    require_near(prediction, output.detach().numpy(), 1e-12)
    found = ampsim.to_torch(model.set_parameters(gradients))
    for name, values in chain.named_parameters():
        assert values.grad is not None
        require_near(found[name].numpy(), values.grad.numpy(), 1e-10, name)


def require_near(found: Any, expected: Any, tolerance: float, name: str = "") -> None:
    """As near as that to 1, or to the largest of them, which a chain may make far larger."""
    nearness = tolerance * max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=nearness, err_msg=name)


@given(data=st.data(), count=st.integers(2, 6), seed=st.integers(0, 2**31))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_random_chain_computes_as_pytorch_does(data, count, seed):
    torch.manual_seed(seed)
    chain = Chain(
        lambda names: data.draw(st.sampled_from([one for one in names if one not in STEEP])), count
    )
    require_alike(chain)


class Together(nn.Module):
    """All operators of some axes, each of the same numbers: a column of what is predicted each.

    What reads the data gets them as they come, the others what a layer gives.
    """

    def __init__(self, axes: int, names: Sequence[str] = ()):
        super().__init__()
        self.shape = {1: (6,), 2: (3, 4), 3: (2, 5, 5)}[axes]
        kind = KINDS[axes] | (BY_DATA if axes == 1 else {})
        self.kind = {name: kind[name] for name in names or kind}
        self.before = nn.Linear(self.shape[-1], self.shape[-1]).double()
        self.layers = nn.ModuleList(one.layer(*self.shape) for one in self.kind.values()).double()

    def forward(self, x):
        learned, columns = self.before(x), []
        for (name, link), layer in zip(self.kind.items(), self.layers, strict=True):
            y = link.run(layer, x if name in BY_DATA else learned).flatten(1)
            weights = torch.linspace(-1.0, 2.0, y.size(1), dtype=y.dtype)
            columns.append((y * weights).sum(1))
        return torch.stack(columns, dim=1)


TAKEN_APART = {
    1: (
        "clamped", "made of others", "decomposed", "in place", "standardised", "normalised",
        "by a transposed",
    ),
    2: ("own attention", "unbound", "matrix transposed", "causal attention"),
}  # fmt: skip
"""Links that PyTorch takes apart first, and with them all that is in a module."""

GROUPS: list[tuple[int, tuple[str, ...]]] = [
    (1, tuple(name for name in (*FLAT, *BY_DATA) if name not in TAKEN_APART[1])),
    (2, tuple(name for name in SEQUENCES if name not in TAKEN_APART[2])),
    (3, tuple(IMAGES)),
    *TAKEN_APART.items(),
]


@contextlib.contextmanager
def noting():
    """The names of the operators that are looked up in the table while the block lasts."""
    met, lowered = set[str](), exported._lowered

    def noted(module: Any, program: Any, *others: Any) -> Any:
        met.update(name_of(one.target) for one in program.graph.nodes)
        return lowered(module, program, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exported, "_lowered", noted)
        yield met


@functools.cache
def operators_of(axes, names):
    """What a group of links, which computes as PyTorch does, is exported to."""
    torch.manual_seed(axes)
    module = Together(axes, names)
    with noting() as met:
        require_alike(module, module.shape, len(names))
    return met


@pytest.mark.parametrize(("axes", "names"), GROUPS)
def test_each_operator_computes_as_pytorch_does(axes, names):
    assert operators_of(axes, names)


def test_every_operator_of_the_table_has_a_link():
    """What is listed is tested above, or in a network of tests/oracle/torch_zoo.py."""
    with noting() as met:
        for name in ("lenet", "regression", "character cnn", "transformer encoder"):
            one = case(name)
            exported.imported(one.module, one.loss, [array[:2].numpy() for array in one.data[0]])
        dropped = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.GLU())  # taken apart, too
        exported.imported(dropped, nn.CrossEntropyLoss(), [np.ones((2, 4), "f4"), np.zeros(2, int)])
    met = met.union(*(operators_of(*group) for group in GROUPS))
    aside = {"gelu_tanh", "pow", "root", "lift_fresh_copy"}  # by other names, and of what is fixed
    assert " ".join(sorted(set(RULES) - met - aside)) == ""
