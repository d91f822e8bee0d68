"""The examples of the pages in `docs/` do what the pages say, from an empty folder.

A page is read from top to bottom. A block of Python, TOML or JSON is written to the file that the
paragraph before it names ("Save it as `NAME`"). A `console` block holds commands, each after
`$ `, and what they print; three dots stand for any text. Nothing else may stand in a block.
"""

from __future__ import annotations

import doctest
import importlib
import multiprocessing
import os
import pkgutil
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ampsim
from ampsim.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WITH_EXAMPLES = [page for page in PAGES if "```" in page.read_text(encoding="utf-8")]
pytestmark = pytest.mark.thorough
TIME_LIMIT_S = 300  # chosen: several times what the longest command takes

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
SAVED = re.compile(r"[Ss]ave\s+(?:it|this)\s+as\s+`(?P<name>[\w.-]+)`")
LIKE_THE_PAGE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class File(NamedTuple):
    """A file that the reader is told to save."""

    name: str
    content: str


class Command(NamedTuple):
    """A command that the reader is told to run, and what the page says that it prints."""

    line: str
    output: str


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


SURROUNDINGS = {"COLUMNS": "100", "MPLBACKEND": "Agg"}


def steps(text: str) -> Iterator[File | Command]:
    """What a page tells its reader to do, in its order."""
    for block in FENCE.finditer(text):
        language, body = block["language"], block["body"]
        if language == "console":
            yield from commands(body)
            continue
        assert language in ("python", "toml", "json"), (
            f"a block of {language or 'nothing'} is not tested"
        )
        paragraph = text[: block.start()].rstrip("\n").rpartition("\n\n")[2]
        names = SAVED.findall(paragraph)
        assert len(names) == 1, f"the paragraph before a block names no file: {paragraph!r}"
        yield File(names[0], body)


def commands(body: str) -> Iterator[Command]:
    assert body.startswith("$ "), body
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def follow(text: str, folder: Path) -> int:
    """Do in `folder` what a page says; fail where something else comes of it; count commands."""
    ran = 0
    for step in steps(text):
        if isinstance(step, File):
            (folder / step.name).write_text(step.content, encoding="utf-8")
        else:
            run(step, folder)
            ran += 1
    return ran


def in_a_process(words: list[str], folder: Path) -> Done:
    """Run the interpreter with these words."""
    environment = {key: value for key, value in os.environ.items() if key != "AMPSIM_DATA"}
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        env={**environment, **SURROUNDINGS},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIME_LIMIT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def in_a_fork(start: Callable[[], object], folder: Path) -> Done:
    """Start a program in a copy of this process, which has imported what others import first."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 3.12, that there are threads
            process = os.fork()
        if not process:
            try:
                _run_here(start, folder, out.fileno(), err.fileno())
            finally:
                os._exit(70)  # who comes here has left by something that is no exit
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        said = [(stream.seek(0), stream.read().decode("utf-8"))[1] for stream in (out, err)]
        return Done(code, *said)


def _run_here(start: Callable[[], object], folder: Path, *streams: int) -> None:
    """Start a program, say what it says to these streams, and end this process."""
    signal.alarm(TIME_LIMIT_S)
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    os.chdir(folder)
    os.environ.pop("AMPSIM_DATA", None)
    os.environ.update(SURROUNDINGS)
    warnings.resetwarnings()
    warnings.simplefilter("error")
    code: Any = 0
    try:
        start()
    except SystemExit as ending:
        code = ending.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@cache
def beside() -> ProcessPoolExecutor:
    """A process that has imported PyTorch and computes nothing with it: copies of it do.

    In a copy of this process they might not: once PyTorch has had threads here, a backward pass in
    a copy waits for one of them forever.
    """
    start_anew = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, start_anew, initializer=import_torch)


def import_torch() -> None:
    """What the first export of a module would import."""
    import_all()
    for name in ("torch", "torch._dynamo", "torch._export", "torch.export._trace"):
        importlib.import_module(name)


def needs_torch(program: str, words: list[str], folder: Path) -> bool:
    """Whether a command computes with PyTorch."""
    if program == "python":
        return "torch" in (folder / words[0]).read_text(encoding="utf-8")
    return words[0] == "import"


def as_script(path: Path) -> None:
    """Do what `python FILE` does: the file is the main module, and its folder comes first."""
    sys.argv = [path.name]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


def run(command: Command, folder: Path) -> None:
    """Run a command of a page; figures of its pages are not drawn."""
    program, *words = shlex.split(command.line)
    is_script = program == "python"
    start = partial(as_script, folder / words[0]) if is_script else partial(main, words)
    if sys.platform != "linux":
        done = in_a_process(words if is_script else ["-m", program, *words], folder)
    elif needs_torch(program, words, folder):
        done = beside().submit(in_a_fork, start, folder).result()
    else:
        done = in_a_fork(start, folder)
    assert done.code == 0, f"{command.line}\n{done.err}"
    if command.output:
        is_alike = doctest.OutputChecker().check_output(command.output, done.out, LIKE_THE_PAGE)
        assert is_alike, f"{command.line} printed\n{done.out}\nthe page says\n{command.output}"


def test_the_pages_with_examples_are_there():
    names = {page.stem.removeprefix("own-") for page in WITH_EXAMPLES}
    assert names == {
        "calibration", "command-line", "dataflow", "dependency-engine", "device-and-cluster",
        "explore", "many-runs", "model", "node", "onnx", "placement", "pytorch", "schedule",
        "solver", "solvers", "what-if",
    }  # fmt: skip


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_every_block_of_a_page_is_one_that_is_tested(page):
    text = page.read_text(encoding="utf-8")
    found = list(steps(text))
    assert text.count("```") == 2 * len(FENCE.findall(text))
    assert any(isinstance(step, File) for step in found)
    assert any(isinstance(step, Command) for step in found)


def import_all() -> None:
    """All of ampsim."""
    for module in pkgutil.walk_packages(ampsim.__path__, "ampsim."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@pytest.fixture(scope="module")
def imported() -> Iterator[None]:
    """No copy of this process imports what is here, and none is left at the end."""
    import_all()
    yield
    if beside.cache_info().currsize:
        beside().shutdown()
        beside.cache_clear()


@pytest.fixture
def one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are not told how many processes to take make their runs themselves."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0})


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "imported", "hasty", "one_processor")
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_who_follows_a_page_gets_what_it_says(page, tmp_path):
    assert follow(page.read_text(encoding="utf-8"), tmp_path) > 0


SUM = (
    "Save it as `sum.py`:\n\n```python\nprint(1 + 1)\n```\n\n```console\n$ python sum.py\n{}\n```\n"
)


@pytest.mark.parametrize("output", ["2", "..."])
def test_a_page_that_says_what_is_printed_passes(output, tmp_path):
    assert follow(SUM.format(output), tmp_path) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SUM.format("3"), "the page says"),
        (SUM.replace("Save it", "Keep it").format("2"), "names no file"),
        (SUM.replace("1 + 1", "1 / 0").format("2"), "ZeroDivisionError"),
        ("```sh\nrm\n```\n", "a block of sh is not tested"),
        ("```console\npython sum.py\n```\n", "python sum.py"),
    ],
)
def test_a_page_that_is_wrong_fails(text, told, tmp_path):
    with pytest.raises(AssertionError, match=re.escape(told)):
        follow(text, tmp_path)
