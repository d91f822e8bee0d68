"""ampsim report, for reports that a program makes in place of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from ampsim.cli.say import Code

Way: TypeAlias = Literal["list", "write", "check", "rerun", "redraw"]


class Outcome(NamedTuple):
    """What came of one program.

    Args:
        code: how the command is to end.
        title: of the report.
        state: as --json tells it.
        line: for the terminal.
        faults: why the report does not follow.
        notes: what has changed without making it wrong.
    """

    code: Code
    title: str
    state: str
    line: str
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def do_program(folder: Path, target: Path, way: Way) -> Outcome:
    """Write, check or list the report of a program; what it is redrawn from is a run of it.

    Args:
        folder: where the program lies.
        target: where the report lies, or is to.
        way: what is done.
    """
    from ampsim.recipes.programs import check_program, read_program
    from ampsim.report.page.program import write_program_report

    program = read_program(folder)
    name = program.name
    if way == "list":
        return Outcome(Code.FINE, program.title, "listed", "")
    if way in ("write", "redraw"):
        written = write_program_report(program, program.tables(), target)
        state, verb = ("written", "wrote") if way == "write" else ("redrawn", "redrew")
        line = f"{verb} {written[-2]} with its figures, tables and manifest"
        return Outcome(Code.FINE, program.title, state, line)
    verdict = check_program(program, target, is_fresh=way == "rerun")
    more = f" ({'; '.join(verdict.notes)})" if verdict.notes else ""
    told = f"does not follow: {'; '.join(verdict.faults)}" if verdict.faults else "follows"
    code, state = (Code.STALE, "stale") if verdict.faults else (Code.FINE, "follows")
    line = f"{name}: {told}{more}"
    return Outcome(code, program.title, state, line, verdict.faults, verdict.notes)
