"""Placements other than the paper's: what each promises, and how it reaches a run."""

import contextlib
import itertools
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import Amp, forecast, load_cluster, load_model, simulate
from ampsim.data import ListReduction
from ampsim.data_parallel import SOLVERS
from ampsim.errors import OptionError, UnknownNameError
from ampsim.hardware import HOST, Cluster, Device, Edge, Link, MemoryRemedy
from ampsim.ir import Graph
from ampsim.model_parallel import PLACEMENTS, SCHEDULES, Probe, Search, Situation, placement_of
from ampsim.model_parallel.placements import Balanced, CommunicationAware, KHop, Paper
from ampsim.model_parallel.placements.balanced import longest_first
from ampsim.model_parallel.placements.base import INSTANCES
from ampsim.model_parallel.placements.communication_aware import SLACK
from ampsim.model_parallel.placements.k_hop import heavy_within
from ampsim.model_parallel.placements.search import STARTS, TRIALS
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
from ampsim.study.placement_trials import Trials
from ampsim.study.schedule_names import schedules_of

COSTS = (5, 4, 3, 3, 3)
TWO_PAIRS = {"a": ("rows", 4), "a-label": ("rows",), "b": ("rows", 4), "b-label": ("rows",)}


def chain_graph(heavy: int = 5, light: int = 1) -> Graph:
    """linear-0, relu-0-0, …, linear-1, …; after the controller, node by node."""
    graph = Graph("g")
    wire, label = graph.controller(x=("rows", 4), label=("rows",))
    for h in range(heavy):
        wire = graph.add(Linear(f"linear-{h}", 4, 4), wire)
        for i in range(light):
            wire = graph.add(ReLU(f"relu-{h}-{i}"), wire)
    graph.end(SoftmaxCrossEntropy("loss"), wire, label)
    graph.verify()
    return graph


def situation(graph, workers, *, costs=COSTS, sent=None, rates=None):
    """`costs` of the linear nodes in order; `sent` bytes by pairs of names."""
    seconds = [0.0] * len(graph.nodes)
    for node, cost in zip(graph.parameterized, costs, strict=True):
        seconds[graph.index(node)] = float(cost)
    pairs = {
        tuple(sorted((graph.index(graph[one]), graph.index(graph[other])))): size
        for (one, other), size in (sent or {}).items()
    }
    devices = tuple(Device(name="d", flop_per_s=rate) for rate in rates or (1.0,) * workers)
    cluster = Cluster(name="c", devices=devices)
    found = Probe(tuple(seconds), pairs)
    return Situation(graph, cluster, np.random.default_rng(0), lambda: found)


def by_name(graph, placement):
    return {node.name: worker for node, worker in zip(graph.nodes, placement, strict=True)}


def loads(graph, placement, costs=COSTS):
    found: dict[int, float] = {}
    for node, cost in zip(graph.parameterized, costs, strict=True):
        worker = placement[graph.index(node)]
        found[worker] = found.get(worker, 0) + cost
    return found


ALL = [Paper(), Balanced(), KHop(1), KHop(3), CommunicationAware()]


@pytest.mark.parametrize("placement", ALL, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 4, 5, 9, 30])
def test_every_node_has_a_worker_and_the_controller_the_host(placement, workers):
    graph = chain_graph()
    placed = placement.place(situation(graph, workers))
    assert placed[0] == HOST
    assert len(placed) == len(graph.nodes)
    assert set(placed[1:]) <= set(range(workers))
    assert placement.place(situation(graph, workers)) == placed


def test_balanced_gives_the_longest_to_whoever_ends_first():
    graph = chain_graph()
    placed = Balanced().place(situation(graph, 2))
    assert by_name(graph, placed) == {
        "controller": HOST, "linear-0": 0, "linear-1": 1, "linear-2": 1, "linear-3": 0,
        "linear-4": 1, "relu-0-0": 0, "relu-1-0": 1, "relu-2-0": 1, "relu-3-0": 0,
        "relu-4-0": 1, "loss": 1,
    }  # fmt: skip
    assert loads(graph, placed) == {0: 8, 1: 10}


