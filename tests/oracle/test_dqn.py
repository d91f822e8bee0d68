"""`dqn`: what it learns and decides is what plain loops do, in the graph and driven by a client."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from plain_dqn import PlainAgent, expected_reward

import ampsim
from ampsim import flow
from ampsim.dataflow import ProgramEngine
from ampsim.dataflow.engine import EPOCH
from ampsim.dataflow.plan import Plan, needed
from ampsim.errors import GraphError, OptionError
from ampsim.hardware import Cluster, Device, Link
from ampsim.model_parallel import RunSettings
from ampsim.study.model import parameters_of
from ampsim.trace import Recorder

OPTIONS: dict[str, Any] = {
    "dtype": "float64", "hidden": 12, "batch": 8, "capacity": 60, "episode_steps": 9,
    "learn_from": 20, "learn_every": 2, "copy_every": 15, "explore_steps": 80, "epoch_steps": 90,
    "learning_rate": 0.01,
}  # fmt: skip
"""So that the database is full, and episodes are cut, within an epoch."""

EPOCHS = 2
WAYS = {"in the graph": ampsim.Dataflow(), "by a client": ampsim.OutOfGraph(round_trip_s=1e-3)}
FREE = Cluster(name="free", devices=(Device(name="device", flop_per_s=1e24),))


def made(**options: Any) -> Any:
    return ampsim.load_model("dqn", **{**OPTIONS, **options})


@cache
def plain(seed: int) -> tuple[PlainAgent, list[tuple[float, ...]]]:
    """The same training by plain loops, and what it says of each epoch."""
    model = made()
    agent = PlainAgent(model.config, parameters_of(model.graph(seed)), seed)
    rows: list[tuple[float, ...]] = []
    for _ in range(EPOCHS):
        rewards = [agent.step() for _ in range(model.config.epoch_steps)]
        reward, reached = agent.validate()
        rows.append((-float(np.mean(rewards)), -reward, reached))
    return agent, rows


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_rewards_and_accuracies_are_those_of_plain_loops(way, seed):
    agent, rows = plain(seed)
    result = ampsim.simulate(made(), FREE, WAYS[way], epochs=EPOCHS, seed=seed)
    for name, value in result.model.parameters().items():
        assert np.abs(value - agent.weights[name]).max() <= 1e-10, name
    told = result.epochs[["loss", "valid_loss", "accuracy"]].to_numpy()
    assert np.abs(told - rows).max() <= 1e-12


def stepped(
    model: Any, seed: int, steps: int, round_trip_s: float | None = None
) -> tuple[Plan, list[list[tuple[Any, ...]]]]:
    """The plan of a step, and what each run of it decided: (node, tag, side)."""
    values = parameters_of(model.graph(seed))
    schedule = ampsim.Dataflow() if round_trip_s is None else ampsim.OutOfGraph(round_trip_s)
    how: dict[str, Any] = {"recorder": Recorder([], 1), "settings": RunSettings(seed=0)}
    engine = ProgramEngine(model.program, model.optimizer, values, FREE, schedule, **how)
    plan, _objective = engine.runs({}).train
    found: list[list[tuple[Any, ...]]] = []
    for _ in range(steps):
        done = engine.run(plan, {"seed": seed, EPOCH: 0.0})
        found.append(
            sorted(done.decisions[["node", "tag", "taken"]].itertuples(index=False, name=None))
        )
    return plan, found


def test_a_client_decides_what_the_graph_decides_and_seeds_differ():
    inside, outside, other = (
        stepped(made(), seed, 90, trip_s)[1] for seed, trip_s in ((0, None), (0, 1e-3), (1, None))
    )
    assert inside == outside
    assert sum(one != two for one, two in zip(inside, other, strict=True)) > 20
    weights = [
        ampsim.simulate(made(), FREE, way, epochs=1, seed=0).model.parameters()
        for way in WAYS.values()
    ]
    for name, value in weights[0].items():
        assert np.array_equal(value, weights[1][name]), name


def spread(asked: list[flow.Tensor], seed: int) -> dict[str, int]:
    """A place at random, of three, for each variable and each operator that computes.

    What changes a variable is where that is.
    """
    names = [
        one.name
        for one in needed(asked)
        if one.operator.name not in ("assign", "assign_rows", "update")
        and (one.operator.kernel is not None or one.operator.name == "variable")
    ]
    where = np.random.default_rng(seed).integers(0, 3, len(names)).tolist()
    return dict(zip(names, where, strict=True))


@pytest.mark.slow
def test_wherever_its_operators_are_it_learns_the_same_bits():
    """Over three devices, with branches, draws and database cut apart, and with windows."""
    model = made(learn_from=5, copy_every=7, learn_every=1)
    values, found = parameters_of(model.graph(0)), []
    cluster = Cluster(name="three", devices=FREE.devices * 3, link=Link(latency_s=1e-4))
    for seed in (None, 1, 2):
        with flow.FlowGraph() as graph:
            objective = model.program.train(lambda loss: flow.minimize(loss, model.optimizer))
            flow.set_variables(graph, values)
        asked = [objective.loss, objective.done]
        how: dict[str, Any] = {"parallel_iterations": 1, "run_ahead": False}
        if seed is not None:
            how = {"cluster": cluster, "placement": spread(asked, seed)}
        for _ in range(25):
            result = flow.run(asked, {"seed": 0}, **how)
        assert (seed is not None) == bool(result.sent["dead"])
        found.append(flow.variables(graph))
    for other in found[1:]:
        for name, value in found[0].items():
            assert np.array_equal(other[name], value), name
    assert not np.array_equal(found[0]["linear-1.weight"], values["linear-1.weight"])


def test_a_tenth_of_what_is_dispatched_is_dead_once_it_learns():
    """Of the model as it is shipped: from step 50 on."""
    model = ampsim.load_model("dqn")
    nodes = [[one for one in stepped(model, 0, steps)[0].steps if one.node] for steps in (50, 100)]
    live, dead = (
        sum(getattr(one, key) for one in nodes[1]) - sum(getattr(one, key) for one in nodes[0])
        for key in ("live", "dead")
    )
    assert live + dead == 50 * len(nodes[0])
    assert 0.08 < dead / (live + dead) < 0.12


def test_a_client_takes_a_round_trip_for_each_decision():
    """Where nothing else takes time: as many as plain loops decide, one after the other."""
    agent, _rows = plain(0)
    asked = sum(one is not None for step in agent.decisions for one in step)
    asked += sum(length + 1 for length in agent.lengths)
    for trip_s in (1e-3, 3e-2):
        schedule = ampsim.OutOfGraph(round_trip_s=trip_s)
        result = ampsim.simulate(made(), FREE, schedule, epochs=EPOCHS, seed=0)
        assert result.makespan_s == pytest.approx(asked * trip_s, rel=1e-12)
        assert len(result.transfers) == 2 * asked


def test_dispatch_and_round_trips_add_up_as_far_as_they_do_not_overlap():
    """E steps of h in the graph; by a client D trips of r, beside which steps may be dispatched."""
    h = 1e-6
    cluster = Cluster(name="one", devices=(Device(name="device", flop_per_s=1e24, dispatch_s=h),))

    def run(schedule: Any) -> Any:
        return ampsim.simulate(made(), cluster, schedule, instances=60, seed=0)

    inside = run(ampsim.Dataflow())
    dispatched = int((inside.spans["lane"] == "dispatch").sum()) * h
    assert inside.makespan_s == pytest.approx(dispatched, rel=1e-9)
    times: dict[float, float] = {}
    for trip_s in (0.0, 1e-5, 1e-4, 1e-3, 2e-3):
        result = run(ampsim.OutOfGraph(round_trip_s=trip_s))
        trips = len(result.transfers) // 2 * trip_s
        times[trip_s] = result.makespan_s
        assert max(dispatched, trips) <= result.makespan_s * (1 + 1e-9)
        assert result.makespan_s <= (dispatched + trips) * (1 + 1e-9)
    assert times[0.0] == pytest.approx(dispatched, rel=1e-9)
    decisions = len(run(ampsim.OutOfGraph()).transfers) // 2
    assert times[2e-3] - times[1e-3] == pytest.approx(decisions * 1e-3, rel=1e-9)


def rewards(seed: int, epochs: int, **options: Any) -> np.ndarray:
    """The mean reward of an episode, of each validation."""
    model = ampsim.load_model("dqn", **options)
    result = ampsim.simulate(model, FREE, "dataflow", epochs=epochs, seed=seed)
    return -result.epochs["valid_loss"].to_numpy()


RANDOM: dict[str, Any] = {"valid_explore": 1.0, "learn_from": 10**9}


@pytest.mark.slow
def test_it_learns_to_earn_more_than_an_agent_that_acts_at_random():
    """Pairs that share what is random: five of five is a chance of 1 in 32 without learning."""
    gains = [rewards(s, 5)[-1] - rewards(s, 5, epoch_steps=1, **RANDOM)[-1] for s in range(5)]
    assert min(gains) > 0
    assert np.median(gains) > 1.0


@pytest.mark.slow
def test_an_agent_that_acts_at_random_earns_what_dynamic_programming_says():
    """1,300 episodes; the bound is five of their standard errors."""
    found = rewards(0, 100, epoch_steps=1, dtype="float64", **RANDOM)
    expected = expected_reward(10, 40, "random")
    assert abs(found.mean() - expected) <= 5 * found.std() / np.sqrt(len(found))
    assert found.std() / np.sqrt(len(found)) < 0.05
    assert expected == pytest.approx(-1.04, abs=0.005)
    assert expected_reward(10, 40, "best") == pytest.approx(0.81, abs=0.005)


def test_memory_is_counted_and_learns_the_same():
    device = Device(name="small", flop_per_s=1e9, memory_bytes=10**6)
    cluster = Cluster(name="one", devices=(device,))
    counted = ampsim.simulate(made(), cluster, "dataflow", epochs=1, seed=0)
    free = ampsim.simulate(made(), FREE, "dataflow", epochs=1, seed=0)
    for name, value in free.model.parameters().items():
        assert np.array_equal(counted.model.parameters()[name], value), name
    floats = sum(value.size for value in free.model.parameters().values())
    database = 2 * made().config.capacity  # rewards and discounts; whole numbers are the host's
    assert counted.peak_bytes[0] > 8 * (4 * floats + database)  # Adam's two arrays, and the target


def test_what_reads_values_is_refused_asleep_and_unrolled():
    text = r"^less-\d+ \(.*dqn\.py, line \d+\) decides by floating-point numbers, which sleep mode"
    with pytest.raises(OptionError, match=text):
        ampsim.simulate(made(), FREE, "dataflow", mode="sleep")
    with pytest.raises(GraphError, match=r"is not known before the program runs, so .* unrolled"):
        ampsim.simulate(made(), FREE, "unrolled")
