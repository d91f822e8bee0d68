"""`ampsim explore`, `search`, `whatif` and `solve`: many runs, asked about as one question."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import ampsim
from ampsim.cli import options
from ampsim.cli.console import Code, answer, complain, in_columns, require_effect, typed_options
from ampsim.cli.option_table import ONE, SEVERAL
from ampsim.cli.options import Tuning
from ampsim.errors import AmpsimError, OptionError

if TYPE_CHECKING:
    from ampsim.exploring.axes import Axis
    from ampsim.exploring.finding import Finding
    from ampsim.model_parallel import Schedule
    from ampsim.recipes.recipe import Recipe

POINTS = 8
"""Points of a range; a test compares this and the next three with the library's."""

SURE = 0.9
TRIALS = 100
IN_FLIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The subject of a question, and options of its runs; None of what was not given."""

    settings: list[str] | None = None
    data: str | None = None
    hardware: options.Hardware
    schedule: str | None = None
    target: float | None = None
    max_epochs: int = 40
    repeats: int | None = None
    placement: str | None = None
    instances: int | None = None
    seed: int = 0
    tuning: Tuning

    def given(self) -> dict[str, Any]:
        """The options of runs as the functions take them."""
        names = ["target", "max_epochs", "placement", "instances", "seed"]
        names += [] if self.repeats is None else ["repeats"]
        return {name: getattr(self, name) for name in names}

    def require_learned(self, more: Iterable[str], why: str, *, varies: bool = False) -> None:
        """Refuse options that only runs that learn read, where none does.

        One epoch and one seed are always run; more seeds where their times vary.

        Args:
            more: what else only such runs read, beside the target, its epochs and the seeds.
            why: nothing is learned, as the end of a sentence.
            varies: whether times vary with the seed.

        Raises:
            OptionError: one was given.
        """
        epochs = [] if self.max_epochs == 1 else ["max_epochs"]
        repeats = [] if varies or self.repeats == 1 else ["repeats"]
        require_effect(["target", *repeats, *more, *epochs], why)

    def setup(
        self, model: str, schedules: str | None, over: Iterable[str] = ()
    ) -> tuple[tuple[ampsim.Model, ampsim.Cluster, list[Schedule] | None], dict[str, str]]:
        """Model, cluster and schedules, these unless others are named, and what varies around."""
        from ampsim.exploring.axes import Setup, axes_over, require_open, texts_over

        varies = texts_over(over)
        for option, why in self._overruled(varies):
            complain(f"note: --{option.replace('_', '-')} has no effect, {why}")
        names = self.schedule or schedules
        made = None if names is None else self.tuning.schedules(names)
        loaded = options.make_model(model, self.settings, self.data)
        cluster = self.hardware.cluster()
        if "device" not in varies:
            options.note_free_products(loaded, cluster)
        if self.schedule and made:
            axes: tuple[Axis, ...] = ()
            with suppress(AmpsimError):  # which is told later: a condition may name more schedules
                axes = axes_over(varies, Setup(loaded, cluster, tuple(made)))
            require_open([self.schedule], axes)
            tried = next((one.values for one in axes if one.key == "schedule"), None)
            if tried and (left := [one.name for one in made if one.name not in tried]):
                complain(f"note: {', '.join(left)} is left out, for --for says schedule")
        return (loaded, cluster, made), varies

    def _overruled(self, varies: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Options that were given and change nothing, and why."""
        from ampsim.hardware.load import is_groups, says_links

        device = self.hardware.device or ""
        given = [key for key, value in asdict(self.hardware).items() if value is not None]
        for key in [*given, *self.tuning.given()]:
            says_more = key == "device" and (is_groups(device) or says_links(device))
            if key in varies and not says_more:
                yield key, f"for --for says {key}"
        for text in self.settings or ():
            if (key := f"model.{text.partition('=')[0].strip()}") in varies:
                yield f"set {text}", f"for --for says {key}"
        clusters = filter(None, map(str.strip, varies.get("cluster", "").split(",")))
        if given and (file := next(filter(says_links, clusters), None)):
            yield from ((key, f"for {file} says it") for key in given if key not in varies)