def test_balanced_is_within_four_thirds_of_the_best_of_all_placements():
    random = np.random.default_rng(0)
    for _ in range(30):
        costs = random.integers(1, 20, 6).tolist()
        best = min(
            max(sum(itertools.compress(costs, [w == k for w in choice])) for k in range(3))
            for choice in itertools.product(range(3), repeat=6)
        )
        placed = longest_first([0, *costs], [1.0] * 3)[1:]
        most = max(sum(c for c, w in zip(costs, placed, strict=True) if w == k) for k in range(3))
        assert most <= (4 / 3 - 1 / 9) * best + 1e-9


def test_balanced_gives_a_faster_worker_more():
    graph = chain_graph()
    placed = Balanced().place(situation(graph, 2, rates=(1.0, 1000.0)))
    assert set(placed[1:]) == {0, 1}  # the idle worker is for what costs nothing
    assert loads(graph, placed) == {1: sum(COSTS)}


def test_nodes_that_cost_nothing_take_turns_on_workers_without_work():
    graph = chain_graph(2)
    placed = by_name(graph, Balanced().place(situation(graph, 4, costs=(1, 1))))
    assert [placed[name] for name in ("linear-0", "linear-1")] == [0, 1]
    assert [placed[name] for name in ("relu-0-0", "relu-1-0", "loss")] == [2, 3, 2]


def test_communication_aware_places_a_chain_along_the_edges_that_there_are():
    """On a line of workers 0, 2, 1, 3, as a search through all placements says."""
    graph, names = chain_graph(4), [f"linear-{h}" for h in range(4)]
    sent = dict.fromkeys(itertools.pairwise(names), 1000)
    given = situation(graph, 4, costs=(1,) * 4, sent=sent)
    cost: Any = {"latency_s": 1e-6, "bandwidth_bytes_per_s": 1e9}
    edges = tuple(Edge(between=pair, **cost) for pair in ((0, 2), (2, 1), (1, 3)))
    on_a_line = replace(
        given, cluster=Cluster(name="c", devices=given.cluster.devices, edges=edges)
    )
    rank = {0: 0, 2: 1, 1: 2, 3: 3}

    def hops(workers: Any) -> int:
        return sum(abs(rank[one] - rank[other]) for one, other in itertools.pairwise(workers))

    def workers(situation: Situation) -> list[int]:
        placed = by_name(graph, CommunicationAware().place(situation))
        return [placed[name] for name in names]

    assert hops(workers(given)) == 5  # every link is as good as another there
    assert hops(workers(on_a_line)) == min(map(hops, itertools.permutations(range(4)))) == 3


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("light", [0, 2])
def test_heavy_nodes_within_k_hops_are_on_different_workers(hops, light):
    graph = chain_graph(7, light)
    placed = KHop(hops).place(situation(graph, hops + 1, costs=(1,) * 7))
    heavy = [placed[graph.index(node)] for node in graph.parameterized]
    for place, worker in enumerate(heavy):
        assert worker not in heavy[place + 1 : place + 1 + hops]
    assert set(heavy) == set(range(hops + 1))


def test_a_hop_passes_light_nodes_but_not_the_controller():
    graph = chain_graph(4, 3)
    places = [graph.index(node) for node in graph.parameterized]
    near = heavy_within(graph, 1)
    assert [sorted(places.index(other) for other in near[place]) for place in places] == [
        [1], [0, 2], [1, 3], [2],
    ]  # fmt: skip
    two = Graph("two")
    wires = two.controller(**TWO_PAIRS)
    for number, (x, label) in enumerate((wires[:2], wires[2:])):
        wire = two.add(Linear(f"linear-{number}", 4, 4), x)
        two.end(SoftmaxCrossEntropy(f"loss-{number}"), wire, label)
    two.verify()
    assert list(heavy_within(two, 9).values()) == [set(), set()]


def test_too_few_workers_give_the_fewest_conflicts():
    graph = chain_graph(6)
    placed = KHop(2).place(situation(graph, 2, costs=(1,) * 6))
    assert sorted(loads(graph, placed, (1,) * 6).values()) == [3, 3]


