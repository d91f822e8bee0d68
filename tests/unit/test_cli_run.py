"""`ampsim run` and `ampsim gantt`: a trace is kept, and drawn."""

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from unpainted import no_paint

from ampsim import assets
from ampsim.cli.run import _kept_time
from ampsim.runs.folder import TABLES as TABLE_NAMES
from ampsim.runs.loaded_run import load_run

SMALL = ("--instances", "200", "--set", "hidden=8")
PAGES = {"index.html", "report.md", "epochs.csv", "gantt.png", "convergence.png", "utilisation.png"}
PAGES |= {"bounds.png", "memory.png", "staleness.png"}
TABLES = {f"{name}.parquet" for name in (*TABLE_NAMES, "memory")}


@pytest.mark.slow
@pytest.mark.usefixtures("unpainted")
def test_run_keeps_manifest_and_tables(call):
    ended = call("run", "rnn", *SMALL, "--epochs", "2", "--schedule", "pipeline", "--out", "kept")
    assert ended.code == 0
    assert ended.out.startswith("rnn, pipeline, 16 workers: 2 epochs in ")
    assert "wrote kept: " in ended.out
    assert "open kept/index.html for table and figures" in ended.out
    assert ended.err.splitlines()[-1].startswith("ampsim: pipeline, epoch 2 done, accuracy ")
    assert {path.name for path in Path("kept").iterdir()} == {"manifest.toml", *TABLES, *PAGES}
    kept = load_run("kept")
    assert (kept.model, kept.schedule, kept.workers) == ("rnn", "pipeline", 16)
    assert kept.manifest["ended"] == "finished"
    assert list(kept.table("epochs")["epoch"]) == [1, 2]


def test_run_writes_beside_the_user_unless_told(once):
    assert once("run", "rnn", *SMALL, "--quiet", "--mode", "sleep").err == ""
    assert load_run("run-rnn").manifest["mode"] == "sleep"


@pytest.mark.usefixtures("undrawn")
def test_a_placement_of_a_run_is_itself_a_placement_file(call):
    words = ("run", "rnn", *SMALL, "--quiet", "--workers", "5")
    call(*words, "--placement", "communication-aware", "--out", "first")
    placed = load_run("first").manifest["placement"]
    assert placed["name"] == "communication-aware"
    Path("mine.toml").write_text("".join(f'"{n}" = {w}\n' for n, w in placed["workers"].items()))
    call(*words, "--placement", "mine.toml", "--out", "second")
    again = load_run("second").manifest["placement"]
    assert (again["file"], again["workers"]) == ("mine.toml", placed["workers"])
    assert load_run("first").table("spans").equals(load_run("second").table("spans"))


def test_run_ends_at_its_target(once):
    once("run", "rnn", *SMALL, "--epochs", "9", "--target", "0.001", "--quiet")
    assert len(load_run("run-rnn").table("epochs")) == 1


def test_a_run_that_diverges_keeps_its_trace(once):
    ended = once("run", "rnn", *SMALL, "--set", "learning_rate=1e30", "--quiet")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("; the trace until then is in run-rnn\n")
    kept = load_run("run-rnn")
    assert kept.manifest["ended"].startswith("failed after 0 of 1 epochs: ")
    assert len(kept.table("spans")) > 0


@pytest.mark.slow
def test_run_on_the_wall_clock_keeps_the_same_trace_and_says_how_late_it_came(once):
    words = (
        "--instances",
        "20",
        "--set",
        "hidden=8",
        "--mode",
        "sleep",
        "--schedule",
        "sequential",
    )
    words += ("--workers", "2", "--quiet")
    once("run", "rnn", *words, "--out", "virtual")
    said = once("run", "rnn", *words, "--out", "wall", "--clock", "wall", "--stretch", "10")
    virtual, wall = (load_run(name).table("spans") for name in ("virtual", "wall"))
    pd.testing.assert_frame_equal(virtual, wall)
    expected = (
        r"(?m)^on the wall: \S+ \w+ for \S+ \w+ x 10, (\S+ % longer|\S+ times as long); "
        r"events came at most .+ late(\. This machine .+; --stretch \S+ leaves it the time)?$"
    )
    assert re.search(expected, said.out)


@pytest.mark.parametrize(
    ("elapsed_s", "said"),
    [
        (2.02, "1 % longer; events came at most 1.00 ms late"),
        (2.2, "10 % longer; events came at most 1.00 ms late. This machine computes and wakes up "
              "more slowly than the devices would; --stretch 50 leaves it the time"),
        (8.0, "4 times as long; events came at most 1.00 ms late. This machine computes and wakes "
              "up more slowly than the devices would; --stretch 1500 leaves it the time"),
    ],
)  # fmt: skip
def test_a_run_on_the_wall_that_took_too_long_names_a_stretch_that_would_not(elapsed_s, said):
    """What comes on top is the same in wall seconds: at that stretch it is the share allowed."""
    clock: Any = SimpleNamespace(now=2.0, elapsed_s=elapsed_s, stretch=10.0, late_max_s=1e-3)
    assert _kept_time(clock).endswith(f" for 2.00 s x 10, {said}")


