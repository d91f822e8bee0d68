"""ampsim calibrate table: it finds the device that made the numbers, and says what is wrong."""

from __future__ import annotations

import csv
import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ampsim import Amp, LocalSGD, load_cluster, load_model, simulate
from ampsim.calibration import Calibration, calibrate, read_table_file
from ampsim.calibration import least_squares as fitting
from ampsim.calibration.fit import (
    SIGNS,
    TIMELESS,
    Fitted,
    Measured,
    Point,
    bound,
    bounds_of,
    make_device,
    make_rows,
    median_error,
    published,
    rank_correlation,
)
from ampsim.calibration.page import device_file, page, points_text, verdict
from ampsim.calibration.texts import device_text
from ampsim.errors import FileFormatError
from ampsim.files import sha256_of
from ampsim.hardware import Cluster, Device, load_device
from ampsim.hardware.device import NUMBERS
from ampsim.runs.witness import leading

TRUE = Device(name="true", flop_per_s=3e10, step_overhead_s=2e-5)
HEAD = """
name = "found"
workers = 4
train_instances = 8
valid_instances = 4

[fit.flop_per_s]
start = 1e10
min = 1e8
max = 1e13

[fit.step_overhead_s]
start = 1e-6
min = 1e-8
max = 1e-2
"""
WAITING = LocalSGD(ranks=2, inner=Amp(4, max_group=4, group_wait_s=1e-3))
SETTINGS = [(1, 16, 1), (1, 128, 2), (2, 64, 4)]


def row(label: str, replicas: int, hidden: int, keys: int, **more: Any) -> str:
    lines = {"label": label, "model": "rnn", "max_active_keys": keys, "source": "a test", **more}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
    return f"[[rows]]\nset = {{ replicas = {replicas}, hidden = {hidden} }}\n{text}"


