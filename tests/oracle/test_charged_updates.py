"""Every update is charged once, where it is made: its calls and their passes, counted by hand.

An operation takes a second, or each byte of a pass does, and nothing else takes time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from solver_cases import FREE, Item, Points, model

import ampsim
from ampsim import flow
from ampsim.hardware import Checkpoints, Cluster, Device, Link
from ampsim.ir import Cond, Graph, Phi
from ampsim.nodes import Linear, SquaredError
from ampsim.optim import OPTIMIZERS, Optimizer

PARAMETERS, BYTES = 8, 64  # of 3 x 2 weights and 2 biases in float64
BATCHES, RANKS = 24, 4


class Cost(NamedTuple):
    """Calls of NumPy, and arrays of all parameters that these read and write one by one."""

    operations: int = 0
    passes: int = 0

    def __add__(self, other: Any) -> Cost:
        return Cost(*(one + more for one, more in zip(self, other, strict=True)))

    def __mul__(self, times: Any) -> Cost:
        return Cost(*(one * times for one in self))


STEPS = {"sgd": Cost(2, 5), "momentum": Cost(4, 10), "adam": Cost(10, 24)}
SUM = Cost(4, 0)  # stack x and g, form their product and the column sums: no pass of an optimizer
PULL = Cost(3, 2 * 3 + 2)  # a difference, a product, a sum
ADDED, DIFFERENCE = Cost(1, 3), Cost(1, 3)
OUTER = DIFFERENCE + Cost(6, 15)  # and Nesterov's step
EACH = BATCHES // RANKS

CASES: dict[str, tuple[Any, Any, Any]] = {
    "sync": (ampsim.SyncSGD(4), lambda step: (SUM + step) * BATCHES, None),
    "async": (ampsim.AsyncSGD(4), lambda _: SUM * BATCHES, lambda step: step),
    "hogwild": (ampsim.Hogwild(4), lambda _: SUM * BATCHES, lambda step: step),
    "ssp": (ampsim.SSP(4), lambda _: SUM * BATCHES, lambda step: step),
    "groups": (
        ampsim.AsyncSGD(2, inner="sync-sgd:2"),
        lambda _: SUM * BATCHES,
        lambda step: step,
    ),
    "easgd": (
        ampsim.EASGD(4), lambda step: (SUM + step + PULL) * BATCHES, lambda _: PULL
    ),
    "worker's side": (
        ampsim.EASGD(4, elastic="worker"),
        lambda step: (SUM + step + PULL) * BATCHES,
        lambda _: ADDED,
    ),
    "ea-wild": (
        ampsim.EAWild(4), lambda step: (SUM + step + PULL) * BATCHES, lambda _: PULL
    ),
    "sync-easgd": (ampsim.SyncEASGD(4), lambda step: (SUM + step + PULL * 2) * BATCHES, None),
    "local": (ampsim.LocalSGD(4, period=2), lambda step: (SUM + step) * BATCHES, None),
    "diloco": (
        ampsim.DiLoCo(4, period=2),
        lambda step: (SUM + step) * BATCHES + OUTER * (EACH // 2 * RANKS),
        None,
    ),
}  # fmt: skip
"""Each solver, and by the cost of the optimizer's step what all ranks take, and what a merge."""


def charged(solver: Any, optimizer: str, *, by_pass: bool) -> tuple[float, float]:
    """What updates of all ranks take, and a merge of the server in the mean; 0 without one.

    Ranks that wait for nobody are in the next epoch when the server has made the last step.
    """
    told = {"pass_bandwidth_bytes_per_s": 1.0} if by_pass else {"operation_overhead_s": 1.0}
    device = Device(name="d", flop_per_s=1e24, **told)
    workers = Cluster(name="c", devices=(device,) * (RANKS + 1), link=FREE)
    result = ampsim.simulate(model(BATCHES, 1, optimizer=optimizer), workers, solver, mode="sleep")
    updates = result.spans[result.spans["direction"] == "update"]
    lasted_s = updates["end_s"] - updates["start_s"]
    is_server = updates["node"] == "centre"
    of_ranks, of_server = lasted_s[~is_server], lasted_s[is_server]
    if not len(of_server):
        return float(of_ranks.sum()), 0.0
    return float(of_ranks.iloc[:BATCHES].sum()), float(of_server.mean())


