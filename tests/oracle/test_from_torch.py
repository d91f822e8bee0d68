"""What was imported computes and learns as in PyTorch, and its weights go back as they came."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch
from torch_zoo import METHODS, NETWORKS, Case, case, served

import ampsim
from ampsim.errors import GraphError, OptionError
from ampsim.interop.training import method_of
from ampsim.study.simulation import Simulation

BATCH = 6


def model_of(given: Case, example: Any = None) -> Any:
    return ampsim.from_torch(
        given.module,
        given.data[0][0][:BATCH] if example is None else example,
        loss=given.loss,
        data=given.data,
        optimizer=given.optimizer,
    )


@cache
def prepared(name: str) -> tuple[Case, Any]:
    """A case and its model, exported once; nobody changes them."""
    given = case(name)
    return given, model_of(given)


def copied(name: str, optimizer: str = "adam") -> tuple[Case, Any]:
    """A case to be trained by one of two methods, with the model, which is not changed."""
    given, model = prepared(name)
    module = copy.deepcopy(given.module)
    method = METHODS[optimizer](module.parameters())
    ours = method_of(method, [*module.parameters()])
    assert isinstance(ours, partial)
    return given._replace(module=module, optimizer=method), replace(model, optimizer=ours())


def first_batch(model: Any) -> Any:
    return next(model.data(0).batches("train", epoch=0, seed=0))


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_pytorch_s(name):
    given, model = copied(name)
    batch = first_batch(model)
    prediction, gradients = served(model, batch)
    inputs, target = map(torch.from_numpy, map(np.array, batch.arrays))
    given.module.train()
    output = given.module(inputs)
    given.loss(output, target).backward()
    expected = output.detach().numpy()
    if output.ndim == 3:
        expected = expected.reshape(len(prediction), -1)
    if name in ("lenet", "shared"):  # whose output is a log_softmax, which our loss has in it
        prediction = torch.from_numpy(prediction).log_softmax(1).numpy()
    np.testing.assert_allclose(prediction, expected, rtol=0, atol=1e-12)
    found = ampsim.to_torch(model.set_parameters(gradients))
    for parameter, values in given.module.named_parameters():
        np.testing.assert_allclose(
            found[parameter], values.grad, rtol=0, atol=1e-10, err_msg=parameter
        )


DECAYING = ("mlp", "two-layer bilstm", "transformer encoder")


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [(name, method) for name in NETWORKS for method in ("adam", "sgd")]
    + [(name, "adam with decay") for name in DECAYING],
)
def test_twenty_steps_are_pytorch_s(name, optimizer):
    given, model = copied(name, optimizer)
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    result = ampsim.simulate(model, cluster, ampsim.Sequential(), epochs=4)
    trained(given, model, epochs=4)
    found = ampsim.to_torch(result)
    for parameter, values in given.module.state_dict().items():
        np.testing.assert_allclose(found[parameter], values, rtol=0, atol=1e-8, err_msg=parameter)
    given.module.load_state_dict(found)


def trained(given: Case, model: Any, epochs: int) -> None:
    """Train the module on the batches of a run, as any loop in PyTorch does."""
    data = model.data(0)
    for epoch in range(epochs):
        for batch in data.batches("train", epoch=epoch, seed=0):
            inputs, target = map(torch.from_numpy, map(np.array, batch.arrays))
            given.optimizer.zero_grad()
            given.loss(given.module(inputs), target).backward()
            given.optimizer.step()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_state_dict_goes_there_and_back(name):
    given, model = prepared(name)
    before = given.module.state_dict()
    found = ampsim.to_torch(model)
    assert list(found) == list(before)
    for parameter, values in before.items():
        assert torch.equal(found[parameter], values), parameter


@pytest.mark.parametrize("name", NETWORKS)
def test_each_is_forecast_under_sequential_pipeline_and_amp(name):
    _given, model = prepared(name)
    cluster = ampsim.load_cluster("tflops-1", workers=3)
    schedules = [ampsim.Sequential(), ampsim.Pipeline(3), ampsim.Amp(3)]
    made = ampsim.forecast(
        model,
        cluster,
        schedules,
        repeats=1,
        max_epochs=1,
        target=2.0 if model.metric == "error" else 1.0,
    )
    assert made.table["schedule"].tolist() == ["sequential", "pipeline", "amp"]
    sequential, _pipeline, amp = made.table["train_per_s"]
    assert 0 < sequential < amp


@pytest.mark.parametrize("name", NETWORKS)
def test_control_depends_on_no_value(name):
    """Sleep mode has the same spans as numeric mode."""
    _given, model = prepared(name)
    cluster = ampsim.load_cluster("p100", workers=3)
    both = [
        ampsim.simulate(model, cluster, ampsim.Amp(3), instances=12, mode=mode).spans
        for mode in ("numeric", "sleep")
    ]
    assert both[0].equals(both[1])


class Namesake(torch.nn.Module):
    """Its input is called as a layer is, and layers as other nodes of a graph."""

    def __init__(self):
        super().__init__()
        self.out, self.loss = torch.nn.Linear(16, 4), torch.nn.Linear(4, 3)

    def forward(self, out):
        return self.loss(self.out(out))


def test_names_may_be_those_of_other_nodes_and_the_target_may_come_first():
    torch.manual_seed(2)
    given = case("regression")
    module = Namesake().double()
    given = given._replace(
        module=module,
        loss=lambda output, target: torch.nn.functional.mse_loss(target, output),
        optimizer=torch.optim.SGD(module.parameters(), 0.1),
    )
    trained_alike(given, model_of(given), ampsim.Sequential())


class Shifted(torch.nn.Module):
    """Its learned rows are added to, and multiplied with, all rows of a batch."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(16, 4), torch.nn.Linear(4, 5)
        self.scale = torch.nn.Parameter(torch.rand(4))
        self.shift = torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)) * self.scale + self.shift)


