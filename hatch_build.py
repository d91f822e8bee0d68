"""Build hook: write the commit that a wheel is built from into it, where that can be known."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Adds ``ampsim/_shipped/commit.txt``, which `ampsim.study.provenance` reads.

    A source distribution carries the file at its root, so that a wheel built from it knows too.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Ask the source distribution, else git; without an answer there is no such file."""
        if version == "editable":
            return
        source = Path(self.root) / "commit.txt"
        commit = source.read_text(encoding="utf-8") if source.is_file() else self._ask_git()
        if not commit:
            return
        written = Path(tempfile.mkdtemp()) / "commit.txt"
        written.write_text(commit, encoding="utf-8")
        is_wheel = self.target_name == "wheel"
        place = "ampsim/_shipped/commit.txt" if is_wheel else "commit.txt"
        build_data["force_include"][str(written)] = place

    def _ask_git(self) -> str:
        head = self._git("rev-parse", "HEAD")
        changes = self._git("status", "--porcelain", "--untracked-files=no")
        return f"{head}{'+changes' if changes else ''}\n" if head else ""

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", self.root, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.strip()