@pytest.mark.parametrize("optimizer", STEPS)
@pytest.mark.parametrize("name", CASES)
def test_an_update_takes_the_calls_of_its_optimizer_and_of_its_solver(name, optimizer):
    solver, of_ranks, of_server = CASES[name]
    ranks = of_ranks(STEPS[optimizer])
    server = Cost() if of_server is None else of_server(STEPS[optimizer])
    by_call = charged(solver, optimizer, by_pass=False)
    assert by_call == pytest.approx((ranks.operations, server.operations))
    by_pass = charged(solver, optimizer, by_pass=True)
    assert by_pass == pytest.approx((ranks.passes * BYTES, server.passes * BYTES))


def test_a_server_with_momentum_of_its_own_is_charged_for_that():
    ranks, server = charged(ampsim.AsyncSGD(4, momentum=0.9), "sgd", by_pass=False)
    expected = SUM.operations * BATCHES, STEPS["momentum"].operations
    assert (ranks, server) == pytest.approx(expected)


@pytest.mark.parametrize("optimizer", STEPS)
def test_weight_prediction_is_charged_for_its_own_calls_beside_those_of_the_update(optimizer):
    """v: a difference, two products, a sum; the prediction: a product and a difference."""
    predicted = SUM + STEPS[optimizer] + Cost(6, 3 + 2 + 2 + 3 + 2 + 3)
    schedule = ampsim.Amp(2, remedy="weight-prediction")
    found = [charged(schedule, optimizer, by_pass=by_pass)[0] for by_pass in (False, True)]
    expected = [predicted.operations * BATCHES, predicted.passes * BYTES * BATCHES]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("remedy", "more"), [("none", 0), ("weight-prediction", 2)])
@pytest.mark.parametrize("around", [False, True], ids=["alone", "in a rank"])
@pytest.mark.parametrize("optimizer", STEPS)
def test_a_cache_has_the_arrays_of_weight_prediction_beside_those_of_an_update(
    optimizer, around, remedy, more, share
):
    """An outer step around it passes over its own: the centre, and Nesterov's velocity."""
    arrays = {"sgd": 2, "momentum": 3, "adam": 4}[optimizer] + more
    device = Device(
        name="d", flop_per_s=1e24, pass_bandwidth_bytes_per_s=1.0,
        cache_bytes=round(share * arrays * BYTES), cache_bandwidth_bytes_per_s=4.0,
    )  # fmt: skip
    schedule: Any = ampsim.Amp(2, remedy=remedy)
    if around:
        schedule = ampsim.DiLoCo(1, period=BATCHES, inner=schedule)
    result = ampsim.simulate(
        model(BATCHES, 1, optimizer=optimizer), Cluster(name="c", devices=(device,)), schedule,
        mode="sleep",
    )  # fmt: skip
    updates = result.spans[result.spans["direction"] == "update"]
    lasted_s = [one for one in updates["end_s"] - updates["start_s"] if one]
    passes = STEPS[optimizer].passes + (15 if more else 0)
    assert lasted_s[:BATCHES] == pytest.approx([seconds_of(passes, min(1.0, share))] * BATCHES)
    if around:
        of_outer = (2 + 2) * BYTES  # weights, their difference, the centre, the velocity
        room = min(1.0, device.cache_bytes / of_outer) if device.cache_bytes else 0.0
        assert lasted_s[BATCHES:] == pytest.approx([seconds_of(OUTER.passes, room)])


def seconds_of(passes: int, share: float) -> float:
    """Of passes over all parameters, of which a share is four times as fast."""
    return passes * BYTES * (share / 4.0 + 1.0 - share)


@pytest.mark.parametrize(("remedy", "arrays"), [("none", 3), ("weight-prediction", 4)])
def test_a_checkpoint_takes_the_bytes_of_all_that_a_device_comes_back_with(remedy, arrays):
    """Weights, Adam's two arrays, and the smoothed step of weight prediction."""
    device = Device(name="d", flop_per_s=1e3)
    keeping = Checkpoints(every_s=0.1, bandwidth_bytes_per_s=1e6)
    workers = Cluster(name="c", devices=(device,), checkpoints=keeping)
    schedule = ampsim.Amp(2, remedy=remedy)
    result = ampsim.simulate(model(8, 1, optimizer="adam"), workers, schedule, mode="sleep")
    copies = result.outages[result.outages["kind"] == "checkpoint"]
    taken_s = (copies["end_s"] - copies["start_s"]).to_numpy()
    assert len(taken_s)
    assert taken_s == pytest.approx(arrays * BYTES / 1e6)