def truth(replicas: int, hidden: int, keys: int) -> dict[str, float]:
    """What the device of these tests gives, asked for without any calibration."""
    model = leading(load_model("rnn", replicas=replicas, hidden=hidden), 8, 4)
    cluster = Cluster(name="true", devices=(TRUE,) * 4)
    result = simulate(model, cluster, Amp(max_active_keys=keys), mode="sleep")
    return {"train_per_s": result.train_per_s, "valid_per_s": result.valid_per_s}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose numbers come from the true device; the fit sees two of three rows."""
    rows = [
        row(f"row {place}", *setting, **truth(*setting), is_fitted=place < 2)
        for place, setting in enumerate(SETTINGS)
    ]
    path = tmp_path_factory.mktemp("table") / "table.toml"
    path.write_text(HEAD + "\n".join(rows))
    return path


@pytest.fixture(scope="module")
def found(file: Path) -> Calibration:
    """What is fitted to it."""
    return calibrate(read_table_file(file))


@pytest.mark.slow
def test_a_fit_finds_the_device_that_made_the_numbers(found):
    assert found.device.flop_per_s == pytest.approx(TRUE.flop_per_s, rel=1e-3)
    assert found.device.step_overhead_s == pytest.approx(TRUE.step_overhead_s, rel=1e-3)
    assert len(found.seen) == 4 and len(found.unseen) == 2
    assert median_error(found.unseen) < 1e-3
    for one in found.fitted:
        assert one.low <= getattr(TRUE, one.key) * 1.001 and one.high * 1.001 >= one.value


@pytest.mark.slow
def test_a_number_that_a_bound_holds_is_said_first_and_its_interval_ends_there(file, tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(file.read_text().replace("max = 1e13", "max = 2e10"))
    found = calibrate(read_table_file(path))
    (rate,) = [one for one in found.fitted if one.key == "flop_per_s"]
    assert rate.is_at_bound and rate.value == pytest.approx(2e10)
    assert rate.low >= 1e8 and rate.high == 2e10
    held = "Held by a bound of the file, not decided by its rows: flop_per_s. flop_per_s = 2e+10 ("
    assert verdict(found).startswith(held)


@pytest.mark.parametrize("start", [1e10, 4.5678e10])
def test_a_bound_may_be_what_another_number_allows_and_is_written_to_the_bit(start, tmp_path):
    """A memory no faster than the cache: it was tried at 2 % more, and written with 4 digits."""
    known = "flop_per_s = 1e11\ncache_bytes = 200_000\ncache_bandwidth_bytes_per_s = 4.5678e10"
    fit = "[fit.memory_bandwidth_bytes_per_s]\nmin = 1e8\nmax = 4.5678e10"
    text = f"{HEAD.split('[fit')[0]}[device]\n{known}\n{fit}\nstart = {start}\n"
    path = tmp_path / "bound.toml"
    path.write_text(text + row("fast", 1, 16, 1, train_per_s=1e9, valid_per_s=1e9, is_fitted=True))
    found = calibrate(read_table_file(path))
    (one,) = found.fitted
    assert one.is_at_bound and one.value == one.high == 4.5678e10
    path.write_text(device_text(found))
    assert load_device(path).intervals[one.key][1] == 4.568e10
    assert load_device(path).memory_bandwidth_bytes_per_s == 4.5678e10


def test_two_numbers_that_cross_within_a_fit_are_told_with_the_remedy(tmp_path):
    """A memory no faster than the cache: the file is sound, and a step of the fit is not."""
    fits = [
        f"[fit.{key}_bandwidth_bytes_per_s]\nmin = 1e8\nmax = 1e12\nstart = {start}\n"
        for key, start in (("memory", 1.0e9), ("cache", 1.005e9))
    ]
    head = [HEAD.split("[fit")[0], "[device]\nflop_per_s = 1e11\ncache_bytes = 200_000\n", *fits]
    path = tmp_path / "crossing.toml"
    path.write_text(
        "".join(head) + row("a", 1, 16, 1, train_per_s=1e9, valid_per_s=1e9, is_fitted=True)
    )
    said = r"crossing\.toml: fit: two numbers cross; set bounds apart: Device: cache_bandwidth_\S+ "
    with pytest.raises(FileFormatError, match=said):
        calibrate(read_table_file(path))


@pytest.mark.slow
def test_a_copy_of_a_row_is_named_as_it_counts_once_more_and_narrows_the_intervals(file, found):
    """A repeat has a number of its own, or is not fitted."""
    first, *others = found.table.file.rows
    copy = first.model_copy(update={"label": "again", "source": "elsewhere"})
    repeat = copy.model_copy(update={"label": "repeat", "train_per_s": first.train_per_s * 1.01})
    unseen = copy.model_copy(update={"label": "unseen", "is_fitted": False})
    rows = [first, copy, repeat, unseen, *others]
    table = replace(found.table, file=found.table.file.model_copy(update={"rows": rows}))
    said = "With settings and numbers of an earlier row: again; leave out a copy"
    assert said in verdict(replace(found, table=table))
    assert "earlier row" not in verdict(found)


@pytest.mark.slow
def test_two_fits_give_the_same_bits(file, found):
    again = calibrate(read_table_file(file))
    assert again.points == found.points and again.fitted == found.fitted


def test_a_device_twice_as_fast_in_everything_is_twice_as_fast(file):
    """Which is why its runs need not be made: they are compared with runs that are."""
    table = read_table_file(file)
    rows = make_rows(table)[:2]
    at = [math.log(2e10), math.log(1e-5)]
    faster = [at[0] + math.log(2), at[1] - math.log(2)]
    measured = Measured(table, rows)
    assert measured.is_homogeneous
    measured(at)
    derived = measured(faster)
    assert measured.runs == 2
    assert derived == pytest.approx(Measured(table, rows)(faster), abs=1e-9)


def test_a_known_time_breaks_the_law(file):
    text = file.read_text().replace("[fit.step", "[device]\noperation_overhead_s = 1e-7\n[fit.step")
    known = file.with_name("known.toml")
    known.write_text(text)
    assert not Measured(read_table_file(known), []).is_homogeneous
    table = read_table_file(file)
    [waits] = [replace(one, schedule=WAITING) for one in make_rows(table)[:1]]
    assert not Measured(table, [waits]).is_homogeneous


def test_a_fit_that_ran_out_of_steps_says_so_first(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "ITERATIONS_MAX", 1)
    path = tmp_path / "table.toml"
    text = HEAD.split("[fit.step")[0]
    path.write_text(text + row("one", 1, 16, 1, train_per_s=1e3, is_fitted=True))
    found = calibrate(read_table_file(path))
    said = "The fit ran out of steps: start it at what it found, or bound it closer. flop_per_s = "
    assert verdict(found).startswith(said)
    assert "throughput is not known to be least, by" in page(found)
    monkeypatch.undo()
    found = calibrate(read_table_file(path))
    assert not verdict(found).startswith("The fit")
    assert "throughput is the least near these, by" in page(found)


def test_every_number_of_a_device_can_be_fitted_or_is_no_time():
    assert not SIGNS.keys() & TIMELESS
    assert SIGNS.keys() | TIMELESS == set(NUMBERS)
    for key, sign in SIGNS.items():
        assert (sign == 1) == key.endswith("per_s"), key


@pytest.mark.slow
def test_a_row_may_replace_numbers_of_the_device(file):
    text = (
        file.read_text() + row("fast", *SETTINGS[1], train_per_s=1.0) + "device.flop_per_s = 1e15\n"
    )
    path = file.with_name("fast.toml")
    path.write_text(text)
    found = calibrate(read_table_file(path))
    fast = found.points[-1]
    assert fast.has_own_device and fast not in found.unseen
    assert fast.simulated > 1.5 * found.points[2].simulated


@pytest.mark.parametrize(
    ("own", "line"),
    [
        ("flop_per_s = -1", r"rows\[2\]: device: Device: flop_per_s must be > 0, got -1$"),
        ("copy_latency_s = 1", r"rows\[2\]: device: Device: copy_latency_s has no effect without"),
        ("flops = 1", r"rows\[2\]: device has no number 'flops'$"),
    ],
)
def test_what_a_row_replaces_is_checked_before_anything_is_fitted(own, line, file):
    path = file.with_name("own.toml")
    path.write_text(f"{file.read_text()}device.{own}\n")
    with pytest.raises(FileFormatError, match=rf"own\.toml: {line}"):
        make_rows(read_table_file(path))


@pytest.mark.parametrize(
    ("own", "line"),
    [
        ("device.memory_bytes = 20_000", r"worker \d \(found\) is out of memory at "),
        ('schedule = "1f1b"', "1f1b needs a chain of stages, but rnn is none"),
    ],
)
def test_a_row_that_cannot_run_is_named_and_memory_has_an_end(own, line, file):
    """Memory was not counted, so that a row that does not fit had a throughput."""
    text = row("whole", *SETTINGS[1], train_per_s=1.0).replace("max_active_keys = 2\n", "")
    path = file.with_name("cannot.toml")
    path.write_text(f"{file.read_text()}{text}{own}\n")
    ran: list[str] = []
    with pytest.raises(FileFormatError, match=rf"cannot\.toml: rows\[3\]: {line}"):
        calibrate(read_table_file(path), ran.append)
    assert ran == ["row 2", "whole"], "it is told after the fit"


@pytest.mark.slow
def test_the_command_writes_a_device_file_that_runs_and_says_where_it_is_from(call, file):
    ended = call(
        "calibrate", "table", str(file), "--out", "made", "--quiet", "--json", "found.json"
    )
    assert ended.code == 0 and ended.err == ""
    assert {path.name for path in Path("made").iterdir()} == {
        "found.toml", "manifest.toml", "points.csv", "predicted.png", "report.md",
    }  # fmt: skip
    device = load_device("made/found.toml")
    assert device.flop_per_s == pytest.approx(TRUE.flop_per_s, rel=1e-3)
    assert device.source("flop_per_s").kind == "fitted"
    assert (
        "fitted to 4 published numbers, row 0; row 1 (a test)" in device.source("flop_per_s").text
    )
    assert load_cluster("made/found.toml").workers == 16
    content = json.loads(Path("found.json").read_text())
    assert [one["key"] for one in content["fitted"]] == ["flop_per_s", "step_overhead_s"]
    assert len(content["points"]) == 6
    assert call("calibrate", "table", str(file), "--out", "made", "--quiet").code == 0
    assert call("check", "made/found.toml").code == 0


def test_the_device_file_says_what_kind_of_numbers_the_table_gave(found, tmp_path):
    """Of a rate its format, and of a bandwidth whether it is a peak."""
    more = {"flop_format": "float32", "memory_bandwidth_basis": "peak"}
    more |= {"memory_bandwidth_bytes_per_s": 1e10}
    given = replace(found, device=found.device.model_copy(update=more))
    path = tmp_path / "found.toml"
    path.write_text(device_text(given))
    device = load_device(path)
    assert {key: getattr(device, key) for key in more} == more


def test_the_busiest_worker_bounds_a_row_with_the_nodes_that_take_most():
    spans = pd.DataFrame(
        [(0, "a", 0.0, 1.0), (1, "b", 0.0, 1.0), (1, "c", 1.0, 3.0), (1, "d", 3.0, 3.5)],
        columns=["worker", "node", "start_s", "end_s"],
    )
    assert bound(spans, 5.0) == "worker 1, busy 70%: c, b and 1 more"
    assert bound(spans[:1], 2.0) == "worker 0, busy 50%: a"
    assert bound(spans[:0], 2.0) == "nothing"


def test_what_issues_the_steps_of_a_worker_is_no_busy_time_of_it():
    """A step is issued while the one before it computes: both together are more than all time."""
    device = Device(name="lanes", flop_per_s=1e9, step_overhead_s=2.0, dispatch_s=1.0)
    cluster, model = (
        Cluster(name="one", devices=(device,)),
        load_model("mlp", data="synthetic", hidden=8),
    )
    found = simulate(model, cluster, "sequential", mode="sleep", instances=100)
    spans = found.spans[found.spans["lane"] == "compute"]
    spans = spans[spans["start_s"] < float(found.epochs["train_s"].iloc[0])]
    busy_s = float((spans["end_s"] - spans["start_s"]).sum())
    assert f"busy {busy_s / found.epochs['train_s'].iloc[0]:.0%}" in bounds_of(found)["train_per_s"]


def test_the_page_has_every_number(found):
    text = page(found)
    assert len(re.findall(r"\| row \d \| (training|validation) \|.*busy \d+%: ", text)) == 6


def test_the_page_names_each_placement_that_a_row_has(found):
    first, *others = found.table.file.rows
    rows = [first, *(one.model_copy(update={"placement": "balanced"}) for one in others)]
    table = replace(found.table, file=found.table.file.model_copy(update={"rows": rows}))
    assert "4 workers, placement paper and balanced, mode" in page(replace(found, table=table))


def point(published: float, simulated: float) -> Point:
    return Point("a", "train_per_s", published, simulated, False, "", False, "")


def test_errors_and_ranks_are_those_of_the_textbook():
    """Spearman's example by 1 - 6 sum d² / (n (n² - 1)), with d = 0, 1, -1, 0, 0."""
    points = [point(p, s) for p, s in [(1, 1), (2, 3.3), (3, 2.2), (4, 4), (5, 7)]]
    assert rank_correlation(points) == pytest.approx(1 - 6 * 2 / (5 * 24))
    assert median_error(points) == pytest.approx(0.8 / 3)
    assert math.isnan(rank_correlation(points[:1])) and math.isnan(median_error([]))


