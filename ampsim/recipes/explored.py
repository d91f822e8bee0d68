"""The report of a recipe that explores: a map, from what was timed and learned.

What was timed and learned lies in `outlines.json`; table and pages follow from that. Rows at the
ends of what varies have witnesses.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from ampsim.exploring.axes import point_words
from ampsim.exploring.explore import (
    NOT_TUNED,
    Evidence,
    Exploration,
    Explorer,
    evidence_from_plain,
    exploration_of,
)
from ampsim.exploring.making import PointRuns, Query
from ampsim.forecasting.making import advised
from ampsim.metric import Metric
from ampsim.recipes.beside import FORMAT, OUTLINES_FILE, read_json, witnesses_to_text
from ampsim.recipes.recipe import Recipe
from ampsim.recipes.results import PAGE, TABLE, Reported
from ampsim.recipes.rows import ExploredSpace, Rows, space_of
from ampsim.recipes.running import (
    InterruptedReport,
    RecipeOptions,
    costs_of,
    manifest_of,
    witnesses_of,
)
from ampsim.report import words as markdown
from ampsim.report.page.text import assumptions, next_of_report, origin, tables_of
from ampsim.report.saving import drawn_with
from ampsim.report.table import to_csv
from ampsim.runs.jobs import opened
from ampsim.runs.store import RunCache
from ampsim.text import to_toml

MAP: Final = "index.html"
_KIND: Final = "map"
_OWN_OPTIONS: Final = "Rows have options of the model of their own, as the recipe says"


@dataclass(frozen=True, kw_only=True)
class Explored(Reported):
    """The parts of an exploring recipe's report."""

    recipe: Recipe  # what was asked
    found: Exploration  # the map
    said: tuple[str, ...] = ()  # sentences of it that its runs alone tell
    witnesses: str = field(default="", repr=False)  # as of `Reported`
    runs = ()

    @property
    def failures(self) -> list[str]:
        """The line on its runs if each failed; else none, as a cell whose runs fail is one."""
        return [self.found.failed] if self.found.failed else []

    @property
    def manifest(self) -> dict[str, Any]:
        """The map's origin, without the hashes of what is written."""
        return self.found.manifest

    def origin(self) -> dict[str, Any]:
        """The manifest, and the libraries that draw pictures here."""
        return {**self.manifest, "drawn_with": drawn_with()}

    def as_before(self, manifest: dict[str, Any], before: Reported) -> Explored:
        """Replace the manifest; maps have had learning digests from the first."""
        del before
        return replace(self, found=replace(self.found, manifest=manifest))

    def tables(self) -> dict[str, str]:
        """report.csv: a row for each cell."""
        return {TABLE: to_csv(self.found.table)}

    @property
    def outlines(self) -> str:
        """Return all that was timed and learned, as JSON."""
        head = {"kind": _KIND, "format": FORMAT, "said": list(self.said)}
        metric = {"kind": self.found.metric.kind, "unit": self.found.metric.unit}
        content = {**head, "metric": metric, **self.found.evidence.plain()}
        return json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"

    def drawn(self, charts: Mapping[str, bytes | None]) -> dict[str, str | bytes]:
        """The map, which holds its figures, and the page that shows it in Markdown."""
        del charts
        found, recipe = self.found, self.recipe
        headings, lines = found.cells
        parts = [
            f"# {markdown.escape(recipe.title)}",
            recipe.file.text.strip(),
            f"**{markdown.paragraph(found.sentences[0])}**",
            "\n".join(f"* {markdown.paragraph(one)}" for one in found.sentences[1:]),
            f"[The map]({MAP}) has every number, slices, and the line of equal time.",
            *map_tables(found),
            *tables_of([("Where each leads most", [headings, *lines])] if lines else [], headings),
            *next_of_report(recipe.name),
            *assumptions(found.manifest),
            *origin({k: v for k, v in found.manifest.items() if k != "schedules"}, TABLE),
        ]
        return {MAP: found.page(TABLE), PAGE: "\n\n".join(filter(None, parts)) + "\n"}


_OF_CELL: Final = {"first": "", "tie": " (tie)", "too few seeds": " (open)"}
"""What stands behind a lead that is not predicted, by its standing."""


def map_tables(found: Exploration) -> list[str]:
    """Tabulate who is ahead at each point, and how many times as soon as the next.

    The first key goes across, the second down, and there is a table for each point of the others.
    """
    keys = list(found.over)
    across, down, rest = keys[0], keys[1:2], keys[2:]
    words = dict(_winners(found))
    parts = ["## Who is ahead where"]
    for panel in product(*(found.over[key] for key in rest)):
        if rest:
            parts.append(f"### {point_words(dict(zip(rest, panel, strict=True)), found.over)}")
        lines = [
            [point_words(dict(zip(down, line, strict=True)), found.over) or "ahead"]
            + [words[(one, *line, *panel)] for one in found.over[across]]
            for line in product(*(found.over[key] for key in down))
        ]
        headings = ["", *(point_words({across: one}, found.over) for one in found.over[across])]
        parts.append(markdown.table(headings, lines, left=headings).rstrip("\n"))
    legend = (
        "How many times as soon as the next, by medians. A tie: within 5 %. Open: seeds are too "
        "few to say who is first. A question mark: something is predicted there. None fits: the "
        "values do not fit together, or no schedule fits there."
    )
    return [*parts, legend]