@pytest.mark.parametrize(
    ("solver", "arrays"),
    [
        (ampsim.LocalSGD(2), {"stashes": 0, "optimizer": 2}),
        (ampsim.DiLoCo(2), {"stashes": 1, "optimizer": 3}),
        (ampsim.DiLoCo(1, inner="sync-sgd:2"), {"stashes": 1, "optimizer": 3}),
        (ampsim.SyncEASGD(2), {"stashes": 1, "optimizer": 2}),
        (ampsim.LocalSGD(1, inner=ampsim.DiLoCo(2)), {"stashes": 1, "optimizer": 3}),
    ],
    ids=str,
)
def test_a_centre_that_no_server_has_lies_with_each_copy(solver, arrays):
    """Beside Adam's two arrays: the centre, and the velocity of Nesterov's outer step."""
    devices = (Device(name="d", flop_per_s=1e9),) * 2
    result = ampsim.simulate(
        model(8, 1, optimizer="adam"), Cluster(name="c", devices=devices), solver, mode="sleep",
        counts_memory=True,
    )  # fmt: skip
    for category, count in arrays.items():
        assert result.peak_memory[category].tolist() == [count * BYTES] * 2


def test_a_rank_sums_up_what_it_sends_to_a_server_without_an_order_of_the_hosts():
    device = Device(name="d", flop_per_s=1e9, operation_overhead_s=1e-6)
    hosts = Cluster(name="c", devices=(device,) * 2, link=Link(latency_s=1.0))
    spans = ampsim.simulate(model(3, 1), hosts, ampsim.AsyncSGD(1), mode="sleep").spans
    own = spans[(spans["worker"] == 0) & (spans["end_s"] > spans["start_s"])]
    ends_s = own.loc[own["direction"] == "backward", "end_s"] + 1.0  # word that the batch is done
    starts_s = own.loc[own["direction"] == "update", "start_s"]
    assert starts_s.tolist() == pytest.approx(ends_s.tolist())


def parity(batches: int) -> ampsim.Model:
    """Instances in turn go through one of two layers."""

    def graph() -> Graph:
        made = Graph("parity")
        x, y = made.controller(x=("rows", 3), y=("rows", 2))
        sides = ("even", "odd")
        cond = Cond("cond", lambda state: sides[state.instance % 2], sides)
        wires = [
            made.add(Linear(f"linear-{name}", 3, 2), wire)
            for name, wire in zip(sides, made.branch(cond, x), strict=True)
        ]
        made.end(SquaredError("loss"), made.add(Phi("phi", sides), *wires), y)
        return made

    given: Any = model(batches, 1)
    data: Points = given.make_data(0, None)
    return replace(
        given,
        make_graph=graph,
        make_data=lambda _seed, _count: data,
        pump=lambda instance, one: [("x", Item(instance), one.x), ("y", Item(instance), one.y)],
    )


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_a_server_is_charged_for_those_nodes_of_which_a_push_has_a_gradient(mode):
    """And a gradient is as stale as its own node: two ranks alternate, each on a node of its own.

    Of two ranks that push in turn, none merges between a push and the next of the same rank but
    the other, whose node is another.
    """
    device = Device(name="d", flop_per_s=1e9, operation_overhead_s=1.0)
    workers = Cluster(name="c", devices=(device,) * 3, link=FREE)
    result = ampsim.simulate(parity(12), workers, ampsim.AsyncSGD(2), mode=mode)
    merges = result.spans[result.spans["node"] == "centre"]
    assert (merges["end_s"] - merges["start_s"]).tolist() == pytest.approx([2.0] * 12)
    assert merges["staleness"].max() == result.updates["staleness_max"].max() == 0
    assert result.staleness_mean == result.updates["staleness"].mean()