def test_communication_aware_joins_who_talks_most_and_stays_balanced():
    """Two pairs talk much; balanced alone splits each of them over both workers."""
    graph = chain_graph(4, 0)
    sent = {
        ("linear-0", "linear-1"): 900, ("linear-1", "linear-2"): 1, ("linear-2", "linear-3"): 900,
        ("linear-3", "loss"): 5,
    }  # fmt: skip
    ground = situation(graph, 2, costs=(1, 1, 1, 1), sent=sent)
    before = by_name(graph, Balanced().place(ground))
    assert before["linear-0"] != before["linear-1"]
    after = by_name(graph, CommunicationAware().place(ground))
    assert after["linear-0"] == after["linear-1"] != after["linear-2"] == after["linear-3"]
    assert after["loss"] == after["linear-3"]


def crossing(ground, placed):
    return sum(size for (a, b), size in ground.probe().sent_bytes.items() if placed[a] != placed[b])


def test_communication_aware_never_sends_more_nor_exceeds_its_slack():
    random = np.random.default_rng(1)
    for _ in range(20):
        graph = chain_graph(8)
        names = [node.name for node in graph.nodes[1:]]
        costs = random.integers(1, 9, 8).tolist()
        sent = {pair: int(random.integers(1, 99)) for pair in itertools.pairwise(names)}
        ground = situation(graph, 3, costs=costs, sent=sent)
        balanced, aware = Balanced().place(ground), CommunicationAware().place(ground)
        assert crossing(ground, aware) <= crossing(ground, balanced)
        most = max(loads(graph, balanced, costs).values())
        assert max(loads(graph, aware, costs).values()) <= (1 + SLACK) * most


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("balance", UnknownNameError, "no placement named 'balance'; did you mean 'balanced'? kno"),
        ("", UnknownNameError, "no placement named ''; known: balanced, communication-aware, k-h"),
        ("0-hop", OptionError, "hops of a k-hop placement must be a whole number >= 1, got 0"),
        (3, OptionError, "placement must be a name or the path of a file, got 3; known: paper, b"),
    ],
)
def test_no_such_placement(given, error, said):
    with pytest.raises(error, match=f"^{re.escape(said)}"):
        placement_of(given)


def lists(seed, _count):
    return ListReduction.generate(seed, 120, 30, batch=10)


@pytest.fixture
def rnn():
    return replace(load_model("rnn", hidden=8, replicas=3), make_data=lists)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_every_placement_runs_and_is_in_the_manifest(rnn, name):
    result = simulate(rnn, load_cluster("tflops-1", workers=4), Amp(4), placement=name)
    told = result.origin["placement"]
    assert told["name"] == name
    hosts = result.spans.groupby("node", observed=True)["worker"].unique()
    for node, workers in hosts.items():
        assert list(workers) == [told["workers"][node]]
    assert "controller" not in told["workers"]


UNEVEN = Cluster(
    name="c",
    devices=tuple(Device(name=str(rate), flop_per_s=rate) for rate in (1e9, 3e9) * 3),
    link=Link(latency_s=1e-5, bandwidth_bytes_per_s=1e8),
)


@pytest.mark.parametrize("name", ["balanced", "communication-aware", Search(5)])
@pytest.mark.parametrize("device", ["a100", "cpu-core"])
def test_devices_that_are_all_so_many_times_as_slow_are_placed_alike(name, device):
    here = load_cluster(device, workers=4)
    placed = set[Any]()
    for factor in (1, 2, 3, 7):
        numbers = {
            key: value * factor ** (-1 if key.endswith("_per_s") else 1)
            for key, value in here.devices[0].model_dump().items()
            if key.endswith("_s") and value
        }
        slow = here.devices[0].model_copy(update=numbers)
        cluster = here.model_copy(update={"devices": (slow,) * 4})
        options = {"mode": "sleep", "instances": 100, "placement": name}
        spans = simulate(load_model("rnn", hidden=8), cluster, Amp(4), **options).spans
        placed.add(tuple(sorted(set(zip(spans["node"], spans["worker"], strict=True)))))
    assert len(placed) == 1


