"""What is counted as lying in a worker's memory is what lies there: arrays, counted one by one."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from covering import together
from short_runs import LINKS, PAIRS, RUNS, cluster_of, schedule_of, small_model

from ampsim import Amp, Dataflow, LocalSGD, OutOfGraph, Unrolled, simulate
from ampsim.errors import OptionError, OutOfMemoryError
from ampsim.ir import Direction, Partition
from ampsim.machine import Fabric
from ampsim.model_parallel import Settled, needs_chain
from ampsim.model_parallel.worker import Worker
from ampsim.study import Simulation
from ampsim.trace import MEMORY_CATEGORIES

WORKERS = 4  # as many as the MLP has stages
CACHES = ("_saved", "_arrived", "_returned", "_filling", "_gradients")
"""Where the shipped nodes keep what waits for others, or for its backward step."""

STATIC = ("weights", "gradients", "optimizer", "stashes")


def gather(kept: Any, arrays: dict[int, np.ndarray]) -> None:
    """Put every array in a node's cache, however deep, among others by its identity."""
    if isinstance(kept, np.ndarray):
        arrays[id(kept)] = kept
    elif isinstance(kept, dict):
        for one in kept.values():
            gather(one, arrays)
    elif isinstance(kept, (list, tuple)):
        for one in kept:
            gather(one, arrays)
    elif hasattr(kept, "waiting"):  # a Join
        gather(kept.waiting, arrays)


def bytes_of_record(record: Any) -> int:
    """Bytes of the arrays of one record; views of another of them are counted with it."""
    arrays: dict[int, np.ndarray] = {}
    gather(record, arrays)
    return sum(one.nbytes for one in arrays.values() if id(one.base) not in arrays)


def bytes_of_node(node: Any) -> int:
    caches = [getattr(node, name, None) for name in CACHES]
    caches = [one for one in caches if one is not None and not callable(one)]  # or a method
    records: list[Any] = []
    for one in caches:
        held = getattr(one, "waiting", one)
        records += held.values()
    partitions = sum(
        part.nbytes for record in records for part in controls_of(record)
    )  # control that waits for its input is a message
    return sum(map(bytes_of_record, records)) + partitions


def controls_of(record: Any) -> Iterable[Any]:
    parts = record if isinstance(record, (list, tuple)) else (record,)
    return [part for part in parts if isinstance(part, Partition)]


def bytes_of_messages(messages: Iterable[Any]) -> int:
    return sum(0 if message[3] is None else message[3].nbytes for message in messages)


class Counted:
    """A channel whose messages under way are added up with who sent them."""

    def __init__(self, channel: Any, worker: int, flying: Counter[int]) -> None:
        self._channel, self._worker, self._flying = channel, worker, flying

    def send(self, size_bytes: int, nodes: Any, cause: Any, arrive: Any) -> None:
        self._flying[self._worker] += size_bytes

        def arrived(cause: Any) -> None:
            self._flying[self._worker] -= size_bytes
            arrive(cause)

        self._channel.send(size_bytes, nodes, cause, arrived)