def test_a_server_does_nothing_for_nodes_of_which_a_push_has_no_gradient():
    """Hogwild's comes to each node by itself, and half of them are of no node of the push."""
    device = Device(name="d", flop_per_s=1e24, step_overhead_s=1.0)
    workers = Cluster(name="c", devices=(device,) * 3, link=FREE)
    result = ampsim.simulate(parity(12), workers, ampsim.Hogwild(2), mode="sleep")
    merges = result.spans[result.spans["node"] == "centre"]
    lasted_s = sorted(merges["end_s"] - merges["start_s"])
    assert lasted_s == pytest.approx([0.0] * 12 + [1.0] * 12)


def test_an_outer_step_predicts_nothing():
    """It is charged alike whether the steps within it predict weights."""
    device = Device(name="d", flop_per_s=1.0)
    workers = Cluster(name="c", devices=(device,) * 2, link=FREE)
    outer = []
    for remedy in ("none", "weight-prediction"):
        solver = ampsim.DiLoCo(2, period=2, inner=ampsim.Amp(2, remedy=remedy))
        spans = ampsim.simulate(model(8, 1), workers, solver, mode="sleep").spans
        updates = spans[spans["direction"] == "update"]
        outer.append(updates.loc[updates["bytes"] == (3 + 2) * BYTES, "flop"].tolist())
    assert outer[0] == outer[1] == [6 + PARAMETERS] * 4


@pytest.mark.parametrize("optimizer", STEPS)
@pytest.mark.parametrize("share", [0.3, 2.0])
def test_updates_of_a_program_find_their_arrays_in_the_cache_as_those_of_a_graph_do(
    share, optimizer
):
    """Both pass over the same arrays, of which the cache has room for a share."""
    options: dict[str, Any] = {"data": "synthetic", "hidden": 8, "layers": 2, "batch": 10}
    made = ampsim.load_model("mlp", optimizer=optimizer, learning_rate=1e-3, **options)
    arrays = {"sgd": 2, "momentum": 3, "adam": 4}[optimizer]
    size_bytes = sum(one.nbytes for one in made.parameters().values())
    device = Device(
        name="d", flop_per_s=1e24, pass_bandwidth_bytes_per_s=1e9,
        cache_bytes=round(share * arrays * size_bytes), cache_bandwidth_bytes_per_s=7e9,
    )  # fmt: skip
    taken = []
    for schedule in (ampsim.Sequential(), ampsim.Dataflow()):
        spans = ampsim.simulate(
            made, Cluster(name="c", devices=(device,)), schedule, instances=30
        ).spans
        updates = spans[spans["direction"] == "update"]
        taken.append((updates["end_s"] - updates["start_s"]).sum() / 3)
    near = min(1.0, share)
    passed = STEPS[optimizer].passes * size_bytes * (near / 7e9 + (1 - near) / 1e9)
    assert taken == pytest.approx([passed, passed], rel=1e-4)


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize(
    ("name", "options", "weight"),
    [
        ("mlp", {"data": "synthetic", "hidden": 8, "layers": 2, "batch": 10}, "linear-1.weight"),
        ("dynamic_lstm", {"hidden": 4, "layers": 1}, "lstm-1.weight"),
    ],
)
def test_products_of_a_program_read_weights_from_the_cache_if_all_of_them_fit(
    name, options, weight, fits
):
    """Also in a loop, which weights enter once."""
    made = ampsim.load_model(name, **options)
    size_bytes = sum(one.nbytes for one in made.parameters().values())
    rates = {"memory_bandwidth_bytes_per_s": 1e9, "cache_bandwidth_bytes_per_s": 7e9}
    device = Device(name="d", flop_per_s=1e24, cache_bytes=size_bytes - (not fits), **rates)
    workers = Cluster(name="c", devices=(device,))
    spans = ampsim.simulate(made, workers, ampsim.Dataflow(), instances=20).spans
    own = spans[spans["flop"] > 0]
    first = own[(own["node"] == "matmul-1") & (own["direction"] == "forward")].iloc[0]
    weight_bytes = made.parameters()[weight].nbytes
    rest_bytes = first["bytes"] - weight_bytes
    expected = rest_bytes / 1e9 + weight_bytes / (7e9 if fits else 1e9)
    assert first["end_s"] - first["start_s"] == pytest.approx(expected, rel=1e-6)


def test_sums_of_optimizers_are_those_of_the_registry():
    for name, cost in STEPS.items():
        assert tuple(OPTIMIZERS[name](0.1).calls[:2]) == cost


