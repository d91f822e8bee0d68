"""Where devices or links differ: the default placement is said to be slow only where it is."""

from __future__ import annotations

import itertools
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ampsim
from ampsim.errors import PlacementWarning
from ampsim.hardware import HOST, Cluster, Device, Link, Ports, Topology
from ampsim.hardware.cluster import Route
from ampsim.model_parallel import PLACEMENTS, SCHEDULES
from ampsim.study.placement_advice import KNOWING, advice_on, difference

FAST, SLOW = Device(name="fast", flop_per_s=1e12), Device(name="slow", flop_per_s=1e11)
LINK, BAD = (Link(latency_s=s, bandwidth_bytes_per_s=b) for s, b in ((1e-6, 1e9), (1e-5, 1e8)))
FAR = tuple(
    Route(source=a, target=b, link=BAD)
    for a, b in itertools.permutations(range(8), 2)
    if (a < 4) != (b < 4)
)
CLUSTERS = {
    "slow first": Cluster(name="c", devices=(SLOW,) * 4 + (FAST,) * 4),
    "fast first": Cluster(name="c", devices=(FAST,) * 4 + (SLOW,) * 4),
    "one slow": Cluster(name="c", devices=(SLOW,) + (FAST,) * 7),
    "slow first, links": Cluster(name="c", devices=(SLOW,) * 4 + (FAST,) * 4, link=LINK),
    "two racks": Cluster(name="c", devices=(FAST,) * 8, link=LINK, links=FAR),
    "one bad link": Cluster(name="c", devices=(FAST,) * 8, link=LINK, links=FAR[:1]),
}
MODELS = {
    "rnn": ({"hidden": 64, "replicas": 2}, 2000),
    "mlp": ({"data": "synthetic", "hidden": 512}, 3000),
    "small mlp": ({"data": "synthetic", "hidden": 64}, 1000),
    "tree_lstm": ({"data": "synthetic", "words": 2000}, 20),
    "ggnn": ({"data": "synthetic"}, 40),
    "bilstm_tagger": ({"data": "synthetic"}, 30),
}
EXAMPLES = [
    *itertools.product(("rnn", "mlp"), CLUSTERS),
    *itertools.product(("tree_lstm",), ("slow first, links", "two racks")),
    ("ggnn", "slow first, links"),
    ("bilstm_tagger", "one slow"),
]
"""Those of all models that take a moment, and of the slow ones those that once were the other way
round: a placement that is faster on another cluster was slower there."""


@cache
def model_of(name):
    return ampsim.load_model(name.removeprefix("small "), **MODELS[name][0])


def makespan_s(name, cluster, schedule, placement):
    words = {"mode": "sleep", "instances": MODELS[name][1], "placement": placement}
    return ampsim.simulate(model_of(name), cluster, schedule, **words).makespan_s


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), EXAMPLES)
def test_a_placement_that_is_named_is_at_least_as_fast_in_a_whole_run(name, kind):
    cluster, schedule = CLUSTERS[kind], ampsim.Amp(max_active_keys=8)
    model, instances = model_of(name), MODELS[name][1]
    advice = advice_on(model, cluster, [schedule], seed=0, instances=instances)
    if advice is None:  # then the default is no slower by much
        return
    usual, named = (
        makespan_s(name, cluster, schedule, each) for each in ("paper", advice.placement)
    )
    assert usual / named >= 1.0, (advice, usual / named)


def test_the_example_of_the_page_gains_what_it_says():
    schedule, text = (
        ampsim.Amp(max_active_keys=8),
        (Path(__file__).parents[2] / "docs" / "command-line.md"),
    )
    cluster = CLUSTERS["slow first, links"]
    usual, named = (
        makespan_s("rnn", cluster, schedule, each) for each in ("paper", "communication-aware")
    )
    assert f"`communication-aware` trains `rnn` {usual / named:.1f} times as fast" in " ".join(
        text.read_text("utf-8").split()
    )


def test_a_forecast_warns_at_the_users_line_and_keeps_it_in_the_manifest():
    cluster, model = CLUSTERS["slow first"], model_of("rnn")
    with pytest.warns(
        PlacementWarning, match="; take the placement '[a-z-]+', or name 'pa"
    ) as told:
        made = ampsim.forecast(model, cluster, [ampsim.Amp()], mode="sleep", instances=200)
    assert told[0].filename == __file__
    assert made.manifest["assumptions"] == [str(told[0].message)]


def test_a_simulation_runs_as_it_is_told_and_tries_nothing_else():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster, words = CLUSTERS["slow first"], {"mode": "sleep", "instances": 100}
        result = ampsim.simulate(model_of("rnn"), cluster, ampsim.Amp(), **words)
    assert "assumptions" not in result.origin


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nobody_is_warned_who_names_a_placement(placement):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = {"mode": "sleep", "instances": 100, "placement": placement}
        ampsim.simulate(model_of("rnn"), CLUSTERS["slow first"], ampsim.Amp(), **words)


