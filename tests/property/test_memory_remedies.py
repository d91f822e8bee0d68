"""Activations that leave, or are computed again: every byte is accounted for, no number moves."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from short_runs import LINKS, schedule_of, small_model
from short_runs import cluster_of as plain_cluster

from ampsim import GPipe, Pipeline, Sequential, load_model, simulate
from ampsim.errors import OptionError, OutOfMemoryError
from ampsim.hardware import Cluster, Device, Link, MemoryRemedy
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.model_parallel.footprint import ACTIVATIONS
from ampsim.model_parallel.worker import Worker
from ampsim.study import Simulation
from ampsim.trace.recorder import MEMORY_CATEGORIES

STAGES = 4
COSTS = ((4, 6, 1), (3, 5, 2), (5, 8, 1), (2, 3, 1))
ROWS = 3
KEPT_BYTES = ROWS * 2 * 8  # of each stage: its input, two columns in double precision
OFFLOAD = MemoryRemedy(remedy="offload")
RECOMPUTE = MemoryRemedy(remedy="recompute")
CELLS = ("tree_lstm", "ggnn")
"""Models of cells, which keep gates beside their inputs."""


def cluster_of(memory: Any, *, memory_bytes: int | None = None, workers: int = STAGES) -> Cluster:
    device = Device(
        name="test",
        flop_per_s=1.0,
        copy_bandwidth_bytes_per_s=16.0,
        copy_latency_s=0.25,
        memory_bytes=memory_bytes,
    )
    link = Link(latency_s=0.5, bandwidth_bytes_per_s=64.0)
    return Cluster(name="test", devices=(device,) * workers, link=link, memory=memory)


class Times(NamedTuple):
    """When activations come to a worker and when they go, from the spans of a chain alone."""

    taken_s: np.ndarray
    returned_s: np.ndarray
    learned_s: np.ndarray
    left_s: np.ndarray

    def held(self, at_s: float) -> set[int]:
        """Bytes of activations at a time; a copy that begins at that very time counts or not."""
        taken = int((self.taken_s <= at_s).sum()) + int((self.returned_s < at_s).sum())
        least = taken - int((self.learned_s <= at_s).sum()) - int((self.left_s <= at_s).sum())
        now = int((self.returned_s == at_s).sum())
        return {(least + more) * KEPT_BYTES for more in range(now + 1)}


def times_of(spans: pd.DataFrame, worker: int) -> Times:
    own = spans[(spans["worker"] == worker) & (spans["node"] != "loss")]
    lane, keys = own["lane"].astype(str), ["node", "instance"]
    learned = own[(lane == "compute") & (own["staleness"] >= 0)]
    trained = own.merge(learned[keys].drop_duplicates(), on=keys)
    is_forward = (trained["lane"] == "compute") & (trained["direction"] == "forward")
    returned = trained[trained["lane"] == "copy-in"]
    left = trained[trained["lane"] == "copy-out"].merge(returned[keys], on=keys)
    tables = (trained[is_forward]["end_s"], returned["start_s"], learned["end_s"], left["end_s"])
    return Times(*(one.to_numpy() for one in tables))


@pytest.mark.parametrize("above_bytes", [0, 200])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_lies_in_memory_is_what_the_trace_says(chain, schedule, above_bytes, monkeypatch):
    seen: list[tuple[int, float, int]] = []
    engines: list[Any] = []
    begin = Worker.begin

    def watching(worker: Any, kind: Any, queue: Any) -> Any:
        held = engines[0].memories[worker.index].held(ACTIVATIONS)
        seen.append((worker.index, worker._clock.now, held))
        return begin(worker, kind, queue)

    monkeypatch.setattr(Worker, "begin", watching)  # before the workers start
    memory = MemoryRemedy(remedy="offload", above_bytes=above_bytes)
    model = chain(COSTS, instances=6, valid=1, rows=ROWS).model()
    simulation = Simulation(model, cluster_of(memory), schedule_of(schedule), mode="sleep")
    training: Any = simulation._training
    engines.append(training._method._engine)
    simulation.run_epoch()
    spans = simulation.result().spans
    assert len(seen) > 20
    times = [times_of(spans, worker) for worker in range(STAGES)]
    for worker, at_s, held in seen:
        assert held in times[worker].held(at_s), (worker, at_s)
    assert_conserved(spans)
    assert above_bytes or (spans["lane"] == "copy-in").any()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nobody_waits_for_copies_that_never_end(chain, schedule):
    """The first copy of each device outlasts the pass, and is in vain; all others never begin."""
    model = chain(COSTS, instances=6, valid=1, rows=ROWS).model()
    endless = with_device(cluster_of(OFFLOAD), copy_latency_s=1e6)
    without, copying = (
        simulate(model, cluster, schedule_of(schedule), mode="sleep", epochs=2)
        for cluster in (cluster_of(None), endless)
    )
    pd.testing.assert_frame_equal(copying.epochs, without.epochs)
    is_copy = copying.spans["lane"].astype(str) == "copy-out"
    pd.testing.assert_frame_equal(
        copying.spans[~is_copy][["worker", "node", "start_s", "end_s"]].reset_index(drop=True),
        without.spans[["worker", "node", "start_s", "end_s"]],
    )
    assert set(copying.spans[is_copy].groupby("worker").size()) == {2}  # one a pass


def assert_conserved(spans: pd.DataFrame) -> None:
    """What comes back had left before, with as many bytes, and each activation once."""
    keys = ["worker", "node", "instance", "state"]
    lane = spans["lane"].astype(str)
    out, back = (spans[lane == name] for name in ("copy-out", "copy-in"))
    both = back.merge(out, on=keys, suffixes=("_in", "_out"))
    assert not out.duplicated(keys).any()
    assert len(both) == len(back)
    assert (both["bytes_in"] == both["bytes_out"]).all()
    assert (both["start_s_in"] >= both["end_s_out"]).all()


@cache
def trained(schedule: str, model: str, links: str, remedy: str | None, mode: Any = "sleep") -> Any:
    """One epoch of a shipped model."""
    cluster = plain_cluster(STAGES, *LINKS[links])
    device = cluster.devices[0].model_copy(update={"copy_bandwidth_bytes_per_s": 2e9})
    memory = None if remedy is None else MemoryRemedy.model_validate({"remedy": remedy})
    cluster = cluster.model_copy(update={"devices": (device,) * STAGES, "memory": memory})
    made = schedule_of(schedule)
    return simulate(small_model(model), cluster, made, mode=mode, counts_memory=True)


PAIRS = [
    (schedule, model)
    for schedule in SCHEDULES
    for model in ("rnn", "tree_lstm")
    if not needs_chain(SCHEDULES[schedule]())
]


@pytest.mark.parametrize("links", ["free", "both"])
@pytest.mark.parametrize(("schedule", "model"), PAIRS)
def test_offloading_works_through_loops_and_branches(schedule, model, links):
    result = trained(schedule, model, links, "offload")
    usual = trained(schedule, model, links, None)
    assert_conserved(result.spans)
    path = result.critical_path
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert path["start_s"].tolist() == [0.0, *path["end_s"].tolist()[:-1]]
    assert result.messages == usual.messages
    assert result.recorder.summary.flop == usual.recorder.summary.flop


def test_a_mini_batch_that_overflows_fits_when_activations_leave(chain):
    """GPipe keeps ten activations of each stage; a copy takes as long as half of a step."""
    model = chain(((40, 60, 1),) * STAGES, instances=10, rows=200).model()
    plain = simulate(model, cluster_of(None), GPipe(10), mode="sleep", counts_memory=True)
    fast = {"copy_bandwidth_bytes_per_s": 200 * 16 / 20.0}
    roomy = with_device(cluster_of(OFFLOAD), **fast)
    peaks = simulate(model, roomy, GPipe(10), mode="sleep").peak_bytes
    assert peaks[0] < 0.6 * plain.peak_bytes[0]
    peak = int(peaks.max())  # of the last, where the gradients wait as well
    assert peak < 0.9 * plain.peak_bytes.max()
    for memory_bytes, is_enough in ((peak, True), (peak - 1, False)):
        tight = with_device(roomy, memory_bytes=memory_bytes)
        with pytest.raises(OutOfMemoryError, match=r"^worker \d \(test\) is out of memory"):
            simulate(model, tight.model_copy(update={"memory": None}), GPipe(10), mode="sleep")
        if is_enough:
            assert simulate(model, tight, GPipe(10), mode="sleep").peak_bytes.max() == peak
        else:
            with pytest.raises(OutOfMemoryError):
                simulate(model, tight, GPipe(10), mode="sleep")


def with_device(cluster: Cluster, **keys: Any) -> Cluster:
    devices = tuple(device.model_copy(update=keys) for device in cluster.devices)
    return cluster.model_copy(update={"devices": devices})


def test_offloading_changes_no_bit_of_what_one_instance_after_the_other_learns(chain):
    """Nor does it wait for anything but its copies."""
    model = chain(COSTS, instances=5, rows=ROWS).model()
    plain, away = (simulate(model, cluster_of(one), Sequential()) for one in (None, OFFLOAD))
    for name, array in plain.model.parameters().items():
        np.testing.assert_array_equal(array, away.model.parameters()[name])
    assert away.makespan_s > plain.makespan_s


def test_memory_is_counted_where_activations_leave_by_it(chain):
    """Whether anybody asked to count or not, the same leave."""
    model = chain(COSTS, instances=5, rows=ROWS).model()
    cluster = cluster_of(MemoryRemedy(remedy="offload", above_bytes=300))
    runs = [
        simulate(model, cluster, Pipeline(3), mode="sleep", counts_memory=counts)
        for counts in (False, True)
    ]
    assert runs[0].digest == runs[1].digest


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_recomputing_is_refused_where_weights_may_be_others_by_then(chain, schedule):
    made = schedule_of(schedule)
    model = chain(COSTS, instances=3).model()
    if made.updates.is_at_drain or made.weights.versions is not None:
        usual, again = (
            simulate(model, cluster_of(one), made, mode="sleep") for one in (None, RECOMPUTE)
        )
        assert usual.digest == again.digest  # these stages keep their inputs alone
    else:
        with pytest.raises(OptionError, match=f"but {made.name} may have others by then; take"):
            simulate(model, cluster_of(RECOMPUTE), made, mode="sleep")


@pytest.mark.parametrize("model", CELLS)
def test_recomputing_charges_the_forward_work_of_cells_again(model):
    """On one worker, one instance after the other, nothing overlaps: the makespan is longer by it.

    Of each cell that gets a gradient: its forward step's FLOP, counted from the usual trace.
    """
    cluster = plain_cluster(1, 0.0, None)
    given = small_model(model)
    cells = {
        node.name
        for node in given.graph().nodes
        if type(node).__name__ in ("GRUCell", "LSTMStep", "LSTMCell", "BranchLSTM", "LeafLSTM")
    }
    usual, again = (
        simulate(
            given,
            cluster.model_copy(update={"memory": memory}),
            Sequential(),
            mode="sleep",
            counts_memory=True,
        )
        for memory in (None, RECOMPUTE)
    )
    spans = usual.spans[usual.spans["node"].isin(cells)]
    back = spans[(spans["direction"] == "backward") & (spans["end_s"] > spans["start_s"])]
    keys = ["node", "instance", "state"]
    forward = spans[spans["direction"] == "forward"].groupby(keys, observed=True)["flop"].max()
    more = sum(forward[key] for key in back[keys].itertuples(index=False, name=None))
    assert cells
    assert more > 0
    assert again.recorder.summary.flop == usual.recorder.summary.flop + more
    assert again.makespan_s == pytest.approx(usual.makespan_s + more / 1e12, rel=1e-12)
    assert again.messages == usual.messages


def activations(result: Any) -> int:
    return int(result.peak_memory["activations"].sum())


def test_recomputing_keeps_the_inputs_of_a_cell_alone_and_learns_the_same():
    """A mini-batch of three: what lies there at the peak of all that is kept is less."""
    given = small_model("tree_lstm")
    cluster = plain_cluster(STAGES, 0.0, None)
    usual, again = (
        simulate(given, cluster.model_copy(update={"memory": one}), GPipe(3), counts_memory=True)
        for one in (None, RECOMPUTE)
    )
    assert activations(again) < 0.6 * activations(usual)
    for name, array in usual.model.parameters().items():
        np.testing.assert_allclose(again.model.parameters()[name], array, rtol=1e-5, atol=1e-7)


def test_categories_have_the_places_that_tests_name():
    assert MEMORY_CATEGORIES[ACTIVATIONS] == "activations"


@pytest.mark.parametrize(("ahead", "back"), [(1.0, 0.1), (0.1, 1.0), (0.5, 0.5)])
def test_what_is_computed_again_is_as_efficient_as_a_forward_step(ahead, back):
    """A backward step takes as long as before, and as long as the forward step that it repeats."""
    surfaces: dict[str, Any] = {
        f"{name}_efficiency": ((1, 1, fraction),)
        for name, fraction in (("forward", ahead), ("backward", back))
    }
    one = Device(name="one", flop_per_s=1e9, step_overhead_s=1e-6, **surfaces)
    given = load_model("lstm_mnist", hidden=8, batch=4, data="synthetic")
    taken = {}
    for memory in (None, RECOMPUTE):
        cluster = Cluster(name="c", devices=(one,), memory=memory)
        spans = simulate(given, cluster, Sequential(), instances=4, mode="sleep").spans
        own = spans[(spans["node"] == "lstm") & (spans["end_s"] > spans["start_s"])]
        lasted_s = (own["end_s"] - own["start_s"]).groupby(own["direction"], observed=True)
        taken[memory] = lasted_s.max()
    repeated_s = taken[None]["forward"] - 1e-6
    assert taken[RECOMPUTE]["backward"] == pytest.approx(taken[None]["backward"] + repeated_s)
