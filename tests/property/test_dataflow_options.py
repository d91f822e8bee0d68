"""Programs of model files under all options, on devices of all kinds: every two of them meet.

A model with a program is here by being listed in `short_runs`; a schedule of programs, or a field
of one, that no table here has makes a test fail.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from covering import among
from short_runs import MODELS, Few

import ampsim
from ampsim import flow
from ampsim.dataflow import PROGRAMS
from ampsim.errors import OptionError
from ampsim.hardware import Cluster, Device, Link
from ampsim.study.simulation import Simulation

OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "dataflow": {
        "parallel_iterations": (1, 3, 32), "swap_memory": (False, True),
        "swap_threshold": (0.0, 0.7), "broadcast_dead": (False, True),
    },
    "unrolled": {},
    "out-of-graph": {"round_trip_s": (0.0, 1e-6)},
}  # fmt: skip
"""By schedule: values of each of its fields."""

EVERY = [one for options in OPTIONS.values() for one in options]

DEVICES: dict[str, dict[str, Any]] = {
    "rate alone": {},
    "dispatch": {"dispatch_s": 1e-7},
    "jitter": {"jitter_cv": 0.3},
    "overheads": {"operation_overhead_s": 1e-7, "step_overhead_s": 1e-7},
    "bandwidths": {"memory_bandwidth_bytes_per_s": 1e9, "light_bandwidth_bytes_per_s": 1e8},
    "passes": {"pass_bandwidth_bytes_per_s": 1e9, "functions_per_s": 1e9},
    "efficiencies": {"efficiency": ((1, 0.5),), "matrix_efficiency": ((1, 0.5),)},
    "dispatch and jitter": {"dispatch_s": 1e-7, "jitter_cv": 0.3},
}
"""By name: what else a device has."""

MEMORY = {"memory_bytes": 10**7, "copy_bandwidth_bytes_per_s": 1e9, "copy_latency_s": 1e-8}
LINKS = {"free": Link(), "both": Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)}
PLACEMENTS = (None, "balanced", "2-hop")
MODES = ("numeric", "sleep")
ONE_GRADIENT_MORE = ("dynamic_lstm", "lstm_mnist")
"""Models whose program has a gradient more than its messages, of the first state, which costs FLOP
(`test_dataflow_models.py` names it)."""


@cache
def model_of(name: str) -> Any:
    """A shipped model in double precision, of one replica, that trains on three batches."""
    more = {"replicas": 1} if "replicas" in MODELS[name] else {}
    whole = ampsim.load_model(name, **{**MODELS[name], **more, "dtype": "float64"})
    data = Few(whole.make_data(0, None), (("train", 3), ("valid", 1)))
    return replace(whole, make_data=lambda _seed, _count: data)


WITH_PROGRAM = [name for name in MODELS if model_of(name).make_program is not None]
WORKERS = (0, 1)
SAYS_ITS_WORKERS = ("dynamic_lstm",)
"""Models whose program is moved by nobody else."""


@cache
def on(name: str, worker: int) -> Any:
    """A model whose program is on a worker, of which nothing is said where it is the first."""
    whole = model_of(name)
    return replace(whole, make_program=lambda: moved(whole.make_program(), worker))


def moved(program: flow.Program, worker: int) -> flow.Program:
    def build() -> flow.Objective:
        with flow.device(worker):
            return program.build()

    return replace(program, build=build) if worker else program


def ways() -> list[Any]:
    """Each schedule with each product of its options that has an effect."""
    found: list[Any] = []
    for name, options in OPTIONS.items():
        for values in product(*options.values()):
            given = dict(zip(options, values, strict=True))
            if given.get("swap_threshold") == 0.7 or given.get("swap_memory", True):
                found.append(PROGRAMS[name](**given))
    return found


def told(schedule: Any) -> str:
    values = [f"{getattr(schedule, one.name):g}" for one in fields(schedule)]
    return "-".join([schedule.name, *values])


def made(
    name: str, schedule: Any, mode: Any, cluster: Cluster, placement: Any = None, *, worker: int = 0
) -> Any:
    model = on(name, worker)
    return ampsim.simulate(model, cluster, schedule, epochs=2, mode=mode, placement=placement)


def cluster_of(keys: dict[str, Any], link: Link = LINKS["free"]) -> Cluster:
    device = Device(name="test", flop_per_s=1e9, **keys)
    return Cluster(name="test", devices=(device,) * 2, link=link)


@cache
def reference(name: str) -> Any:
    """The same network by messages."""
    return made(name, ampsim.Sequential(), "numeric", cluster_of({}))


def test_every_schedule_of_programs_every_option_and_every_model_is_here():
    assert set(OPTIONS) == set(PROGRAMS)
    for name, kind in PROGRAMS.items():
        assert {one.name for one in fields(kind)} == set(OPTIONS[name]), name
    assert {"mlp", "rnn", "lstm_mnist"} <= set(WITH_PROGRAM)


def under_way(spans: Any) -> dict[Any, int]:
    """Of each run of a loop, the most iterations of which the host has begun some, and not all."""
    rows: dict[Any, dict[str, list[int]]] = {}
    columns = spans[spans["lane"] == "dispatch"][["instance", "state"]].to_numpy()
    for row, (instance, state) in enumerate(columns):
        frame, _, number = state.rpartition("/")
        if frame:
            rows.setdefault((instance, frame), {}).setdefault(number, []).append(row)
    most: dict[Any, int] = {}
    for frame, iterations in rows.items():
        ways = [(own[0], own[-1]) for own in iterations.values()]
        most[frame] = max(sum(a <= row <= b for a, b in ways) for row, _end in ways)
    return most


@pytest.mark.parametrize("window", [1, 2, 3])
def test_as_many_iterations_are_under_way_as_the_schedule_lets(window):
    schedule = ampsim.Dataflow(parallel_iterations=window)
    result = made("dynamic_lstm", schedule, "sleep", cluster_of(DEVICES["dispatch"]))
    assert set(under_way(result.spans).values()) == {window}


class Case(NamedTuple):
    """A schedule and a model, and on what they run."""

    schedule: Any
    model: str
    device: str
    has_memory: bool
    link: str
    placement: str | None
    mode: Any
    worker: int


def cases() -> list[Case]:
    """Every two values that may meet meet in one, also of two options of a schedule."""
    every = product(WITH_PROGRAM, DEVICES, [False, True], LINKS, PLACEMENTS, MODES, WORKERS)
    rest = [one for one in every if not one[-1] or one[0] not in SAYS_ITS_WORKERS]
    by_option = {(way.name, *(getattr(way, one, None) for one in EVERY)): way for way in ways()}
    found = among([(*key, *others) for key in by_option for others in rest])
    return [Case(by_option[one[: -len(rest[0])]], *one[-len(rest[0]) :]) for one in found]


CASES = cases()


@pytest.mark.parametrize(
    "case", CASES, ids=["-".join([told(one.schedule), *map(str, one[1:])]) for one in CASES]
)
def test_programs_run_under_all_options_and_learn_alike(case):
    """The FLOP and the weights of messages; times of the other mode and of a second run."""
    schedule, name, device, has_memory, link, placement, mode, worker = case
    is_swapping = getattr(schedule, "swap_memory", False)
    keys = DEVICES[device] | (MEMORY if has_memory else {})
    cluster = cluster_of(keys, LINKS[link])
    if is_swapping and not has_memory:
        with pytest.raises(OptionError, match=r"^dataflow: swap_memory needs memory_bytes of the"):
            made(name, schedule, mode, cluster, placement, worker=worker)
        return
    result = made(name, schedule, mode, cluster, placement, worker=worker)
    other = made(name, schedule, MODES[mode == MODES[0]], cluster, worker=worker)
    columns = [one for one in result.spans if one != "state"]
    assert result.spans[columns].equals(other.spans[columns])
    computed = result.spans[result.spans.get("lane", "compute") == "compute"]
    assert set(computed["worker"]) == {worker}
    assert result.makespan_s >= result.spans["flop"].sum() / 1e9 / (2 if "jitter" in device else 1)
    ends = result.transfers[["source_worker", "target_worker"]]
    asked = result.transfers[(ends < 0).any(axis=1)]
    assert (len(asked) > 0) == (schedule.name == "out-of-graph" and name != "mlp")
    assert worker or len(asked) == len(result.transfers)
    if schedule.running.parallel_iterations is not None and "dispatch" in device:
        most = under_way(result.spans)
        assert max(most.values(), default=0) <= schedule.running.parallel_iterations
        assert (len(most) > 0) == (name != "mlp")
    if has_memory:
        assert 0 < result.peak_bytes[worker] <= MEMORY["memory_bytes"]
        assert result.memory.equals(other.memory)
    learned = result if mode == "numeric" else other
    if name not in ONE_GRADIENT_MORE:
        assert int(result.spans["flop"].sum()) == int(reference(name).spans["flop"].sum())
    for key, value in reference(name).model.parameters().items():
        found = learned.model.parameters()[key]
        assert np.abs(found - value).max() <= 1e-12, key


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a swap without an end of memory": (
        {}, {"swap_memory": True},
        "^dataflow: swap_memory needs memory_bytes of the device, and test has",
    ),
    "a swap without copies": (
        {"memory_bytes": 10**7}, {"swap_memory": True},
        "^dataflow: swap_memory needs copy_bandwidth_bytes_per_s of the device, and test has none",
    ),
    "a threshold without a swap": (
        {}, {"swap_threshold": 0.5}, "^swap_threshold of 0.5 has no effect without swap_memory=",
    ),
    "no iteration": ({}, {"parallel_iterations": 0}, "^parallel_iterations must be"),
    "a threshold of all": (
        MEMORY, {"swap_memory": True, "swap_threshold": 1.0}, "^swap_threshold must be below 1",
    ),
    "overheads of messages": (
        {"message_overhead_s": 1e-6}, {},
        "^dataflow: cluster: message_overhead_s of 1e-06 is of steps that",
    ),
    "a launch charged twice": (
        {"dispatch_s": 1e-7, "operation_overhead_s": 1e-7}, {},
        "^Device: dispatch_s of 1e-07 and operation_overhead_s of 1e-07 would both charge",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_together_is_refused_in_one_line(case):
    keys, options, text = REFUSED[case]
    with pytest.raises(OptionError, match=text) as raised:
        made("rnn", ampsim.Dataflow(**options), "sleep", cluster_of(keys))
    assert "\n" not in str(raised.value)


CURVES: dict[str, dict[str, Any]] = {
    "by rows": {"efficiency": ((1, 0.01), (128, 1.0))},
    "by matrix": {"matrix_efficiency": ((1, 0.01), (100_000, 1.0))},
    "both": {"efficiency": ((1, 0.01), (128, 1.0)), "matrix_efficiency": ((1, 0.1), (9999, 1.0))},
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_products_reach_the_share_of_the_rate_that_they_reach_in_a_step(batch, curve):
    """A weight's gradient is looked up as its node's step is: k rows, d_in by d_out elements."""
    model = ampsim.load_model("mlp", hidden=30, layers=3, data="synthetic", batch=batch)
    cluster = cluster_of(CURVES[curve])
    seconds = [
        ampsim.simulate(model, cluster, schedule, instances=3 * batch, mode="sleep").spans
        for schedule in (ampsim.Sequential(), ampsim.Dataflow())
    ]
    taken = [
        (spans["end_s"] - spans["start_s"]).groupby(spans["direction"], observed=True).sum()
        for spans in seconds
    ]
    for direction in ("forward", "backward"):
        # A node is looked up by all of its parameters, the bias included.
        assert taken[1][direction] == pytest.approx(taken[0][direction], rel=2e-3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_light_work_a_program_takes_what_its_products_and_updates_take(name):
    device = Device(name="test", flop_per_s=1e12, operation_overhead_s=1e-6)
    cluster = Cluster(name="test", devices=(device,))
    runs = [
        Simulation(model_of("mlp"), cluster, PROGRAMS[name](), mode="sleep", light_is_free=free)
        for free in (False, True)
    ]
    for run in runs:
        run.run_epoch()
    whole, heavy = (run.result() for run in runs)
    spans = whole.spans
    is_light = (spans["flop"] == 0) & (spans["direction"] != "update")
    light_s = (spans["end_s"] - spans["start_s"])[is_light].sum()
    assert heavy.makespan_s == pytest.approx(whole.makespan_s - light_s, rel=1e-9)
    assert light_s > 0.3 * whole.makespan_s


def noisy() -> Any:
    """A linear program whose inputs are multiplied by noise, in validation too."""

    def build() -> flow.Objective:
        x, label = flow.input("x", (None, 784), "float32"), flow.input("label", (None,), "int64")
        noise = flow.cast(flow.Generator("noise", 1).random((784,)), "float32")
        logits = flow.linear("linear-1", x * noise, 10)
        loss = flow.softmax_cross_entropy(logits, label)
        return flow.Objective(loss, flow.count_right(logits, label))

    return flow.Program(build, lambda batch: {"x": batch.images, "label": batch.labels})


def with_noise() -> Any:
    whole = ampsim.load_model("mlp", layers=1, data="synthetic", batch=20)
    return replace(whole, make_program=noisy)


@pytest.mark.parametrize("has_noise", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_validation_off_the_clock_takes_no_time_and_measures_the_same(name, has_noise):
    model, instances = (with_noise(), 70) if has_noise else (model_of("mlp"), None)
    how = (model, cluster_of({}), PROGRAMS[name]())
    runs = [
        Simulation(*how, times_validation=is_timed, instances=instances)
        for is_timed in (True, False)
    ]
    for run in runs:
        for _epoch in range(2):
            run.run_epoch()
    timed, off = (run.result() for run in runs)
    assert (timed.epochs["valid_s"] > 0).all() and (off.epochs["valid_s"] == 0).all()
    assert off.makespan_s == pytest.approx(off.epochs["train_s"].sum(), rel=1e-12)
    for column in ("loss", "valid_loss", "accuracy", "valid_instances", "instances"):
        assert off.epochs[column].equals(timed.epochs[column])


@pytest.mark.parametrize("name", PROGRAMS)
def test_how_often_one_measures_and_unrolling_change_nothing_that_is_learned(name):
    """The last batch is shorter; where loops are unrolled, it has a graph of its own."""
    losses = [
        ampsim.simulate(
            with_noise(), "tflops-1", schedule, instances=210, epochs=2, validate_every=every
        ).epochs["loss"].tolist()
        for schedule, every in ((name, None), (name, 50), ("dataflow", None))
    ]  # fmt: skip
    assert losses[0] == losses[1] == losses[2]