@dataclass(frozen=True, slots=True)
class Making:
    """Options of how a question is answered, and where to."""

    jobs: int | None = None
    executor: str | None = None
    run_limit: str | None = None
    out: Path | None = None
    json: str | None = None
    quiet: bool = False

    def answered(
        self, kind: type[Finding], about: str, find: Callable[..., Finding], *, keeps: bool = False
    ) -> Code:
        """Find the answer, write its folder and say it.

        Args:
            kind: of what is found.
            about: what the folder is called, unless told.
            find: finds it, told how.
            keeps: whether runs stay in the folder, so that the same question goes on from there.
        """
        from ampsim.cli.progress import shown
        from ampsim.output_folder import taken
        from ampsim.report.words import slug
        from ampsim.runs import RunCache

        executor = options.make_executor(self.jobs, self.executor)
        limit_s = options.seconds("--run-limit", self.run_limit)
        with taken(self.out or Path(slug(about)), kind.kind, kind.files) as folder:
            keeping = RunCache(folder.path, with_failures=keeps)
            try:
                with shown(is_quiet=self.quiet) as on_progress:
                    made = find(
                        executor=executor, run_limit_s=limit_s, on_progress=on_progress,
                        keeping=keeping,
                    )  # fmt: skip
            except KeyboardInterrupt:
                has_kept = os.path.isdir(keeping.runs)
                kept = f"what finished is in {folder}" if has_kept else "no run had finished"
                complain(f"interrupted; {kept}; run again to go on")
                return Code.INTERRUPTED
            page, *others, _manifest = made.save(folder)
            headings, lines = made.cells
            table = in_columns([headings, *lines]) if lines else ""
            beside = "tables and figures" if len(others) > 1 else others[0].name
            told = [table, *made.sentences, f"wrote {page}, {beside} beside it"]
            answer(self.json, made.to_json, lambda: "\n".join(filter(None, told)))
            if not keeps:
                keeping.forget()
        if made.interrupted:
            complain(made.interrupted)
        if made.is_stopped:
            return Code.INTERRUPTED
        if made.failed:
            complain(made.failed)
        return Code.FAILED if made.failed else Code.FINE


@dataclass(frozen=True, slots=True)
class Searching:
    """Options of a search itself."""

    minimise: str = "time_s"
    subject_to: list[str] | None = None
    trials: int = TRIALS
    in_flight: int = IN_FLIGHT
    sampler: Literal["tpe", "random"] = "tpe"
    prunes: bool = True
    against_random: bool = False

    def given(self) -> dict[str, Any]:
        """Options as `ampsim.search` takes them."""
        return {**asdict(self), "subject_to": self.subject_to or []}

    def require_effects(self, question: Question | None = None) -> None:
        """Refuse options that would change nothing; without a question where a recipe has it.

        Raises:
            OptionError: one was given, or a column or condition is none.
        """
        from ampsim.exploring.search import aims_of
        from ampsim.exploring.trials import Aim

        if not Aim(*aims_of(self.minimise, self.subject_to or ()), range(1)).learns:
            why = f"on a search that minimises {self.minimise}, which follows from timing"
            refuse = require_effect if question is None else question.require_learned
            refuse(["prunes"], why)
        if self.sampler == "random":
            require_effect(["against_random"], "beside --sampler random")


def explore(
    model: str,
    *,
    over: list[str] | None = None,
    points: int = POINTS,
    budget: str | None = None,
    question: Question,
    sure: float = SURE,
    making: Making,
) -> Code:
    """Map which schedule trains MODEL soonest at each point of a space of hardware.

    Every point is timed exactly; training is made where it decides, and the rest is predicted, with
    intervals. Writes a page with the map, the table and a manifest to --out (explore-MODEL unless
    told). Finished runs are kept there: the same command goes on where it was, also after its
    budget. The object of --json: ampsim, model, cluster, seed, verdict, learnings, wrong, left_out,
    interrupted, rows (one a point and schedule, with the columns of explore.csv).
    """
    from ampsim.exploring.axes import NAMES

    setup, varies = question.setup(model, SEVERAL, over or ())
    if not any(".." in text and key not in NAMES for key, text in varies.items()):
        require_effect(["points"], "where --for names no range A..B")
    how = {"over": varies, "points": points, "sure": sure, **question.given()}
    find = partial(ampsim.explore, *setup, budget_s=options.seconds("--budget", budget), **how)
    return making.answered(ampsim.Exploration, f"explore-{setup[0].name}", find, keeps=True)


