"""Notebooks run from first to last cell, by public names only, and keep no outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import ampsim

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
OTHERS = {"matplotlib", "numpy", "pandas", "pathlib", "tempfile"}
SECONDS_MAX = 120  # chosen: for one core, as the notebooks promise


def cells(path: Path, kind: str) -> list[Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


def code(path: Path) -> ast.Module:
    """The code of all cells but the lines that are the notebook's own commands."""
    lines = "".join("".join(cell["source"]) + "\n" for cell in cells(path, "code")).splitlines()
    return ast.parse("\n".join(line for line in lines if not line.startswith("%")))


def test_there_are_four_notebooks():
    assert NAMES == [
        "01-first-forecast",
        "02-designing-a-device",
        "03-staleness",
        "04-your-own-model-and-device",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_outputs_are_stripped(path):
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_begins_with_a_title_and_ends_with_words(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["cells"][0]["source"][0].startswith("# ")
    assert [content["cells"][place]["cell_type"] for place in (0, -1)] == ["markdown"] * 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_only_public_names_are_used(path):
    tree = code(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {name.name.partition(".")[0] for name in node.names} <= {"ampsim", *OTHERS}
            assert not [name.name for name in node.names if name.name.startswith("ampsim.")]
        if isinstance(node, ast.ImportFrom):
            assert node.module in {"ampsim", *OTHERS}
            if node.module == "ampsim":
                assert {name.name for name in node.names} <= set(ampsim.__all__)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = {"ampsim": ampsim.__all__, "figures": ampsim.figures.__all__}
            assert node.attr in names.get(node.value.id, [node.attr])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's own libraries
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # its sockets
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs_from_first_to_last_cell(path, tmp_path, monkeypatch):
    for name in ("ipykernel", "nbformat", "nbclient"):
        pytest.importorskip(name, reason=f"{name} is not installed; the extra `dev` has it")
    import nbclient
    import nbformat

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own shows figures
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS_MAX,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert [out for out in outputs if out["output_type"] == "error"] == []
    assert [out["text"] for out in outputs if out.get("name") == "stderr"] == []
    assert sum("image/png" in out.get("data", {}) for out in outputs) >= 2