def _winners(found: Exploration) -> Iterator[tuple[tuple[Any, ...], str]]:
    """A few words on each point."""
    bases, count = found.table["basis"].tolist(), len(found.evidence.labels)
    points = zip(product(*found.over.values()), found.ahead, strict=True)
    for place, (point, (best, lead)) in enumerate(points):
        if best is not None:
            said = f"{lead:.2f}×" if math.isfinite(lead) else "alone"
            yield point, f"{best['schedule']} {said}{_OF_CELL.get(str(best['standing']), ' ?')}"
            continue
        is_unfit = set(bases[place * count : (place + 1) * count]) == {"unfit"}
        yield point, "none fits" if is_unfit else "nobody"


def run_exploration(recipe: Recipe, folder: Path, options: RecipeOptions) -> Explored:
    """Time and learn what is not in the store of the report's folder yet, until the map is sure.

    Raises:
        FileFormatError, MissingDataError, InterruptedReport, SimulationError, ExecutorError,
            OptionError: as of `run_recipe`.
    """
    space, file = space_of(recipe), recipe.file
    keeping = RunCache(folder, options.is_fresh, say=options.say)
    asked = Query(
        setup=space.base.setup, target=file.target, max_epochs=file.max_epochs or 1,
        repeats=len(file.seeds), seed=file.seeds[0], instances=file.instances,
        on_progress=options.on_progress, keeping=keeping,
    )  # fmt: skip
    rows = [space.rows_at(point) for point in space.points]
    cells = len(rows) * len(space.base.rows)
    with opened(options.executor, run_limit_s=options.run_limit_s) as executor:
        ends = space.at_ends
        try:
            witnesses = witnesses_of(ends.rows, space.base.goal, asked.seed, executor)
            advice = advised(asked.rows[0].plan, asked.setup.schedules, asked.seed)
        except KeyboardInterrupt:
            raise InterruptedReport(None, cells, "cells") from None
        runs = PointRuns(asked, executor, advice)
        explorer = Explorer(rows, asked, runs)
        try:
            stopped = bool(explorer.run(space.asked.sure))
        except KeyboardInterrupt:
            stopped = True
    if stopped:
        raise InterruptedReport(explorer.learnings, cells, "cells")
    labels = tuple(row.label for row in space.base.rows)
    evidence = Evidence(space.values, labels, explorer.methods, asked.repeats)
    own, tuned = [one.set for one in file.schedules], NOT_TUNED
    if any(own):
        are_given = all("learning_rate" in one for one in own)
        rest = "; else nothing is tuned." if are_given else f". Else n{NOT_TUNED[1:]}"
        tuned = f"{_OWN_OPTIONS}{rest}"
    said = (tuned, *explorer.said, *runs.said())
    found = _found(recipe, evidence, said, space.base.goal.metric, _manifest(space, ends))
    found = replace(found, failed=runs.failed)
    text = witnesses_to_text({row.label: witnesses[row.label] for row in ends.rows})
    return Explored(recipe=recipe, found=found, said=said, witnesses=text)


def _manifest(space: ExploredSpace, ends: Rows) -> dict[str, Any]:
    """Build a map's manifest, as it will be read again; `ends` are its rows there."""
    recipe, asked, base = space.recipe, space.asked, space.base
    made = manifest_of(recipe, base, [{} for _row in base.rows], [])
    made["costs"] = costs_of(recipe, ends)
    over = {key: list(of) for key, of in space.values.items()}
    made["explore"] = {"over": over, "points": asked.points, "sure": asked.sure}
    return tomllib.loads(to_toml(made))


def _found(
    recipe: Recipe, known: Evidence, said: Sequence[str], metric: Metric, manifest: dict[str, Any]
) -> Exploration:
    assert recipe.file.target is not None, "who explores aims at something"
    return exploration_of(
        known, said=said, target=recipe.file.target, metric=metric,
        model=str(manifest["model"]["name"]), cluster=str(manifest["cluster"]["name"]),
        manifest=manifest,
    )  # fmt: skip


def read_explored(recipe: Recipe, folder: Path, manifest: dict[str, Any]) -> Explored:
    """Read what the report in a folder was made of, whose manifest is given.

    Raises:
        FileFormatError: there is none, it was edited, or it is not of this recipe.
    """

    def parse(content: Any) -> tuple[Explored, str]:
        metric = Metric(content["metric"]["kind"], content["metric"]["unit"])
        said = tuple(map(str, content["said"]))
        found = _found(recipe, evidence_from_plain(content), said, metric, manifest)
        made = Explored(recipe=recipe, found=found, said=said)
        return made, made.outlines

    return read_json(folder, OUTLINES_FILE, _KIND, parse)