def test_rows_that_go_with_all_others_are_learned_apart_as_live():
    torch.manual_seed(2)
    module = Shifted().double()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    model = model_of(case("mlp")._replace(module=module, optimizer=optimizer))
    results = []
    for learning in ("live", "batched"):
        cluster = ampsim.load_cluster("p100", workers=3)
        run = Simulation(model, cluster, ampsim.Amp(4), seed=0, learning=learning)
        run.run_epoch()
        results.append(run.result().model.parameters())
    for name, values in results[0].items():
        np.testing.assert_allclose(results[1][name], values, rtol=0, atol=1e-12)


class Tied(torch.nn.Module):
    """Its largest numbers are often equal: zeros of a ReLU, over one axis or two."""

    def __init__(self, largest: Any):
        super().__init__()
        self.first, self.last = torch.nn.Linear(16, 24), torch.nn.LazyLinear(5)
        self.largest = largest

    def forward(self, x):
        rows = torch.relu(self.first(x) - 1.0).reshape(-1, 2, 3, 4)
        return self.last(self.largest(rows).flatten(1))


def assert_gradients_of_pytorch(given, module):
    """A module in place of that of a case has PyTorch's gradients on its first batch."""
    given = given._replace(module=module, optimizer=METHODS["sgd"](module.parameters()))
    model = model_of(given)
    batch = first_batch(model)
    _prediction, gradients = served(model, batch)
    inputs, target = map(torch.from_numpy, map(np.array, batch.arrays))
    given.loss(module(inputs), target).backward()
    found = ampsim.to_torch(model.set_parameters(gradients))
    for parameter, values in module.named_parameters():
        np.testing.assert_allclose(found[parameter], values.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "largest",
    [
        lambda x: x.amax(dim=2),
        lambda x: x.amax(dim=(1, 3)),
        lambda x: x.amax(dim=(2, 3)),
        lambda x: x.max(dim=3).values,
    ],
    ids=["amax", "amax of axes apart", "amax of axes side by side", "max"],
)
def test_equal_numbers_get_the_gradient_of_a_maximum_as_in_pytorch(largest):
    torch.manual_seed(2)
    given = case("mlp")
    module = Tied(largest).double()
    module(given.data[0][0][:BATCH])
    assert_gradients_of_pytorch(given, module)


class Parts(torch.nn.Module):
    """It takes parts of a parameter that has one axis."""

    def __init__(self, part: Any):
        super().__init__()
        self.first, self.last = torch.nn.Linear(16, 4), torch.nn.Linear(4, 5)
        self.scale, self.part = torch.nn.Parameter(torch.rand(4)), part

    def forward(self, x):
        return self.last(self.part(self.first(x), self.scale))


