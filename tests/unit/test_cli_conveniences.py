"""What users of a command line expect of every command: completion, --json, several files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from ampsim import assets
from ampsim.cli import completion, methods
from ampsim.cli.entry import app
from ampsim.data import DATASETS
from ampsim.data_parallel import COLLECTIVES, GROUPS
from ampsim.data_parallel.solvers.elastic import Side
from ampsim.hardware.load import TOPOLOGIES
from ampsim.hardware.topology import Topology
from ampsim.model_parallel import PLACEMENTS
from ampsim.model_parallel.schedules.values import REMEDIES
from ampsim.study.schedule_names import METHODS

PROGRAM: Any = typer.main.get_command(app)
COMMANDS = PROGRAM.commands
RNN = ("--instances", "100", "--set", "hidden=8", "--set", "replicas=1")
SMALL = (*RNN, "--mode", "sleep", "--schedule", "amp")
CALLS: dict[str, tuple[tuple[str, ...], str]] = {
    "forecast": (
        ("rnn", *SMALL, "--jobs", "1", "--quiet"),
        "model cluster seed verdict rows epochs",
    ),
    "run": (("rnn", *SMALL, "--quiet"), "model cluster seed rows folder ended epochs"),
    "whatif": (
        ("rnn", *SMALL, "--workers", "2", "--jobs", "1", "--quiet"),
        "model cluster seed sentences rows curves elasticities",
    ),
    "solve": (
        ("rnn", *RNN, "--for", "workers=1..2", "--until", "epoch_s <= 1", "--quiet"),
        "model cluster seed sentences rows curve",
    ),
    "explore": (
        (
            "rnn",
            *RNN,
            "--for",
            "workers=1,2",
            "--target",
            "0.11",
            "--max-epochs",
            "2",
            "--repeats",
            "1",
            "--jobs",
            "1",
            "--quiet",
        ),
        "model cluster seed verdict learnings wrong left_out interrupted rows",
    ),
    "search": (
        (
            "rnn",
            *RNN,
            "--for",
            "workers=1,2",
            "--minimise",
            "epoch_s",
            "--trials",
            "2",
            "--jobs",
            "1",
            "--quiet",
        ),
        "model cluster seed verdict objectives hypervolume hypervolume_random importances "
        "interrupted rows",
    ),
    "gantt": (("rnn", *SMALL, "--out", "g.svg"), "file title workers schedules text"),
    "compare": (("run-rnn", "run-rnn"), "a b is_identical origin numbers tables"),
    "calibrate": (
        ("machine", "--rounds", "1", "--quiet"),
        "device fitted points median_error rank_correlation",
    ),
    "devices": ((), "devices"),
    "models": ((), "models"),
    "data": ((), "folder files"),
    "report": ((), "reports"),
    "check": (("right.toml",), "files"),
}


def test_registries_and_completion_have_the_same_names():
    assert tuple(METHODS) == completion.SCHEDULES
    assert tuple(COLLECTIVES) == methods.COLLECTIVES
    assert tuple(PLACEMENTS) == completion.PLACEMENTS
    assert tuple(DATASETS) == completion.DATASETS
    assert GROUPS == methods.GROUPS
    assert get_args(Side) == methods.SIDES
    assert tuple(REMEDIES) == methods.REMEDIES
    assert TOPOLOGIES == completion.TOPOLOGIES
    kinds = get_args(Topology.model_fields["kind"].annotation)
    assert [text.partition(":")[0] for text in TOPOLOGIES] == list(kinds)


@pytest.mark.usefixtures("undrawn", "hasty")
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"import"}))  # which needs PyTorch
def test_every_command_writes_one_json_object_that_its_help_names(call, once, name):
    if name == "search":
        pytest.importorskip("optuna", reason="optuna is not installed")
    words, keys = CALLS[name]
    Path("right.toml").write_text('"linear-1" = 0\nloss = 1\n')
    if name == "compare":
        once("run", "rnn", *SMALL, "--quiet")
    ended = call(name, *words, "--json", "-")
    content = json.loads(ended.out, parse_constant=lambda word: pytest.fail(word))
    assert list(content) == ["ampsim", *keys.split()]
    assert call(name, *words, "--json", "file.json").code == 0
    assert list(json.loads(Path("file.json").read_text())) == list(content)
    said = " ".join(call(name, "--help").out.split())
    assert "The object of --json: ampsim, " in said
    told = said.partition("The object of --json: ")[2]
    assert all(key in told for key in keys.split())


@pytest.mark.parametrize("words", [("devices", "p100"), ("models", "mlp"), ("report", "--list")])
def test_one_thing_has_the_keys_that_the_list_has(call, words):
    content = json.loads(call(*words, "--json", "-").out)
    every = json.loads(call(words[0], "--json", "-").out)
    (key,) = set(content) - {"ampsim"}
    assert set(content[key][0] if content[key] else {}) <= set(every[key][0] if every[key] else {})


def test_check_goes_on_after_a_wrong_file_and_ends_with_2(call):
    Path("placed.toml").write_text('"linear-1" = 0\nloss = 1\n')
    Path("worse.toml").write_text('"linear-1" = -1\n')
    Path("controlled.toml").write_text("controller = 1\n")
    Path("bad.toml").write_text("flop_per_s = -1\n")
    words = ("check", "bad.toml", "placed.toml", "worse.toml", "none.toml", "controlled.toml")
    ended = call(*words)
    assert ended.code == 2
    assert ended.out == "ok: placed.toml: placement of 2 nodes on 2 workers\n"
    lines = ended.err.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:2]] == ["bad.toml", "worse.toml"]
    assert "none.toml" in lines[2]
    assert "'controller' lives on the host" in lines[3] and len(lines) == 4
    rows = json.loads(call(*words, "--json", "-").out)["files"]
    assert [row["is_right"] for row in rows] == [False, True, False, False, False]
    assert [row["kind"] for row in rows[:3]] == ["device", "placement", "placement"]
    assert call("check", "placed.toml").code == 0


def test_check_takes_a_recipe_by_its_folder(call):
    Path("mine").mkdir()
    text = (
        'title = "t"\nmodel = "rnn"\nepochs = 1\nset = {hidden = 8}\n[[schedules]]\nname = "amp"\n'
    )
    Path("mine/recipe.toml").write_text(text)
    for name in ("mine", "mine/recipe.toml"):
        assert call("check", name).out == f"ok: {name}: recipe of rnn on 16 x tflops-1, 1 runs\n"


def completed(words: str, folder: Path) -> list[str]:
    """What bash is offered after these words, and how long that took."""
    wanted = {"_AMPSIM_COMPLETE": "complete_bash", "COMP_WORDS": words}
    wanted["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    done = subprocess.run(
        [sys.executable, "-m", "ampsim"], env={**os.environ, **wanted}, cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ampsim forecast --schedule amp,pipedream-", ["amp,pipedream-2bw"]),
        ("ampsim run tree", ["tree_lstm"]),
        ("ampsim gantt rnn --placement comm", ["communication-aware"]),
        ("ampsim forecast --device cpu", ["cpu-core"]),
        ("ampsim data wik", ["wikiner"]),
        ("ampsim report min", ["mine"]),
    ],
)
def test_the_shell_is_offered_values(tmp_path, words, offered):
    (tmp_path / "reports" / "mine").mkdir(parents=True)
    (tmp_path / "reports" / "mine" / "recipe.toml").write_text("")
    assert completed(words, tmp_path) == offered


def test_completion_offers_names_and_files_and_imports_nothing_heavy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("rnn-mine.py", "rnn.txt", "paper.toml"):
        Path(name).write_text("")
    Path("papers").mkdir()
    assert completion.models("rnn") == ["rnn", "rnn-mine.py"]
    assert completion.placements("pap") == ["paper", f"papers{os.sep}", "paper.toml"]
    assert completion.devices("") == [*assets.names("devices"), f"papers{os.sep}", "paper.toml"]
    program = (
        "import sys; from ampsim.cli import completion as c, entry\n"
        "c.models(''), c.devices(''), c.placements(''), c.recipes('')\n"
        "names = ('numpy', 'pandas', 'matplotlib', 'pydantic', 'networkx', 'simpy', 'pyarrow')\n"
        "assert not [name for name in names if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