@pytest.mark.parametrize("optimizer", STEPS)
@pytest.mark.parametrize(
    ("solver", "more", "name"),
    [
        (ampsim.EASGD(4), lambda own: 3 + own, "easgd"),
        (ampsim.SyncEASGD(4), lambda own: 3 + own, "sync-easgd"),
        (ampsim.DiLoCo(4, period=2), lambda _own: 4, "diloco"),
    ],
    ids=["easgd", "sync-easgd", "diloco"],
)
def test_an_update_finds_the_centre_in_the_cache_as_its_other_arrays(solver, more, name, optimizer):
    """A pull passes over weights, gradient, the optimizer's arrays, and the centre.

    An outer step of DiLoCo: over the centre, the mean, their difference, and its velocity.
    """
    device = Device(
        name="d", flop_per_s=1e24, pass_bandwidth_bytes_per_s=1.0,
        cache_bytes=BYTES, cache_bandwidth_bytes_per_s=7.0,
    )  # fmt: skip
    workers = Cluster(name="c", devices=(device,) * (RANKS + 1), link=FREE)
    made = model(BATCHES, 1, optimizer=optimizer)
    spans = ampsim.simulate(made, workers, solver, mode="sleep").spans
    own = spans[(spans["direction"] == "update") & (spans["node"] != "centre")]
    lasted_s = (own["end_s"] - own["start_s"]).max()
    step, pulls = STEPS[optimizer], {"easgd": 1, "sync-easgd": 2, "diloco": 0}[name]
    passes = (step + PULL * pulls).passes if pulls else OUTER.passes
    near = 1 / more({"sgd": 0, "momentum": 1, "adam": 2}[optimizer])
    taken = passes * BYTES * (near / 7 + 1 - near)
    if name == "diloco" and step.passes > OUTER.passes:
        arrays = 4  # an inner step of Adam takes longer, over arrays of its own
        taken = max(taken, step.passes * BYTES * (1 / arrays / 7 + 1 - 1 / arrays))
    assert lasted_s == pytest.approx(taken)


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize(
    ("schedule", "where"),
    [
        (ampsim.Sequential(), "ranks"),
        (ampsim.SyncSGD(2), "ranks"),
        (ampsim.AsyncSGD(2), "server"),
        (ampsim.AsyncSGD(1, inner="sync-sgd:2"), "server"),
    ],
    ids=["sequential", "sync", "async", "groups"],
)
def test_each_epoch_of_two_stages_is_charged_its_own_optimizer(schedule, where, mode):
    """Two epochs of gradient descent, then Adam; each by its calls and by its passes."""
    method = OPTIMIZERS["two-stage"](0.01, epochs=2)
    made = replace(model(8, 1), optimizer=method)
    for told, field in ((1.0, None), (None, 1.0)):
        device = Device(
            name="d", flop_per_s=1e24, operation_overhead_s=told or 0.0,
            pass_bandwidth_bytes_per_s=field,
        )  # fmt: skip
        workers = Cluster(name="c", devices=(device,) * 3, link=FREE)
        result = ampsim.simulate(made, workers, schedule, mode=mode, epochs=4)
        spans = result.spans
        own = spans[(spans["direction"] == "update") & (spans["end_s"] > spans["start_s"])]
        own = own[(own["node"] == "centre") == (where == "server")].sort_values("start_s")
        lasted_s = (own["end_s"] - own["start_s"]).to_numpy()
        more = (SUM.operations if where == "ranks" else 0) if told else 0
        unit = 1 if told else BYTES
        expected = [unit * STEPS[one][0 if told else 1] + more for one in ("sgd", "adam")]
        half = len(lasted_s) // 2
        assert lasted_s[:half] == pytest.approx(expected[0])
        assert lasted_s[half:] == pytest.approx(expected[1])