@pytest.mark.parametrize(
    "part",
    [
        lambda x, w: torch.cat([x[:, :3] * w[:3], x[:, 3:] * w[3:]], 1),
        lambda x, w: torch.cat([x[:, :2] * w[1::2], x[:, 2:] + w[::2]], 1),
        lambda x, w: x * w[0] + w[-1],
        lambda x, w: x * w[-2] * w,
    ],
    ids=["two parts", "every other", "one number", "the last but one"],
)
def test_parts_of_a_parameter_of_one_axis_get_pytorch_s_gradient(part):
    torch.manual_seed(2)
    given = case("mlp")
    module = Parts(part).double()
    assert_gradients_of_pytorch(given, module)


@pytest.mark.parametrize(
    "of",
    [
        lambda x: x * x.norm(dim=1, keepdim=True),
        lambda x: torch.nn.functional.normalize(x, dim=1),
        lambda x: x / (x.std(1, keepdim=True) + 1e-6),
        lambda x: x + x.std(1, correction=0).unsqueeze(1),
    ],
    ids=["norm", "normalize", "std", "std of all"],
)
def test_vectors_of_zeros_get_pytorch_s_gradient(of):
    torch.manual_seed(2)
    seen = []

    def part(x, w):
        x = torch.relu(x - 0.3) * w
        seen.append(x)
        return of(x)

    assert_gradients_of_pytorch(case("mlp"), Parts(part).double())
    zero = (seen[-1] == 0).all(1)
    assert zero.any() and not zero.all()


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            lambda x, w: x * w - x.amin(1, keepdim=True),
            "for amin .*; take -torch.amax\\(-x, dim\\)",
        ),
        (lambda x, w: torch.min(x, w), "for min .*, or of two a - F.relu\\(a - b\\)"),
        (
            lambda x, w: 2 ** (x * w),
            r"for pow .*; for a \*\* x take torch.exp\(x \* math.log\(a\)\)",
        ),
        (lambda x, w: torch.celu(x * w), "for celu .*; take nn.LeakyReLU, or nn.ELU"),
    ],
    ids=["amin", "min", "a power", "celu"],
)
def test_what_can_be_said_otherwise_is_refused_with_the_other_words(part, said):
    given = case("mlp")
    module = Parts(part).double()
    given = given._replace(module=module, optimizer=METHODS["sgd"](module.parameters()))
    with pytest.raises(GraphError, match=f"ampsim has no node {said}"):
        model_of(given)


class Lengths(torch.nn.Module):
    """Reads sequences of any length: layers, both directions, a mean, a maximum, a last state."""

    def __init__(self, kind: Any, *, batch_first: bool):
        super().__init__()
        self.embedding = torch.nn.Embedding(30, 6)
        self.reader = kind(6, 4, num_layers=2, bidirectional=True, batch_first=batch_first)
        self.out = torch.nn.Linear(24, 5)

    def forward(self, x):
        x = self.embedding(x)
        if not self.reader.batch_first:
            x = x.transpose(0, 1)
        states, last = self.reader(x)
        last = last[0] if isinstance(last, tuple) else last
        time = 1 if self.reader.batch_first else 0
        parts = [states.mean(time), states.max(time).values, last[-1], last[0]]
        return self.out(torch.cat(parts, dim=1))


def trained_alike(given: Case, model: Any, schedule: Any, epochs: int = 2) -> Any:
    result = ampsim.simulate(model, "tflops-1", schedule, epochs=epochs)
    trained(given, model, epochs)
    found = ampsim.to_torch(result)
    for parameter, values in given.module.state_dict().items():
        np.testing.assert_allclose(found[parameter], values, rtol=0, atol=1e-8, err_msg=parameter)
    return result


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_batches_may_differ_in_length(kind):
    torch.manual_seed(1)
    module = Lengths(getattr(torch.nn, kind), batch_first=kind == "GRU").double()
    batches = [
        (torch.randint(0, 30, (4, steps)), torch.randint(0, 5, (4,))) for steps in (3, 5, 1, 4)
    ]
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    given = Case(module, torch.nn.CrossEntropyLoss(), optimizer, (batches, batches[:1]))
    model = ampsim.from_torch(
        module, batches[0][0], loss=given.loss, data=given.data, optimizer=optimizer
    )
    assert set(model.node_update_intervals.values()) == {3}  # steps of a batch, in the mean
    result = trained_alike(given, model, ampsim.Sequential())
    assert result.epochs["loss"].iloc[-1] > 0


