"""What an addition touches: a schedule or solver two files, a key of a device few."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.dataflow import PROGRAMS
from ampsim.hardware import Device
from ampsim.model_parallel import SCHEDULES

ROOT = Path(ampsim.__file__).parent
METHODS: dict[str, Any] = {**SCHEDULES, **SOLVERS, **PROGRAMS}


@cache
def words_of(path: Path) -> frozenset[str]:
    """Names and whole texts in a file's code; docstrings and longer texts are no code."""
    return frozenset(_words(ast.parse(path.read_text("utf-8"))))


def _words(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                yield word
            case ast.keyword(arg=str(word)) | ast.arg(arg=word) | ast.ClassDef(name=word):
                yield word
            case ast.Constant(value=str(word)):
                yield word
            case _:
                pass


def files_with(*words: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.rglob("*.py"), *ROOT.glob("*.pyi")]
        if words_of(path) & set(words)
    }


USED = {
    "sequential": {
        "interop/torch_model.py",
        "data_parallel/inside.py", "data_parallel/solver.py", "forecasting/budget.py",
        "forecasting/forecast.py", "model_parallel/engine.py", "model_parallel/placements/base.py",
    },
    "pipeline": {"study/checking.py"},
    "amp": {
        "calibration/fit.py", "cli/run.py", "cli/option_table.py", "exploring/solve.py",
        "exploring/whatif.py",
    },
    "dataflow": {
        "cli/run.py", "forecasting/budget.py", "forecasting/forecast.py",
        "interop/torch_model.py", "study/checking.py",
    },
}  # fmt: skip
"""Where others use a method: as what stands where none is named, or as what they are made of."""


@pytest.mark.parametrize("name", METHODS)
def test_the_name_of_a_schedule_or_solver_stands_in_its_own_file_and_in_its_registry(name):
    kind = METHODS[name]
    own = kind.__module__.removeprefix("ampsim.").replace(".", "/") + ".py"
    listing = next(
        registry
        for methods, registry in (
            (SCHEDULES, "model_parallel/schedules/registry.py"),
            (SOLVERS, "data_parallel/solvers/registry.py"),
            (PROGRAMS, "dataflow/registry.py"),
        )
        if name in methods
    )
    found = files_with(name, kind.__name__) - USED.get(name, set())
    assert {own, listing} <= found <= {own, listing, "dataflow/__init__.py"}


KEY_FILES_MAX = 5
"""Files that name a key of a device at most: the device's, the cost's, and who charges it."""

IN_MORE_FILES = {
    "flop_per_s": 14, "dispatch_s": 8, "step_overhead_s": 7, "operation_overhead_s": 6,
    "memory_bytes": 7, "message_overhead_s": 6, "jitter_cv": 6, "copy_bandwidth_bytes_per_s": 6,
}  # fmt: skip
"""Keys in more files, as fits, questions and other lanes ask for them too; a number only falls."""

MEAN_ELSE = {"name", "description", "sources"}


def test_a_key_of_a_device_stands_in_few_files():
    counts = {name: len(files_with(name)) for name in Device.model_fields if name not in MEAN_ELSE}
    assert {name: count for name, count in counts.items() if count > KEY_FILES_MAX} == IN_MORE_FILES