@pytest.mark.parametrize("name", [name for name in PLACEMENTS if name != "paper"])
def test_a_placement_is_the_same_for_all_seeds(rnn, name):
    """Data differ by seed, so a probe of a run's own data would place its nodes by luck."""
    made = forecast(rnn, UNEVEN, [Amp(4)], max_epochs=1, repeats=4, mode="sleep", placement=name)
    found = [run.placement for run in made.runs]
    assert len(found) == 4 and all(one == found[0] for one in found)
    alone = simulate(rnn, UNEVEN, Amp(4), seed=7, mode="sleep", placement=name)
    assert alone.origin["placement"] == found[0]


def test_the_papers_placement_draws_light_nodes_from_the_seed_and_heavy_ones_never(rnn):
    cluster = load_cluster("tflops-1", workers=12)
    placed = [
        simulate(rnn, cluster, Amp(4), seed=seed, mode="sleep", placement="paper").origin
        for seed in range(4)
    ]
    workers = [one["placement"]["workers"] for one in placed]
    heavy = [node.name for node in rnn.graph().parameterized]
    assert all(one[name] == workers[0][name] for one in workers for name in heavy)
    assert any(one != workers[0] for one in workers)


@pytest.mark.parametrize("remedy", ["recompute", "offload"])
def test_a_probe_counts_what_is_computed_again_and_no_copies(remedy):
    """Or `balanced` gives the worker of a cell more to compute than others."""
    given = load_model("lstm_mnist", hidden=4, data="synthetic", batch=50)
    device = Device(name="d", flop_per_s=1e9, copy_bandwidth_bytes_per_s=1e6)
    cluster = Cluster(name="c", devices=(device,), memory=MemoryRemedy(remedy=remedy))
    probed_s = Trials(given, cluster, 150).probe.seconds
    if remedy == "offload":
        cluster = cluster.model_copy(update={"memory": None})
    result = simulate(given, cluster, "sequential", instances=150, mode="sleep")
    spans = result.spans
    own = (spans["node"] == "lstm") & (spans["end_s"] <= result.epochs["train_s"][0])
    spent_s = (spans["end_s"] - spans["start_s"])[own]
    assert probed_s[given.graph().index(given.graph()["lstm"])] == pytest.approx(spent_s.sum())


def test_a_probe_is_of_many_instances_or_of_all(rnn):
    """Lists differ in length: a probe of eight says little of the mean."""

    def data(seed):
        return lambda _seed, _count: ListReduction.generate(seed, 500, 5, batch=1)

    seconds = []
    for seed in range(6):
        model = replace(rnn, make_data=data(seed))
        probe = Trials(model, UNEVEN, None).probe
        seconds.append(np.array(probe.seconds) / sum(probe.seconds))
    spread = np.ptp(seconds, axis=0).max()
    assert INSTANCES >= 200 and spread < 0.01


def toy_trial(costs, link_s=0.2):
    """The busiest worker's work, and what crosses a link between neighbours."""

    def trial(workers, _enough_s):
        sums: dict[int, float] = {}
        for cost, worker in zip(costs, workers[1:], strict=True):
            sums[worker] = sums.get(worker, 0.0) + cost
        return max(sums.values()) + link_s * sum(a != b for a, b in itertools.pairwise(workers[1:]))

    return trial


def test_a_search_finds_the_best_of_all_placements_of_a_small_graph():
    graph = chain_graph(5, 0)
    costs = (5, 1, 4, 2, 3, 0)
    trial = toy_trial(costs)
    ground = replace(situation(graph, 2, costs=costs[:5]), trial=trial)
    found = Search(trials=200).find(ground)
    every = itertools.product(range(2), repeat=6)
    assert found.seconds == min(trial((HOST, *one), math.inf) for one in every)
    assert found.seconds <= found.start_s and found.trials <= 200


