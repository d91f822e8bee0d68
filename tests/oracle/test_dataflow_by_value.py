"""Models whose control flow reads values, beside the same networks in plain NumPy and in PyTorch.

`moe_rnn`: a gate chooses experts, each a branch. `act_rnn`: a loop in a loop, which goes round as
often as it has learned to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ampsim
from ampsim import flow
from ampsim.dataflow.graph import Tensor
from ampsim.dataflow.operator import SWITCH
from ampsim.dataflow.operators.resource import Stack
from ampsim.errors import GraphError, OptionError
from ampsim.forecasting.budget import flop_per_item
from ampsim.hardware import Cluster, Device, Link
from ampsim.study.model import variables_of

BATCHES = 6
LINK = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9)
EPSILON = 0.01

Decided = list[Any]
"""At each step: the experts that are asked, or how often the cell ran."""


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def affine(p: Any, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def moe_decided(p: dict[str, np.ndarray], config: Any, batch: Any) -> Decided:
    h, asked = np.zeros((batch.rows, config.hidden)), []
    for token in batch.tokens:
        u = np.tanh(affine(p, "cell", np.hstack([p["embedding.weight"][token], h])))
        weights = np.exp(affine(p, "gate", u))
        shares = weights / weights.sum(1, keepdims=True)
        h = u.copy()
        asked.append(set[int]())
        for row, share in enumerate(shares):
            for expert in sorted(range(config.experts), key=lambda one: -share[one])[: config.top]:
                inner = np.maximum(affine(p, f"expert-{expert}-in", u[row]), 0)
                h[row] += affine(p, f"expert-{expert}-out", inner) * share[expert]
                asked[-1].add(expert)
    return asked


def moe_loss(torch: Any, p: Any, config: Any, batch: Any) -> Any:
    h, balance = torch.zeros((batch.rows, config.hidden)).double(), 0.0
    for token in torch.tensor(batch.tokens):
        u = torch.tanh(affine(p, "cell", torch.cat([p["embedding.weight"][token], h], 1)))
        shares = torch.softmax(affine(p, "gate", u), 1)
        chosen = torch.zeros_like(shares)
        chosen.scatter_(1, shares.topk(config.top, 1).indices, 1.0)
        h = u
        for expert in range(config.experts):
            if chosen[:, expert].any():
                inner = torch.relu(affine(p, f"expert-{expert}-in", u))
                said = affine(p, f"expert-{expert}-out", inner)
                h = h + said * (shares * chosen)[:, expert : expert + 1]
        balance = balance + config.experts * (chosen.mean(0) * shares.mean(0)).sum()
    loss = torch.nn.functional.cross_entropy(affine(p, "linear", h), torch.tensor(batch.labels))
    return loss + config.balance * balance / len(batch.tokens)


def act_decided(p: dict[str, np.ndarray], config: Any, batch: Any) -> Decided:
    """Sequence by sequence, as in the source; an instance goes on for the slowest."""
    counts = np.zeros(batch.inputs.shape[:2], int)
    for row in range(batch.rows):
        state = np.zeros(config.hidden)
        for step, x in enumerate(batch.inputs[:, row]):
            mean, spent = np.zeros(config.hidden), 0.0
            for number in range(config.thoughts):
                said = np.concatenate([x[:-1], [float(number == 0)], state])
                state = np.tanh(affine(p, "cell", said))
                halts = float(sigmoid(affine(p, "halting", state))[0])
                counts[step, row] += 1
                if spent + halts >= 1 - EPSILON or number == config.thoughts - 1:
                    break
                mean, spent = mean + halts * state, spent + halts
            state = mean + (1 - spent) * state
    return counts.max(axis=1).tolist()


def act_loss(torch: Any, p: Any, config: Any, batch: Any) -> Any:
    state = torch.zeros((batch.rows, config.hidden)).double()
    ponder = torch.zeros((batch.rows, 1)).double()
    for x in torch.tensor(batch.inputs):
        mean, spent = torch.zeros_like(state), torch.zeros_like(ponder)
        for number in range(config.thoughts):
            is_running = spent < 1 - EPSILON
            if not is_running.any():
                break
            new = x.clone()
            new[:, -1] = float(number == 0)
            state = torch.tanh(affine(p, "cell", torch.cat([new, state], 1)))
            halts = torch.sigmoid(affine(p, "halting", state))
            is_last = (spent + halts >= 1 - EPSILON) | (number == config.thoughts - 1)
            zero = torch.zeros_like(spent)
            share = torch.where(is_running, torch.where(is_last, 1 - spent, halts), zero)
            ponder = ponder + is_running + torch.where(is_running & is_last, 1 - spent, zero)
            mean, spent = mean + state * share, spent + share
        state = mean
    logits = affine(p, "linear", state)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))
    return loss + config.time_penalty * ponder.mean()


def asked_experts(graph: flow.FlowGraph, result: Any) -> Decided:
    """Which experts' branches were taken, step by step: what their weights' Switches decided."""
    expert: dict[str, int] = {}
    for node in graph.nodes:
        if node.operator is SWITCH:
            name = source_of(node.inputs[0]).node.name
            if name.startswith("expert-") and name.endswith("-in.weight"):
                expert[node.name] = int(name.split("-")[1])
    rows = result.decisions[result.decisions["node"].isin(expert)]
    asked = [set[int]() for _step in range(rows["tag"].nunique())]
    for node, tag, is_taken in zip(rows["node"], rows["tag"], rows["taken"], strict=True):
        if is_taken:
            asked[int(tag.rpartition("/")[2])].add(expert[node])
    return asked


def source_of(tensor: Tensor) -> Tensor:
    while tensor.captured_from is not None:
        tensor = tensor.captured_from
    return tensor


def thoughts(_graph: flow.FlowGraph, result: Any) -> Decided:
    """How often the inner loop went round at each step.

    It begins once more, to be told to end; after the last step its one iteration is dead.
    """
    tags = result.frames["tag"][result.frames["tag"].str.contains("thoughts")]
    steps = [int(tag.split("/")[1]) for tag in tags]
    return [steps.count(step) - 1 for step in range(max(steps))]


class Case(NamedTuple):
    """A model, and the same network without it."""

    name: str
    options: dict[str, Any]
    decided: Callable[..., Decided]
    loss: Callable[..., Any]
    read: Callable[..., Decided]
    devices: tuple[int, ...]


MOE = {"hidden": 6, "width": 5, "experts": 6, "batch": 4, "balance": 0.1}
CASES = {
    "moe_rnn": Case("moe_rnn", MOE, moe_decided, moe_loss, asked_experts, (1, 2, 4)),
    "moe_rnn, two experts each": Case(
        "moe_rnn", {**MOE, "top": 2}, moe_decided, moe_loss, asked_experts, (1, 3)
    ),
    "act_rnn": Case(
        "act_rnn", {"hidden": 6, "batch": 3, "time_penalty": 0.1},
        act_decided, act_loss, thoughts, (1, 2),
    ),
}  # fmt: skip
NAMES = ["moe_rnn", "act_rnn"]


def made(name: str, seed: int = 0, **more: Any) -> Any:
    """A model with larger weights than usual, so that decisions differ."""
    case = CASES[name]
    model = ampsim.load_model(case.name, dtype="float64", **{**case.options, **more})
    rng = np.random.default_rng(seed)
    drawn = {key: 0.7 * rng.normal(size=one.shape) for key, one in model.parameters().items()}
    return model.set_parameters(drawn)


def batches_of(model: Any, seed: int = 0) -> list[Any]:
    return list(itertools.islice(model.data(seed, 200).batches("train", epoch=0, seed=0), BATCHES))


def cluster(workers: int, **more: Any) -> Cluster:
    devices = tuple(Device(name=f"d{one}", flop_per_s=1e9, **more) for one in range(workers))
    return Cluster(name="some", devices=devices, link=LINK)


class Built:
    """A model's program with gradients, to be run on instances."""

    def __init__(self, model: Any) -> None:
        self.program, values = model.program, variables_of(model.graph())
        self.graph = flow.FlowGraph()
        with self.graph:
            self.loss = self.program.build().loss
            given = self.graph.given.values()
            held = {node.name: node.outputs[0] for node in given if node.name in values}
            self.slopes = dict(
                zip(held, flow.gradients(self.loss, list(held.values())), strict=True)
            )
            flow.set_variables(self.graph, values)

    def run(self, batch: Any, workers: int = 1, **more: Any) -> Any:
        asked = [self.loss, *self.slopes.values()]
        return flow.run(asked, self.program.feed(batch), cluster=cluster(workers), **more)


