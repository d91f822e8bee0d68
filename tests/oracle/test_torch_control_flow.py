"""Modules with torch.cond, while_loop and scan, trained as programs, against PyTorch itself."""

from __future__ import annotations

import pickle
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch

import ampsim
from ampsim import flow
from ampsim.errors import GraphError, OptionError
from ampsim.interop.control_flow import Recorded, TorchProgram
from ampsim.interop.parameters import ModuleState

nn = torch.nn
scan = pytest.importorskip("torch._higher_order_ops.scan").scan
while_loop = pytest.importorskip("torch._higher_order_ops.while_loop").while_loop
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, CLASSES = 36, 3


class Choosing(nn.Module):
    """Two heads, of which the numbers of the batch choose one."""

    SHAPE = (4,)

    def __init__(self):
        super().__init__()
        self.first, self.one, self.other = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return torch.cond(x.sum() > 0, self.one, lambda h: torch.relu(self.other(h)), (h,))

    def plain(self, x):
        """The head that is not chosen has a gradient of zeros, as a branch has."""
        h = torch.tanh(self.first(x))
        return torch.where(x.sum() > 0, self.one(h), torch.relu(self.other(h)))


class Sharing(Choosing):
    """Both heads have one weight, under two names."""

    def __init__(self):
        super().__init__()
        self.other.weight = self.one.weight


class Repeating(nn.Module):
    """A layer as often as numbers say, chosen in each round by a cond within the loop."""

    SHAPE = (4,)

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        def goes_on(i, h):
            return (i < 6) & (h.abs().mean() > 0.2)

        def body(i, h):
            h = torch.cond(h.mean() > 0, lambda h: self.again(h), lambda h: 0.5 * h - 0.1, (h,))
            return i + 1, torch.tanh(h)

        _, h = while_loop(goes_on, body, (torch.tensor(0), torch.tanh(self.first(x))))
        return self.last(h)

    def plain(self, x):
        i, h = 0, torch.tanh(self.first(x))
        while i < 6 and h.abs().mean() > 0.2:
            i, h = i + 1, torch.tanh(self.again(h) if h.mean() > 0 else 0.5 * h - 0.1)
        return self.last(h)


class Scanning(nn.Module):
    """An LSTM cell over the steps of sequences, its states averaged."""

    SHAPE = (5, 4)

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.LSTMCell(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        def step(state, row):
            h, c = self.cell(row, state)
            return (h, c), h.clone()

        zeros = x.new_zeros(x.shape[0], 6)
        _, states = scan(step, (zeros, zeros.clone()), x.transpose(0, 1), dim=0)
        return self.last(states.mean(0))

    def plain(self, x):
        state, states = None, []
        for row in x.transpose(0, 1):
            state = self.cell(row, state)
            states.append(state[0])
        return self.last(torch.stack(states).mean(0))


MODULES: tuple[Any, ...] = (Choosing, Sharing, Repeating, Scanning)
"""Also with Python's own branches and loops: those of PyTorch are compiled for each batch size.

An import compares them with PyTorch's own, on batches of as many rows as there are in the data: 9.
"""


@cache
def imported(kind: Any) -> tuple[Any, ampsim.Model, Any]:
    torch.manual_seed(1)
    module, rng = kind().double(), np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(ROWS, *kind.SHAPE)))
    y = torch.from_numpy(rng.integers(0, CLASSES, ROWS))
    model = ampsim.from_torch(
        module, x[:9], loss=nn.CrossEntropyLoss(), data=((x, y), (x[:9], y[:9])),
        optimizer=torch.optim.Adam(module.parameters(), 2e-2),
    )  # fmt: skip
    return module, model, (x, y)


