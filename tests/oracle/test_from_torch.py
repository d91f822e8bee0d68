"""What was imported computes and learns as in PyTorch, and its weights go back as they came."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch
from torch_zoo import NETWORKS, Case, case

import ampsim
from ampsim.ir import Direction

BATCH = 6


def model_of(given: Case, **options: Any) -> Any:
    return ampsim.from_torch(
        given.module,
        given.data[0][0][:BATCH],
        loss=given.loss,
        data=given.data,
        optimizer=given.optimizer,
        **options,
    )


@cache
def prepared(name: str, optimizer: str = "adam") -> tuple[Case, Any]:
    """A case and its model, exported once; nobody changes them."""
    given = case(name, optimizer)
    return given, model_of(given)


def copied(name: str, optimizer: str = "adam") -> tuple[Case, Any]:
    """A case to be trained, with the model, which is not copied."""
    given, model = prepared(name, optimizer)
    return given._replace(
        **copy.deepcopy({"module": given.module, "optimizer": given.optimizer})
    ), model


def served(model: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
    """The prediction and all gradients of one batch, messages taken first come, first served."""
    graph = model.graph()
    queue = [
        (Direction.FORWARD, *graph.targets[0][port], state, payload)
        for port, state, payload in model.pump(7, batch)
    ]
    prediction = None
    while queue:
        direction, place, port, state, payload = queue.pop(0)
        node = graph.nodes[place]
        if place == 0:
            continue
        if node.is_loss and port == 0:
            prediction = payload
        forward = direction is Direction.FORWARD
        sends = (node.forward if forward else node.backward)(port, state, payload)
        goes_back = not forward or node.is_loss
        partners = graph.sources[place] if goes_back else graph.targets[place]
        direction = Direction.BACKWARD if goes_back else Direction.FORWARD
        queue += [(direction, *partners[out], s, sent) for out, s, sent in sends]
    assert not [node.name for node in graph.nodes if list(node.pending())]
    gradients = {
        f"{node.name}.{name}": part
        for node in graph.parameterized
        for name, part in node.views(node.take_gradient()).items()
    }
    return prediction, gradients


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
    if name == "lenet":  # whose output is a log_softmax, which our loss has in it
        prediction = torch.from_numpy(prediction).log_softmax(1).numpy()
    np.testing.assert_allclose(prediction, expected, rtol=0, atol=1e-12)
    found = ampsim.to_torch(model.set_parameters(gradients))
    for parameter, values in given.module.named_parameters():
        np.testing.assert_allclose(
            found[parameter], values.grad, rtol=0, atol=1e-10, err_msg=parameter
        )


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", NETWORKS)
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
