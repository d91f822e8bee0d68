"""`ampsim whatif` and `ampsim solve`: what binds, what would help, and how much of it is enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampsim.cli import completion, options
from ampsim.cli.console import Code, answer, complain, in_columns, object_of, prepare_json
from ampsim.cli.options import Tuning, optional

if TYPE_CHECKING:
    from ampsim.exploring.solve import Solved
    from ampsim.exploring.whatif import WhatIf
    from ampsim.output_folder import Kind
    from ampsim.runs.store import Keeping

SCHEDULE = "amp"

ScheduleOption = Annotated[
    str | None,
    optional(
        "NAME,...",
        f"Schedules, each asked about by itself.  [default: {SCHEDULE}]",
        "--schedule",
        autocompletion=completion.several_of(*completion.SCHEDULES),
    ),
]


@dataclass(frozen=True, slots=True)
class Asking:
    """Options of the runs of a question; None of what was not given."""

    target: options.TargetOption = None
    max_epochs: Annotated[
        int, typer.Option(metavar="N", help="End a run that has not reached the target by then.")
    ] = 40
    repeats: Annotated[
        int | None,
        optional(
            "N",
            "Seeds of each run that learns.  [default: 3 of whatif, 6 of solve]",
        ),
    ] = None
    placement: options.PlacementOption = None
    instances: options.InstancesOption = None
    seed: options.SeedOption = 0

    def given(self) -> dict[str, Any]:
        """As the functions take them."""
        names = ("target", "max_epochs", "placement", "instances", "seed")
        return {
            **{name: getattr(self, name) for name in names},
            **({} if self.repeats is None else {"repeats": self.repeats}),
        }


def whatif(
    model: options.ModelArgument,
    *,
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: ScheduleOption = None,
    tuning: Tuning,
    asking: Asking,
    learn: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="So many things, those that matter most, are learned again at twice their speed, "
            "where that changes what is learned.",
        ),
    ] = 3,
    mode: options.ModeOption = options.ModeName.NUMERIC,
    jobs: options.JobsOption = None,
    data: options.DataOption = None,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Say what binds MODEL on a cluster, and what each thing would buy if it were faster.

    Devices, workers, links and overheads are made half as fast, twice as fast, and to take no time.
    Writes the table, figures and a page to --out (whatif-MODEL unless told). Until that is whole,
    finished runs are kept there, and the same command goes on where it was. The object of --json:
    ampsim, model, cluster, seed, sentences, rows (schedule, what, factor, time_to_target_s, change,
    low, high, ...; the factor of what takes no time is null), curves, elasticities.
    """
    from ampsim.exploring.page import WHATIF_FILES, write_whatif
    from ampsim.exploring.whatif import cells, to_plain
    from ampsim.exploring.whatif import whatif as ask

    loaded, cluster = options.make_model(model, settings, data), hardware.cluster()
    schedules = tuning.schedules(schedule or SCHEDULE)
    prepare_json(json)

    def found(**how: Any) -> WhatIf:
        return ask(
            loaded, cluster, schedules, mode=mode.value, learn=learn, **asking.given(), **how
        )

    def tell(made: WhatIf, folder: Path) -> None:
        told = _Told(made.model, made.cluster, asking.seed, made.sentences, folder / "report.md")
        told.write(json, to_plain(made), cells(made.table))

    asked = _Asked("whatif", out, WHATIF_FILES, jobs, is_quiet=quiet)
    return asked.answered(loaded.name, found, write_whatif, tell)