@pytest.mark.slow
def test_gantt_draws_a_run_that_was_kept(call, once):
    once("run", "rnn", *SMALL, "--quiet")
    for name in ("g.png", "g.svg", "g.pdf"):
        ended = call("gantt", "run-rnn", "--out", name, "--window", "0:1e-7")
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith(f"wrote {name}: 0 s to 100 ns of ")
        assert Path(name).stat().st_size > 1000


def test_gantt_writes_a_trace_of_a_run_or_of_a_model(call, once, mistake):
    once("run", "rnn", *SMALL, "--quiet")
    ended = call("gantt", "run-rnn", "--out", "run.json")
    count = len(load_run("run-rnn").table("spans"))
    assert ended.out == (
        f"wrote run.json: {count:,} spans, in whole nanoseconds; open it in "
        "https://ui.perfetto.dev or chrome://tracing\n"
    )
    call("gantt", "rnn", *SMALL, "--schedule", "amp", "--out", "made.json")
    one, other = (json.loads(Path(f"{name}.json").read_text()) for name in ("run", "made"))
    assert one == other
    assert one["otherData"]["title"] == "rnn on 16 x tflops-1"
    line = mistake("gantt", "run-rnn", "--out", "run.json", "--window", "0:1")
    assert "--window does not go with run.json: a trace (.json) holds the whole run" in line


def test_gantt_writes_a_page_of_a_run(call, once):
    once("run", "rnn", *SMALL, "--quiet")
    ended = call("gantt", "run-rnn", "--out", "run.html", "--window", "0:1e-7")
    assert ended.out.startswith("wrote run.html: open it in a browser")
    text = Path("run.html").read_text("utf-8")
    assert "<h1>rnn on 16 x tflops-1: amp</h1>" in text
    assert '"first":[0.0,1e-07]' in text


TWO_KINDS = """
[[device]]
name = "tflops-1"
count = 3
[[device]]
name = "p100"
count = 2
[link]
latency_s = 1e-7
source = {kind = "assumed", text = "for a test"}
"""


def page_data(name):
    text = Path(name).read_text("utf-8")
    start = text.index('id="gantt-data">') + len('id="gantt-data">')
    return json.loads(text[start : text.index("</script>", start)])


CHIP = 'flop_per_s = {}\n[sources]\nflop_per_s = {{kind = "assumed", text = "for a test"}}\n'


def test_unlike_devices_of_one_name_are_told_apart_in_lists_and_charts(call):
    """As a kept run has them: a chart of a run made for it had "chip" twice."""
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "chip.toml").write_text(CHIP.format(f"{ord(folder)}e10"))
    groups = (f'[[device]]\nfile = "{folder}/chip.toml"\ncount = 2\n' for folder in "ab")
    Path("two.toml").write_text("".join(groups))
    told = call("devices", "two.toml").out
    assert "4: 2 x chip, 2 x chip (2)\n" in told
    assert "\nchip\n" in told
    assert "\nchip (2)\n" in told
    words = ("--schedule", "amp", "--mode", "sleep", "--device", "two.toml")
    call("gantt", "rnn", "--set", "hidden=8", *words, "--out", "made.html")
    assert [name for name, *_ in page_data("made.html")["groups"]] == ["chip", "chip (2)"]


@pytest.mark.slow
def test_gantt_of_a_kept_run_knows_devices_transfers_and_states(call):
    Path("two.toml").write_text(TWO_KINDS)
    with pytest.MonkeyPatch.context() as patch:
        no_paint(patch)  # of its page, which nobody looks at
        call("run", "rnn", *SMALL, "--quiet", "--device", "two.toml")
    kept = load_run("run-rnn")
    assert kept.devices == ["tflops-1"] * 3 + ["p100"] * 2
    call("gantt", "run-rnn", "--out", "run.html", "--window", "0.3us:1us")
    call("gantt", "run-rnn", "--out", "run.json")
    trace = json.loads(Path("run.json").read_text())["traceEvents"]
    sent = [event for event in trace if event.get("cat") == "transfer"]
    assert len(sent) == len(kept.table("transfers"))
    data = page_data("run.html")
    assert [name for name, *_ in data["groups"]] == ["tflops-1", "p100"]
    assert data["schedules"][0]["sent"]["start"]
    assert any(state.startswith("step ") for state in data["states"])
    assert data["first"] == pytest.approx([3e-7, 1e-6])
    call("gantt", "run-rnn", "--out", "run.svg", "--window", "0:1us")
    text = Path("run.svg").read_text()
    assert all(f"<!-- {name} -->" in text for name in ("tflops-1", "p100", "transfer"))


def test_a_run_keeps_what_stashed_weights_take_and_perfetto_counts_it(call, once):
    words = ("--set", "data=synthetic", "--set", "hidden=8", "--workers", "4", "--quiet")
    once("run", "mlp", *words, "--schedule", "pipedream", "--instances", "2000", "--mode", "sleep")
    held = load_run("run-mlp").table("stashes")
    call("gantt", "run-mlp", "--out", "run.json")
    events = json.loads(Path("run.json").read_text())["traceEvents"]
    counted = [event for event in events if event["name"] == "stashed weights linear-1"]
    expected = held[held["node"] == "linear-1"]["bytes"]
    assert [event["args"]["bytes"] for event in counted] == list(expected)
    assert max(expected) > 0


