"""Notebooks run from first to last cell, by public names only, and show what they keep."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ampsim
import ampsim.dependency

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
OTHERS = {"matplotlib", "numpy", "pandas", "pathlib", "tempfile", "torch"}
BYTES_MAX = 400_000
TOLERANCE = 1e-6
LEARNED_TOLERANCE = 0.35  # where learning decides: another rounding is an epoch more of three
LEARNED = {
    "01-first-forecast", "03-staleness", "04-your-own-model-and-device", "06-from-pytorch",
    "07-the-whole-question",
}  # fmt: skip
NUMBER = re.compile(r"-?\b\d+(?:\.\d+)?(?:e[-+]?\d+)?")
VOLATILE = re.compile(r" at 0x|(?<![\w.$}])/(?:work|root|home|tmp|Users)/|\bsha256\b")


OTHER_KERNELS = ("SkylakeX", "Sandybridge")
"""Of OpenBLAS, the first that runs here; they round otherwise than those that notebooks keep."""
SCALES = (1.0, 100.0, 1e3, 1e6)  # a share in percent, seconds in milli- and microseconds


def cells(path: Path, kind: str) -> list[Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


def code(path: Path) -> ast.Module:
    """The code of all cells but the lines that are the notebook's own commands."""
    lines = "".join("".join(cell["source"]) + "\n" for cell in cells(path, "code")).splitlines()
    return ast.parse("\n".join(line for line in lines if not line.startswith("%")))


def test_there_are_seven_notebooks():
    assert NAMES == [
        "01-first-forecast",
        "02-designing-a-device",
        "03-staleness",
        "04-your-own-model-and-device",
        "05-dependency-engine",
        "06-from-pytorch",
        "07-the-whole-question",
    ]