@pytest.mark.parametrize("epochs", [3 / 8, 1 / 4, 1])
@pytest.mark.parametrize(
    ("schedule", "pull"),
    [
        (ampsim.SyncSGD(2), 0),
        (ampsim.SyncSGD(2, overlap=True), 0),
        (ampsim.SyncSGD(3, backup_ranks=1), 0),
        (ampsim.SyncSGD(1, inner="sync-sgd:2"), 0),
        (ampsim.SyncSGD(2, inner="sync-sgd:1"), 0),
        (ampsim.EASGD(1, inner="sync-sgd:2"), PULL.operations),
        (ampsim.EASGD(1, inner="sync-sgd:1/sync-sgd:2"), PULL.operations),
    ],
)
def test_all_copies_are_charged_the_stage_of_the_first_batch_of_their_step(schedule, pull, epochs):
    """Two batches are a step; with 3 / 8 the second stage begins with the second of a step."""
    device = Device(name="d", flop_per_s=1e24, operation_overhead_s=1.0)
    made = replace(model(8, 1), optimizer=OPTIMIZERS["two-stage"](0.01, epochs=epochs))
    workers = Cluster(name="c", devices=(device,) * 3, link=FREE)
    spans = ampsim.simulate(made, workers, schedule, epochs=2).spans
    own = spans[(spans["direction"] == "update") & (spans["node"] != "centre")]
    taken = [float(SUM.operations + pull + STEPS[one].operations) for one in ("sgd", "adam")]
    first = {3 / 8: 2, 1 / 4: 1, 1: 4}[epochs]
    for _worker, steps in own.groupby("worker"):
        lasted_s = (steps["end_s"] - steps["start_s"]).tolist()
        assert lasted_s == pytest.approx([taken[0]] * first + [taken[1]] * (8 - first))


def program() -> flow.Program:
    """Weights and biases are stepped each for itself."""

    def build() -> flow.Objective:
        x, y = flow.input("x", (None, 3)), flow.input("y", (None, 2))
        return flow.Objective(flow.sum(flow.square(flow.linear("linear-1", x, 2) - y)))

    return flow.Program(build, lambda batch: {"x": batch.x, "y": batch.y})


@pytest.mark.parametrize(
    "method",
    [
        ampsim.DiLoCo(2, period=2), ampsim.AsyncSGD(1), ampsim.SyncEASGD(2), ampsim.Sequential(),
        ampsim.Dataflow(), ampsim.Unrolled(),
    ],
    ids=str,
)  # fmt: skip
def test_each_stage_finds_in_the_cache_what_its_own_arrays_leave_room_for(method):
    device = Device(
        name="d", flop_per_s=1e24, pass_bandwidth_bytes_per_s=1.0,
        cache_bytes=BYTES, cache_bandwidth_bytes_per_s=7.0,
    )  # fmt: skip
    workers = Cluster(name="c", devices=(device,) * 2, link=FREE)

    def lasted_s(optimizer: Optimizer) -> list[float]:
        made = replace(model(8, 1), optimizer=optimizer, make_program=program)
        spans = ampsim.simulate(made, workers, method, mode="sleep", epochs=2).spans
        own = spans[spans["direction"] == "update"].sort_values(["start_s", "worker"])
        return [one for one in own["end_s"] - own["start_s"] if one > 0]

    first, second = (lasted_s(OPTIMIZERS[name](0.01)) for name in ("sgd", "adam"))
    half = len(first) // 2
    staged = lasted_s(OPTIMIZERS["two-stage"](0.01, epochs=1))
    assert staged == pytest.approx(first[:half] + second[half:])


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize("schedule", [ampsim.Dataflow(), ampsim.Unrolled(), ampsim.OutOfGraph(0)])
def test_each_epoch_of_two_stages_is_charged_its_own_optimizer_in_a_program(schedule, mode):
    method = OPTIMIZERS["two-stage"](0.01, epochs=2)
    made = replace(model(4, 1), optimizer=method, make_program=program)
    for told, field in ((1.0, None), (None, 1.0)):
        device = Device(
            name="d", flop_per_s=1e24, operation_overhead_s=told or 0.0,
            pass_bandwidth_bytes_per_s=field,
        )  # fmt: skip
        workers = Cluster(name="c", devices=(device,), link=FREE)
        spans = ampsim.simulate(made, workers, schedule, mode=mode, epochs=4).spans
        own = spans[(spans["direction"] == "update") & (spans["end_s"] > spans["start_s"])]
        lasted_s = (own["end_s"] - own["start_s"]).to_numpy().reshape(-1, 2).sum(1)
        unit = 2 if told else BYTES
        each = [unit * STEPS[one][0 if told else 1] for one in ("sgd", "adam")]
        assert lasted_s == pytest.approx([each[0]] * 8 + [each[1]] * 8)
