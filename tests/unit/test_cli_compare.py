"""`ampsim compare`: what differs between two runs, for people and as JSON."""

import json
import shutil
from pathlib import Path

import pytest

SMALL = ("--instances", "200", "--set", "hidden=8", "--quiet")


@pytest.fixture
def runs(once):
    """Runs a and b, the same but for the seed, and twin, which is a once more."""
    for name, seed in (("a", "0"), ("b", "1"), ("twin", "0")):
        assert once("run", "rnn", *SMALL, "--seed", seed, "--out", name).code == 0


@pytest.mark.usefixtures("runs")
def test_the_same_run_twice_is_identical(call):
    ended = call("compare", "a", "twin")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[:4] == [
        "A  a: rnn on 16 x tflops-1, amp",
        "B  twin: rnn on 16 x tflops-1, amp",
        "",
        "Identical to the bit: every span, transfer, admission, update, stash, epoch, "
        "outage, moment in memory, exchange, collective; the same origin.",
    ]
    assert "transfers: 0 in both, identical" in ended.out


@pytest.mark.usefixtures("runs")
def test_runs_that_differ_are_compared_with_code_0_and_say_where_they_part(call):
    ended = call("compare", "a", "b")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert (
        "Not identical: different spans, admissions, updates, epochs, memory; the same transfers, "
        in ended.out
    )
    assert any(line.split() == ["seed", "0", "1"] for line in lines)
    assert any(line.split()[:1] == ["train_per_s"] and "/s" in line for line in lines)
    part = next(line for line in lines if line.startswith("spans: "))
    assert "; they part at span " in part
    assert lines[lines.index(part) + 1].split() == ["A", "B"]
    assert lines[lines.index(part) + 2].split()[-3] == "worker"
    assert any("; they part at epoch 1 (*)" in line for line in lines)


@pytest.mark.usefixtures("runs")
def test_json_alone_on_standard_output_says_the_same(call):
    ended = call("compare", "a", "b", "--json", "-")
    said = json.loads(ended.out, parse_constant=pytest.fail)
    assert (said["a"]["folder"], said["b"]["folder"]) == ("a", "b")
    assert said["is_identical"] is False
    assert {"key": "seed", "a": 0, "b": 1} in said["origin"]
    numbers = {(one["name"], one["epoch"]): one for one in said["numbers"]}
    made = numbers["makespan_s", None]
    assert made["difference"] == pytest.approx(made["b"] - made["a"])
    assert made["ratio"] == pytest.approx(made["b"] / made["a"])
    assert ("loss", 1) in numbers
    spans = next(table for table in said["tables"] if table["name"] == "spans")
    assert set(spans["parting"]["columns"]) <= set(spans["parting"]["a"])
    assert spans["parting"]["a"] != spans["parting"]["b"]
    call("compare", "a", "b", "--json", "said.json")
    assert json.loads(Path("said.json").read_text()) == said


@pytest.mark.usefixtures("runs")
def test_a_folder_that_holds_no_run_is_one_line(mistake, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "none: expected a folder that `ampsim run` wrote, found none" in mistake(
        "compare", "none", "a"
    )
    assert "empty: expected a folder that `ampsim run` wrote, but it has no manifest" in mistake(
        "compare", "a", "empty"
    )
    shutil.copytree("a", "broken")
    Path("broken/spans.parquet").write_bytes(b"")
    assert "spans.parquet: is not the file that manifest.toml describes" in mistake(
        "compare", "a", "broken"
    )


@pytest.mark.usefixtures("runs")
def test_names_in_a_manifest_are_told_as_plain_text(call):
    path = Path("b/manifest.toml")
    hostile = r'name = "<script>\u001b[31m\n../../x"'
    path.write_text(path.read_text("utf-8").replace('name = "amp"', hostile), "utf-8")
    ended = call("compare", "a", "b")
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert "B  b: rnn on 16 x tflops-1, <script> [31m ../../x" in ended.out
    assert {path.name for path in Path().iterdir()} == {"a", "b", "twin"}
