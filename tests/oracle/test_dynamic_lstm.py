"""`dynamic_lstm`: its data, its layers on devices of their own, and what lies in their memory."""

from __future__ import annotations

from typing import Any

import pytest

import ampsim
from ampsim import flow
from ampsim.errors import OptionError, OutOfMemoryError
from ampsim.hardware import Cluster, Device, Link

SMALL: dict[str, Any] = {"hidden": 8, "batch": 6, "length": 9}
LINK = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9)


def made(**options: Any) -> Any:
    return ampsim.load_model("dynamic_lstm", **{"dtype": "float64", **SMALL, **options})


def cluster(workers: int, **numbers: Any) -> Cluster:
    device = Device(name="gpu", flop_per_s=1e9, dispatch_s=1e-7, **numbers)
    return Cluster(name="some", devices=(device,) * workers, link=LINK)


# --- data


def test_batches_have_lengths_of_their_own_and_ask_for_what_was_shown():
    data = made(length=8, shortest=0.5).data(3, 600)
    batches = list(data.batches("train", epoch=0, seed=3))
    lengths = [len(batch.symbols) for batch in batches]
    assert set(lengths) == {4, 5, 6, 7, 8}
    assert sum(batch.rows for batch in batches) == data.count("train") == 600
    assert len(batches) == data.batch_count("train")
    for batch in batches[:5]:
        for row in range(batch.rows):
            asked = batch.labels.reshape(-1, batch.rows)[:, row].tolist()
            shown = batch.symbols[:, row].tolist()
            assert asked == [shown[0], shown[0], *shown[:-2]][: len(shown)]


def test_an_epoch_shuffles_batches_and_a_seed_draws_others():
    model = made(shortest=1)

    def drawn(seed: int, epoch: int, split: Any = "train") -> list[bytes]:
        batches = model.data(seed, 60).batches(split, epoch=epoch, seed=seed)
        return [batch.symbols.tobytes() for batch in batches]

    first, later, other = drawn(0, 0), drawn(0, 1), drawn(1, 0)
    assert first != later
    assert sorted(first) == sorted(later)
    assert not set(first) & set(other)
    assert not set(first) & set(drawn(0, 0, "valid"))
    assert drawn(0, 0) == first


@pytest.mark.slow
def test_a_default_run_reaches_its_target_in_two_epochs():
    model = ampsim.load_model("dynamic_lstm")
    result = ampsim.simulate(model, "tflops-1", ampsim.Dataflow(), epochs=2)
    assert result.epochs["accuracy"].iloc[-1] > model.target


# --- a layer a device


@pytest.mark.parametrize("layers", [2, 3])
def test_layers_on_devices_of_their_own_learn_the_same_bits(layers):
    """The gradient loop is cut, too: each worker goes forward, backward and updates what it has."""
    results = {
        devices: ampsim.simulate(
            made(layers=layers, devices=devices), cluster(layers), ampsim.Dataflow(), instances=24
        )
        for devices in range(1, layers + 1)
    }
    alone = results[1].model.parameters()
    for devices, result in results.items():
        parameters = result.model.parameters()
        assert all(parameters[key].tobytes() == alone[key].tobytes() for key in alone)
        assert result.epochs["loss"].tolist() == results[1].epochs["loss"].tolist()
        spans = result.spans[result.spans["lane"] == "compute"]
        heavy = spans[spans["flop"] > 0].groupby("worker")["direction"].unique()
        assert sorted(heavy.index) == list(range(devices))
        assert all(set(one) == {"forward", "backward", "update"} for one in heavy)
        assert bool(len(result.transfers)) == (devices > 1)
    flop = {devices: int(one.spans["flop"].sum()) for devices, one in results.items()}
    assert len(set(flop.values())) == 1


def test_layers_are_shared_out_evenly():
    config = made(layers=8, devices=3).config
    workers = [config.worker(layer) for layer in range(8)]
    assert workers == sorted(workers)
    assert [workers.count(one) for one in range(3)] == [3, 3, 2]


def test_devices_that_there_are_not_are_refused():
    with pytest.raises(OptionError, match=r"^dynamic_lstm: devices must be at most layers, 2, got"):
        made(layers=2, devices=3)
    with pytest.raises(OptionError, match=r"device must be one of some, worker 0 alone, got 1$"):
        ampsim.simulate(made(layers=2, devices=2), cluster(1), ampsim.Dataflow(), instances=6)