@pytest.mark.usefixtures("undrawn")
def test_a_note_on_a_run_is_said_beside_the_object_alone(call):
    words = ("--set", "data=synthetic", "--set", "hidden=4", "--instances", "200", "--workers", "3")
    solver = ("--schedule", "easgd", "--ranks", "2", "--period", "1000")
    ended = call("run", "mlp", *words, *solver, "--quiet", "--json", "-")
    assert json.loads(ended.out)["ended"] == "finished"
    assert ended.err.startswith("ampsim: note: ranks never exchanged, as the run ended before")


def test_gantt_of_a_run_takes_no_option_of_a_model(once, mistake):
    once("run", "rnn", *SMALL, "--quiet")
    for option, value in (("--seed", "0"), ("--schedule", "amp"), ("--latency-s", "0")):
        line = mistake("gantt", "run-rnn", "--out", "g.png", option, value)
        assert f"{option} belongs to a model that is yet to run, but run-rnn is a run" in line


@pytest.mark.slow
def test_gantt_draws_the_schedules_of_a_model_above_each_other(call):
    ended = call("gantt", "rnn", *SMALL, "--out", "three.svg")
    assert ended.code == 0
    text = Path("three.svg").read_text()
    assert all(f"<!-- ({mark}) {name} -->" in text for mark, name in zip("abc", NAMES, strict=True))
    call("gantt", "rnn", *SMALL, "--schedule", "amp", "--out", "one.svg")
    assert "<!-- rnn on 16 x tflops-1: amp -->" in Path("one.svg").read_text()


NAMES = ("sequential", "pipeline", "amp")


@pytest.mark.usefixtures("undrawn")
def test_a_folder_whose_name_is_no_utf_8_holds_models_and_runs(call):
    there = Path(os.fsdecode(b"l\xe4t"))
    there.mkdir()
    shutil.copy(assets.locate("models", "rnn"), there / "own.py")
    words = ("run", f"{there}/own.py", *SMALL, "--mode", "sleep", "--quiet", "--out", f"{there}/a")
    assert call(*words).code == 0
    ended = call("gantt", f"{there}/a", "--out", f"{there}/trace.json")
    assert (ended.code, ended.err) == (0, "")


def test_gantt_of_a_folder_without_a_run_says_so(mistake, tmp_path):
    (tmp_path / "empty").mkdir()
    line = mistake("gantt", "empty", "--out", "g.png")
    assert "empty: expected a folder that `ampsim run` wrote, but it has no manifest.toml" in line


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("out", ["g.png", "g.html"])
def test_a_window_beyond_the_run_is_refused(mistake, call, once, out):
    once("run", "rnn", *SMALL, "--quiet")
    for source in (("run-rnn",), ("rnn", *SMALL, "--schedule", "amp")):
        ends = set[str]()
        for window in ("0:1", "1:2", "0:5ms"):
            line = mistake("gantt", *source, "--out", out, "--window", window)
            assert " reaches beyond the run, which ends at " in line, window
            ends.add(line.rpartition("at most ")[2].strip())
        (end,) = ends
        assert call("gantt", *source, "--out", out, "--window", f"0:{end}").code == 0


@pytest.mark.parametrize("command", ["run", "search"])
def test_help_says_which_commands_take_one_number_in_flight(call, mistake, command):
    """All of them were said to make a row of each, which these two refuse."""
    said = " ".join(call(command, "--help").out.split())
    assert "make a row of each; run and search take one." in said
    own = ()
    if command == "search":
        pytest.importorskip("optuna", reason="the extra ampsim[search] is not installed")
        own = ("--for", "latency_s=1e-7,1e-5")
    several = ("--schedule", "amp", "--max-active-keys", "2,4")
    assert "amp, " in mistake(command, "rnn", *SMALL, *several, *own)


def test_every_command_that_trains_writes_all_epochs_as_csv(once):
    once("run", "rnn", *SMALL, "--quiet", "--epochs", "2", "--out", "kept")
    words = ("--schedule", "sequential,amp", "--max-active-keys", "2,4", "--repeats", "2")
    few = ("--instances", "40", "--set", "hidden=4")
    once("forecast", "rnn", *few, *words, "--max-epochs", "2", "--jobs", "1", "--out", "made")
    kept, made = (pd.read_csv(f"{name}/epochs.csv") for name in ("kept", "made"))
    assert list(kept["epoch"]) == [1, 2]
    assert set(kept) == {"schedule", "repeat", *load_run("kept").table("epochs")}
    labels = ("sequential", "amp, 2 in flight", "amp, 4 in flight")
    wanted = [(name, repeat, epoch) for name in labels for repeat in (1, 2) for epoch in (1, 2)]
    assert list(zip(made["schedule"], made["repeat"], made["epoch"], strict=True)) == wanted