FIT = "[fit.step_overhead_s]\nstart = 1e-6\nmin = 1e-8\nmax = 1e-2\n"
MISTAKES = {
    "unknown model": ('model = "rnn"', 'model = "rrn"', r"rows\[0\]: model: no model named 'rrn'"),
    "unknown parameter": ("fit.step_overhead_s", "fit.step_overhed_s", "no parameter named 'step_"),
    "bounds reversed": (
        "min = 1e-8",
        "min = 1",
        "fit.step_overhead_s: min must be < max, got 1 and",
    ),
    "start beyond": ("start = 1e-6", "start = 0.1", "start must be from min to max, .* got 0.1"),
    "no number": ("start = 1e-6", "start = -1", r"fit.step_overhead_s.start must be > 0, got -1"),
    "throughput": ('"train_per_s": 1', "", r"rows\[0\].train_per_s must be > 0, got 0"),
    "too few": ("is_fitted = true", "", "2 parameters need at least .* fitted numbers, got 0"),
    "label twice": ('label = "row 1"', 'label = "row 0"', "label 'row 0' comes twice"),
    "unknown key": ("workers = 4", "worker = 4", "unknown key 'worker'; did you mean 'workers'"),
    "schedule": ('source = "a test"', 'source = "a"\nschedule = "amb"', "no schedule named 'amb'"),
    "option": ("replicas = 1, hidden", "replicsa = 1, hidden", "no field named 'replicsa'"),
    "twice known": (
        FIT,
        f"[device]\nstep_overhead_s = 1e-3\n{FIT}",
        "device.step_overhead_s is fit",
    ),
    **{
        f"{key} of the device": (
            FIT,
            f"[device]\n{key} = {value}\n{FIT}",
            f"device: no number .*{key}'",
        )
        for key, value in {
            "name": '"mine"',
            "description": '"as measured"',
            "measured_on": "{ cpu = 'a' }",
            "sources": "{}",
        }.items()
    },
    "no effect": (
        "max_active_keys = 1",
        'schedule = "sequential"\nmax_active_keys = 1',
        "max_active_keys has no effect on sequential",
    ),
    "no dependence": (
        "fit.step_overhead_s",
        "fit.light_bandwidth_bytes_per_s",
        "light_bandwidth_bytes_per_s has no effect without memory_bandwidth_bytes_per_s",
    ),
    "placement": (
        "workers = 4",
        'workers = 4\nplacement = "balance"',
        "no placement named 'balance'",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_a_table_is_one_line(what, mistake, file):
    before, after, expected = MISTAKES[what]
    text = file.read_text()
    if what == "throughput":
        text = re.sub(r"train_per_s = .*", "train_per_s = 0", text, count=1)
    elif what == "too few":
        text = text.replace("is_fitted = true", "is_fitted = false")
    else:
        assert before in text
        text = text.replace(before, after, 1)
    Path("wrong.toml").write_text(text)
    line = mistake("calibrate", "table", "wrong.toml", "--quiet")
    assert re.search(expected, line), line
    assert "wrong.toml" in line
    assert not Path("calibration-found").exists()


def test_a_parameter_that_no_row_depends_on_is_named(file):
    """Nothing is read from a memory where every step takes far longer for its FLOP."""
    known = "[device]\nstep_overhead_s = 1e-5\n"
    fit = "[fit.memory_bandwidth_bytes_per_s]\nstart = 1e20\nmin = 1e19\nmax = 1e21\n"
    text = file.read_text().replace(FIT, fit)
    path = file.with_name("singular.toml")
    path.write_text(text.replace("[fit.flop", f"{known}[fit.flop", 1))
    expected = "fit.memory_bandwidth_bytes_per_s: no fitted row depends on it; fit rows that differ"
    with pytest.raises(FileFormatError, match=expected):
        calibrate(read_table_file(path))


def test_a_start_far_off_from_which_no_row_depends_on_a_number_is_told_to_be_so(file):
    """At 1e8 FLOP/s an overhead of 10 ps is nothing. The same rows decide both from elsewhere."""
    text = file.read_text().replace("start = 1e10", "start = 1e8")
    text = text.replace("start = 1e-6", "start = 1e-11").replace("min = 1e-8", "min = 1e-12")
    path = file.with_name("far.toml")
    path.write_text(text)
    expected = "fit.step_overhead_s: no fitted row depends on it; fit rows .*, start elsewhere, or"
    with pytest.raises(FileFormatError, match=expected):
        calibrate(read_table_file(path))


def test_words_that_do_not_belong_together_are_refused(mistake):
    assert "takes a FILE of published rows" in mistake("calibrate", "table")
    assert "takes no FILE, got 'x.toml'" in mistake("calibrate", "machine", "x.toml")


REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize("folder", [one.parent for one in REPORTS.glob("*/calibration.toml")])
def test_a_shipped_calibration_is_what_its_points_and_manifest_draw_to(folder):
    """`ampsim report --check` has recipes and programs only."""
    manifest = tomllib.loads((folder / "manifest.toml").read_text())
    table = read_table_file(folder / "calibration.toml")
    assert manifest["table"]["sha256"] == table.sha256
    assert {one: sha256_of(folder / one) for one in manifest["files"]} == manifest["files"]
    rows = {one.label: one for one in table.file.rows}
    fitted = tuple(
        Fitted(key, **one, is_at_bound=one["value"] in (limits.min, limits.max))
        for key, limits in table.file.fit.items()
        for one in [manifest["fitted"][key]]
    )
    with open(folder / "points.csv", newline="") as file:
        points = tuple(
            Point(
                one["label"], quantity, told, float(one["simulated"]), rows[one["label"]].is_fitted,
                one["bound"], bool(rows[one["label"]].device), rows[one["label"]].source,
            )
            for one in csv.DictReader(file)
            for quantity, told in published(rows[one["label"]]).items()
            if quantity == one["quantity"]
        )  # fmt: skip
    device = make_device(table, {one.key: one.value for one in fitted})
    found = Calibration(table, device, fitted, points, manifest["runs"])
    drawn = {"report.md": page(found), "points.csv": points_text(found)}
    for name, text in {**drawn, device_file(table): device_text(found)}.items():
        assert (folder / name).read_text() == text
