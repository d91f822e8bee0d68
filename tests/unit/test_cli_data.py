"""`ampsim data` says what is there; --data leads commands to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ampsim.data import MissingDataError, registry

TREES = b"(2 (2 a) (3 b))\n(3 (1 c) (2 d))\n"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A data folder with two trees, of which nobody knows, and nothing else."""
    monkeypatch.delenv("AMPSIM_DATA", raising=False)
    (tmp_path / "data" / "sst").mkdir(parents=True)
    (tmp_path / "data" / "sst" / "train.txt").write_bytes(TREES)
    return tmp_path / "data"


def test_every_data_set_is_named_with_its_source_and_each_file_with_its_state(call, folder):
    ended = call("data", "--data", "data")
    assert (ended.code, ended.err) == (0, "")
    for name in registry.DATASETS:
        assert f"\n{name}: " in ended.out
    assert ended.out.startswith("data folder: data\n")
    (mine,) = [line for line in ended.out.splitlines() if "training trees" in line]
    state = r"train\.txt +training trees +2 +32 B +there, of another content than the one known"
    assert re.search(state, mine), mine
    flat = " ".join(ended.out.split())
    assert "missing; try 'ampsim data mnist --download'" in flat
    assert "missing; nobody gives it out, see its source" in flat


def test_one_data_set_alone_is_shown_and_the_folder_may_be_in_the_environment(
    call, folder, monkeypatch
):
    monkeypatch.setenv("AMPSIM_DATA", str(folder))
    out = call("data", "sst").out
    assert "sst: " in out
    assert "mnist" not in out


def test_json_has_a_row_for_each_file(call, folder):
    content = json.loads(call("data", "sst", "--data", "data", "--json", "-").out)
    assert content["folder"] == "data"
    rows = {row["holds"]: row for row in content["files"]}
    train = rows["training trees"]
    assert (train["instances"], train["is_known"], train["problem"]) == (2, False, None)
    assert train["path"] == str(Path("data/sst/train.txt"))
    assert rows["validation trees"]["path"] is None
    assert rows["validation trees"]["can_fetch"] is True
    assert call("data", "list_reduction", "--json", "x/rows.json").code == 0
    assert json.loads(Path("x/rows.json").read_text())["files"] == []


def test_a_damaged_file_is_one_line_and_no_half_read_number(call, folder):
    (folder / "sst" / "train.txt").write_bytes(b"(2 (2 a) (3 b)\n")
    ended = call("data", "sst", "--data", "data")
    assert ended.code == 2
    assert ended.err.startswith("ampsim: data/sst/train.txt")
    assert ended.err.count("\n") == 1
    assert "there, but cannot be used" in " ".join(ended.out.split())


def test_download_fetches_what_can_be_had_and_says_what_cannot(call, folder, monkeypatch):
    asked: list[str] = []

    def fetch(name, folder, *, say):
        asked.append(name)
        if name == "qm9":
            raise MissingDataError("qm9: qm9.npz cannot be downloaded")
        say(f"{name}: 1 byte from somewhere")
        return []

    monkeypatch.setattr("ampsim.data.fetch", fetch)
    ended = call("data", "--download", "--data", "data")
    assert asked == list(registry.DATASETS)
    assert ended.code == 2
    assert "ampsim: qm9: qm9.npz cannot be downloaded\n" in ended.err
    assert ended.err.count("\n") == len(asked)
    assert call("data", "mnist", "--download", "--data", "data").code == 0


def test_mistakes_are_one_line_each(mistake, folder):
    assert "no data set named 'mnits'; did you mean 'mnist'?" in mistake("data", "mnits")
    said = "--data does not concern rnn, which reads no data from files (it has no option 'folder')"
    assert said in mistake("forecast", "--data", "data")
    assert said in mistake("run", "rnn", "--data", "data")
    assert said in mistake("gantt", "rnn", "--data", "data", "--out", "x.png")
    twice = ("--data", "data", "--set", "folder=other")
    assert "--data data and --set folder=other say the same thing" in mistake("run", "mlp", *twice)
    line = mistake("run", "mlp", "--data", "data")
    assert line.startswith("ampsim: mnist: no train-images-idx3-ubyte (plain, .gz or .xz) in data/")
    assert not Path("run-mlp").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_data_leads_a_run_to_its_files(call, folder):
    random = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    for stem, count in (("train", 200), ("t10k", 100)):
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        head = np.array([0x803, count, 28, 28], ">u4").tobytes()
        (folder / "mnist" / f"{stem}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        labels = random.integers(0, 10, count, np.uint8)
        head = np.array([0x801, count], ">u4").tobytes()
        (folder / "mnist" / f"{stem}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
    words = ("--data", "data", "--set", "hidden=8", "--quiet")
    ended = call("run", "mlp", *words, "--out", "kept")
    assert (ended.code, ended.err) == (0, "")
    assert "1 epoch in" in ended.out
    said = "--data belongs to a model that is yet to run, but kept is a run; leave it out"
    assert said in call("gantt", "kept", "--data", "data", "--out", "x.png").err