def search(
    model: str,
    *,
    over: list[str] | None = None,
    searching: Searching,
    budget: str | None = None,
    question: Question,
    making: Making,
) -> Code:
    """Search hardware and schedules for the points that no other one beats on MODEL.

    A recipe with a table "search" says all that in a file; options of the search itself go before
    what it says. Optuna proposes points (pip install 'ampsim[search]'); each is trained until what
    it has spent is dominated. Writes a page, the table of trials and a manifest to --out
    (search-MODEL unless told, or search- and the name of the recipe's folder). The journal of
    trials and finished runs are kept there: the same command goes on where it was. The object of
    --json: ampsim, model, cluster, seed, verdict, objectives, hypervolume, hypervolume_random,
    importances, interrupted, rows (one a trial, columns as in search.csv).
    """
    from ampsim.exploring.sampling import optuna_here

    optuna_here()
    setup: Any
    recipe = None
    if folder := options.recipe_at(model):
        recipe, setup, how = _asked_by(folder, searching)
    else:
        searching.require_effects(question)
        setup, varies = question.setup(model, SEVERAL, over or ())
        how = {"over": varies, **searching.given(), **question.given()}
    budget_s = options.seconds("--budget", budget)

    def find(**more: Any) -> ampsim.Searched:
        found = ampsim.search(*setup, budget_s=budget_s, **how, **more)
        title = found.title if recipe is None else recipe.title
        origin = {} if recipe is None else {"recipe": recipe.origin}
        return replace(found, title=title, manifest={**found.manifest, **origin})

    about = setup[0].name if recipe is None else recipe.name
    return making.answered(ampsim.Searched, f"search-{about}", find, keeps=True)


def _asked_by(folder: Path, searching: Searching) -> tuple[Recipe, Any, dict[str, Any]]:
    """A recipe, the setup around which it searches, and how.

    Raises:
        OptionError: an option says what the recipe does, or would change nothing.
    """
    from ampsim.recipes.recipe import read_recipe
    from ampsim.recipes.rows import search_of

    recipe = read_recipe(folder)
    setup, how = search_of(recipe)
    typed, own = typed_options(), searching.given()
    beside = {"budget", "traceback", *own, *(one.name for one in fields(Making))}
    if said := next((text for name, text in typed.items() if name not in beside), None):
        raise OptionError(f"{said} has no effect beside {recipe.label}; say it there")
    how |= {name: own[name] for name in own if name in typed}
    Searching(**{name: how[name] for name in own}).require_effects()
    return recipe, setup, how


def whatif(
    model: str,
    *,
    learn: int = 3,
    question: Question,
    mode: options.ModeName = "numeric",
    making: Making,
) -> Code:
    """Say what binds MODEL on a cluster, and what each thing would buy if it were faster.

    Devices, workers, links and overheads are made half as fast, twice as fast, and to take no time.
    Writes the table, figures and a page to --out (whatif-MODEL unless told). Until that is whole,
    finished runs are kept there, and the same command goes on where it was. The object of --json:
    ampsim, model, cluster, seed, sentences, rows (schedule, what, factor, time_to_target_s, change,
    low, high, ...; the factor of what takes no time is null), curves, elasticities.
    """
    setup, _none = question.setup(model, ONE)
    nothing = [] if learn == 0 else ["learn"]
    if mode == "sleep":
        question.require_learned(nothing, "in mode sleep, which times one epoch and learns nothing")
    elif question.target is None and setup[0].target is None:
        question.require_learned(nothing, f"without a target, which {setup[0].name} has not")
    find = partial(ampsim.whatif, *setup, mode=mode, learn=learn, **question.given())
    return making.answered(ampsim.WhatIf, f"whatif-{setup[0].name}", find)


def solve(model: str, *, over: list[str], until: str, question: Question, making: Making) -> Code:
    """Find how fast, or how many, something must be until a condition on MODEL's runs holds.

    What is timed alike with each seed, as epoch_s may be, is exact; what is learned, such as
    time_s, has a root for each seed, and their median an interval. Writes the table, a figure and a
    page to --out (solve-MODEL unless told). Until that is whole, finished runs are kept there, and
    the same command goes on where it was. The object of --json: ampsim, model, cluster, seed,
    sentences, rows (schedule, value, low, high, unit, ...), curve (every point that was tried).
    """
    from ampsim.exploring.condition import condition_of

    if not condition_of(until).is_learned:
        question.require_learned([], f"on {until!r}, which follows from timing", varies=True)
    setup, varies = question.setup(model, ONE if question.tuning.given() else None, over)
    find = partial(ampsim.solve, *setup, over=varies, until=until, **question.given())
    return making.answered(ampsim.Solved, f"solve-{setup[0].name}", find)