# --- decisions, gradients


@pytest.mark.parametrize("name", CASES)
def test_decisions_are_those_of_the_network_in_plain_numpy_and_vary_with_the_seed(name):
    case, seen = CASES[name], []
    for seed in range(3):
        model = made(name, seed)
        p, built = model.parameters(), Built(model)
        for batch in batches_of(model, seed):
            decided = case.decided(p, model.config, batch)
            result = flow.run(built.loss, built.program.feed(batch))
            assert case.read(built.graph, result) == decided
            seen.append((seed, decided))
    each = [[decided for one, decided in seen if one == seed] for seed in range(3)]
    assert each[0] != each[1] != each[2]
    steps = [one for _seed, decided in seen for one in decided]
    assert len({str(one) for one in steps}) >= 4


@pytest.mark.parametrize("window", [1, 32])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_equal_those_of_torch(name, window):
    """Those of experts whom nobody asks are zero, exactly; those of the gate are not."""
    torch: Any = pytest.importorskip("torch")
    case, model, untaken = CASES[name], made(name), 0
    built = Built(model)
    for batch in batches_of(model):
        p = {key: torch.tensor(one, requires_grad=True) for key, one in model.parameters().items()}
        expected = case.loss(torch, p, model.config, batch)
        expected.backward()
        value, *found = built.run(batch, parallel_iterations=window).values
        assert abs(value - float(expected.detach())) <= 1e-12
        for (key, one), slope in zip(p.items(), found, strict=True):
            if one.grad is None:
                untaken += 1
                assert not slope.any(), key
            else:
                assert np.abs(slope - one.grad.numpy()).max() <= 1e-10, key
        decides = "gate.weight" if case.name == "moe_rnn" else "halting.weight"
        assert np.abs(found[list(p).index(decides)]).max() > 1e-6
    assert untaken >= 4 or case.name == "act_rnn"


