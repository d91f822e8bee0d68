"""Where devices or links differ: the default placement is said to be slow only where it is."""

from __future__ import annotations

import html
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
from ampsim.hardware.topology import Route
from ampsim.model_parallel import PLACEMENTS, SCHEDULES
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.running import run_recipe
from ampsim.runs.folder import run_to_keep
from ampsim.study import Simulation
from ampsim.study.placement_advice import DEFAULT, KNOWING, WORTH, advice_on, blindness, difference
from ampsim.study.placement_trials import Trials
from ampsim.study.simulation import RunOptions

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
    "single mlp": ({"data": "synthetic", "hidden": 64, "batch": 1}, 600),
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
    return ampsim.load_model(name.split()[-1], **MODELS[name][0])


def makespan_s(name, cluster, schedule, placement, seed=0):
    words = {"mode": "sleep", "instances": MODELS[name][1], "placement": placement, "seed": seed}
    return ampsim.simulate(model_of(name), cluster, schedule, **words).makespan_s


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), EXAMPLES)
def test_a_placement_that_is_named_is_at_least_as_fast_in_a_whole_run(name, kind):
    cluster, schedule = CLUSTERS[kind], ampsim.Amp(max_active_keys=8)
    model, instances = model_of(name), MODELS[name][1]
    advice = advice_on(Trials(model, cluster, instances), [schedule], seed=0)
    if advice is None:  # then the default is no slower by much
        return
    usual, named = (
        makespan_s(name, cluster, schedule, each) for each in ("paper", advice.placement)
    )
    assert usual / named >= 1.0, (advice, usual / named)


def test_the_example_of_the_page_gains_what_it_says():
    text = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
    asked = "rnn", CLUSTERS["slow first, links"], ampsim.Amp(max_active_keys=8)
    gains = [
        makespan_s(*asked, "paper", seed) / makespan_s(*asked, "communication-aware", seed)
        for seed in range(3)
    ]
    told = "`communication-aware` trains `rnn` {:.1f}, {:.1f} and {:.1f} times as fast with seeds"
    assert told.format(*gains) in " ".join(text.split())


def test_a_forecast_warns_at_the_users_line_and_keeps_it_in_the_manifest():
    cluster, model = CLUSTERS["slow first"], model_of("rnn")
    with pytest.warns(
        PlacementWarning,
        match=r": take the placement '[a-z-]+' \(.*\) or 'search', or name 'paper'",
    ) as told:
        made = ampsim.forecast(model, cluster, [ampsim.Amp()], mode="sleep", instances=800)
    assert told[0].filename == __file__
    assert made.manifest["assumptions"] == [str(told[0].message)]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nobody_is_warned_who_names_a_placement(placement):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = {"mode": "sleep", "instances": 100, "placement": placement}
        ampsim.simulate(model_of("rnn"), CLUSTERS["slow first"], ampsim.Amp(), **words)


@pytest.mark.parametrize("name", SCHEDULES)
def test_advice_is_for_placements_that_the_schedule_runs_under(name):
    schedule, model = SCHEDULES[name](), model_of("small mlp")
    trials = Trials(model, CLUSTERS["slow first"], MODELS["small mlp"][1])
    advice = advice_on(trials, [schedule], seed=0)
    if advice is not None:
        makespan_s("small mlp", CLUSTERS["slow first"], schedule, advice.placement)
        assert advice.placement in KNOWING
        assert 1 <= advice.slowest <= advice.fastest


def test_a_forecast_says_where_light_operations_are_drawn_badly_and_how_much_that_takes():
    model, words = model_of("rnn"), {"mode": "sleep", "instances": 4000}
    cluster, amp = ampsim.load_cluster("ampnet-core", workers=8), ampsim.Amp(max_active_keys=8)
    with pytest.warns(PlacementWarning, match="^messages take time|^light operations take") as told:
        usual = ampsim.forecast(model, cluster, [amp], seed=1, **words)
    advised = str(told[0].message).partition(": take the placement '")[2].partition("'")[0]
    better = ampsim.forecast(model, cluster, [amp], seed=1, placement=advised, **words)
    ratio = better.table.train_per_s[0] / usual.table.train_per_s[0]
    said = re.search(r"\(([0-9.]+) times as fast in trials\)", str(told[0].message))
    assert said is not None and ratio == pytest.approx(float(said[1]), rel=0.15)


ALIKE = Cluster(
    name="c", devices=(FAST,) * 16, link=Link(latency_s=1e-5)
)  # the default crosses a link at every step


def test_links_that_cost_alike_are_spoken_of_by_forecast_run_and_simulation(tmp_path):
    """Sixteen devices at 10 µs: the default is more than twice as slow, and all three say so."""
    model, words = model_of("single mlp"), {"mode": "sleep", "instances": 600}
    said = r"^messages take time: .*'communication-aware' \(([0-9.]+) times as fast"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a simulation is quiet
        result = ampsim.simulate(model, ALIKE, ampsim.Amp(8), **words)
    (sentence,) = result.origin["assumptions"]
    factor = re.search(said, sentence)
    assert factor is not None and float(factor[1]) > 2
    with pytest.warns(PlacementWarning, match=said):
        ampsim.forecast(model, ALIKE, [ampsim.Amp(8)], **{**words, "instances": 100})
    options = RunOptions(mode="sleep", instances=600)
    with pytest.warns(PlacementWarning, match=said):
        run_to_keep(model, ALIKE, ampsim.Amp(8), options)


