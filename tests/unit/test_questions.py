"""What all questions share: runs made elsewhere, folders, JSON, and how they show themselves."""

from __future__ import annotations

import json
import tomllib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ampsim

pytest.importorskip("optuna", reason="optuna is not installed")

MODEL = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
CLUSTER = ampsim.load_cluster("ampnet-core", workers=2, latency_s=1e-6)
BOTH = (ampsim.Pipeline(2), ampsim.Amp(2))
LEARNS: dict[str, Any] = {"instances": 100, "target": 0.05, "max_epochs": 2, "repeats": 1}
WHERE: dict[str, Any] = {"over": {"latency_s": [1e-7, 1e-5]}}
QUESTIONS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "explore": (ampsim.explore, BOTH, WHERE),
    "search": (ampsim.search, BOTH, {**WHERE, "trials": 3, "in_flight": 2, "sampler": "random"}),
    "whatif": (ampsim.whatif, "amp", {"learn": 1}),
    "solve": (
        ampsim.solve, "amp", {"over": {"flop_per_s": "1e9..1e11"}, "until": "time_s <= 0.01"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=QUESTIONS)
def asked(request) -> tuple[Any, Any]:
    """A question, and what is found in this process."""
    function, schedules, how = QUESTIONS[request.param]

    def ask(**more: Any) -> Any:
        return function(MODEL, CLUSTER, schedules, **LEARNS, **how, **more)

    return ask, ask()


def test_runs_of_an_executor_give_the_same_to_the_bit(asked):
    ask, found = asked
    with ThreadPoolExecutor(2) as executor:
        assert ask(executor=executor).to_json() == found.to_json()


def test_its_folder_has_the_files_that_it_names_and_says_what_was_asked(asked, tmp_path):
    _ask, found = asked
    written = found.save(tmp_path / "found")
    names = [path.name for path in written]
    assert names == [*found.files, "manifest.toml"]
    manifest = tomllib.loads(written[-1].read_text("utf-8"))
    assert manifest["kind"] == found.kind
    assert manifest["model"]["config"]["hidden"] == 8
    assert (manifest["max_epochs"], manifest["seeds"]) == (2, [0, 0])
    assert set(manifest["files"]) == set(found.files)


def test_it_shows_its_cells_and_sentences(asked):
    _ask, found = asked
    headings, lines = found.cells
    shown = found._repr_html_()
    assert all(f">{heading}<" in shown for heading in headings)
    assert shown.count("<tr>") == len(lines) + 1
    assert found.sentences[0] in repr(found)
    told = json.loads(found.to_json())
    assert list(told)[:4] == ["ampsim", "model", "cluster", "seed"]
    assert len(told["rows"]) == len(found.table)