@pytest.mark.parametrize("name", SCHEDULES)
def test_advice_is_for_placements_that_the_schedule_runs_under(name):
    schedule, model = SCHEDULES[name](), model_of("small mlp")
    advice = advice_on(
        model, CLUSTERS["slow first"], [schedule], seed=0, instances=MODELS["small mlp"][1]
    )
    if advice is not None:
        makespan_s("small mlp", CLUSTERS["slow first"], schedule, advice.placement)
        assert advice.placement in KNOWING
        assert 1 <= advice.slowest <= advice.fastest


def test_a_forecast_says_where_light_operations_are_drawn_badly_and_how_much_that_takes():
    """A simulation does not: each seed's draw has a throughput of its own, which it shows."""
    model, words = model_of("rnn"), {"mode": "sleep", "instances": 400}
    cluster, amp = ampsim.load_cluster("ampnet-core", workers=8), ampsim.Amp(max_active_keys=8)
    alone = {"seed": 1, "instances": 400, "weighs_light": False}
    assert advice_on(model, cluster, [amp], **alone) is None
    with pytest.warns(PlacementWarning, match="^light operations take time, which the def") as told:
        usual = ampsim.forecast(model, cluster, [amp], seed=1, **words)
    advised = str(told[0].message).partition("; take the placement '")[2].partition("'")[0]
    better = ampsim.forecast(model, cluster, [amp], seed=1, placement=advised, **words)
    ratio = better.table.train_per_s[0] / usual.table.train_per_s[0]
    said = re.search(r"is ([0-9.]+) times as fast", str(told[0].message))
    assert said is not None and ratio == pytest.approx(float(said[1]), rel=0.15)


def test_light_operations_that_take_no_time_are_not_weighed():
    free = Cluster(name="c", devices=(FAST,) * 4)
    assert advice_on(model_of("rnn"), free, [ampsim.Amp(8)], seed=1, instances=100) is None


def test_what_differs_is_what_something_costs_and_not_its_name():
    alike = Device(name="other", description="of the same speed", flop_per_s=1e12)
    assert difference(Cluster(name="c", devices=(FAST, alike))) is None
    assert difference(Cluster(name="c", devices=(FAST,))) is None
    assert difference(Cluster(name="c", devices=(FAST, SLOW))) == "devices"
    to_host = Route(source=0, target=HOST, link=BAD)
    assert difference(Cluster(name="c", devices=(FAST,) * 2, links=(to_host,))) == "links"
    assert difference(Cluster(name="c", devices=(SLOW, FAST), links=(to_host,))) == (
        "devices and links"
    )


def test_ways_over_edges_and_ports_differ_where_their_latency_or_bandwidth_does():
    cost = {"latency_s": 1e-6, "bandwidth_bytes_per_s": 1e9}

    def told(workers: int = 4, **keys: Any) -> str | None:
        return difference(Cluster(name="c", devices=(FAST,) * workers, **keys))

    assert told(topology=Topology(kind="fully-connected", **cost)) is None
    assert told(topology=Topology(kind="fully-connected", **cost), link=BAD) is None  # to the host
    assert told(topology=Topology(kind="star", **cost)) is None
    assert told(3, topology=Topology(kind="ring", **cost)) is None  # all are neighbours
    assert told(topology=Topology(kind="ring", **cost)) == "links"
    assert told(topology=Topology(kind="ring", bandwidth_bytes_per_s=1e9)) is None
    assert told(ports=Ports(egress_bytes_per_s=1e9), link=LINK) is None
    narrow = Route(source=0, target=1, link=BAD)
    assert told(ports=Ports(egress_bytes_per_s=1e7), links=(narrow,)) == "links"  # its latency
    to_host = Route(source=0, target=HOST, link=BAD)
    assert told(topology=Topology(kind="star", **cost), links=(to_host,)) == "links"


TWO_KINDS = """
[[device]]
name = "cpu-core"
count = 4
[[device]]
name = "tflops-1"
count = 4
"""


@pytest.mark.usefixtures("unpainted")
def test_commands_say_it_in_a_line_and_pages_show_it(call):
    Path("two.toml").write_text(TWO_KINDS)
    words = ("--device", "two.toml", "--set", "hidden=64", "--set", "replicas=2")
    words += ("--instances", "200", "--mode", "sleep")
    for command in ("forecast", "run"):
        ended = call(command, "rnn", *words, "--schedule", "amp", "--out", command, "--quiet")
        (line,) = ended.err.splitlines()
        assert line.startswith("ampsim: note: devices differ, which the default placement 'paper'")
        for page in ("index.html", "forecast.md" if command == "forecast" else "report.md"):
            assert "which the default placement" in (Path(command) / page).read_text("utf-8")
        named = (*words, "--placement", "paper", "--schedule", "amp", "--out", f"{command}-named")
        assert call(command, "rnn", *named, "--quiet").err == ""