class Folding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(30, 5)

    def forward(self, x):
        x = self.embedding(x)
        return x.reshape(x.size(0), 1, x.size(1), 5).mean(2)[:, 0]


class Masking(Folding):
    def forward(self, x):
        return (self.embedding(x) * (x != 0).float().unsqueeze(-1)).mean(1)


class Looping(Folding):
    def forward(self, x):
        steps = self.embedding(x).unbind(1)
        return sum(steps)


class ShiftedByLength(Folding):
    def forward(self, x):
        return self.embedding(x).mean(1) + torch.arange(5.0) * x.size(1)


OF_ONE_LENGTH = {
    Folding: "and reshape is made for one .*; give sequences of one length",
    Masking: "and reshape is made for one .*; give sequences of one length",
    Looping: "a loop over steps in Python, or of another length than a batch's, is fixed",
    ShiftedByLength: "the loss of a batch of 4 is not PyTorch's in evaluation",
}


@pytest.mark.parametrize("kind", OF_ONE_LENGTH)
def test_a_module_made_for_one_length_says_so(kind):
    torch.manual_seed(0)
    batches = [(torch.randint(0, 30, (4, steps)), torch.randint(0, 5, (4,))) for steps in (3, 5)]
    module = kind()
    with pytest.raises(GraphError, match=OF_ONE_LENGTH[kind]):
        ampsim.from_torch(
            module,
            batches[0][0],
            loss=torch.nn.CrossEntropyLoss(),
            data=(batches, batches),
            optimizer=torch.optim.SGD(module.parameters(), 0.1),
        )


class Translating(torch.nn.Module):
    """Reads a sequence, and then another."""

    def __init__(self):
        super().__init__()
        self.words, self.others = torch.nn.Embedding(30, 4), torch.nn.Embedding(30, 4)
        self.source, self.target = (torch.nn.LSTM(4, 5, batch_first=True) for _ in range(2))
        self.out = torch.nn.Linear(5, 3)

    def forward(self, source, target):
        _, state = self.source(self.words(source))
        return self.out(self.target(self.others(target), state)[0][:, -1])


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        ([(3, 4), (5, 6)], [(3, 4)]),
        ([(3, 3), (5, 5), (3, 5)], [(3, 3)]),
        ([(3, 3), (5, 5)], [(4, 4), (5, 3)]),
        ([(3, 4), (5, 4), (3, 5)], [(3, 4)]),
        ([(3, 3), (5, 5)], [(3, 3), (5, 5)]),
    ],
)
def test_two_lengths_are_refused_wherever_they_part(train, valid):
    def batch(source, target):
        words = (torch.randint(0, 30, (4, steps)) for steps in (source, target))
        return (*words, torch.randint(0, 3, (4,)))

    torch.manual_seed(0)
    module = Translating()
    given = {
        "loss": torch.nn.CrossEntropyLoss(),
        "data": [[batch(*one) for one in split] for split in (train, valid)],
        "optimizer": torch.optim.SGD(module.parameters(), 0.1),
    }
    example = tuple(given["data"][0][0])
    if train == valid:
        model: Any = ampsim.from_torch(module, example, **given)
        assert model.make_graph.plan.length == (0, 1)
        return
    said = "^Translating: batches differ in 2 lengths, and one may; pad all but one of them$"
    with pytest.raises(GraphError, match=said):
        ampsim.from_torch(module, example, **given)


def data_forms(given: Case) -> dict[str, Any]:
    """The same data as PyTorch users have them."""
    utils = torch.utils.data
    sets = [utils.TensorDataset(*split) for split in given.data]
    return {
        "tensors": given.data,
        "arrays": [tuple(one.numpy() for one in split) for split in given.data],
        "data sets": sets,
        "loaders": [utils.DataLoader(one, batch_size=BATCH) for one in sets],
    }