def test_a_recipe_says_which_of_its_rows_another_placement_would_train_faster(tmp_path):
    rows = "".join(
        f'[[schedules]]\nname = "amp"\nlabel = "{label}"\nmax_active_keys = 8\n{placement}'
        for label, placement in (("silent", 'placement = "paper"\n'), ("told", ""))
    )
    (tmp_path / "recipe.toml").write_text(
        'title = "T"\nmodel = "mlp"\nmode = "sleep"\ninstances = 400\nepochs = 1\n'
        f'cluster = "tflops-1"\nworkers = 16\nlatency_s = 1e-5\n'
        f'set = {{hidden = 64, batch = 1, data = "synthetic"}}\n{rows}'
    )
    made = run_recipe(read_recipe(tmp_path), tmp_path)
    (sentence,) = made.manifest["assumptions"]
    assert re.fullmatch(
        r"in trials other placements than the default are faster "
        r"\(told: 'communication-aware' [0-9.]+ times as fast\)",
        sentence,
    )


@pytest.mark.parametrize("passes_s", [0.0, 1e-6])
def test_runs_too_short_for_trials_and_links_that_are_free_are_not_spoken_of(passes_s):
    """Trials never take more than half of a run's instances."""
    cluster = ALIKE.model_copy(update={"link": Link(latency_s=passes_s)})
    words = {"mode": "sleep", "instances": 150 if passes_s else 600}
    result = ampsim.simulate(model_of("single mlp"), cluster, ampsim.Amp(8), **words)
    assert "assumptions" not in result.origin
    assert (blindness(cluster) is None) == (not passes_s)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("mlp", "slow first, links")]  # where both that know are clearly faster, and one of them most
    + [("single mlp", one) for one in ("alike", "slow first, links", "two racks")],
)
def test_trials_put_placements_in_the_order_of_a_long_run(name, kind):
    cluster, model = {"alike": ALIKE, **CLUSTERS}[kind], model_of(name)
    advice = advice_on(Trials(model, cluster, 700), [ampsim.Amp(8)], seed=1)
    words = {"mode": "sleep", "seed": 1, "instances": 700}
    rates = {
        each: ampsim.simulate(model, cluster, ampsim.Amp(8), placement=each, **words).train_per_s
        for each in (DEFAULT, *KNOWING)
    }
    named = DEFAULT if advice is None else advice.placement
    worth = WORTH if advice is None else 1.0
    assert max(rates.values()) / rates[named] <= 1.02 * worth
    assert rates[named] >= rates[DEFAULT]


def test_where_batches_grow_placements_are_tried_with_those_of_the_last_epoch():
    words: dict[str, Any] = {"data": "synthetic", "hidden": 256, "batch": 25}
    cluster = Cluster(name="c", devices=(SLOW,) * 4, link=Link(latency_s=3e-5))
    options: dict[str, Any] = {"epochs": 4, "instances": 2_500, "mode": "sleep"}
    told: list[tuple[Any, Any]] = []
    for epochs in (0, 2):
        model = ampsim.load_model("mlp", batch_warmup_epochs=epochs, **words)
        usual, searched = (  # whose epochs need not be run
            Simulation(model, cluster, ampsim.Amp(4), placement=one, **options)
            for one in (None, "search")
        )
        told.append((usual.advise(options["epochs"]), searched.result().origin["placement"]))
    assert told[0] == told[1]


def test_what_the_default_is_blind_to_is_what_something_costs():
    free = Cluster(name="c", devices=(FAST,) * 4)
    talks = FAST.model_copy(update={"message_overhead_s": 1e-6})
    steps = FAST.model_copy(update={"step_overhead_s": 1e-6})
    assert blindness(free) is None
    assert advice_on(Trials(model_of("rnn"), free, 100), [ampsim.Amp(8)], seed=1) is None
    assert blindness(Cluster(name="c", devices=(FAST,), link=LINK)) is None
    assert blindness(Cluster(name="c", devices=(FAST,) * 2, link=LINK)) == "messages take time"
    assert blindness(Cluster(name="c", devices=(talks,) * 2)) == "messages take time"
    assert blindness(Cluster(name="c", devices=(steps,) * 2)) == "light operations take time"
    assert blindness(CLUSTERS["slow first, links"]) == "devices differ"


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


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_commands_say_it_in_a_line_and_pages_show_it(call):
    Path("two.toml").write_text(TWO_KINDS)
    words = ("--device", "two.toml", "--set", "hidden=64", "--set", "replicas=2")
    common, amp = (*words, "--mode", "sleep", "--instances"), ("--schedule", "amp")
    for command, instances in (("forecast", "200"), ("run", "60000")):  # of which trials take half
        ended = call(command, "rnn", *common, instances, *amp, "--out", command, "--quiet")
        (line,) = ended.err.splitlines()
        assert line.startswith("ampsim: note: devices differ: take the placement '")
        assert line.endswith(
            " times as fast in trials) or 'search', or name 'paper' to keep the default"
        )
        for page in ("index.html", "forecast.md" if command == "forecast" else "report.md"):
            text = html.unescape((Path(command) / page).read_text("utf-8"))
            assert "or name 'paper' to keep the default" in text
        named = (*common, "200", "--placement", "paper", *amp, "--out", f"{command}-named")
        assert call(command, "rnn", *named, "--quiet").err == ""
