"""What is right, whatever came in: done, or refused in one line that says why."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from mutation.case import Call, Command
from mutation.child import REFUSED, Ended

_MANY_LINES = ("data", "check", "report", "forecast")
"""Commands that may have a line for each of several files or runs."""

_TEMPORARY = re.compile(r"^\..*\.[0-9a-f]{12}(\.\w+)?$|^\.writable\.")
_LINES_MAX = 12

LINE_MAX = 3000
"""Longest line that a person is told (a path or an option may have hundreds of characters)."""

_TURNING = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")

_CHARTS = ("chart.json", "chart.html", "chart.svg", "c.html", "c.json", "c.svg", "graph.dot")
_READ_BY_PEOPLE = (".csv", ".toml", ".md", ".html", ".json", ".svg", ".dot")


def outcome(call: Call, ended: Ended) -> str:
    """How a call ended, in a word: "done", "refused", "stale", "unheard"."""
    if isinstance(call, Command) and ended.code == 1:
        return "unheard" if call.streams else "stale"
    return {0: "done", 2: "refused", REFUSED: "refused"}.get(ended.code, f"exit {ended.code}")


def faults(call: Call, ended: Ended, folder: Path) -> list[str]:
    """What is wrong with how a call ended; nothing as a rule."""
    found = list(_abrupt(ended))
    if not found:
        found += _wrong_code(call, ended)
        found += _wrong_words(call, ended)
        found += _wrong_files(folder)
    if ended.left:
        found.append("processes left")
    if any(_TEMPORARY.match(path.name) for path in folder.rglob(".*")):
        found.append("a temporary file left")
    return found


def class_of(found: list[str]) -> str:
    """The same for faults that differ in names and numbers only."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", found[0])[:110]


def _abrupt(ended: Ended) -> list[str]:
    if ended.is_hung:
        return ["hung"]
    if ended.code < 0:
        return [f"killed by signal {-ended.code}"]
    if "Traceback" in ended.err or "Traceback" in ended.out:
        last = [line for line in ended.err.splitlines() if line.strip()][-1:]
        return [f"traceback: {_plain(last[0]) if last else ''}"[:200]]
    return []


def _wrong_code(call: Call, ended: Ended) -> list[str]:
    allowed = {0, REFUSED}
    if isinstance(call, Command):
        allowed = {0, 1, 2} if call.streams or call.words[:1] == ["report"] else {0, 2}
    return [] if ended.code in allowed else [f"exit code {ended.code}"]


def _wrong_words(call: Call, ended: Ended) -> list[str]:
    found: list[str] = []
    lines = ended.err.splitlines()
    told = [line for line in lines if not line.startswith("ampsim: note: ")]
    streams = call.streams if isinstance(call, Command) else ""
    is_many = isinstance(call, Command) and call.words[:1] and call.words[0] in _MANY_LINES
    if any(not line.startswith("ampsim: ") for line in lines) and ended.code != 1:
        found.append(f"not one line: {_plain(' / '.join(lines))[:160]}")
    elif ended.code in (2, REFUSED) and not streams:
        longest = max(map(len, told), default=0)
        if longest > LINE_MAX:
            found.append(f"a line of {longest} characters")
        if not told:
            found.append("refused without a word")
        elif len(told) > (_LINES_MAX if is_many else 1):
            found.append(f"{len(told)} lines")
    terminal = (("output", ended.out), ("error", ended.err)) if isinstance(call, Command) else ()
    for name, text in terminal:
        strange = sorted({c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"})
        if strange:
            found.append(f"control characters on standard {name}: {strange!a}")
    return found


def _wrong_files(folder: Path) -> list[str]:
    """Files that command what shows them, such as a terminal."""
    made = folder / "made"
    files = sorted(made.rglob("*")) if made.is_dir() else []
    files += [folder / name for name in _CHARTS]
    found: list[str] = []
    for path in files:
        if path.suffix in _READ_BY_PEOPLE and path.is_file():
            text = path.read_text(encoding="utf-8")
            strange = sorted({c for c in text if is_commanding(c)})
            if strange:
                found.append(f"control characters in {path.name}: {strange!a}")
    return found


def is_commanding(character: str) -> bool:
    """Whether a character commands a terminal, or turns the direction of what comes after it."""
    if character in "\n\r\t":
        return False
    is_turning = unicodedata.bidirectional(character) in _TURNING
    return is_turning or unicodedata.category(character) == "Cc"


def _plain(text: str) -> str:
    return ascii(text)[1:-1]
