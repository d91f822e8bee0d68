"""Schedules: what each decides, and which options it refuses."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from ampsim import (
    Amp,
    GPipe,
    InterleavedOneFOneB,
    OneFOneB,
    PipeDream,
    PipeDream2BW,
    Pipeline,
    Sequential,
    ZeroBubbleH1,
    load_cluster,
    load_model,
    simulate,
)
from ampsim.dataflow import OutOfGraph
from ampsim.errors import AmpsimError, OptionError
from ampsim.hardware import Device
from ampsim.ir import Direction, Graph
from ampsim.model_parallel import SCHEDULES, Admission, Order, Updates, Weights, needs_chain
from ampsim.nodes import Embedding, GRUCell, Linear, ReLU, SoftmaxCrossEntropy, Sum


@pytest.mark.parametrize("kind", SCHEDULES.values())
def test_every_schedule_is_listed_under_its_name_and_serves_each_direction_once(kind):
    schedule = kind()
    assert SCHEDULES[schedule.name] is kind
    assert sorted(schedule.order.kinds) == list(Direction)
    assert schedule.order.kinds.index(Direction.BACKWARD) < schedule.order.kinds.index(
        Direction.FORWARD
    )


def test_sequential_admits_one_and_leaves_updates_to_the_controller():
    schedule = Sequential()
    assert (schedule.admission.in_flight_max, schedule.admission.drains) == (1, True)
    assert schedule.updates.interval_of("linear", 7) is None


@pytest.mark.parametrize("kind", [Pipeline, GPipe, OneFOneB, InterleavedOneFOneB, ZeroBubbleH1])
def test_a_schedule_that_drains_admits_m_and_leaves_updates_to_the_controller(kind):
    schedule = kind(5)
    assert (schedule.admission.in_flight_max, schedule.admission.drains) == (5, True)
    assert schedule.updates.interval_of("linear", 7) is None


@pytest.mark.parametrize(
    ("asked", "interval"),
    [(None, 7), (3, 3), (np.int64(3), 3), ({"linear": 2}, 2), ({"other": 2}, 7), ({}, 7)],
)
def test_amp_updates_as_asked_and_else_as_the_model_prefers(asked, interval):
    schedule = Amp(min_update_interval=asked)
    assert not schedule.admission.drains
    assert schedule.updates.interval_of("linear", 7) == interval


@pytest.mark.parametrize("kind", [kind for kind in SCHEDULES.values() if kind is not Sequential])
@pytest.mark.parametrize("value", [0, -1, 1.5, "two"])
def test_max_active_keys_below_one_is_refused(kind, value):
    text = rf"^max_active_keys must be a whole number >= 1, got {value!r}$"
    with pytest.raises(OptionError, match=text):
        kind(max_active_keys=value)


def test_min_update_interval_below_one_is_refused():
    text = "^min_update_interval must be a whole number >= 1, got 0$"
    with pytest.raises(OptionError, match=text):
        Amp(min_update_interval=0)


def test_min_update_interval_of_a_node_below_one_is_refused_by_the_nodes_name():
    text = "^min_update_interval of linear-1 must be a whole number >= 1, got -2$"
    with pytest.raises(OptionError, match=text):
        Amp(min_update_interval={"embedding": 1, "linear-1": -2})


def test_min_update_interval_of_a_node_that_is_not_there_is_refused(chain, make_cluster):
    text = (
        "^min_update_interval: no node that learns named 'stge-1'; did you mean 'stage-1'\\? "
        "known: stage-1, stage-2$"
    )
    schedule = Amp(min_update_interval={"stge-1": 2})
    with pytest.raises(OptionError, match=text):
        simulate(chain(((1, 1, 1),) * 2).model(), make_cluster(2), schedule)


CHAIN_KINDS = [kind for kind in SCHEDULES.values() if needs_chain(kind())]


@pytest.mark.parametrize("kind", CHAIN_KINDS)
@pytest.mark.parametrize(
    ("model", "options", "where"),
    [
        ("rnn", {}, r"ungroup \(Ungroup\)"),
        ("ggnn", {"data": "synthetic"}, r"[a-z-]+ \([A-Z][a-z]+\)"),
    ],
)
def test_a_schedule_of_stages_refuses_a_graph_that_loops(kind, model, options, where):
    text = (
        rf"^{kind.name} needs a chain of stages, but {model} is none: it loops or branches at "
        rf"{where}; take amp, pipeline or gpipe$"
    )
    with pytest.raises(OptionError, match=text):
        simulate(load_model(model, **options), load_cluster("tflops-1", workers=16), kind())


def run_graph(graph: Graph, kind: Any, make_cluster: Any, chain: Any) -> Any:
    graph.name = "other"
    model = replace(chain((), instances=3).model(), make_graph=lambda: graph)
    return simulate(model, make_cluster(4), kind())


@pytest.mark.parametrize("kind", CHAIN_KINDS)
def test_a_schedule_of_stages_refuses_what_is_no_chain(chain, make_cluster, kind):
    graph = Graph("g")
    wire, label = graph.controller(values=("rows", 2), label=("rows",))
    sides = [graph.add(Linear(name, 2, 2), wire) for name in ("left", "right")]
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Sum("sum"), *sides), label)
    with pytest.raises(OptionError, match="other is none: left and right lie on different branch"):
        run_graph(graph, kind, make_cluster, chain)

    graph = Graph("g")
    wire, label = graph.controller(values=("rows", 2), label=("rows",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(ReLU("relu"), wire), label)
    with pytest.raises(OptionError, match="other is none: it has no node with parameters; take"):
        run_graph(graph, kind, make_cluster, chain)

    graph = Graph("g")
    wire, label = graph.controller(values=("rows", 2), label=("rows",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(GRUCell("gru", 2, 2), wire, wire), label)
    with pytest.raises(OptionError, match=r"gru \(GRUCell\) has several inputs or outputs; take"):
        run_graph(graph, kind, make_cluster, chain)


@pytest.mark.parametrize("kind", CHAIN_KINDS)
def test_a_way_around_a_stage_leaves_a_chain_a_chain(chain, make_cluster, kind):
    graph = Graph("g")
    wire, label = graph.controller(values=("rows", 2), label=("rows",))
    first = graph.add(Linear("first", 2, 2), wire)
    second = graph.add(Linear("second", 2, 2), first)
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Sum("sum"), first, second), label)
    assert len(run_graph(graph, kind, make_cluster, chain).updates)


@pytest.mark.parametrize("kind", [OneFOneB, PipeDream, PipeDream2BW, ZeroBubbleH1])
@pytest.mark.parametrize(("workers", "said"), [(1, "1 worker"), (2, "2 workers")])
def test_several_stages_on_a_worker_are_refused(chain, make_cluster, kind, workers, said):
    text = (
        f"^{kind.name} gives each stage a worker of its own, got 3 stages on {said}, one of them "
        "with stages [123, ]+; take workers=3 or more, with the placement 'paper'$"
    )
    with pytest.raises(OptionError, match=text):
        simulate(chain(((1, 1, 1),) * 3).model(), make_cluster(workers), kind())


def test_stages_that_cannot_be_dealt_out_evenly_are_refused(chain, make_cluster):
    text = (
        "^1f1b-interleaved deals stages out in turn, equally many to each worker, got 3 stages on "
        "2 workers, one of them with stages 1, 3; take workers=3 or a divisor of that, "
        "with the placement 'paper'$"
    )
    model = chain(((1, 1, 1),) * 3).model()
    with pytest.raises(OptionError, match=text):
        simulate(model, make_cluster(2), InterleavedOneFOneB())
    for workers in (1, 3, 5):
        assert len(simulate(model, make_cluster(workers), InterleavedOneFOneB()).updates)


def test_2bw_refuses_mini_batches_smaller_than_the_pipeline_is_deep(chain, make_cluster):
    text = (
        "^pipedream-2bw: min_update_interval must be >= 3, as many as are in flight over 3 stages, "
        "for two versions of the weights to suffice, got 2; raise it, or lower max_active_keys$"
    )
    model, cluster = chain(((1, 1, 1),) * 3).model(), make_cluster(3)
    with pytest.raises(OptionError, match=text):
        simulate(model, cluster, PipeDream2BW(2))
    assert len(simulate(model, cluster, PipeDream2BW(2, max_active_keys=2)).updates)


@pytest.mark.parametrize("kind", [PipeDream, PipeDream2BW])
def test_pipedream_admits_as_many_as_there_are_stages_or_fewer_if_asked(kind):
    assert kind().max_active_keys is None
    assert kind(max_active_keys=3).max_active_keys == 3
    with pytest.raises(OptionError, match=r"^max_active_keys must be a whole number >= 1, got 0$"):
        kind(max_active_keys=0)


def test_options_of_pipedream_below_one_or_of_another_kind_are_refused():
    with pytest.raises(OptionError, match=r"^min_update_interval must be a whole number >= 1"):
        PipeDream2BW(0)
    with pytest.raises(OptionError, match=r"^vertical_sync must be True or False, got 'yes'$"):
        PipeDream(vertical_sync="yes")  # pyright: ignore[reportArgumentType]  # that is the test


@pytest.mark.parametrize("dispatch_s", [0.1, 3.0])
@pytest.mark.parametrize("schedule", [PipeDream(), PipeDream(vertical_sync=True), PipeDream2BW(4)])
def test_a_stage_updates_before_its_next_step_also_where_its_device_has_to_issue_the_update(
    schedule, dispatch_s, chain, make_cluster
):
    """Else one update is of the next gradient, too: versions mean another number at each stage."""
    model = chain(((9, 9, 1), *((1, 2, 1),) * 3), instances=15, valid=1).model()
    slow = Device(name="test", flop_per_s=1.0, dispatch_s=dispatch_s)
    cluster = make_cluster(4).model_copy(update={"devices": (slow,) * 4})
    result = simulate(model, cluster, schedule, epochs=2)
    counts = result.updates.groupby("node")["gradient_count"].agg(list)
    of, staleness_max = (4, 1) if isinstance(schedule, PipeDream2BW) else (1, 3)
    assert [*counts] == [2 * ([of] * (15 // of) + [15 % of] * (15 % of > 0))] * 4
    assert {*result.staleness["staleness"]} == {*range(staleness_max + 1)}


@pytest.mark.parametrize("kind", [PipeDream, PipeDream2BW])
def test_tables_that_are_updated_in_place_cannot_be_stashed(chain, make_cluster, kind):
    def graph(is_sparse: bool) -> Graph:
        graph = Graph("g")
        wire, label = graph.controller(tokens=("rows",), label=("rows",))
        table = graph.add(Embedding("table", 2, 2, is_sparse=is_sparse), wire)
        graph.end(SoftmaxCrossEntropy("loss"), graph.add(Linear("linear", 2, 2), table), label)
        return graph

    def pump(instance: int, batch: Any) -> list[Any]:
        return [(0, (instance,), batch.labels), (1, (instance,), batch.labels)]

    model = replace(chain((), instances=3).model(), pump=pump)
    text = (
        r"^table \(Embedding\) updates rows of its table in place, so no old version of it can be "
        "kept; take is_sparse=False, or a schedule that stashes no weights$"
    )
    with pytest.raises(OptionError, match=text):
        simulate(replace(model, make_graph=lambda: graph(True)), make_cluster(2), kind())
    assert len(
        simulate(replace(model, make_graph=lambda: graph(False)), make_cluster(2), kind()).updates
    )


def test_zb_h1_refuses_a_node_that_it_cannot_split(chain, make_cluster):
    graph = Graph("g")
    tokens, label = graph.controller(tokens=("rows",), label=("rows",))
    wire = graph.add(Linear("linear", 2, 2), graph.add(Embedding("table", 2, 2), tokens))
    graph.end(SoftmaxCrossEntropy("loss"), wire, label)
    text = (
        "^zb-h1 splits the backward steps of Linear and Conv2d nodes, and has no rule for "
        r"table \(Embedding\); take 1f1b$"
    )
    with pytest.raises(OptionError, match=text):
        run_graph(graph, ZeroBubbleH1, make_cluster, chain)


@dataclass(frozen=True)
class Torn(Pipeline):
    """Its admission and its updates do not agree."""

    drains: bool = True
    name: ClassVar[str] = "torn"

    @property
    def admission(self) -> Admission:
        return Admission(4, drains=self.drains)

    @property
    def updates(self) -> Updates:
        return Updates(is_at_drain=not self.drains)


@pytest.mark.parametrize("drains", [True, False])
def test_a_schedule_whose_values_do_not_agree_on_the_drain_is_refused(chain, make_cluster, drains):
    """Else nodes would update twice at a drain, or never within an epoch."""
    text = rf"^torn: .*got Admission\(drains={drains}\) and Updates\(is_at_drain={not drains}\);"
    with pytest.raises(OptionError, match=text):
        simulate(chain(((1, 1, 1),)).model(), make_cluster(1), Torn(drains=drains))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Order(max_group=0), "^max_group must be"),
        (lambda: Order(group_wait_s=1.0), "^group_wait_s = 1.0 waits for a group, but max_group"),
        (lambda: Order(max_group=2, group_wait_s=1e10), "^group_wait_s must be at most 1,000"),
        (
            lambda: OutOfGraph(round_trip_s=1e308),
            "^round_trip_s must be at most 1,000,000,000, got",
        ),
        (lambda: Order(splits_backward=True), "needs turns for both halves$"),
        (lambda: Updates(interval=0), "^min_update_interval must be"),
        (lambda: Updates(interval={"l": 0}), "^min_update_interval of l must be"),
        (lambda: Updates(is_at_drain=True, interval=2), "have no interval, got 2$"),
        (lambda: Weights(remedy="hope"), "'hope'"),
    ],
)
def test_a_value_that_contradicts_itself_is_refused_where_it_is_made(make, text):
    with pytest.raises(AmpsimError, match=text):
        make()
