"""A trace of a dependency engine's run keeps the format's rules and says what its records say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.dependency import POLICIES, Arrays, CaseStudy
from ampsim.errors import OptionError
from ampsim.hardware import Cluster, Device, Link

HOSTILE = '<script>"ä"</script>'


def ran(policy: Any) -> Any:
    """The case study on two GPUs that issue, with a hostile name, and what takes no time."""
    gpu = Device(name="gpu", flop_per_s=1e9, dispatch_s=1e-7)
    cluster = Cluster(name="c", devices=(gpu, gpu), link=Link(latency_s=1e-6))
    engine = ampsim.DependencyEngine(
        cluster, policy, host=Device(name="cpu", flop_per_s=1e9), push_s=3e-8
    )
    CaseStudy((6, 5, 4), batch=8).run(engine, 2)
    (a,) = Arrays(engine).new(HOSTILE)
    a[0] = np.zeros(9)
    a[1].copyfrom(a[0])
    a[0].delete()
    engine.push(None, [a[1].variable], work=ampsim.Work(flop=50), on=1, name=HOSTILE)
    engine.wait_for_all()
    return engine.result


@pytest.fixture(scope="module", params=POLICIES)
def run(request, tmp_path_factory) -> Any:
    """A result and the events of its trace."""
    result = ran(POLICIES[request.param]())
    path = tmp_path_factory.mktemp("trace") / "run.json"
    assert ampsim.figures.perfetto(result, path) == path
    text = path.read_text("ascii")
    assert "<" not in text
    events = json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    return result, events["traceEvents"]


def test_a_run_of_an_engine_keeps_the_rules_of_the_format(run, check_rules):
    check_rules(run[1])


def test_every_operation_is_there_on_its_thread_with_its_times(run):
    result, events = run
    table = result.operations
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    kinds = set(table["kind"])
    found = [event for event in events if event["ph"] in "Xi" and event["cat"] in kinds]
    assert [event["args"]["operation"] for event in found] == table["number"].tolist()
    assert [event["name"] for event in found] == [" ".join(one.split()) for one in table["name"]]
    assert np.allclose([event["ts"] for event in found], table["start_s"] * 1e6, atol=1e-3)
    lasting = (table["end_s"] - table["start_s"]) * 1e6
    assert np.allclose([event.get("dur", 0) for event in found], lasting, atol=2e-3)
    assert [event["args"]["bytes"] for event in found] == table["bytes"].tolist()
    for event, kind, place in zip(found, table["kind"], table["place"], strict=True):
        owner = "host" if place < 0 else f"worker {place}"
        assert names[event["tid"]].startswith(f"{owner}: {kind}")
    for word, frame in (("push", result.pushes), ("dispatch", result.dispatches)):
        count = int((frame["end_s"] > frame["start_s"]).sum())
        assert sum(event.get("cat") == word for event in events) == count > 0


def test_copies_are_slices_of_their_links_and_operations_say_what_they_waited_for(run):
    result, events = run
    sent = [event for event in events if event.get("cat") == "transfer"]
    assert [event["name"] for event in sent] == result.transfers["node"].tolist()
    ends = {(event["args"]["source"], event["args"]["target"]) for event in sent}
    assert {("host", "worker 1"), ("worker 0", "worker 1"), ("worker 1", "host")} <= ends
    waited = [event["args"] for event in events if "waited for" in event.get("args", {})]
    names, expected = result.operations["name"], result.dependencies
    assert [one["operation"] for one in waited] == [one.target for one in expected]
    assert [one["waited for"] for one in waited] == [names[one.source] for one in expected]
    assert [one["through"] for one in waited] == [one.variable for one in expected]


def test_arrows_are_the_dependencies_between_what_takes_time(run):
    result, events = run
    table = result.operations
    lasting = (table["end_s"] > table["start_s"]).tolist()
    expected = [
        (one.variable, one.source, one.target)
        for one in result.dependencies
        if lasting[one.source] and lasting[one.target]
    ]
    assert (len(expected) > 10) == (not result.policy.is_synchronous)  # else pushes wait
    slices = [event for event in events if event["ph"] == "X" and "flop" in event["args"]]

    def at(event: Any) -> int:
        (found,) = [
            one["args"]["operation"]
            for one in slices
            if one["tid"] == event["tid"]
            and one["ts"] - 1e-9 <= event["ts"] <= one["ts"] + one["dur"] + 1e-9
        ]
        return found

    tails = [event for event in events if event["ph"] == "s"]
    heads = [event for event in events if event["ph"] == "f"]
    arrows = [(s["name"], at(s), at(f)) for s, f in zip(tails, heads, strict=True)]
    assert arrows == expected


def test_counters_hold_what_lay_in_each_memory(run):
    result, events = run
    counters = [event for event in events if event["ph"] == "C"]
    peaks: dict[str, int] = {}
    for event in counters:
        peaks[event["name"]] = max(
            peaks.get(event["name"], 0), event["args"]["arrays"] + event["args"]["workspace"]
        )
    places = {"memory of the host": -1, "memory of worker 0": 0, "memory of worker 1": 1}
    assert peaks == {name: result.peak_bytes[place] for name, place in places.items()}


def test_an_empty_run_has_an_empty_trace_and_other_suffixes_are_refused(tmp_path, check_rules):
    engine = ampsim.DependencyEngine("tflops-1")
    engine.wait_for_all()
    ampsim.figures.perfetto(engine.result, tmp_path / "empty.json")
    events = json.loads((tmp_path / "empty.json").read_text("ascii"))["traceEvents"]
    check_rules(events)
    assert {event["ph"] for event in events} == {"M"}
    with pytest.raises(OptionError, match=r"path must end in .json, got .*x.png'; pictures are"):
        ampsim.figures.perfetto(engine.result, tmp_path / "x.png")