@pytest.mark.parametrize("name", NAMES)
def test_every_stack_is_empty_at_the_end(name, monkeypatch):
    stacks: list[Stack] = []
    before = Stack.__init__

    def begin(stack: Stack) -> None:
        before(stack)
        stacks.append(stack)

    monkeypatch.setattr(Stack, "__init__", begin)
    model = made(name)
    built = Built(model)
    for batch in batches_of(model):
        built.run(batch)
    assert len(stacks) >= 10
    assert not any(one.values for one in stacks)


# --- devices


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_devices_gives_the_same_bits(name):
    case, found = CASES[name], {}
    for devices, broadcast_dead in itertools.product(case.devices, (False, True)):
        model = made(name, devices=devices)
        result = ampsim.simulate(
            model, cluster(devices, dispatch_s=1e-6, jitter_cv=0.2),
            ampsim.Dataflow(broadcast_dead=broadcast_dead), instances=9,
        )  # fmt: skip
        found[devices, broadcast_dead] = result
        assert set(result.spans["worker"]) == set(range(devices))
        assert set(result.time_by_node["worker"]) == set(range(devices))
        assert (sum(result.sent.values()) > 0) == (devices > 1)
    first = found[1, False].model.parameters()
    for result in found.values():
        for key, one in result.model.parameters().items():
            assert np.array_equal(one, first[key]), key
    dead = {is_told: found[case.devices[-1], is_told].sent["dead"] for is_told in (False, True)}
    assert dead[True] < dead[False] / 2 if case.name == "moe_rnn" else dead[True] == dead[False]


def test_what_bounds_a_run_are_nodes_that_take_time_on_that_worker():
    """Not all the hundreds that are there, nor Sends, whose names have an end of their own."""
    result = ampsim.simulate(
        made("moe_rnn", devices=2), ampsim.load_cluster("p100", workers=2), "dataflow", instances=8
    )
    table = result.time_by_node
    first = table[table["worker"] == 0].groupby("node")["busy_s"].sum()
    assert result.bounds.bound_by == "worker 0"
    assert sorted(result.bound_at.split(", ")) == sorted(first[first > 0].index)
    assert len(first) < len(result.recorder.nodes) / 4


def test_the_program_needs_a_worker_for_each_device_that_it_names():
    model = made("moe_rnn", devices=3)
    assert (model.program.cluster.workers, ampsim.try_out(model).mode) == (3, "numeric")
    text = r"^filled-.* line \d+\): device must be one of some, workers 0 to 1, got 2$"
    with pytest.raises(OptionError, match=text):
        ampsim.simulate(model, cluster(2), "dataflow")
    result = ampsim.simulate(model, cluster(4), "dataflow", instances=8)
    assert result.origin["assumptions"] == ["dataflow runs the program on 3 of 4 devices"]
    assert "assumptions" not in ampsim.simulate(model, cluster(3), "dataflow", instances=8).origin
    with pytest.raises(OptionError, match=r"^moe_rnn: devices must be at most experts, 6, got 7$"):
        made("moe_rnn", devices=7)
    with pytest.raises(OptionError, match=r"^moe_rnn: top must be at most experts, 6, got 7$"):
        made("moe_rnn", top=7)


