"""`ampsim solve`: conditions, crossings and their intervals, and roots that are known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.errors import AmpsimError
from ampsim.exploring.axes import Axis
from ampsim.exploring.changes import changes_of
from ampsim.exploring.condition import condition_of
from ampsim.exploring.crossings import Crossings, find
from ampsim.exploring.solve import ALONE, nearest
from ampsim.hardware import Cluster, Device
from ampsim.runs import RunCache
from ampsim.units import unit_of

RANGE = Axis("latency_s", low=1e-3, high=1e3)


def crossings(holds: Callable[[int, float], bool], seeds: Sequence[int] = (0,), **more: float):
    def ask(wanted: Sequence[tuple[int, float]]) -> list[bool]:
        return [holds(seed, x) for seed, x in wanted]

    return find(RANGE, seeds, ask, more.get("tolerance", 1e-3))


@pytest.mark.parametrize("root", [2e-3, 1.0, 700.0])
@pytest.mark.parametrize("rises", [True, False])
def test_one_crossing_is_bracketed_as_narrow_as_asked(root, rises):
    (found,) = crossings(lambda _seed, x: (x >= root) == rises).roots()
    assert found.low is not None
    assert found.high is not None
    assert found.low <= root <= found.high <= found.low / (1 - 1e-3)
    assert (found.rises, found.value) == (rises, found.high if rises else found.low)
    assert found.coverage is None


def test_three_crossings_are_all_found():
    edges = (0.02, 1.5, 300.0)
    found = crossings(lambda _seed, x: sum(x >= edge for edge in edges) % 2 == 1).roots()
    assert [one.rises for one in found] == [True, False, True]
    for one, edge in zip(found, edges, strict=True):
        assert one.value == pytest.approx(edge, rel=1e-3)


def test_no_crossing_is_none():
    for holds in (True, False):
        assert crossings(lambda _seed, _x, held=holds: held).roots() == []


def test_whole_numbers_are_bracketed_by_neighbours_and_asked_once():
    asked: list[float] = []

    def ask(wanted: Sequence[tuple[int, float]]) -> list[bool]:
        asked.extend(x for _seed, x in wanted)
        return [x >= 11 for _seed, x in wanted]

    axis = Axis("workers", low=1, high=64, is_whole=True)
    (found,) = find(axis, [0], ask, 1e-3).roots()
    assert (found.low, found.high) == (10, 11)
    assert len(asked) == len(set(asked))
    assert all(x.is_integer() for x in asked)


def test_nine_points_are_asked_at_once_of_each_seed_and_then_one_for_each_bracket():
    """Together, so that as many runs as cores are made beside each other."""
    asked: list[list[tuple[int, float]]] = []

    def ask(wanted: Sequence[tuple[int, float]]) -> list[bool]:
        asked.append([*wanted])
        return [x >= (0.02, 40.0)[seed] for seed, x in wanted]

    find(RANGE, (0, 1), ask, 1e-3)
    first, *later = asked
    assert sorted(first) == [
        (seed, pytest.approx(10 ** (-3 + 6 * place / 8))) for seed in (0, 1) for place in range(9)
    ]
    assert len(later) == math.ceil(math.log2(6 * math.log(10) / 8 / -math.log1p(-1e-3)))
    assert all([seed for seed, _x in one] == [0, 1] for one in later)


def test_a_range_from_zero_is_halved_evenly():
    axis = Axis("latency_s", low=0.0, high=8.0)
    found = find(axis, [0], lambda wanted: [x >= 0.5 for _seed, x in wanted], 1e-3).roots()
    assert found[0].value == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("rises", [True, False])
def test_with_several_seeds_a_whole_root_is_the_first_number_at_which_most_hold(rises):
    axis, drawn = Axis("workers", low=1, high=64, is_whole=True), np.random.default_rng(3)
    for seeds in (2, 3, 4, 5):
        edges = drawn.integers(2, 64, seeds).tolist()

        def held(seed: int, x: float, edges: list[int] = edges) -> bool:
            return (x >= edges[seed]) == rises

        found = find(
            axis, range(seeds), lambda wanted, held=held: [held(*one) for one in wanted], 1e-3
        )
        (root,) = found.roots()
        most = [x for x in range(1, 65) if 2 * sum(held(one, x) for one in range(seeds)) > seeds]
        assert root.value == (min(most) if rises else max(most)), edges


SEEDS = 9


def roots_with_noise(trial: int, root: float, spread: float = 0.3) -> Crossings:
    """T(x) = root / x times a lognormal factor of each seed; asked until T <= 1."""
    noise = np.random.default_rng(trial).lognormal(0.0, spread, SEEDS).tolist()
    return crossings(lambda seed, x: noise[seed] * root / x <= 1.0, range(SEEDS), tolerance=1e-2)


def test_intervals_of_95_percent_cover_the_root_in_95_of_100_trials():
    root, covered = 1.7, 0
    for trial in range(1000):
        (found,) = roots_with_noise(trial, root).roots()
        assert found.coverage == pytest.approx(0.961, abs=1e-3)
        covered += (found.low or 0.0) <= root <= (found.high or math.inf)
    assert abs(covered / 1000 - 0.95) <= 0.02


def test_seeds_that_never_cross_count_as_beyond_the_end():
    edges = [0.5, 0.6, 0.7, 5e3, 6e3]
    (found,) = crossings(lambda seed, x: x >= edges[seed], range(5)).roots()
    assert (found.seeds_below, found.seeds_above) == (0, 2)
    assert found.value == pytest.approx(0.7, rel=1e-2)
    assert found.high is None
    (found,) = crossings(lambda seed, x: x >= [1e-4, 0.6, 0.7][seed], range(3)).roots()
    assert (found.seeds_below, found.seeds_above) == (1, 0)
    assert found.low is None


@pytest.mark.parametrize("rises", [True, False])
def test_a_seed_that_crosses_elsewhere_counts_by_what_it_is_at_the_crossing(rises):
    """Of most the condition begins at 0.5 and at 200; where is it for those that differ there?"""
    edges = [(0.4, 1.5, 200), (0.5, 1.6, 210), (0.6, 1.7, 220), (1.5, 250), (300,)]
    holds = [False, False, False, True, False]  # before the first edge: one ends and begins again

    def held(seed: int, x: float) -> bool:
        return (holds[seed] == (sum(x >= edge for edge in edges[seed]) % 2 == 0)) == rises

    first, _end, again = crossings(held, range(5)).roots()
    assert (first.value, again.value) == (
        pytest.approx(0.5, rel=1e-2),
        pytest.approx(220, rel=1e-2),
    )
    assert (first.seeds_below, first.seeds_above) == (1, 0)
    assert first.low is None
    assert first.high == pytest.approx(300, rel=1e-2)


@pytest.mark.parametrize("rises", [True, False])
def test_where_half_of_the_seeds_never_cross_the_root_is_where_most_begin_to_hold(rises):
    """A median of numbers and of what lies beyond an end is none, though most cross within."""
    edges = [1e-4, 1e-4, 0.7, 0.6] if rises else [0.6, 0.7, 5e3, 5e3]
    (found,) = crossings(lambda seed, x: (x >= edges[seed]) == rises, range(4)).roots()
    assert found.value == pytest.approx(0.6 if rises else 0.7, rel=1e-2)
    assert (found.seeds_below, found.seeds_above) == ((2, 0) if rises else (0, 2))


def test_where_most_seeds_do_not_cross_there_is_no_root():
    edges = [0.5, 5e3, 6e3]
    found = crossings(lambda seed, x: x >= edges[seed], range(3))
    assert found.roots() == []
    assert len(found.brackets[0]) == 1


def test_a_condition_is_read_and_holds():
    found = condition_of("time_s(pipeline:4) / 2 >= 1.5e0 * time_s")
    assert found.values == (("time_to_target_s", "pipeline:4"), ("time_to_target_s", ""))
    assert found.is_learned
    assert not condition_of("epoch_s < 1").is_learned
    assert condition_of("dollars < 2 * joules").values == (
        ("cost_to_target_usd", ""), ("energy_to_target_j", ""),
    )  # fmt: skip
    pipeline, other = found.values
    assert found.holds({pipeline: 3.0, other: 1.0})
    assert not found.holds({pipeline: 2.9, other: 1.0})
    assert found.holds({pipeline: math.inf, other: 1.0})
    assert not found.holds({pipeline: math.nan, other: 1.0})
    assert not condition_of("epoch_s(amp) / epoch_s(gpipe) < 2").holds(
        {("epoch_s", "amp"): math.inf, ("epoch_s", "gpipe"): math.inf}
    )


WRONG = {
    "time_s": "until must be two sides with one of <=, >=, < and > between them",
    "1 < epoch_s < 2": "until must be two sides",
    "time_s = 1": "until must be two sides",
    "1 <= 2": "until must name a column",
    "time <= 1": "no column named 'time'; did you mean 'time_s'?",
    "time_s <= ": "expected a number, a column or a column with a schedule, such as time_s(amp:8)",
    "time_s + 1 <= 2": "joined by * and /, got 'time_s + 1' in",
    "time_s() <= 2": "time_to_target_s() must name a schedule",
    "time_s <= -2": "got '-2' in",
    "time_s <= 0": "numbers must be finite and above 0, got 0",
    "time_s <= 1e999": "numbers must be finite and above 0, got 1e999",
    "time_s(amp <= 2": "got 'time_s(amp' in",
    "time_s <= joules": "until compares s with J in 'time_s <= joules'; take columns of one",
    "epoch_s * peak_bytes <= dollars": "until compares bytes s with USD in",
    "train_per_s >= time_s(amp:4)": "until compares s^-1 with s in",
    "best_error <= best_accuracy": "until compares error with a number in",
    "__import__('os') <= 2": "no column named '__import__'",
    "time_s <= 1.2.3": "got '1.2.3' in",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_condition_is_told_in_one_line(text):
    with pytest.raises(AmpsimError, match=re.escape(WRONG[text])) as caught:
        condition_of(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "joules / time_s <= 300", "joules <= 300 * time_s", "time_s <= epochs * epoch_s",
        "train_per_s <= valid_per_s(amp)", "staleness_mean <= utilisation", "best_error <= 0.1",
    ],
)  # fmt: skip
def test_sides_of_one_unit_are_compared_and_a_number_is_of_any(text):
    assert condition_of(text).text == text


MODEL = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
HOW: dict[str, Any] = {"instances": 200}


def test_the_root_of_one_worker_is_work_over_time():
    device = ampsim.Device(name="d", flop_per_s=1e9)
    cluster = ampsim.Cluster(name="c", devices=(device,))
    spans = ampsim.simulate(MODEL, cluster, "sequential", mode="sleep", **HOW).spans
    work = float(spans["flop"].sum())
    found = ampsim.solve(
        MODEL, cluster, "sequential", over={"flop_per_s": "1e7..1e12"}, until="epoch_s <= 0.01",
        **HOW,
    )  # fmt: skip
    (row,) = found.table.to_dict("records")
    assert row["value"] == pytest.approx(work / 0.01, rel=1e-3)
    assert row["low"] <= work / 0.01 <= row["high"] == row["value"]
    assert (row["holds"], row["unit"], row["seeds"]) == ("above", "FLOP/s", 1)
    assert row["bound_by"].startswith("linear-1, ")


def test_where_steps_vary_what_is_timed_has_a_root_for_each_seed():
    """One worker, charged FLOP alone: the root of a seed is the time of its run, at that rate."""
    device = ampsim.Device(name="d", flop_per_s=1e9, jitter_cv=1.0)
    cluster = ampsim.Cluster(name="c", devices=(device,))
    runs = (ampsim.simulate(MODEL, cluster, "sequential", mode="sleep", **HOW, seed=one)
            for one in range(3, 9))  # fmt: skip
    roots = sorted(1e9 * float(one.epochs["time_s"].iloc[0]) / 0.01 for one in runs)
    found = ampsim.solve(
        MODEL, cluster, "sequential", over={"flop_per_s": "2e8..2e9"}, until="epoch_s <= 0.01",
        seed=3, **HOW,
    )  # fmt: skip
    (row,) = found.table.to_dict("records")
    assert roots[-1] > 1.02 * roots[0]
    assert row["value"] == pytest.approx((roots[2] + roots[3]) / 2, rel=1e-3)
    assert (row["low"], row["high"]) == pytest.approx((roots[0], roots[-1]), rel=1e-3)
    assert (row["seeds"], row["coverage"]) == (6, 1 - 2 / 2**6)


@pytest.mark.parametrize("seeds", [3, 4])
def test_where_the_order_of_data_decides_what_is_timed_has_a_root_for_each_seed(seeds):
    """Lists of unlike lengths come in another order with each seed; work over time is the root.

    Seeds 0 and 3 differ by 0.08 %, less than an exact bracket is wide; those between by 3 %.
    """
    model = ampsim.load_model("rnn", hidden=4, replicas=1)
    device = ampsim.Device(name="d", flop_per_s=1e9)
    cluster = ampsim.Cluster(name="c", devices=(device,))
    runs = (ampsim.simulate(model, cluster, "sequential", mode="sleep", instances=200, seed=one)
            for one in range(seeds))  # fmt: skip
    roots = sorted(1e9 * float(one.epochs["time_s"].iloc[0]) / 0.01 for one in runs)
    ask = partial(
        ampsim.solve, model, cluster, "sequential", over={"flop_per_s": "1e7..1e9"},
        until="epoch_s <= 0.01", instances=200,
    )  # fmt: skip
    found, alone = ask(repeats=seeds), ask(repeats=1, seed=2)
    assert ALONE.format(2) in alone.sentences and alone.table["seeds"].tolist() == [1]
    assert not any(one.startswith(ALONE[:13]) for one in found.sentences)
    (row,) = found.table.to_dict("records")
    assert roots[-1] > 1.002 * roots[0]
    root = (roots[0], median(roots), roots[-1])
    assert (row["low"], row["value"], row["high"]) == pytest.approx(root, rel=1e-3)
    assert (row["seeds"], found.manifest["seeds"]) == (seeds, [*range(seeds)])


def test_seeds_that_differ_only_within_the_range_have_roots_of_their_own():
    """At one and at eight in flight the largest staleness is the same with each of the lists."""
    model = ampsim.load_model("rnn", hidden=4, replicas=1)
    how: dict[str, Any] = {"cluster": ampsim.load_cluster("tflops-1", workers=2), "instances": 200}
    largest = [
        [ampsim.simulate(model, schedule=ampsim.Amp(count), mode="sleep", seed=seed, **how)
         .staleness_max for count in (1, *range(2, 6), 8)]
        for seed in range(3)
    ]  # fmt: skip
    found = ampsim.solve(
        model, over={"max_active_keys": "1..8"}, until="staleness_max <= 5", repeats=3, **how,
    )  # fmt: skip
    (row,) = found.table.to_dict("records")
    assert len({(of[0], of[-1]) for of in (largest[0], largest[2])}) == 1
    roots = sorted(sum(one <= 5 for one in of if one is not None) for of in largest)
    assert (row["low"], row["value"], row["high"], row["seeds"]) == (*roots, 3)


def test_the_root_of_a_chain_is_where_latency_takes_as_long_as_work():
    device = ampsim.Device(name="d", flop_per_s=1e9)
    cluster = ampsim.Cluster(name="c", devices=(device,) * 4)

    def epoch_s(latency_s: float) -> float:
        on = cluster.model_copy(update={"link": ampsim.Link(latency_s=latency_s)})
        return float(
            ampsim.simulate(MODEL, on, "sequential", mode="sleep", **HOW).epochs["time_s"].iloc[-1]
        )

    work_s = epoch_s(0.0)
    crossed = (epoch_s(1.0) - work_s) / 1.0  # messages of an epoch, one after the other
    found = ampsim.solve(
        MODEL, cluster, "sequential", over={"latency_s": "1e-9..1"},
        until=f"epoch_s >= {2 * work_s!r}", **HOW,
    )  # fmt: skip
    assert found.table["value"].tolist() == pytest.approx([work_s / crossed], rel=1e-3)


def test_a_ratio_of_two_schedules_has_a_row_of_its_own():
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    found = ampsim.solve(
        MODEL, cluster, over={"latency_s": "1e-9..1e-3"},
        until="epoch_s(pipeline:4) <= 0.5 * epoch_s(sequential)", **HOW,
    )  # fmt: skip
    (row,) = found.table.to_dict("records")
    assert row["schedule"] == "pipeline:4, sequential"
    sides = found.curve.set_index("value").loc[row["value"]]
    assert sides["left"] <= sides["right"]
    assert f"what binds sequential there: {row['bound_by']}" in found.sentences[0]
    assert found.curve["is_held"].tolist() == (found.curve["left"] <= found.curve["right"]).tolist()


def test_what_is_learned_has_a_root_for_each_seed_and_drains_learn_once(tmp_path):
    cluster = ampsim.load_cluster("tflops-1", workers=4, latency_s=1e-6)
    found = ampsim.solve(
        MODEL, cluster, "pipeline", over={"flop_per_s": "1e8..1e11"}, until="time_s <= 0.01",
        target=0.05, max_epochs=2, repeats=3, keeping=RunCache(tmp_path), **HOW,
    )  # fmt: skip
    (row,) = found.table.to_dict("records")
    assert row["low"] <= row["value"] <= row["high"]
    assert (row["seeds"], row["coverage"], row["holds"]) == (3, 0.75, "above")
    said: list[str] = []
    again = ampsim.solve(
        MODEL, cluster, "pipeline", over={"flop_per_s": "1e8..1e11"}, until="time_s <= 0.01",
        target=0.05, max_epochs=2, repeats=3, keeping=RunCache(tmp_path, say=said.append), **HOW,
    )  # fmt: skip
    assert len(said) == len(found.curve)
    assert all(line.endswith("kept from before") for line in said)
    pd.testing.assert_frame_equal(again.table, found.table)


def test_the_nearest_shipped_devices_are_named():
    assert nearest("device.flop_per_s", 5e11) == ("cpu-core", "ampnet-tflops-1") or nearest(
        "device.flop_per_s", 5e11
    ) == ("cpu-core", "tflops-1")
    assert nearest("device.flop_per_s", 1e30)[1] is None
    assert nearest("latency_s", 1e-6) == (None, None)
    assert [unit_of(key) for key in ("workers", "device.memory_bytes")] == ["", "bytes"]


SMALL = (
    "mlp", "--set", "hidden=8", "--set", "data=synthetic", "--set", "batch=20",
    "--set", "valid_images=40", "--instances", "100", "--workers", "4", "-q", "-j", "1",
)  # fmt: skip


def test_the_command_gives_rows_and_files(call, tmp_path):
    ended = call(
        "solve", *SMALL, "--schedule", "amp", "--for", "device.flop_per_s=1e8..1e12",
        "--until", "epoch_s <= 0.001", "--json", "s.json",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    made = json.loads((tmp_path / "s.json").read_text())
    assert [row["schedule"] for row in made["rows"]] == ["amp"]
    assert set(made["rows"][0]) > {"schedule", "value", "low", "high", "unit"}
    assert "epoch_s <= 0.001 holds from device.flop_per_s = " in ended.out
    written = {path.name for path in (tmp_path / "solve-mlp").iterdir()}
    assert written == {"report.md", "solve.csv", "curve.csv", "solve.png", "manifest.toml"}


MISTAKES = {
    ("latency_s=1e-6,1e-5", "epoch_s <= 1"): "solve varies one key over a range",
    ("latency=1e-6..1", "epoch_s <= 1"): "nothing named 'latency' can vary",
    ("latency_s=1e-6..1e-3", "time_s(nope) <= 1"): "no schedule named 'nope'",
    ("latency_s=1e-6..1e-3", "time_s(amp:8) <= 1"): "schedules (--schedule) have no effect on",
    ("max_active_keys=1..8", "epoch_s(amp:4) <= epoch_s"): "amp:4 says max_active_keys itself",
    ("latency_s=1e-6..1e-3", "cost_to_target_usd <= 1"): "says no cost_to_target_usd",
}


def test_a_range_in_python_is_asked_for_in_words():
    said = "^over of latency_s must be text such as '1e11..1e14', got "
    with pytest.raises(AmpsimError, match=said):
        ampsim.solve("mlp", "tflops-1", over={"latency_s": (1e-6, 1e-3)}, until="epoch_s <= 1")  # pyright: ignore[reportArgumentType]  # what is refused


@pytest.mark.parametrize(("until", "place"), [("epoch_s <= 1e-9", -1), ("epoch_s >= 1e9", 0)])
def test_of_what_holds_nowhere_it_is_said_how_near_it_comes(until, place):
    model = ampsim.load_model("mlp", hidden=4, data="synthetic", batch=20, valid_images=20)
    over = {"device.flop_per_s": "1e9..1e12"}
    found = ampsim.solve(model, "tflops-1", "sequential", over=over, until=until, instances=80)
    assert found.table["holds"].tolist() == ["nowhere"]
    assert found.cells[1][0][:3] == ["sequential", "nowhere", "–"]
    point = found.curve.sort_values("value").iloc[place]
    near = f"nearest at device.flop_per_s = {point['value']:.4g}, with {point['left']:.4g} against "
    assert near + f"{point['right']:.4g}." in found.sentences[0]


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_one_line(mistake, words):
    over, until = words
    arguments = (
        "--for",
        over,
        "--until",
        until,
        "--schedule",
        "sequential",
        "--repeats",
        "1",
    )
    if "epoch_s" not in until:  # of which a target means nothing
        arguments += ("--target", "0.05")
    assert MISTAKES[words] in mistake("solve", *SMALL, "--max-epochs", "1", *arguments)


@pytest.mark.parametrize("until", ["time_s <= 1", "epochs >= 1", "epoch_s <= 1 * joules"])
def test_what_is_to_a_target_is_not_asked_where_there_is_none(until):
    model = replace(ampsim.load_model("mlp", hidden=4, data="synthetic", batch=20), target=None)
    how: dict[str, Any] = {"over": {"latency_s": "1e-6..1e-3"}, "until": until}
    with pytest.raises(AmpsimError, match=r"^mlp has no target, and '.*' needs one; give target$"):
        ampsim.solve(model, "tflops-1", "amp", **how, instances=40, max_epochs=1, repeats=1)


@pytest.mark.parametrize("until", ["time_s >= 1e-9", "epoch_s >= 1e-9"])
def test_where_memory_is_too_small_no_condition_holds_though_it_never_arrives(until):
    model = ampsim.load_model("mlp", hidden=4, data="synthetic", batch=20, valid_images=20)
    # 3 in flight take 216,640 bytes
    small = ampsim.Device(name="small", flop_per_s=1e12, memory_bytes=200_000)
    how: dict[str, Any] = {"instances": 80, "target": 0.01, "max_epochs": 1, "repeats": 1}
    over = {"max_active_keys": "1..4"}
    cluster = ampsim.Cluster(name="two", devices=(small,) * 2)
    found = ampsim.solve(model, cluster, "pipeline", over=over, until=until, **how)
    assert found.table[["holds", "value"]].to_numpy().tolist() == [["below", 2.0]]
    tried = "2 of 4" if until.startswith("time_s") else "4 of 8"  # of another seed, too
    assert f"At {tried} points tried a run failed, where" in found.sentences[1]


@pytest.mark.parametrize("question", ["explore", "search", "solve", "whatif"])
def test_that_no_run_reaches_the_target_is_told_by_every_question(question, only, tmp_path):
    """Else the answer would be that no hardware is fast enough."""
    model = ampsim.load_model("rnn", hidden=8, replicas=1, batch=20)
    how: dict[str, Any] = {"target": 0.999, "max_epochs": 2, "repeats": 1, "instances": 100}
    how |= {
        "explore": {"over": {"workers": [2, 4]}},
        "search": {"over": {"workers": [2, 4]}, "trials": 2},
        "solve": {"over": {"latency_s": "1e-7..1e-6"}, "until": "time_s(amp) >= time_s(pipeline)"},
        "whatif": {"learn": 1},
    }[question]
    names = ["sequential", "amp"] if question in ("explore", "search") else None
    if question == "search":
        pytest.importorskip("optuna", reason="optuna is not installed")
    cluster = ampsim.load_cluster("tflops-1", workers=8)
    ask = partial(getattr(ampsim, question), model, cluster, *([names] if names else []))
    found = ask(**how)
    said = r"No run reached 99.9 % within 2 epochs; the best accuracy was \d.*\. Give another "
    assert len([one for one in found.sentences if re.match(said, one)]) == 1
    found.save(tmp_path)  # its figures have nothing to show, and say so
    if question == "solve":
        assert found.table["holds"].tolist() == ["unknown"]
        assert "is unknown from latency_s = 1e-07 to 1e-06" in found.sentences[0]
    if question == "whatif":
        assert set(found.table.query("what != 'now'")["basis"]) == {"shared", "timing"}
        assert any(re.fullmatch(r"worker \d and \d more", line[0]) for line in found.cells[1])
    only(factor=2.0)
    found = ask(**how | {"target": 0.02})
    assert not any("No run reached" in one for one in found.sentences)


def test_groups_that_each_seed_draws_are_looked_at_with_more_than_two_seeds(monkeypatch):
    """Of four devices there are three pairs of groups: seeds 0, 1 and 5 draw one, 2 another."""
    devices = [Device(name=f"d{rate}", flop_per_s=rate * 1e9) for rate in (1, 2, 3, 4)]
    cluster = Cluster(name="c", devices=tuple(devices))
    model = ampsim.load_model("mlp", data="synthetic", hidden=4, batch=20, valid_images=20)
    drawn = ampsim.LocalSGD(ranks=2, inner="local-sgd:2", groups="random")
    asked: dict[str, Any] = {"over": {"period": "1..2"}, "until": "epoch_s >= 1"}
    (root,) = ampsim.solve(model, cluster, [drawn], instances=160, **asked).rows
    assert root["seeds"] == 6
    (root,) = ampsim.solve(model, cluster, [drawn], instances=160, repeats=2, **asked).rows
    assert root["seeds"] == 2  # which draw the same, and a third does not
    monkeypatch.setattr("ampsim.exploring.whatif.changes_of", lambda *what: changes_of(*what)[:1])
    said = ampsim.whatif(model, cluster, [drawn], mode="sleep", instances=160).sentences
    assert any("seeds differ" in one for one in said)