@pytest.mark.parametrize("trials", [1, 3, 5, 20])
def test_a_search_is_never_worse_than_what_it_began_with_and_keeps_its_budget(trials):
    graph = chain_graph(6)
    random = np.random.default_rng(trials)
    costs = random.uniform(0, 5, len(graph.nodes) - 1)
    trial, told = toy_trial(costs), []
    ground = replace(situation(graph, 3, costs=(1,) * 6), trial=trial)
    found = Search(trials).find(ground, told.append)
    assert told == list(range(1, found.trials + 1)) and found.trials <= trials
    starts = [kind().place(situation(graph, 3, costs=(1,) * 6)) for kind in STARTS[:trials]]
    assert found.seconds <= min(trial(one, math.inf) for one in starts) == found.start_s
    assert found == Search(trials).find(replace(ground, generator=np.random.default_rng(0)))


def test_a_search_tries_workers_that_are_alike_once():
    graph = chain_graph(2, 0)
    seen = []

    def trial(workers, _enough_s):
        seen.append(tuple(workers))
        return 1.0

    Search(trials=500).find(replace(situation(graph, 9, costs=(1, 1)), trial=trial))
    parts = [tuple(one.index(worker) for worker in one[1:]) for one in seen]
    assert len(parts) == len(set(parts)) > 2


def test_what_cannot_train_is_never_found():
    graph = chain_graph(3, 0)

    def trial(workers, _enough_s):
        return math.inf if len(set(workers[1:])) > 1 else 2.0

    ground = replace(situation(graph, 2, costs=(1, 1, 1)), trial=trial)
    assert len(set(Search(trials=50).find(ground).workers[1:])) == 1


def test_a_search_finds_none_that_does_not_fit_into_memory():
    """With so late messages one worker alone would be the fastest, by far."""
    model = load_model("mlp", data="synthetic", hidden=64, batch=10)

    def peak_bytes(placement: str, limit: int | None = None) -> int:
        device = Device(name="d", flop_per_s=1e12, memory_bytes=limit)
        ground = Cluster(name="c", devices=(device,) * 3, link=Link(latency_s=1e-3))
        options: Any = {"mode": "sleep", "placement": placement, "instances": 400}
        return int(simulate(model, ground, Amp(4), **options).peak_bytes.max())

    limit = peak_bytes("paper")
    assert peak_bytes("search") > limit
    assert peak_bytes("search", limit) <= limit


@pytest.mark.slow
def test_a_search_is_faster_in_a_run_and_its_manifest_says_where_it_is_from(rnn):
    schedules = [Amp(4), ampsim.Sequential()]
    rates = {
        name: simulate(rnn, UNEVEN, Amp(4), mode="sleep", placement=name).train_per_s
        for name in PLACEMENTS
    }
    assert rates["search"] == max(rates.values())
    told: list[str] = []
    made = forecast(
        rnn, UNEVEN, schedules, mode="sleep", placement="search",
        on_progress=lambda one: told.append(one.schedule),
    )  # fmt: skip
    assert {"placement of amp", "placement of sequential"} <= set(told)
    found = made.manifest["placements"]
    assert list(found) == ["amp", "sequential"]
    for row in found.values():
        assert row["name"] == "search" and row["start"] in PLACEMENTS
        assert row["times_as_fast"] >= 1 and 1 <= row["trials"] <= TRIALS
        assert set(row["workers"]) == {node.name for node in rnn.graph().nodes[1:]}


@pytest.mark.parametrize("name", [*SCHEDULES, *SOLVERS])
def test_a_search_works_under_every_method_or_says_in_a_line_what_does_not_fit(name):
    model = load_model("mlp", data="synthetic", hidden=8, batch=100)
    cluster, schedule = load_cluster("tflops-1", workers=4, latency_s=1e-6), schedules_of(name)[0]
    with contextlib.suppress(OptionError):
        told = simulate(model, cluster, schedule, mode="sleep", placement=Search(trials=6)).origin
        assert told["placement"]["name"] == "search"


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_the_default_is_the_papers_to_the_last_bit(rnn, mode):
    cluster = load_cluster("tflops-1", workers=4)
    default = simulate(rnn, cluster, Amp(4), mode=mode)
    assert simulate(rnn, cluster, Amp(4), mode=mode, placement="paper").digest == default.digest