def test_a_program_is_tried_on_devices_of_the_names_that_it_gives():
    """`ampsim check` refused it, as its devices had other names, and a forecast had no cc_ratio."""
    model = made("moe_rnn", devices=2)
    program = model.program

    def build() -> flow.Objective:
        with flow.device("left"):
            return program.build()

    placed = replace(model, make_program=lambda: replace(program, build=build))
    assert ampsim.try_out(placed).mode == "numeric"
    assert flop_per_item(placed) == flop_per_item(model)
    assert [one.name for one in placed.program.cluster.devices] == ["worker 0", "worker 1", "left"]


@pytest.mark.parametrize("broadcast_dead", [False, True])
@pytest.mark.parametrize("devices", [2, 3, 6])
def test_dead_signals_of_experts_are_counted_exactly(devices, broadcast_dead):
    """Forward, from and to the first worker, of each expert that is elsewhere.

    At a step at which nobody asks it: its rows and their shares, once with a broadcast. At one at
    which somebody does: the side that says nothing, whose one operator waits for a signal. After
    the last step, when the loop's body is dead: all of these, whether it is asked, and its answer.
    """
    model = made("moe_rnn", devices=devices)
    away = {one for one in range(model.config.experts) if one % devices}
    built, p = Built(model), model.parameters()
    for batch in batches_of(model):
        asked = moe_decided(p, model.config, batch)
        taken = sum(len(away & one) for one in asked)
        untaken = len(away) * len(asked) - taken
        result = flow.run(
            built.loss, built.program.feed(batch), cluster=cluster(devices),
            broadcast_dead=broadcast_dead,
        )  # fmt: skip
        branch = 1 if broadcast_dead else 2
        expected = untaken * branch + taken + len(away) * (branch + 1 + 1 + 1)
        assert result.sent["dead"] == expected
        assert len(result.transfers) == sum(result.sent.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_the_same_again(name):
    digests = {
        ampsim.simulate(
            made(name, devices=2), cluster(2, jitter_cv=0.2), "dataflow", instances=20, seed=3
        ).digest
        for _again in range(2)
    }
    assert len(digests) == 1


# --- schedules, modes


@pytest.mark.parametrize("name", CASES)
def test_a_client_decides_as_the_graph_does(name):
    inside, outside = (
        ampsim.simulate(made(name), cluster(1), schedule, instances=40)
        for schedule in (ampsim.Dataflow(), ampsim.OutOfGraph())
    )
    for key, one in inside.model.parameters().items():
        assert np.array_equal(outside.model.parameters()[key], one), key
    assert inside.makespan_s < outside.makespan_s
    assert len(outside.transfers) > 0


def test_experts_remain_branches_where_the_loop_is_unrolled():
    inside, unrolled = (
        ampsim.simulate(made("moe_rnn", devices=2), cluster(2), schedule, instances=40)
        for schedule in (ampsim.Dataflow(), ampsim.Unrolled())
    )
    for key, one in inside.model.parameters().items():
        assert np.abs(unrolled.model.parameters()[key] - one).max() <= 1e-12, key
    assert unrolled.sent["dead"] > 0


def test_a_loop_that_learns_how_often_it_goes_round_cannot_be_unrolled():
    text = r"^logical_and-1 .* is not known before the program runs, .* run it by dataflow$"
    with pytest.raises(GraphError, match=text):
        ampsim.simulate(made("act_rnn"), cluster(1), "unrolled")


@pytest.mark.parametrize("name", NAMES)
def test_sleep_says_what_decides(name):
    text = r"^(any|logical_and)-1 .* decides by float.* use mode=\"numeric\", or ask forecast$"
    for schedule in ("dataflow", "out-of-graph"):
        with pytest.raises(OptionError, match=text) as raised:
            ampsim.simulate(made(name), cluster(1), schedule, mode="sleep")
        assert "\n" not in str(raised.value)


# --- learning


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "instances", "chance", "reached"),
    [("moe_rnn", 8_000, 0.5, 0.65), ("act_rnn", 4_000, 0.6, 0.7)],
)
def test_they_learn_in_one_epoch(name, instances, chance, reached):
    """Who guesses the most frequent label of each instance is right less often than `chance`."""
    model = ampsim.load_model(name)
    batches = list(model.data(0, instances).batches("valid", epoch=0, seed=0))
    guessed = sum(np.bincount(one.labels).max() for one in batches)
    assert guessed / sum(one.rows for one in batches) < chance
    result = ampsim.simulate(model, cluster(1), "dataflow", instances=instances)
    assert result.epochs["accuracy"].iloc[-1] > reached
    decides = "gate.weight" if name == "moe_rnn" else "halting.weight"
    moved = result.model.parameters()[decides] - model.parameters()[decides]
    assert np.abs(moved).max() > 0.01