def trained(module: Any, model: ampsim.Model, epochs: int) -> tuple[dict[str, Any], list[float]]:
    """The state_dict of so many epochs of PyTorch's own, and losses of the batches."""
    copy = pickle.loads(pickle.dumps(module))
    optimizer, losses = torch.optim.Adam(copy.parameters(), 2e-2), []
    for epoch in range(epochs):
        for batch in model.data(0).batches("train", epoch=epoch, seed=0):
            x, y = (torch.from_numpy(np.array(one)) for one in batch.arrays)
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(copy.plain(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return copy.state_dict(), losses


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODULES)
def test_twenty_steps_are_those_of_pytorch(kind):
    module, model, _data = imported(kind)
    result = ampsim.simulate(model, "tflops-1", "dataflow", epochs=5)
    theirs, losses = trained(module, model, 5)
    ours = ampsim.to_torch(result)
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert (ours[name] - value).abs().max() <= 1e-12, name
    assert result.epochs["loss"].iloc[0] == pytest.approx(np.mean(losses[:4]), rel=1e-12)
    for name, value in module.state_dict().items():
        assert (ampsim.to_torch(model)[name] == value).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("kind", MODULES)
def test_loss_and_gradients_are_those_of_pytorch(kind, sign):
    module, model, (x, y) = imported(kind)
    x = sign * x
    loss = nn.CrossEntropyLoss()(module.plain(x), y)
    slopes = torch.autograd.grad(loss, [*module.parameters()], materialize_grads=True)
    with flow.FlowGraph() as graph:
        objective = model.program.build()
        wanted = [node.outputs[0] for node in graph.variables]
        asked = [objective.loss, *flow.gradients(objective.loss, wanted)]
    flow.set_variables(graph, model.parameters())
    feeds = model.program.feed(SimpleNamespace(arrays=(x.numpy(), y.numpy())))
    found, *gradients = flow.run(asked, feeds).values
    assert found == pytest.approx(loss.item(), abs=1e-12)
    ours = dict(zip([one.node.name for one in wanted], gradients, strict=True))
    for (name, _), slope in zip(module.named_parameters(), slopes, strict=True):
        assert np.abs(ours[name] - slope.numpy()).max() <= 1e-10, name


def test_both_sides_of_a_branch_are_met():
    _module, model, (x, y) = imported(MODULES[0])
    sides = set[bool]()
    for sign in (1.0, -1.0):
        with flow.FlowGraph() as graph:
            loss = model.program.build().loss
        flow.set_variables(graph, model.parameters())
        feeds = model.program.feed(SimpleNamespace(arrays=(sign * x.numpy(), y.numpy())))
        sides |= set(flow.run(loss, feeds).decisions["taken"])
    assert sides == {False, True}


def test_it_is_forecast_by_dataflow_and_goes_to_other_processes():
    model = pickle.loads(pickle.dumps(imported(MODULES[-1])[1]))
    table = ampsim.forecast(
        model, "tflops-1", schedules=["dataflow", "unrolled"], target=0.4, repeats=1, max_epochs=3
    ).table
    assert (table["train_per_s"] > 0).all()
    with pytest.raises(OptionError, match=r"^schedule amp needs a graph of messages, and model Sc"):
        ampsim.simulate(model, "tflops-1", "amp")


def test_it_is_on_one_worker_and_a_placement_says_what_can_be_done():
    model, cluster = imported(MODULES[0])[1], ampsim.load_cluster("tflops-1", workers=2)
    assert {*ampsim.simulate(model, cluster, "dataflow").spans["worker"]} == {0}
    said = "leave it out; .* PyTorch module is on the first worker, unless you write it with ampsim"
    with pytest.raises(OptionError, match=said):
        ampsim.simulate(model, cluster, "dataflow", placement="balanced")


def test_batches_of_a_program_may_differ_in_size():
    _module, _model, (x, y) = imported(MODULES[0])
    module = Choosing().double()
    splits = [[*zip(x.split(sizes), y.split(sizes), strict=True)] for sizes in ([9, 27], [36])]
    model = ampsim.from_torch(
        module, x[:9], loss=nn.CrossEntropyLoss(), data=splits,
        optimizer=torch.optim.Adam(module.parameters(), 2e-2),
    )  # fmt: skip
    expected, _losses = trained(module, model, 2)
    result = ampsim.simulate(model, "tflops-1", "dataflow", epochs=2)
    for name, values in ampsim.to_torch(result).items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-9, err_msg=name)


class Masking(Choosing):
    """A branch has a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(6))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return torch.cond(x.sum() > 0, self.one, lambda h: self.other(h * self.mask), (h,))


def test_a_buffer_that_is_written_over_afterwards_was_imported_as_it_was():
    module, (x, y) = Masking().double(), imported(MODULES[0])[2]
    model: Any = ampsim.from_torch(
        module, x[:9], loss=nn.CrossEntropyLoss(), data=((x, y), (x[:9], y[:9])),
        optimizer=torch.optim.SGD(module.parameters(), 0.1),
    )  # fmt: skip
    before, digest = (
        ampsim.simulate(model, "tflops-1", "dataflow").epochs,
        model.make_program.digest,
    )
    module.mask.zero_()
    assert ampsim.simulate(model, "tflops-1", "dataflow").epochs.equals(before)
    assert model.make_program.digest == digest


def refused(module: Any, loss: Any, y: Any, x: Any) -> str:
    with pytest.raises(GraphError) as error:
        ampsim.from_torch(
            module.double(), x, loss=loss, data=((x, y), (x, y)),
            optimizer=torch.optim.SGD(module.parameters(), 0.1),
        )  # fmt: skip
    return str(error.value)


def test_what_cannot_be_is_told_in_a_line():
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.arange(6) % 3
    said = refused(Choosing(), nn.MSELoss(), x[:, :3].clone(), x)
    assert re.match(r"Choosing: \w+ is another loss than a cross-entropy; take nn.Cross", said)
    said = refused(Choosing(), nn.CrossEntropyLoss(label_smoothing=0.1), y, x)
    assert re.match(r"Choosing: cross_entropy_loss cannot be: .*; take it out, or write", said)


class Starting(nn.Module):
    """Both states of a scan start as one tensor, which `torch.export` takes for one state."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTMCell(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        z = x.new_zeros(x.shape[0], 5)
        step = lambda state, x: ((new := self.cell(x, state)), new[0] * 1)  # noqa: E731  # one use
        return self.out(scan(step, (z, z), x.transpose(0, 1))[0][0])


