"""What tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ampsim.cli import main


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ended]:
    """`call("forecast", "--seed", "1")` runs a command in a folder that is empty at first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main(words)
        said = capsys.readouterr()
        return Ended(int(ending.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def mistake(call: Callable[..., Ended]) -> Callable[..., str]:
    """`mistake("forecast", "rrn")`: the one line that is said of it; nothing else may happen."""

    def run(*words: str) -> str:
        ended = call(*words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("ampsim: ")
        assert ended.err.endswith("\n")
        assert ended.err.count("\n") == 1
        return ended.err

    return run