def solve(
    model: options.ModelArgument,
    *,
    over: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="KEY=A..B",
            help="What varies, and from where to where: latency_s, bandwidth_bytes_per_s, workers, "
            "device.NUMBER such as device.flop_per_s, host.NUMBER, ports.NUMBER, model.OPTION, or "
            "an option of a schedule.",
        ),
    ],
    until: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="Until when, such as 'time_s <= 0.5', or of two schedules "
            "'time_s(pipeline:4) >= 2 * time_s(amp:4)'.",
        ),
    ],
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: ScheduleOption = None,
    tuning: Tuning,
    asking: Asking,
    jobs: options.JobsOption = None,
    data: options.DataOption = None,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Find how fast, or how many, something must be until a condition on MODEL's runs holds.

    What follows from timing, such as epoch_s or train_per_s, is exact; what is learned, such as
    time_s, has a root for each seed, and their median an interval. Writes the table, a figure and a
    page to --out (solve-MODEL unless told). Until that is whole, finished runs are kept there, and
    the same command goes on where it was. The object of --json: ampsim, model, cluster, seed,
    sentences, rows (schedule, value, low, high, unit, ...), curve (every point that was tried).
    """
    from ampsim.exploring.axes import texts_over
    from ampsim.exploring.page import SOLVE_FILES, write_solved
    from ampsim.exploring.solve import cells, to_plain
    from ampsim.exploring.solve import solve as ask

    loaded, cluster = options.make_model(model, settings, data), hardware.cluster()
    schedules = None if schedule is None else tuning.schedules(schedule)
    if schedule is None and tuning.given():
        schedules = tuning.schedules(SCHEDULE)
    ranges = texts_over([over])
    prepare_json(json)

    def found(**how: Any) -> Solved:
        return ask(loaded, cluster, schedules, over=ranges, until=until, **asking.given(), **how)

    def tell(made: Solved, folder: Path) -> None:
        told = _Told(made.model, made.cluster, asking.seed, made.sentences, folder / "report.md")
        told.write(json, to_plain(made), cells(made.table))

    asked = _Asked("solve", out, SOLVE_FILES, jobs, is_quiet=quiet)
    return asked.answered(loaded.name, found, write_solved, tell)


@dataclass(frozen=True, slots=True)
class _Told:
    """What is said of an answer."""

    model: str
    cluster: str
    seed: int
    sentences: tuple[str, ...]
    page: Path

    def write(
        self, json: str | None, content: dict[str, Any], cells: tuple[list[str], list[list[str]]]
    ) -> None:
        """Write JSON, if that is wanted, and the table for a person."""
        headings, rows = cells

        def text() -> str:
            lines = [in_columns([headings, *rows]), *self.sentences]
            return "\n".join([*lines, f"wrote {self.page}, tables and figures beside it"])

        named = {"model": self.model, "cluster": self.cluster, "seed": self.seed}
        said = {"sentences": list(self.sentences)}
        answer(json, lambda: object_of(**named, **said, **content), text)


@dataclass(frozen=True, slots=True, kw_only=False)
class _Asked:
    """Where an answer goes, and how its runs are made."""

    kind: Kind
    out: Path | None
    files: tuple[str, ...]
    jobs: int | None
    is_quiet: bool

    def answered(
        self,
        model: str,
        find: Callable[..., Any],
        write: Callable[[Any, Any], object],
        tell: Callable[[Any, Path], None],
    ) -> Code:
        """Find the answer, write its folder and say it; runs are kept until then."""
        from ampsim.cli.progress import shown
        from ampsim.output_folder import taken
        from ampsim.report.words import slug
        from ampsim.runs import Keeping

        with taken(self.out or Path(f"{self.kind}-{slug(model)}"), self.kind, self.files) as folder:
            keeping: Keeping = Keeping(folder.path, with_failures=False)
            jobs = options.make_jobs(self.jobs)
            try:
                with shown(is_quiet=self.is_quiet) as on_progress:
                    made = find(jobs=jobs, on_progress=on_progress, keeping=keeping)
            except KeyboardInterrupt:
                complain(f"interrupted; what finished is in {folder}; run again to go on")
                return Code.INTERRUPTED
            write(made, folder)
            tell(made, folder.path)
            keeping.forget()
        return Code.FINE
