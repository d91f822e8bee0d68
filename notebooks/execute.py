"""Executes the notebooks of this folder and keeps their outputs: `python notebooks/execute.py`.

Words after it name some of them only (`01-first-forecast`). What differs from one execution to the
next, or from one machine to another, is left out, and pictures are kept with 64 colours.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SECONDS_MAX = 600  # of one cell; chosen: the longest takes half a minute of one core
COLOURS = 64  # chosen: no different to the eye, and a notebook of under 400 kB
KERNELS = "Haswell"  # of OpenBLAS; others round otherwise, which moves epochs to a target
AFRESH = "__import__('os').chdir({!r})\n%reset -f"
KEPT = ("text/plain", "text/html", "image/png")


def executed(path: Path, kernels: str = KERNELS, manager: Any = None) -> Any:
    """The notebook, executed in an empty folder from first to last cell, with outputs to keep.

    Args:
        path: of the notebook.
        kernels: of OpenBLAS, with which it computes; "" for those of this processor.
        manager: of a process that goes on to another notebook, from no name; None to start one.

    Raises:
        nbclient.exceptions.CellExecutionError: for a cell that raises.
    """
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, IPYTHONDIR=folder)
        if kernels:
            environment["OPENBLAS_CORETYPE"] = kernels
        environment.pop("MPLBACKEND", None)  # the kernel's own shows figures
        start = [] if manager is None else [nbformat.v4.new_code_cell(AFRESH.format(folder))]
        notebook.cells[:0] = start
        client = nbclient.NotebookClient(
            notebook,
            km=manager,
            timeout=SECONDS_MAX,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute(env=environment)
        finally:
            if manager is not None and client.kc is not None:
                client.kc.stop_channels()
    del notebook.cells[: len(start)]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if "data" in output:
                output.metadata = {}
                output.data = dict(kept(output.data))
    return notebook


def kept(data: dict[str, str]) -> list[tuple[str, str]]:
    """What is shown of a value: not a text that says where in memory something lies."""
    shown = {kind: data[kind] for kind in KEPT if kind in data}
    if "image/png" in shown:
        shown["image/png"] = smaller(shown["image/png"])
    return [(kind, what) for kind, what in shown.items() if " at 0x" not in what]


def smaller(encoded: str) -> str:
    """The same picture, as a PNG of few colours."""
    from PIL import Image

    content = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(content, format="png", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")


def main(names: list[str]) -> None:
    """Executes those of these names, or all, and writes them where they lie."""
    import nbformat

    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            notebook = executed(path)
            nbformat.write(notebook, path)
            print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