class Copying(Choosing):
    """A branch that gives what it took, which PyTorch does not record."""

    def forward(self, x):
        return self.one(torch.cond(x.sum() > 0, lambda h: h, self.other, (self.first(x),)))


class Mapping(Choosing):
    """A layer that `torch.map` calls for each row."""

    def forward(self, x):
        each = pytest.importorskip("torch._higher_order_ops.map").map
        return self.one(each(lambda row: torch.tanh(self.first(row)), x))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Starting, r"the loss of a batch of 6 is not .* start as one tensor .*give z and z.clone"),
        (Copying, r"torch.cond, .* cannot be recorded .*give new tensors \(x.clone\(\), not x\)"),
        (Mapping, "no rule for torch.map_impl .*; call it on all rows at once, .* or take scan"),
    ],
)
def test_what_pytorch_records_otherwise_or_not_is_told_with_a_way_out(kind, said):
    x = torch.randn(6, *((2, 4) if kind is Starting else (4,)), dtype=torch.float64)
    told = refused(kind(), nn.CrossEntropyLoss(), torch.arange(6) % 3, x)
    assert re.match(f"{kind.__name__}: {said}", told)


class Calculating(Choosing):
    """An operation in the branch that is taken where an input's sum is below 0."""

    def __init__(self, made: Any):
        super().__init__()
        self.scale, self.made = nn.Parameter(torch.rand(6)), made

    def forward(self, x):
        h, made = torch.tanh(self.first(x)) * self.scale, self.made
        return torch.cond(x.sum() > 0, self.one, lambda h: self.other(made(self, h)), (h,))


UNLIKE: dict[str, tuple[Any, str]] = {
    "bitwise_not": (lambda self, h: h * ~SIX, "is of the bits of whole numbers ("),
    "__and__": (lambda self, h: h * (SIX & 3), "is of the bits of whole numbers ("),
    "rsub": (lambda self, h: torch.rsub(h, 2, alpha=3), "cannot be: it has an option that is not"),
}
SIX = torch.tensor(6)


@pytest.mark.parametrize("rule", UNLIKE)
def test_what_is_no_logic_or_has_a_factor_is_refused(rule):
    """Also in a branch that the comparison with PyTorch does not take."""
    x, y = torch.rand(6, 4, dtype=torch.float64), torch.arange(6) % 3
    made, said = UNLIKE[rule]
    told = refused(Calculating(made), nn.CrossEntropyLoss(), y, x)
    assert told.startswith(f"Calculating: {rule} {said}")


def turned_and_cut(self: Any, h: Any) -> Any:
    """Axes of one and three turned round; numbers that are cut before they are summed; 1 / x."""
    sums = (h.detach() * 1.7).sum(dtype=torch.int64)
    return 1 / (2 + h) + h * self.scale.t() * self.scale.view(3, 1, 2).T.reshape(6) * sums


def test_a_branch_calculates_as_pytorch_does():
    rng = np.random.default_rng(0)
    x = -torch.from_numpy(rng.random((6, 4)))
    module, y = Calculating(turned_and_cut).double(), torch.arange(6) % 3
    model = ampsim.from_torch(
        module, x, loss=nn.CrossEntropyLoss(), data=((x, y), (x, y)),
        optimizer=torch.optim.SGD(module.parameters(), 0.1),
    )  # fmt: skip
    assert model.is_program_only


def test_a_digit_of_a_long_fixed_array_is_in_the_digest():
    arrays = [np.full(5000, 0.1) for _ in range(2)]
    arrays[1][2500] = np.nextafter(0.1, 1)
    state = ModuleState({}, {}, {})
    made = [TorchProgram("Net", Recorded((), (), ()), [one], {}, state) for one in arrays]
    assert made[0].digest != made[1].digest
