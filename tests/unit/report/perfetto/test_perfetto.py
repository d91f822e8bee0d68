"""A trace for Perfetto keeps the format's rules, whatever the names are."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from program_models import PROGRAMS_ONLY
from solver_cases import cluster, solver
from solver_cases import model as solver_model

import ampsim
from ampsim.assets import names
from ampsim.data_parallel import SOLVERS
from ampsim.errors import OptionError, OutputError
from ampsim.hardware import Cluster, Device, MemoryRemedy
from ampsim.report.gantt.boxes import ChartRun, first_window
from ampsim.report.perfetto.events import in_microseconds, in_nanoseconds
from ampsim.report.perfetto.trace import Trace, write_perfetto
from ampsim.runs.witness import leading
from ampsim.study.loading import option_names

HOSTILE = ["../../x", "<script>alert(1)</script>", 'a"b\n\\u0000 \x7f']
UPDATE_COLUMNS = ["node", "time_s", "gradient_count", "staleness", "staleness_max"]


def updates_of(spans: pd.DataFrame) -> pd.DataFrame:
    rows = spans[spans["direction"] == "update"]
    pairs = zip(rows["node"], rows["start_s"], strict=True)
    values = [(node, time_s, 1, 0.5, 1) for node, time_s in pairs]
    return pd.DataFrame(values, columns=UPDATE_COLUMNS)


def trace_of(name: str, spans: pd.DataFrame, workers: int, epochs: pd.DataFrame) -> Trace:
    half = len(spans) // 2
    updates = updates_of(spans)
    return Trace(name, workers, lambda: [spans[:half], spans[half:]], lambda: [updates], epochs)


def result_trace(result: ampsim.Result) -> Trace:
    return Trace(
        result.schedule.name, result.workers,
        lambda: [result.spans], lambda: [result.updates], result.epochs,
    )  # fmt: skip


def read(path) -> list[dict]:
    """The events of a file that is JSON in the strict sense, without NaN and Infinity."""

    def refuse(constant):
        raise AssertionError(f"not JSON: {constant}")

    return json.loads(path.read_text("ascii"), parse_constant=refuse)["traceEvents"]


@pytest.fixture(scope="module")
def results(chain, make_cluster):
    """Two schedules of a chain whose second stage is slower, on two of three workers."""
    model = chain(((1, 2, 1), (3, 5, 1)), instances=6, valid=2).model()
    cluster = make_cluster(3, flop_per_s=1e9)
    return [
        ampsim.simulate(model, cluster, schedule, epochs=2)
        for schedule in (ampsim.Sequential(), ampsim.Amp(max_active_keys=3))
    ]


@pytest.fixture(scope="module")
def events(results, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.json"
    written = write_perfetto([result_trace(result) for result in results], path, title="chain")
    assert written == sum(len(result.spans) for result in results)
    return read(path)


def test_a_run_keeps_the_rules_of_the_format(events, check_rules):
    check_rules(events)


@pytest.mark.parametrize("flop_per_s", [1e9, 1e6])  # members of less than a nanosecond, and of more
def test_merged_steps_keep_the_rules_too(chain, make_cluster, tmp_path, flop_per_s, check_rules):
    model = chain(((1, 2, 1), (3, 5, 1)), instances=12, valid=4).model()
    cluster = make_cluster(3, flop_per_s=flop_per_s)
    result = ampsim.simulate(model, cluster, ampsim.Amp(4, max_group=3), epochs=2)
    assert result.group_sizes["size"].max() == 3
    write_perfetto([result_trace(result)], tmp_path / "run.json")
    events = read(tmp_path / "run.json")
    check_rules(events)
    arrows = Counter(event["name"] for event in events if event["ph"] == "s")
    gradients = int((result.spans["staleness"] >= 0).sum())
    assert arrows == {"activation": gradients, "gradient": gradients}
    levels = [one["args"]["instances"] for one in events if one["name"] == "in flight"]
    assert max(levels) == 4 and levels[-1] == 0


def test_every_span_is_there_with_what_was_charged(events, results):
    for pid, result in enumerate(results, 1):
        spans = result.spans
        mine = [event for event in events if event["pid"] == pid and event["ph"] in "Xi"]
        assert [event["ph"] == "i" for event in mine] == list(spans["start_s"] == spans["end_s"])
        assert [event["args"]["flop"] for event in mine] == list(spans["flop"])
        assert [event["args"]["bytes"] for event in mine] == list(spans["bytes"])
        assert [event["args"].get("instance", -1) for event in mine] == list(spans["instance"])
        assert [event["args"].get("staleness", -1) for event in mine] == list(spans["staleness"])
        assert np.allclose([event["ts"] for event in mine], spans["start_s"] * 1e6)
        assert {event["cat"] for event in mine} == {"forward", "backward", "update"}


def arrows_in(events: list[dict]) -> list[tuple[str, dict, dict]]:
    """Name of each arrow, and the slices at its tail and its head."""
    at = {}
    for event in events:
        if event["ph"] == "X":
            middle = int(event["ts"] * 1000) + int(event["dur"] * 1000) // 2
            at[event["pid"], event["tid"], middle] = event
    arrows = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            place = event["pid"], event["tid"], int(event["ts"] * 1000)
            arrows[event["id"], event["name"]][event["ph"]] = at[place]
    return [(name, ends["s"], ends["f"]) for (_, name), ends in arrows.items()]


def test_an_arrow_leads_from_forward_to_backward_to_the_update_of_the_same_node(events, results):
    kinds = Counter()
    for name, tail, head in arrows_in(events):
        assert tail["name"].split()[0] == head["name"].split()[0]
        kinds[name] += 1
        expected = {"activation": ("forward", "backward"), "gradient": ("backward", "update")}
        assert (tail["cat"], head["cat"]) == expected[name]
        if name == "activation":
            assert tail["args"]["instance"] == head["args"]["instance"]
    gradients = sum(int((result.spans["staleness"] >= 0).sum()) for result in results)
    assert kinds == {"activation": gradients, "gradient": gradients}


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_of_ranks_each_has_arrows_to_its_own_updates(name, tmp_path):
    """Ranks have nodes of the same names, and their gradients may wait at the same time."""
    hosts, chosen = cluster([1e9, 0.7e9, 1.3e9, 1e9]), solver(name, ranks=3, period=2)
    result = ampsim.simulate(solver_model(40, 2, layers=2), hosts, chosen)
    write_perfetto([result_trace(result)], tmp_path / "run.json")
    found = arrows_in(read(tmp_path / "run.json"))
    assert all(tail["tid"] == head["tid"] for _name, tail, head in found)
    spans = result.spans[result.spans["end_s"] > result.spans["start_s"]]
    place = ["worker", "node"]
    last = spans[spans["direction"] == "update"].groupby(place, observed=True)["start_s"].max()
    gradients = spans[(spans["staleness"] >= 0) & (spans["direction"] == "backward")]
    used = gradients.join(last.rename("last_s"), on=place)  # some ranks end before they update
    assert [name for name, *_ends in found].count("gradient") == (
        used["end_s"] <= used["last_s"]
    ).sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(names("models")) - PROGRAMS_ONLY))
def test_an_activation_is_that_of_the_same_state_however_often_an_instance_passes_a_node(
    name, tmp_path
):
    data = {"data": "synthetic"} if "data" in option_names(name) else {}
    model = leading(ampsim.load_model(name, **data), 4, 2)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    result = ampsim.simulate(model, cluster, ampsim.Amp(4), instances=4, mode="sleep")
    write_perfetto([result_trace(result)], tmp_path / "run.json")
    joined = [ends for arrow, *ends in arrows_in(read(tmp_path / "run.json")) if arrow[0] == "a"]
    spans = result.spans
    has_gradient = (spans["staleness"] >= 0) & (spans["end_s"] > spans["start_s"])
    assert len(joined) == has_gradient.sum() > 0
    for tail, head in joined:
        for key in ("instance", "state"):
            assert tail["args"].get(key) == head["args"].get(key)


def test_counters_show_instances_in_flight_staleness_versions_and_loss(events, results):
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C" and event["pid"] == 2:
            counters[event["name"]].append(event["args"])
    assert max(one["instances"] for one in counters["in flight"]) == 3
    assert counters["in flight"][-1] == {"instances": 0}
    updates = results[1].updates
    mine = updates[updates["node"] == "stage-1"]
    assert [one["mean"] for one in counters["staleness stage-1"]] == list(mine["staleness"])
    assert [one["updates"] for one in counters["version stage-1"]] == [*range(1, len(mine) + 1)]
    assert [one["training"] for one in counters["loss"]] == list(results[1].epochs["loss"])


@pytest.fixture(scope="module")
def stashing(chain, make_cluster):
    model = chain(((1, 2, 0),) * 3, instances=8).model()
    return ampsim.simulate(model, make_cluster(3), ampsim.PipeDream(), epochs=2)


def test_counters_show_what_old_weights_take_node_by_node_and_together(
    stashing, tmp_path, check_rules
):
    halves = [stashing.stashes[:3], stashing.stashes[3:]]
    trace = replace(result_trace(stashing), stashes=lambda: halves)
    write_perfetto([trace], tmp_path / "run.json")
    events = read(tmp_path / "run.json")
    check_rules(events)
    held, most = {}, 0
    counted = [e for e in events if e["name"].startswith("stashed weights")]
    for event, total in zip(counted[::2], counted[1::2], strict=True):
        assert total["name"] == "stashed weights"
        held[event["name"].removeprefix("stashed weights ")] = event["args"]["bytes"]
        most = max(most, sum(held.values()))
        assert total["args"] == {"bytes": sum(held.values())}
    assert len(counted) == 2 * len(stashing.stashes) > 0
    assert most == sum(stashing.stashed_bytes_max.values())


def test_a_schedule_that_stashes_no_weights_has_no_such_counter(events):
    assert not [event for event in events if event["name"].startswith("stashed")]


def test_steps_say_their_state(stashing, tmp_path):
    spans = stashing.spans.assign(state=["", *["step 3"] * (len(stashing.spans) - 1)])
    trace = replace(result_trace(stashing), spans=lambda: [spans])
    write_perfetto([trace], tmp_path / "run.json")
    steps = [
        event["args"].get("state") for event in read(tmp_path / "run.json") if event["ph"] in "Xi"
    ]
    assert steps == [None, *["step 3"] * (len(spans) - 1)]


def test_sequential_has_one_instance_in_flight(events):
    levels = [e["args"]["instances"] for e in events if e["name"] == "in flight" and e["pid"] == 1]
    assert max(levels) == 1


def test_a_copy_that_outlasts_its_instance_does_not_keep_it_in_flight(chain, tmp_path):
    copying = Device(name="d", flop_per_s=1.0, copy_bandwidth_bytes_per_s=1e9, copy_latency_s=200.0)
    cluster = Cluster(name="c", devices=(copying,) * 3, memory=MemoryRemedy(remedy="offload"))
    model = chain(((1, 2, 0),) * 3, instances=4).model()
    result = ampsim.simulate(model, cluster, ampsim.Sequential())
    write_perfetto([result_trace(result)], tmp_path / "run.json")
    counted = [e for e in read(tmp_path / "run.json") if e["name"] == "in flight"]
    assert max(one["args"]["instances"] for one in counted) == 1
    computed = result.spans[result.spans["lane"] == "compute"]
    charts = [first_window({"": ChartRun(spans)}) for spans in (result.spans, computed)]
    assert charts[0] == charts[1]


def test_unknown_losses_are_left_out(make_chain, make_epochs, tmp_path, check_rules):
    epochs = make_epochs("amp", 0).assign(loss=math.nan, valid_loss=math.inf)
    write_perfetto([trace_of("amp", make_chain()["amp"], 3, epochs)], tmp_path / "run.json")
    events = read(tmp_path / "run.json")
    check_rules(events)
    assert not [event for event in events if event["name"] == "loss"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_no_harm(make_chain, make_epochs, tmp_path, name, check_rules):
    spans = make_chain()["amp"]
    spans["node"] = spans["node"].astype(str) + name
    spans["state"] = f"word {name}"
    stashes = pd.DataFrame({"node": [name], "time_s": [0.0], "bytes": [8]})
    trace = replace(
        trace_of(name, spans, 3, make_epochs("amp", 0)),
        stashes=lambda: [stashes],
        devices=[name] * 3,
    )
    write_perfetto([trace], tmp_path / "run.json", title=name)
    assert "<" not in (tmp_path / "run.json").read_text("ascii")
    assert list(tmp_path.iterdir()) == [tmp_path / "run.json"]
    check_rules(read(tmp_path / "run.json"))


def test_nothing_at_all_is_still_a_trace(make_chain, make_epochs, tmp_path, check_rules):
    trace = trace_of("amp", make_chain()["amp"].iloc[:0], 2, make_epochs("amp", 0).iloc[:0])
    assert write_perfetto([trace], tmp_path / "run.json") == 0
    events = read(tmp_path / "run.json")
    check_rules(events)
    assert len(events) == 2 + 2 * 2


def test_a_trace_is_whole_or_not_at_all(make_chain, make_epochs, tmp_path):
    def breaks():
        yield make_chain()["amp"]
        raise OutputError("the disk is full")

    trace = Trace("amp", 3, breaks, list, make_epochs("amp", 0))
    with pytest.raises(OutputError, match="the disk is full"):
        write_perfetto([trace], tmp_path / "run.json")
    assert not list(tmp_path.iterdir())


def test_every_nanosecond_survives_that_perfetto_cuts():
    random = np.random.default_rng(0)
    time_ns = np.concatenate([np.arange(20_000), random.integers(0, 10**15, 20_000)])
    assert [int(time_us * 1000.0) for time_us in in_microseconds(time_ns)] == time_ns.tolist()


def test_times_beyond_the_format_are_refused_in_a_line():
    assert in_nanoseconds(np.array([8.9e9])) == [8_900_000_000_000_000_000]
    with pytest.raises(
        OptionError, match=r"before 9\.0e\+09 s, got a step at 1e\+300 s; take another"
    ):
        in_nanoseconds(np.array([0.0, 1e300]))
