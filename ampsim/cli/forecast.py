"""`ampsim forecast`: how fast, and to what accuracy, would a model train?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import ampsim
from ampsim.cli import options
from ampsim.cli.console import (
    Code,
    complain,
    note_no_effect,
    require_effect,
    show_traceback,
    width,
    write,
    write_json,
)
from ampsim.cli.option_table import TRIALS
from ampsim.cli.options import Tuning
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.output_folder import OutputFolder


@dataclass(frozen=True, slots=True)
class Comparing:
    """Options by which rows are compared; None of what was not given."""

    budget: str | None = None
    quick: bool = False
    repeats: int | None = None
    sure: float | None = None
    max_repeats: int | None = None
    scale_rate: Literal["none", "linear", "sqrt"] | None = None
    tune: bool | None = None
    trials: int | None = None
    validate_every: int | None = None
    run_limit: str | None = None

    def given(self, mode: options.ModeName, max_epochs: int, json: str | None) -> dict[str, Any]:
        """Options as `ampsim.forecast` takes them; without a budget where none was given.

        Raises:
            OptionError: an option would have no effect, or the budget is no time.
        """
        from ampsim.forecasting.making import MAX_REPEATS

        if mode == "sleep":
            why = "in mode sleep, which times one epoch and learns nothing"
            note_no_effect(["target", *(["max_epochs"] if max_epochs != 1 else [])], why)
            require_effect(["scale_rate"], why)
        if json == "-":
            note_no_effect(["columns"], "beside --json -, which prints no table")
        if self.max_repeats is not None and self.sure is None:
            raise OptionError(
                f"--max-repeats {self.max_repeats} ends what --sure goes on with; "
                "give --sure 0.9 too, or --repeats instead"
            )
        by_hand = self.by_hand
        if self.quick and (by_hand or self.budget is not None):
            other = by_hand[0] if by_hand else "--budget"
            raise OptionError(f"--quick runs each schedule once, as it is; leave out {other}")
        for other in ("--tune", "--no-tune", "--trials", "--max-repeats"):
            if self.budget is not None and other in by_hand:
                raise OptionError(f"--budget says how much is tried and run; leave out {other}")
        if self.budget is not None and self.repeats == 1:
            raise OptionError("--repeats 1 ranks nothing, whatever --budget; leave one of them out")
        if self.tune is False and self.trials is not None:
            raise OptionError(
                f"--no-tune tries no learning rates, and --trials {self.trials} does; leave one of "
                "them out"
            )
        tune = self.trials if self.trials is not None else TRIALS if self.tune else None
        return {
            "repeats": 1 if self.repeats is None else self.repeats,
            "sure": self.sure,
            "max_repeats": MAX_REPEATS if self.max_repeats is None else self.max_repeats,
            "scale_rate": self.scale_rate,
            "tune": tune,
            "validate_every": self.validate_every,
            "budget_s": options.seconds("--budget", self.budget),
            "run_limit_s": options.seconds("--run-limit", self.run_limit),
        }

    @property
    def by_hand(self) -> list[str]:
        """Options that say how many runs and trials there are."""
        given = {"--repeats": self.repeats, "--sure": self.sure, "--max-repeats": self.max_repeats}
        given |= {"--tune" if self.tune else "--no-tune": self.tune, "--trials": self.trials}
        return [name for name, value in given.items() if value is not None]


BUDGET_S: Final = 60.0
"""Of a forecast where nothing says how much is run (issue 30: a minute on two quiet cores)."""

MODEL: Final = "rnn"
QUESTION: Final = {"digits": "2", "hidden": "64", "batch": "50"}
"""Options of `MODEL` where no model is named, unless given otherwise: a question of the paper's
kind, so small that a minute answers it (lists of one or two digits are learned in a second)."""

QUESTION_INSTANCES: Final = 5_000
"""Lists of that question."""


def forecast(
    model: str | None = None,
    *,
    settings: list[str] | None = None,
    hardware: options.Hardware,
    schedule: str | None = None,
    tuning: Tuning,
    placement: str | None = None,
    target: float | None = None,
    max_epochs: int = 40,
    comparing: Comparing,
    jobs: int | None = None,
    executor: str | None = None,
    data: str | None = None,
    instances: int | None = None,
    seed: int = 0,
    mode: options.ModeName = "numeric",
    out: Path | None = None,
    json: str | None = None,
    columns: str | None = None,
    quiet: bool = False,
) -> Code:
    """Say how fast, and to what accuracy, MODEL would train on devices that need not exist.

    Tunes every schedule alike, runs it until the target accuracy is reached with as many seeds as
    the answer needs and --budget buys, prints how they compare and what would change it, and writes
    table, figures and manifest to --out (forecast-MODEL unless told). Until that is whole, finished
    runs are kept there, and the same command goes on where it was. The object of --json: ampsim,
    model, cluster, seed, verdict (in words), rows (a list, one a schedule, with the columns of
    forecast.csv), epochs (a list, as in epochs.csv), and, where there are some, validations,
    trials likewise, lost_runs (a sentence for each), and interrupted (what Ctrl-C left out).
    """
    from ampsim.cli.progress import Bars, Filling, shown
    from ampsim.output_folder import taken
    from ampsim.report.page.folders import OF_FORECAST
    from ampsim.report.table import require_columns
    from ampsim.report.words import slug
    from ampsim.runs import RunCache
    from ampsim.study.loading import settings_of

    chosen = require_columns(columns)
    loaded, instances = _asked(model, settings, data, instances)
    cluster = hardware.cluster()
    schedules = tuning.schedules(options.usual_of(loaded) if schedule is None else schedule)
    given = comparing.given(mode, max_epochs, json)
    is_learned = mode == "numeric" and (target or loaded.target) is not None
    is_left_open = not (comparing.quick or comparing.by_hand or comparing.budget)
    if is_left_open and is_learned and len(schedules) > 1:
        given["budget_s"] = BUDGET_S
    said = [one.strip().casefold() for one in (schedule or "").split(",") if ":" in one]  # amp:8
    fixed = [*settings_of(settings or []), *tuning.given().keys() & {"max_active_keys"}, *said]
    given["fixed"] = fixed if given["budget_s"] else ()  # of nothing else that tunes
    with taken(out or Path(f"forecast-{slug(loaded.name)}"), "forecast", OF_FORECAST) as folder:
        told: dict[str, Any] = {} if quiet else {"say": complain}
        keeping = RunCache(folder.path, with_failures=False, **told)
        filling = Filling(loaded, target)
        with shown(is_quiet=quiet, drawn=partial(Bars, filling=filling)) as on_progress:
            made = ampsim.forecast(
                loaded, cluster, schedules, target=target, max_epochs=max_epochs, seed=seed,
                instances=instances, mode=mode, placement=placement, keeping=keeping,
                executor=options.make_executor(jobs, executor), on_progress=on_progress,
                on_run=filling.take, **given,
            )  # fmt: skip
        lines = [_QUICK] * comparing.quick + [_ASKED] * (model is None)
        lines.append(options.free_links_line(cluster))
        code = _deliver(made, folder, json, seed, partial(_print_answer, made, chosen, lines))
        if code is Code.FINE:
            keeping.forget()
        return code


def _asked(
    model: str | None, settings: list[str] | None, data: str | None, instances: int | None
) -> tuple[ampsim.Model, int | None]:
    """The model, and how many items; of the small question where no model is named."""
    if model is not None:
        return options.make_model(model, settings, data), instances
    from ampsim.study.loading import settings_of

    own = settings_of(settings or [])
    usual = [f"{key}={value}" for key, value in QUESTION.items() if key not in own]
    loaded = options.make_model(MODEL, [*usual, *(settings or [])], data)
    return loaded, QUESTION_INSTANCES if instances is None else instances


def _deliver(
    made: ampsim.Forecast, folder: OutputFolder, json: str | None, seed: int,
    printed: Callable[[], None],
) -> Code:  # fmt: skip
    """Write the files, then say what they say; `printed` prints it."""
    from ampsim.forecasting.forecast import to_json
    from ampsim.report.verdict import verdict

    if made.interrupted and not len(made.table):  # what an earlier forecast left there stays
        complain(f"{made.interrupted}; no page was written; run again to go on")
        return Code.INTERRUPTED
    made.save(folder)
    if json is not None:
        said = verdict(made.table, made.target, made.metric, made.manifest)
        write_json(to_json(made, seed=seed, verdict=said), json)
    if json != "-":
        printed()
        write(f"wrote {folder.path / 'index.html'}, forecast.md and figures beside it")
    return _ended(made, folder)


_QUICK: Final = (
    "One run of each schedule, as it is: that ranks nothing; leave --quick out for an answer."
)
_ASKED: Final = (
    "Asked of a small rnn, of short lists of digits; the paper's own is: ampsim forecast rnn"
)


def _print_answer(made: ampsim.Forecast, columns: list[str] | None, lines: list[str]) -> None:
    """Print the table, or these columns of it, the verdict, and the lines below."""
    from rich.console import Console

    from ampsim.report.page.text import beside_answer, sentences_under
    from ampsim.report.table import columns_to_rich, notes, to_rich
    from ampsim.report.verdict import verdict

    console = Console(width=width())
    drawn = [to_rich(made.table, made.target, width=console.width)]
    if columns is not None:
        drawn = columns_to_rich(made.table, columns, width=console.width)
    for table in drawn:
        console.print(table)
    said = verdict(made.table, made.target, made.metric, made.manifest)
    changes = sentences_under(made.manifest, "changes")
    below = [said, *notes(made.table), *beside_answer(made), *changes, *lines]
    write("\n".join(filter(None, below)))


def _ended(made: ampsim.Forecast, folder: OutputFolder) -> Code:
    for sentence in made.unreached:
        complain(f"note: {sentence}")
    for failure in dict.fromkeys((*(run.failure for run in made.runs), *made.lost)):
        show_traceback(failure)
    for failure, count in Counter(made.failures).items():
        complain(failure + (f" ({count} runs)" if count > 1 else ""))
    if made.interrupted:
        complain(f"{made.interrupted}; what finished is in {folder}; run again to go on")
        return Code.INTERRUPTED
    return Code.FAILED if made.failures else Code.FINE