def texts(notebook: Any) -> list[list[str]]:
    """Of each cell of code: what it prints, and the text of what it shows; no picture, no page."""
    return [
        [
            "".join(output["text"] if "text" in output else output["data"].get("text/plain", ""))
            for output in cell["outputs"]
            if output.get("name") != "stderr"
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def differences(kept: Any, now: Any, tolerance: float) -> list[tuple[str, str]]:
    """Texts of the two notebooks that are not the same up to the tolerance of their numbers.

    A number may also differ by one in the last digit that is shown of it.
    """

    def is_close(first: str, second: str) -> bool:
        digits = len(first.partition("e")[0].partition(".")[2])
        power = int(first.partition("e")[2] or 0)
        last = 1.01 * 10.0 ** (power - digits) if "." in first else 0
        return math.isclose(float(first), float(second), rel_tol=tolerance, abs_tol=last)

    def is_same(first: str, second: str) -> bool:
        numbers = NUMBER.findall(first), NUMBER.findall(second)
        words = (" ".join(NUMBER.sub("#", text).split()) for text in (first, second))
        return len(set(words)) == 1 and all(map(is_close, *numbers))

    pairs = zip(texts(kept), texts(now), strict=True)
    return [(str(one), str(other)) for one, other in pairs if not is_same(str(one), str(other))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_outputs_are_kept_and_hold_nothing_of_one_machine(path):
    assert path.stat().st_size < BYTES_MAX
    every = cells(path, "code")
    assert [cell["execution_count"] for cell in every] == list(range(1, len(every) + 1))
    assert sum(bool(cell["outputs"]) for cell in every) >= 5
    for cell in every:
        assert cell["metadata"] == {}
        for output in cell["outputs"]:
            assert output.get("name") != "stderr"
            assert output.get("metadata", {}) == {}
            data = output.get("data", {"text": output.get("text")})
            assert set(data) <= {"text", "text/plain", "text/html", "image/png"}
            assert not [kind for kind in data if VOLATILE.search("".join(data[kind]))]


def test_a_number_that_is_another_is_found():
    def showing(*what: str) -> Any:
        outputs = [{"output_type": "stream", "name": "stdout", "text": text} for text in what]
        return {"cells": [{"cell_type": "code", "outputs": outputs}]}

    kept = showing("amp is 1.5521e-06 and 28.227 of 8")
    for same in ("amp is 1.5521e-06 and 28.227 of 8", "amp  is 1.5522e-06 and 28.226 of 8"):
        assert not differences(kept, showing(same), TOLERANCE)
    others = ("amp is 1.5541e-06 and 28.227 of 8", "amp is 1.5521e-06 and 28.227 of 9")
    for other in (*others, "pipeline is 1.5521e-06 and 28.227 of 8", "amp is 1.5521e-06"):
        assert differences(kept, showing(other), TOLERANCE)
    assert not differences(kept, showing("amp is 1.6e-06 and 29 of 8"), LEARNED_TOLERANCE)
    assert differences(kept, showing(), TOLERANCE)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_begins_with_a_title_and_ends_with_words(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["cells"][0]["source"][0].startswith("# ")
    assert [content["cells"][place]["cell_type"] for place in (0, -1)] == ["markdown"] * 2
    assert cells(path, "code")[0]["source"][0] == "%matplotlib inline\n"  # else no figure is shown


OURS = {"ampsim": ampsim.__all__, "ampsim.dependency": ampsim.dependency.__all__}
"""Modules that `docs/api.md` calls public and a notebook may import from, with their names."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_only_public_names_are_used(path):
    tree = code(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {name.name.partition(".")[0] for name in node.names} <= {"ampsim", *OTHERS}
            assert not [name.name for name in node.names if name.name.startswith("ampsim.")]
        if isinstance(node, ast.ImportFrom):
            assert node.module in {*OURS, *OTHERS}
            if node.module in OURS:
                assert {name.name for name in node.names} <= set(OURS[node.module])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = {"ampsim": ampsim.__all__, "figures": ampsim.figures.__all__}
            assert node.attr in names.get(node.value.id, [node.attr])


def is_shown(number: str, notebook: Any) -> bool:
    """Whether an output of a notebook is a number of its prose, but for rounding and unit."""
    digits = len(number.partition(".")[2])
    shown = [float(one) for one in NUMBER.findall(str(texts(notebook)))]
    return any(round(one * scale, digits) == float(number) for one in shown for scale in SCALES)


def moved(kept: Any, now: Any) -> list[str]:
    """Numbers that the prose states of what is shown, and that another execution does not show."""
    prose = " ".join("".join(c["source"]) for c in kept["cells"] if c["cell_type"] == "markdown")
    stated = re.findall(r"\d+(?:\.\d+)?", re.sub(r"`[^`]*`", "", prose))
    return [one for one in stated if is_shown(one, kept) and not is_shown(one, now)]


def test_a_number_of_the_prose_that_another_computer_does_not_show_is_found():
    def notebook(said: str, shown: str) -> Any:
        outputs = [{"output_type": "stream", "name": "stdout", "text": shown}]
        prose = {"cell_type": "markdown", "source": [said]}
        return {"cells": [prose, {"cell_type": "code", "outputs": outputs}]}

    kept = notebook("The median is 7.8 ms, 65 % of 12.", "0.007800 of 0.650")
    assert moved(kept, notebook("", "0.0062600 of 0.650")) == ["7.8"]
    assert moved(kept, notebook("", "0.0078200 of 0.641")) == ["65"]
    assert moved(kept, notebook("", "7.81 ms, 0.6499")) == []


def execution(path: Path, **options: Any) -> Any:
    """The notebook as it is now, executed."""
    for name in ("ipykernel", "nbformat", "nbclient"):
        pytest.importorskip(name, reason=f"{name} is not installed; the extra `dev` has it")
    if "import torch" in ast.unparse(code(path)):
        pytest.importorskip("torch", reason="PyTorch is not installed; the extra `torch` has it")
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    assert spec is not None and spec.loader is not None
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    return execute.executed(path, **options)


@cache
def kernels_of(wanted: str) -> str:
    """The kernels that OpenBLAS computes with where it is told to take these; "" if it cannot."""
    code = (
        "import numpy, threadpoolctl\n"
        "numpy.ones((64, 64), 'f') @ numpy.ones((64, 64), 'f')\n"
        "print(*{one.get('architecture') for one in threadpoolctl.threadpool_info()})"
    )
    environment = dict(os.environ, OPENBLAS_CORETYPE=wanted)
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return told.stdout.strip()


@pytest.fixture(scope="module")
def manager() -> Iterator[Any]:
    """Of a process that starts and imports once, for one notebook after another."""
    jupyter_client = pytest.importorskip("jupyter_client", reason="the extra `dev` has it")
    made = jupyter_client.AsyncKernelManager(kernel_name="python3")
    yield made
    if made.has_kernel:
        asyncio.run(made.shutdown_kernel(now=True))


@pytest.mark.slow(15)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's own libraries
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # its sockets
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs_from_first_to_last_cell_and_shows_what_it_keeps(path, manager):
    """What its prose says holds, too, where sums are rounded otherwise."""
    learns = path.stem in LEARNED
    kernels = next((one for one in OTHER_KERNELS if kernels_of(one) == one), None)
    others = {} if kernels is None else {"kernels": kernels}
    notebook = execution(path, manager=manager, **others)
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert [out for out in outputs if out["output_type"] == "error"] == []
    assert [out["text"] for out in outputs if out.get("name") == "stderr"] == []
    assert sum("image/png" in out.get("data", {}) for out in outputs) >= 2
    kept = json.loads(path.read_text("utf-8"))
    assert differences(kept, notebook, LEARNED_TOLERANCE if learns else TOLERANCE) == []
    assert moved(kept, notebook) == []
    if learns and kernels is None:
        pytest.skip(f"linear algebra here has none of the kernels {', '.join(OTHER_KERNELS)}")


def test_notebook_4_says_what_another_placement_would_gain():
    """Of a forecast that names its placement nobody warns."""
    path = FOLDER / "04-your-own-model-and-device.ipynb"
    body = code(path).body
    last = next(place for place, one in enumerate(body) if "forecast = " in ast.unparse(one))
    made: dict[str, Any] = {}
    exec(compile(ast.Module(body[:last], []), "notebook", "exec"), made)

    def seconds(schedule: Any, placement: str) -> float:
        words = {"mode": "sleep", "instances": 1000, "placement": placement}
        return ampsim.simulate(made["model"], made["cluster"], schedule, **words).makespan_s

    gains = [seconds(one, "paper") / seconds(one, "balanced") for one in made["schedules"]]
    told = f"`balanced` trains {min(gains):.1f} to {max(gains):.1f} times as fast"
    assert told in path.read_text("utf-8")
