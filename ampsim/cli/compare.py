"""ampsim compare: what differs between two runs that were kept, and where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ampsim.cli import options
from ampsim.cli.console import Code, answer, object_of, prepare_json

_HELP = "A folder of `ampsim run`."


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help=_HELP)],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help=_HELP)],
    *,
    json: options.JsonOption = None,
) -> Code:
    """Compare two runs: where they come from, their numbers, and where their traces first part.

    Traces are compared to the bit, row by row in the order in which things ended. It ends with 0
    whether they differ or not. The object of --json: ampsim, a, b, is_identical, origin, numbers,
    tables.
    """
    from ampsim.report.compare_text import to_text
    from ampsim.runs.compare import compare_runs, to_plain
    from ampsim.runs.loaded_run import load_run

    a, b = load_run(run_a), load_run(run_b)
    prepare_json(json)
    comparison = compare_runs(a, b)
    answer(json, lambda: object_of(**to_plain(a, b, comparison)), lambda: to_text(a, b, comparison))
    return Code.FINE