@pytest.mark.parametrize("form", ["tensors", "arrays", "data sets", "loaders"])
def test_data_come_in_any_form_and_the_example_with_a_target(form):
    given = case("mlp")
    example = tuple(one[:BATCH] for one in given.data[0])
    model = model_of(given._replace(data=tuple(data_forms(given)[form])), example)
    batches = list(model.data(0).batches("valid", epoch=0, seed=0))
    assert [one.rows for one in batches] == [6, 2]
    for place, expected in enumerate(given.data[1]):
        np.testing.assert_array_equal(
            np.concatenate([one.arrays[place] for one in batches]), expected.numpy()
        )


class Fixed(torch.nn.Module):
    """Weights that do not learn, and one that is brought to length 1."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randn(9, 4))
        self.register_buffer("bias", torch.randn(9))
        self.shift, self.out = (torch.nn.Parameter(torch.randn(one)) for one in (9, (9, 3)))

    def forward(self, x):
        linear, normal = torch.nn.functional.linear, torch.nn.functional.normalize
        x = torch.tanh(linear(x, self.weight, self.bias)) + linear(x, self.weight, self.shift)
        return x @ normal(self.out, dim=0)


def test_buffers_as_weights_stay_and_a_weight_may_be_calculated_with():
    module = Fixed().double()
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randint(0, 3, (30,))
    method = torch.optim.Adam(module.parameters(), 0.02)
    given = Case(module, torch.nn.CrossEntropyLoss(), method, ((x, y), (x, y)))
    model = model_of(given)
    found = ampsim.to_torch(ampsim.simulate(model, "tflops-1", "sequential", epochs=2))
    trained(given, model, epochs=2)
    for name, values in module.state_dict().items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("sizes", [[30], [12, 18]])
def test_what_is_written_over_afterwards_was_imported_as_it_was(sizes):
    module = Fixed().double()
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randint(0, 3, (30,))
    batches = [*zip(x.split(sizes), y.split(sizes), strict=True)]
    split = batches if len(sizes) > 1 else (x, y)
    method = torch.optim.Adam(module.parameters(), 0.02)
    given = Case(module, torch.nn.CrossEntropyLoss(), method, (split, split))
    model = model_of(given, x[: sizes[0]])
    before = ampsim.simulate(model, "tflops-1", "sequential").epochs
    with torch.no_grad():
        for one in (x, y, *module.state_dict().values()):
            one.zero_()
    assert ampsim.simulate(model, "tflops-1", "sequential").epochs.equals(before)


def test_an_import_keeps_no_shapes_and_leaves_pytorch_s_settings():
    """To keep what each operation gives took a third of an import, and to look it up saved less."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    before, was_kept = FakeTensorMode.cache_info(), torch._dynamo.config.fake_tensor_cache_enabled
    model_of(case("transformer encoder"))
    assert FakeTensorMode.cache_info() == before
    assert torch._dynamo.config.fake_tensor_cache_enabled == was_kept


def test_dropout_drops_in_training_only():
    """Masks are another stream's; what is kept grows, and validation drops nothing."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 40), torch.nn.Dropout(0.25), torch.nn.Linear(40, 5)
    )
    given = case("mlp")._replace(module=net.double())
    given = given._replace(optimizer=torch.optim.SGD(net.parameters(), 0.1))
    model = model_of(given)
    node = model.graph()["1.dropout"]
    ones = np.ones((200, 40))
    ((_port, _state, dropped),) = node.forward(0, (0,), ones)
    assert {*np.unique(dropped).tolist()} == {0.0, 1 / 0.75}
    assert (dropped == 0).mean() == pytest.approx(0.25, abs=0.02)
    node.is_training = False
    ((_port, _state, kept),) = node.forward(0, (1,), ones)
    assert (kept == ones).all()


def test_weights_go_back_only_where_they_came_from():
    model = ampsim.load_model("mlp", data="synthetic", hidden=4)
    short: dict[str, Any] = {"instances": 100}
    forecast: Any = ampsim.forecast(model, "tflops-1", ["amp"], mode="sleep", **short)
    for given in (ampsim.simulate(model, "tflops-1", "sequential", **short), forecast):
        said = f"from_torch, got {type(given).__name__}; .* kept runs and forecasts have none$"
        with pytest.raises(OptionError, match="^to_torch takes a result, or a model, .*" + said):
            ampsim.to_torch(given)