class Recount:
    """Counts anew, before each step that takes time, what lies with each worker.

    A step that is going on has taken its message from the queue, and changed the caches of its
    node at once, where a device would do so when it ends: until then it counts as before. A message
    that is under way lies with its sender.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine: Any = None
        self.flying = Counter[int]()
        channel_of = Fabric.channel

        def channel(fabric: Any, source: int, target: int) -> Any:
            channel = channel_of(fabric, source, target)
            return channel and Counted(channel, source, self.flying)

        monkeypatch.setattr(Fabric, "channel", channel)
        self.going_on: dict[int, tuple[Any, int, int]] = {}
        self.moments = 0
        begin, end = Worker.begin, Worker.end
        whole = self

        def counting_begin(worker: Any, kind: Any, queue: Any) -> Any:
            whole.compare(worker.index)
            placed, payload = queue[0][0], queue[0][3]
            before = bytes_of_node(placed.node)
            task = begin(worker, kind, queue)
            size = 0 if payload is None else payload.nbytes
            if kind is not Direction.UPDATE:
                whole.going_on[worker.index] = (placed.node, before, size)
            return task

        def counting_end(worker: Any, task: Any) -> None:
            whole.going_on.pop(worker.index, None)
            end(worker, task)

        monkeypatch.setattr(Worker, "begin", counting_begin)
        monkeypatch.setattr(Worker, "end", counting_end)

    def compare(self, index: int) -> None:
        """Count what lies with the worker that begins, and now and then what lies with any."""
        self.moments += 1
        for worker, memory in zip(self.engine.workers, self.engine.memories, strict=True):
            if worker.index != index and self.moments % 4:
                continue
            parts = dict(zip(MEMORY_CATEGORIES, memory._held, strict=True))
            counted = parts["activations"] + parts["messages"]
            assert counted == self.lying(worker), f"worker {worker.index}, {parts}"

    def lying(self, worker: Any) -> int:
        queues = [worker.free_backward, worker.free_forward, *worker.queues.values()]
        if worker.turn_queue is not None:
            queues += worker.turn_queue._waiting.values()
        lying = sum(bytes_of_messages(queue) for queue in queues)
        node, before, size = self.going_on.get(worker.index, (None, 0, 0))
        nodes = {id(p.node): p.node for p in self.engine.placed_nodes if p.worker == worker.index}
        lying += sum(before if one is node else bytes_of_node(one) for one in nodes.values())
        barrier = self.engine._barrier
        if barrier is not None:
            sent_here = [
                message
                for _route, source, message in barrier._held
                if self.engine.placed_nodes[source].worker == worker.index
            ]
            lying += bytes_of_messages(sent_here)
        return lying + size + self.flying[worker.index]


def simulation_of(schedule: str, model: str, links: str = "free", **options: Any) -> Simulation:
    cluster = cluster_of(WORKERS, *LINKS[links])
    return Simulation(
        small_model(model), cluster, schedule_of(schedule), counts_memory=True, **options
    )


@pytest.mark.parametrize(("schedule", "model", "links"), RUNS)
def test_what_is_counted_are_the_arrays_that_are_there(schedule, model, links, monkeypatch):
    """Also where nodes and loss are anywhere; a stage under turns has a worker of its own."""
    recount = Recount(monkeypatch)  # before the workers start
    graph, places = small_model(model).graph(), Random(f"{schedule} {model}")
    own = [one.name for one in graph.parameterized] if needs_chain(schedule_of(schedule)) else []
    anywhere = {node.name: places.randrange(WORKERS) for node in graph.nodes[1:]}
    stages = dict(zip(own, places.sample(range(WORKERS), len(own)), strict=True))
    placed = Settled(anywhere | stages, {"name": "anywhere"})
    simulation = simulation_of(schedule, model, links, placement=placed)
    training: Any = simulation._training
    recount.engine = training._method._engine
    simulation.run_epoch()
    assert recount.moments > 10


@cache
def memory_of(schedule: str, model: str, links: str, mode: str) -> Any:
    simulation = simulation_of(schedule, model, links, mode=mode)
    simulation.run_epoch()
    return simulation


@together("schedule, model, links", RUNS)
def test_without_numbers_the_memory_is_the_same(schedule, model, links):
    numeric, sleep = (
        memory_of(schedule, model, links, mode).result().memory for mode in ("numeric", "sleep")
    )
    assert numeric.equals(sleep)
    assert len(numeric) >= WORKERS


@together("schedule, model, links", RUNS)
def test_after_an_epoch_only_parameters_are_left(schedule, model, links):
    simulation = memory_of(schedule, model, links, "numeric")
    engine, nodes = simulation._training._method._engine, simulation._graph.parameterized
    for placed in engine.placed_nodes:
        if placed.footprint is not None:
            assert not placed.footprint._inputs
            assert not placed.footprint._gradients
            assert not placed.footprint._kept
    for place, category in enumerate(MEMORY_CATEGORIES):
        left = sum(memory.held(place) for memory in engine.memories)
        if category == "weights":
            assert left == sum(node.theta.nbytes for node in nodes)
        elif category == "optimizer":
            assert left == sum(node.theta.nbytes * node.state_arrays for node in nodes)
        elif category not in STATIC:
            assert left == 0
    result = simulation.result()
    assert (result.peak_bytes == result.memory.groupby("worker")["bytes"].max()).all()


@together("schedule, model", [pair for pair in PAIRS if pair[1] != "ggnn"])
def test_a_device_is_full_at_its_peak_and_overflows_a_byte_below(schedule, model):
    peak = memory_of(schedule, model, "latency", "sleep").result().peak_bytes
    fullest = int(peak.idxmax())
    enough = run_with_memory(schedule, model, [int(size) for size in peak])
    assert enough.peak_bytes.equals(peak)
    short = [int(size) - (worker == fullest) for worker, size in enumerate(peak)]
    with pytest.raises(OutOfMemoryError) as caught:
        run_with_memory(schedule, model, short)
    text = str(caught.value)
    assert text.startswith(f"worker {fullest} (")
    assert f" of {short[fullest]:,} (" in text
    assert text.endswith("or a device with more memory_bytes")
    assert caught.value.partial.makespan_s >= 0


def run_with_memory(schedule: str, model: str, capacity_bytes: list[int]) -> Any:
    cluster = cluster_of(WORKERS, *LINKS["latency"])
    devices = tuple(
        device.model_copy(update={"memory_bytes": size})
        for device, size in zip(cluster.devices, capacity_bytes, strict=True)
    )
    cluster = cluster.model_copy(update={"devices": devices})
    return simulate(small_model(model), cluster, schedule_of(schedule), mode="sleep")


@pytest.mark.parametrize("schedule", [Amp(2), Dataflow()], ids=str)
@pytest.mark.parametrize("memory_bytes", [None, 10**12])
def test_memory_that_nobody_counted_is_not_zero(schedule, memory_bytes):
    cluster = cluster_of(2, 0.0, None)
    devices = [one.model_copy(update={"memory_bytes": memory_bytes}) for one in cluster.devices]
    what = small_model("mlp"), cluster.model_copy(update={"devices": (*devices,)}), schedule
    result = simulate(*what, mode="sleep", counts_memory=False)
    assert len(result.memory) == 0
    assert len(result.peak_memory) == 0
    with pytest.raises(OptionError, match=r"^peak_bytes: memory was not counted in this run; run"):
        _ = result.peak_bytes


@pytest.mark.parametrize("kind", [Dataflow, Unrolled, OutOfGraph])
@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize("counts", [True, None])
def test_memory_of_a_program_is_counted_also_where_it_has_no_end(kind, mode, counts):
    """It was only on devices that name their memory, whatever was asked for."""
    cluster = cluster_of(1, 0.0, None)
    (device,) = cluster.devices
    large = device.model_copy(update={"memory_bytes": 10**12})
    wanted, found = (
        simulate(small_model("mlp"), one, kind(), mode=mode, counts_memory=counts)
        for one in (cluster.model_copy(update={"devices": (large,)}), cluster)
    )
    assert found.memory.equals(wanted.memory)
    assert found.peak_bytes[0] > 0
    uncounted = simulate(small_model("mlp"), cluster, kind(), mode=mode, counts_memory=False)
    assert found.spans.equals(uncounted.spans)


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_memory_is_counted_when_somebody_asks(mode):
    """By a sleeping run: the same table as of a run that counts as it goes, also in a copy."""
    what = small_model("rnn"), cluster_of(3, 1e-7, 1e9), Amp(4)
    result = simulate(*what, mode=mode, epochs=2)
    assert not result.recorder.memory
    counting = simulate(*what, mode=mode, epochs=2, counts_memory=True)
    assert result.memory.equals(counting.memory)
    assert pickle.loads(pickle.dumps(result)).peak_bytes.equals(counting.peak_bytes)


def test_counting_changes_no_bit_of_the_run():
    runs = [
        simulate(small_model("rnn"), cluster_of(3, 1e-7, 1e9), Amp(4), counts_memory=counts)
        for counts in (False, True)
    ]
    assert runs[0].digest == runs[1].digest


@pytest.mark.parametrize(
    "around", [lambda amp: amp, lambda amp: LocalSGD(1, inner=amp)], ids=["alone", "in a rank"]
)
def test_predicted_weights_are_stashes_of_twice_their_size(around):
    model = small_model("mlp")
    plain, predicted = (
        simulate(
            model, "tflops-1", around(Amp(2, remedy=remedy)), mode="sleep", counts_memory=True
        ).peak_memory
        for remedy in ("none", "weight-prediction")
    )  # fmt: skip
    assert (plain["stashes"] == 0).all()
    assert (predicted["stashes"] == 2 * predicted["weights"]).all()
