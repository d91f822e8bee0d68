"""What describes or holds one run; the list only ever gets shorter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ampsim

ROOT = Path(ampsim.__file__).parent

BEFORE = {
    "RunOptions": "study/simulation.py",
    "RunPlan": "runs/task.py",
    "Row": "runs/task.py",
    "Task": "runs/task.py",
    "Job": "model_parallel/job.py",
    "RunSettings": "model_parallel/job.py",
    "Training": "study/training.py",
    "Simulation": "study/simulation.py",
}
"""Of a run that is to be made, or is being made."""

AFTER = {
    "Recorder": "trace/recorder.py",
    "Summary": "trace/summary.py",
    "Result": "study/result.py",
    "Outcome": "runs/folder.py",
    "Run": "runs/run.py",
    "LoadedRun": "runs/loaded_run.py",
    "RunKey": "runs/store.py",
    "Witness": "runs/witness.py",
    "TinyRun": "runs/witness.py",
}
"""Of one that has begun, or ended, or was kept."""

REPRESENTATIONS = BEFORE | AFTER
REPRESENTATIONS_MAX = 18

ABOVE_METHODS = ("study", "runs", "report", "forecasting", "calibration", "recipes", "cli")


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(path.read_text("utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _held(kind: ast.ClassDef) -> set[str]:
    """What fields of a class are, or may be; not what they have several of."""
    fields = (one.annotation for one in kind.body if isinstance(one, ast.AnnAssign))
    return {part.strip() for one in fields for part in ast.unparse(one).split("|")}


def test_each_representation_of_a_run_is_where_it_is_said_to_be():
    assert len(REPRESENTATIONS) <= REPRESENTATIONS_MAX
    for name, file in REPRESENTATIONS.items():
        assert name in {kind.name for kind in _classes(ROOT / file)}, f"{file} has no {name}"


def test_nothing_else_wraps_a_run():
    """A class with a field that is one of them is one more, and is to be one of them instead."""
    found = {
        kind.name
        for folder in ABOVE_METHODS
        for path in (ROOT / folder).rglob("*.py")
        for kind in _classes(path)
        if _held(kind) & set(REPRESENTATIONS)
    }
    assert not found - set(REPRESENTATIONS)