# --- memory


def asked_of(model: Any) -> tuple[list[flow.Tensor], dict[str, Any]]:
    """The loss and all gradients of a program, and one batch."""
    data = model.data(0, model.config.batch)
    batch = next(data.batches("train", epoch=0, seed=0))
    feeds = dict(model.program.feed(batch))
    with flow.FlowGraph() as graph:
        loss = model.program.build().loss
        values = model.parameters()
        held = [node.outputs[0] for node in graph.given.values() if node.name in values]
        asked = [loss, *flow.gradients(loss, held)]
    flow.set_variables(graph, values)
    return asked, feeds


@pytest.mark.parametrize("window", [1, 3, 32])
@pytest.mark.parametrize("layers", [1, 2])
def test_stacks_are_empty_at_the_end_and_swapping_moves_what_they_hold(layers, window):
    """An executor checks at its end that nobody holds a byte any more."""
    asked, feeds = asked_of(made(layers=layers, shortest=1, batch=40, length=20))
    numbers = {"copy_bandwidth_bytes_per_s": 1e10}
    how: dict[str, Any] = {"parallel_iterations": window}
    whole = flow.run(asked, feeds, cluster=cluster(1, memory_bytes=10**9, **numbers), **how)
    counts = whole.evaluations.groupby("operator")["live"].sum()
    assert counts["push"] == counts["pop"] > 0
    assert whole.memory["stacks"].max() > 0
    room = int(0.9 * whole.peak_bytes[0])
    small = cluster(1, memory_bytes=room, **numbers)
    with pytest.raises(OutOfMemoryError):
        flow.run(asked, feeds, cluster=small, **how)
    swapped = flow.run(asked, feeds, cluster=small, swap_memory=True, swap_threshold=0.3, **how)
    assert swapped.swapped_out_bytes > 0
    for one, other in zip(whole.values, swapped.values, strict=True):
        assert one.tobytes() == other.tobytes()
    asleep = flow.run(
        asked, feeds, cluster=small, swap_memory=True, swap_threshold=0.3, mode="sleep", **how
    )
    assert asleep.spans.equals(swapped.spans)
    assert asleep.memory.equals(swapped.memory)


def test_stacks_hold_eight_arrays_a_step_and_layer():
    """By hand: [x h] two, o, i, f, tanh g, the cell's state before, and tanh of the one after."""
    hidden, batch = 16, 7
    for layers in (1, 2):
        held: dict[int, int] = {}
        for steps in (5, 9):
            longer = made(layers=layers, shortest=1, hidden=hidden, batch=batch, length=steps)
            asked, feeds = asked_of(longer)
            result = flow.run(asked, feeds, cluster=cluster(1, memory_bytes=10**9))
            held[steps] = int(result.memory["stacks"].max())
        assert (held[9] - held[5]) // 4 == layers * 8 * 8 * hidden * batch


def grown_bytes(schedule: Any, batch: int, lengths: tuple[int, int], hidden: int = 16) -> float:
    """What the peak of a training step grows by for each step of the sequences."""
    peaks: list[int] = []
    for length in lengths:
        model = made(shortest=1, hidden=hidden, batch=batch, length=length)
        result = ampsim.simulate(
            model, cluster(1, memory_bytes=10**9), schedule, mode="sleep", instances=batch
        )
        peaks.append(int(result.peak_bytes[0]))
    return (peaks[1] - peaks[0]) / (lengths[1] - lengths[0])


@pytest.mark.slow
def test_a_loop_keeps_one_sum_of_weight_gradients_and_copies_wait_for_the_last():
    """By hand: of the loop eight arrays on stacks, input, outputs twice, their gradient; logits.

    Unrolled, each step's gradient of the weights, (2 hidden, 4 hidden), is kept for one sum of all.
    """
    hidden, item_bytes = 16, 8
    for batch in (8, 64):
        step = batch * (12 * hidden + 8) * item_bytes
        assert grown_bytes(ampsim.Dataflow(), batch, (100, 140)) == step
        assert grown_bytes(ampsim.Dataflow(parallel_iterations=1), batch, (100, 140)) == step
    gradient = 8 * hidden**2 * item_bytes
    few = grown_bytes(ampsim.Unrolled(), 2, (30, 50))
    assert gradient <= few < 1.2 * gradient
    assert few > 4 * grown_bytes(ampsim.Dataflow(), 2, (200, 240))