@pytest.mark.parametrize("name", ["balanced", "communication-aware"])
def test_a_probe_leaves_no_trace_in_the_run(rnn, name, tmp_path):
    """The same placement from a file, which needs no probe, gives the same run."""
    cluster = load_cluster("tflops-1", workers=4)
    probed = simulate(rnn, cluster, Amp(4), placement=name)
    lines = [f'"{node}" = {w}\n' for node, w in probed.origin["placement"]["workers"].items()]
    path = tmp_path / "mine.toml"
    path.write_text("".join(lines))
    again = simulate(rnn, cluster, Amp(4), placement=path)
    assert again.digest == probed.digest
    told = again.origin["placement"]
    assert (told["name"], told["file"], len(told["sha256"])) == ("file", str(path), 64)


def test_replicas_count_alike_however_few_instances_are_probed(rnn):
    told = simulate(rnn, load_cluster("tflops-1", workers=3), Amp(4), placement="balanced").origin
    workers = told["placement"]["workers"]
    assert {workers[f"linear-1.{replica}"] for replica in range(3)} == {0, 1, 2}


def test_a_forecast_places_all_its_runs_alike(rnn):
    cluster = load_cluster("tflops-1", workers=4)
    schedules = [ampsim.Sequential(), Amp(4)]
    made = forecast(rnn, cluster, schedules, max_epochs=1, placement="2-hop")
    alone = simulate(rnn, cluster, Amp(4), placement="2-hop")
    assert made.runs[1].result.digest == alone.digest
    assert made.manifest["placement"] == alone.origin["placement"]
    assert (made.manifest["placement"]["name"], made.manifest["placement"]["hops"]) == ("k-hop", 2)


class Own:
    """A placement of a user's own, that gives what it is made with."""

    origin: Any = {"name": "own"}  # noqa: RUF012  # a property of other classes

    def __init__(self, given: Any) -> None:
        self.given = given

    def place(self, situation: Situation) -> Any:
        _first, *rest = [one.name for one in situation.graph.nodes]
        return self.given(HOST, rest) if callable(self.given) else self.given


class Methodical(Own):
    """One that forgets that its origin is a property."""

    def origin(self) -> dict[str, Any]:
        return {"name": "own"}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (Own(lambda host, rest: [host]), r"must give \d+ numbers, .* the controller, got 1$"),
        (Own(lambda host, rest: [host, *[-1] * len(rest)]), "embedding a worker, 0 to 1, got -1;"),
        (Own(lambda host, rest: [host, *[2] * len(rest)]), "embedding a worker, 0 to 1, got 2;"),
        (Own(lambda host, rest: [host, *[0.0] * len(rest)]), "a worker, 0 to 1, got 0.0;"),
        (Own(lambda host, rest: [host, *[True] * len(rest)]), "a worker, 0 to 1, got True;"),
        (Own(None), "failed: TypeError: 'NoneType' object is not iterable"),
        (Own(lambda host, rest: host / 0), r"failed: ZeroDivisionError: .*test_placements.py, l"),
        (Methodical(lambda host, rest: [host, *rest]), "origin must be a property, a dictionary"),
    ],
)
def test_what_a_placement_of_your_own_gives_is_checked(rnn, own, said):
    """Nodes on worker -1 once ran nowhere, and the run had taken no time."""
    for run in (simulate, lambda *given, **more: forecast(given[0], given[1], [given[2]], **more)):
        with pytest.raises(
            OptionError, match=rf"^placement {type(own).__name__}:? .*{said}"
        ) as error:
            run(rnn, load_cluster("tflops-1", workers=2), Amp(4), placement=own)
        assert "\n" not in str(error.value)


def test_workers_may_be_numbers_of_numpy(rnn):
    own = Own(lambda host, rest: np.array([host, *[1] * len(rest)]))
    result = simulate(rnn, load_cluster("tflops-1", workers=2), Amp(4), placement=own)
    assert {type(one) for one in result.origin["placement"]["workers"].values()} == {int}
    assert set(result.spans["worker"]) == {1}
