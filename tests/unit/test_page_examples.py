"""The examples of the pages in `docs/` do what the pages say, from an empty folder.

A page is read from top to bottom. A block of Python, TOML or JSON is written to the file that the
paragraph before it names ("Save it as `NAME`"). A `console` block holds commands, each after
`$ `, and what they print; three dots stand for any text. Nothing else may stand in a block.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from in_copies import SURROUNDINGS, TIME_LIMIT_S, Done, as_script, beside, import_all, in_a_fork

from ampsim.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WITH_EXAMPLES = [page for page in PAGES if "```" in page.read_text(encoding="utf-8")]
pytestmark = pytest.mark.thorough

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


def needs_torch(program: str, words: list[str], folder: Path) -> bool:
    """Whether a command computes with PyTorch."""
    if program == "python":
        return "torch" in (folder / words[0]).read_text(encoding="utf-8")
    return words[0] == "import"


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
        "explore", "many-runs", "model", "node", "placement", "pytorch", "schedule",
        "solver", "solvers", "what-if",
    }  # fmt: skip


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_every_block_of_a_page_is_one_that_is_tested(page):
    text = page.read_text(encoding="utf-8")
    found = list(steps(text))
    assert text.count("```") == 2 * len(FENCE.findall(text))
    assert any(isinstance(step, File) for step in found)
    assert any(isinstance(step, Command) for step in found)


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
