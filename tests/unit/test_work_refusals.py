"""A node whose step would cost less than nothing, or without end, is refused by its name."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.errors import SimulationError
from ampsim.hardware import Cluster, Device
from ampsim.ir import Direction, Work

NAN, INFINITE = float("nan"), float("inf")
WRONG = (-1, NAN, INFINITE, -INFINITE, 10**30, "3")
CLUSTER = Cluster(
    name="test",
    devices=(Device(name="test", flop_per_s=1.0, operation_overhead_s=1.0),) * 3,
)
FILE = """
import dataclasses
import ampsim

@dataclasses.dataclass(frozen=True)
class Config:
    hidden: int = 4

def build(config):
    model = ampsim.load_model("mlp", data="synthetic", hidden=config.hidden)

    def make_graph():
        graph = model.make_graph()
        node = next(one for one in graph.nodes if one.name == {node!r})
        own = node.work
        def work(direction, shape):
            wrong = direction.name == {direction!r}
            return ampsim.Work(flop=float({value!r})) if wrong else own(direction, shape)
        node.work = work
        return graph

    return dataclasses.replace(model, make_graph=make_graph)
"""


def broken(chain: Any, name: str, direction: Direction, work: object) -> Any:
    """A chain of two stages of which one node says that about steps in one direction."""
    model = chain(((1, 1, 1),) * 2, instances=2, valid=1).model()

    def make_graph() -> Any:
        graph = model.graph()
        node: Any = next(one for one in graph.nodes if one.name == name)
        own = node.work
        node.work = lambda way, shape: work if way is direction else own(way, shape)
        return graph

    return replace(model, make_graph=make_graph)


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    ("node", "direction"),
    [
        *(("stage-2", direction) for direction in Direction),
        ("loss", Direction.FORWARD),  # its gradient is made there
    ],
)
def test_a_step_that_takes_less_than_nothing_is_refused(chain, node, direction, value):
    wrong: Any = value
    for field in fields(Work):
        model = broken(chain, node, direction, Work(**{field.name: wrong}))
        with pytest.raises(SimulationError, match=rf"^{node} \(\w+\): work of a ") as caught:
            ampsim.simulate(model, CLUSTER, ampsim.Amp(2), mode="sleep")
        told = str(caught.value)
        assert f"of a {direction.name.lower()} step on " in told
        assert f"must give {field.name} from 0 to 1e+18, got {value!r}; correct its method" in told
        assert "\n" not in told


@pytest.mark.parametrize("work", [None, 3.0, Work])
def test_what_is_no_work_is_refused(chain, work):
    model = broken(chain, "stage-1", Direction.FORWARD, work)
    with pytest.raises(SimulationError, match=r"^stage-1 \(Stage\): .* must give an ampsim.Work"):
        ampsim.simulate(model, CLUSTER, ampsim.Sequential(), mode="sleep")


@pytest.mark.parametrize("solver", SOLVERS)
def test_under_a_solver_too(chain, solver):
    for value in (-1, NAN):
        wrong: Any = value
        is_elastic = SOLVERS[solver](ranks=2).is_elastic  # charged for its own pull instead
        for direction in list(Direction)[is_elastic:]:
            model = broken(chain, "stage-1", direction, Work(flop=wrong))
            with pytest.raises(SimulationError, match=r"^stage-1 \(Stage\): work of a ") as caught:
                ampsim.simulate(model, CLUSTER, SOLVERS[solver](ranks=2), mode="sleep")
            assert f"a {direction.name.lower()} step" in str(caught.value), direction


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
@pytest.mark.parametrize(("node", "direction"), [("linear-2", "BACKWARD"), ("relu-1", "FORWARD")])
def test_check_refuses_a_node_whose_steps_cost_nothing_on_the_default_device(
    call, tmp_path, node, direction, value
):
    (tmp_path / "own.py").write_text(FILE.format(node=node, direction=direction, value=value))
    ended = call("check", "own.py")
    assert (ended.code, ended.out) == (2, "")
    assert re.search(rf"{node} \(\w+\): work of a {direction.lower()} step on ", ended.err)
    assert ended.err.count("\n") == 1
    assert f"got {float(value)!r}; correct its method work" in ended.err
