"""A report's recipe, read from its file, and the places where recipes lie."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, create_model

from ampsim.assets import shipped
from ampsim.errors import FileFormatError, OptionError, UnknownNameError, one_of
from ampsim.exploring.explore import POINTS, POINTS_MAX
from ampsim.exploring.sampling import SamplerName
from ampsim.exploring.search import IN_FLIGHT, TRIALS
from ampsim.files import expanded, sha256_of
from ampsim.forecasting.tuning import require_budget
from ampsim.options import Count
from ampsim.runs.ranking import SURE
from ampsim.study.learning_rates import Scaling
from ampsim.study.schedule_names import METHODS, option_fields
from ampsim.study.simulation import Mode
from ampsim.toml_file import FileKind, Record, Text, read_table, validate

RECIPE: Final = "recipe.toml"
KIND: Final = FileKind("recipe", "a recipe has at least title, model, epochs and schedules")

Quantity: TypeAlias = Literal[
    "train_per_s",
    "valid_per_s",
    "epochs_to_target",
    "time_to_target_s",
    "best_accuracy",
    "best_error",
]
"""Column of a report's table that something published can be put beside."""

Figure: TypeAlias = Literal[
    "convergence",
    "throughput",
    "throughput-over-mak",
    "plane",
    "staleness",
    "utilisation",
    "bounds",
    "peak-memory",
    "grid-cost",
    "gantt",
]
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)
Seed = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Over: TypeAlias = Annotated[dict[str, str | list[Any]], Field(min_length=1)]
"""Values of each key that varies, as lists, or as the command line has them."""


class Published(Record):
    """A number that somebody published."""

    schedule: Text  # label of the row that it belongs to
    quantity: Quantity  # what it is, a column of the report's table
    value: Positive  # in the unit of that column
    source: Text  # where it stands


class Grid(Record):
    """Clusters on each of which every row is run that names no hardware of its own."""

    cluster: Annotated[list[Text], Field(min_length=2)]  # names or paths, as that of a recipe


class Exploring(Record):
    """A map of who is first, in place of a table of all rows: what `ampsim explore` takes."""

    over: Over
    points: Annotated[int, Field(ge=2, le=POINTS_MAX)] = POINTS  # of each range
    sure: Annotated[float, Field(ge=0.5, le=0.999)] = SURE  # how sure each winner must be


class SearchKeys(Record):
    """A search, in place of a table of all rows: what `ampsim.search` takes, by the same names.

    Learning rates are as there: the model's own, raised where an update takes a mean.
    """

    over: Over
    minimise: Text | list[Text] = "time_s"
    subject_to: Text | list[Text] = Field(default_factory=list[Text])
    trials: Count = TRIALS
    in_flight: Count = IN_FLIGHT
    sampler: SamplerName = "tpe"
    prunes: bool = True
    against_random: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """The place of a row in a report."""

    index: int  # of the recipe's entry that it is made of
    label: str  # of that entry
    cluster: str | None = None  # of the grid; None of a row that is not multiplied

    @property
    def where(self) -> str:
        """The row's name in messages."""
        told = f"schedules[{self.index}]"
        return f"{told} at {_words(self.cluster)}" if self.cluster else told


HARDWARE: Final = ("cluster", "workers", "latency_s", "bandwidth_bytes_per_s", "topology")
"""Keys of a row that say what it runs on, each instead of the recipe's."""


class _Named(Record):
    name: Text  # of the schedule
    label: Text | None = None  # of the row; the schedule's name unless given


_Tuned: type[_Named] = create_model("_Tuned", __base__=_Named, **option_fields())


class ScheduleEntry(_Tuned):
    """One row of the report; it takes every option of a schedule, too, as on the command line."""

    placement: Text | None = None  # a .toml file by its path from the recipe's folder
    cluster: Text | None = None  # this and what follows instead of the recipe's
    workers: Count | None = None
    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    topology: Text | None = None
    mode: Mode | None = None  # "sleep" measures throughput only, in one epoch
    set: dict[str, Any] = Field(default_factory=dict[str, Any])  # over those of the recipe

    @property
    def title(self) -> str:
        """The row's name."""
        return self.label or self.name

    @property
    def hardware(self) -> dict[str, Any]:
        """Keys of hardware that the row has, with their values."""
        named = {key: getattr(self, key) for key in HARDWARE}
        return {key: value for key, value in named.items() if value is not None}


class RecipeFile(Record):
    """The keys of a recipe."""

    title: Text  # of the page
    text: str = ""  # its first paragraphs, in Markdown
    model: Text  # a shipped name, or the path of a .py file from the recipe's folder
    set: dict[str, Any] = Field(default_factory=dict[str, Any])  # options of the model
    cluster: Text = "tflops-1"  # a shipped name, or the path of a .toml file, likewise
    workers: Count | None = None  # how many; as `load_cluster` says unless given
    latency_s: float | None = None  # of the links
    bandwidth_bytes_per_s: float | None = None  # of the links
    topology: Text | None = None  # of the edges between workers, as on the command line
    mode: Mode = "numeric"
    # a run of each schedule for each
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(default_factory=lambda: [0])
    instances: Count | None = None  # training items to use; all unless given
    epochs: Count | None = None  # run so many
    max_epochs: Count | None = None  # or run until the target is reached, at most so many
    target: Positive | None = None  # value of the model's metric; needed with `max_epochs`
    validate_every: Count | None = None  # as on the command line
    scale_rate: Scaling = "none"  # likewise
    tune: int | None = None  # rates that each row tries before it runs with the best: `--trials`
    tune_optimizer: bool = False  # whether these are of each optimizer in turn; needs `tune`
    schedules: Annotated[list[ScheduleEntry], Field(min_length=1)]  # the rows
    grid: Grid | None = None  # clusters on which every row is run
    explore: Exploring | None = None  # a space of hardware over which the rows are compared
    search: SearchKeys | None = None  # a space in which `ampsim search` looks for the best rows
    published: list[Published] = Field(default_factory=list[Published])  # to compare with
    # which to draw, as far as there are data for them; all unless given
    figures: list[Figure] = Field(default_factory=lambda: list(FIGURES))

    @property
    def modes(self) -> list[Mode]:
        """The mode of each row."""
        return [entry.mode or self.mode for entry in self.schedules]

    @property
    def is_asleep(self) -> bool:
        """Whether no row learns."""
        return set(self.modes) == {"sleep"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe that was read and makes sense."""

    folder: Path  # where it lies
    label: str  # what its file is called in messages
    sha256: str  # of its file
    asked_sha256: str  # of all that it says but title and text
    file: RecipeFile  # what it says; its `schedules` are the rows that a grid makes of them
    cells: tuple[Cell, ...]  # where each row stands

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """The title of its page."""
        return self.file.title

    @property
    def origin(self) -> dict[str, str]:
        """The recipe's part of a search's manifest."""
        return {"title": self.title, "file": self.label, "sha256": self.sha256}

    def beside(self, name_or_path: str, suffix: str) -> str:
        """A name as it is; a path as one from where the user is."""
        is_path = os.sep in name_or_path or name_or_path.endswith(suffix)
        return str(self.folder / expanded(name_or_path)) if is_path else name_or_path


def read_recipe(folder: str | os.PathLike[str]) -> Recipe:
    """Read the recipe of a folder.

    Raises:
        FileFormatError: it is missing, or a key or value of it is wrong; one line says which.
    """
    place = Path(folder)
    path = place / RECIPE
    table = read_table(path, str(path), KIND)
    file = validate(RecipeFile, table, str(path))
    for fault in _faults(file):
        raise FileFormatError(f"{path}: {fault}")
    rows, cells = _multiplied(file)
    file = file.model_copy(update={"schedules": rows})
    for fault in _row_faults(file, cells):
        raise FileFormatError(f"{path}: {fault}")
    asked = {key: value for key, value in table.items() if key not in ("title", "text")}
    told = json.dumps(asked, sort_keys=True, default=str)
    asked_sha256 = hashlib.sha256(told.encode()).hexdigest()
    return Recipe(place, str(path), sha256_of(path), asked_sha256, file, cells)


def _multiplied(file: RecipeFile) -> tuple[list[ScheduleEntry], tuple[Cell, ...]]:
    """The rows that entries and a grid give, and where each stands."""
    rows: list[ScheduleEntry] = []
    cells: list[Cell] = []
    for index, entry in enumerate(file.schedules):
        if file.grid is None or entry.cluster is not None:
            rows.append(entry)
            cells.append(Cell(index, entry.title))
            continue
        for cluster in file.grid.cluster:
            label = f"{entry.title}, {_words(cluster)}"
            rows.append(entry.model_copy(update={"cluster": cluster, "label": label}))
            cells.append(Cell(index, entry.title, cluster))
    return rows, tuple(cells)


def _words(cluster: str) -> str:
    return PurePath(cluster).stem if cluster.endswith(".toml") else cluster


def _faults(file: RecipeFile) -> Iterator[str]:
    """Find keys that do not fit together, one sentence each."""
    if (file.epochs is None) == (file.max_epochs is None):
        yield "must have one of the keys 'epochs' and 'max_epochs'; give one"
    if file.max_epochs is not None and file.target is None:
        yield "missing key 'target', which max_epochs waits for; add it, or give epochs instead"
    if len(set(file.seeds)) < len(file.seeds):
        yield f"seeds must differ, got {file.seeds}"
    yield from _tuning_faults(file)
    yield from _sleeping_faults(file)
    titles = [entry.title for entry in file.schedules]
    yield from _exploring_faults(file)
    for index, entry in enumerate(file.schedules):
        where = f"schedules[{index}]"
        if entry.name not in METHODS:
            yield f"{where}: {one_of('schedule', entry.name, METHODS)}"
        if entry.title in titles[:index]:
            yield _twice(where, entry.title)
    yield from _wrong_settings("set", file.set)
    for index, entry in enumerate(file.schedules):
        yield from _wrong_settings(f"schedules[{index}].set", entry.set)


def _tuning_faults(file: RecipeFile) -> Iterator[str]:
    """Find what `tune` says that does not fit the rest."""
    if file.tune is None:
        if file.tune_optimizer:
            yield "missing key 'tune', how many rates tune_optimizer tries of all; add tune = 12"
        return
    try:
        require_budget(file.tune)
    except OptionError as error:
        yield str(error)
    if "sleep" in file.modes:
        asleep = file.schedules[file.modes.index("sleep")].title
        yield (
            f"tune needs what is learned, and mode 'sleep' of {asleep!r} computes none of it; "
            "take mode 'numeric', or leave tuning out"
        )


def _sleeping_faults(file: RecipeFile) -> Iterator[str]:
    """Find keys that have no effect where no row learns."""
    if not file.is_asleep:
        return
    for key in ("target", "max_epochs", "scale_rate"):
        if key in file.model_fields_set:
            yield f"{key} has no effect where every row has mode 'sleep' and so learns nothing"
    if file.epochs is not None and file.epochs > 1:
        yield f"epochs must be 1 where every row has mode 'sleep', got {file.epochs}"


_NOT_EXPLORED: Final = (
    "grid", "published", "figures", "tune", "scale_rate", "validate_every", "epochs", "mode",
)  # fmt: skip
_NOT_OF_ROWS: Final = ("mode", "placement", *HARDWARE)


def _exploring_faults(file: RecipeFile) -> Iterator[str]:
    """Find keys that have no effect beside a table with a page of its own, and a target."""
    if file.explore is None and file.search is None:
        return
    beside, without = "search", ("explore", "text", *_NOT_EXPLORED)
    of_rows = ("set", "label", *_NOT_OF_ROWS)  # a search has one model, and names rows itself
    if file.search is None:
        beside, without, of_rows = "explore", _NOT_EXPLORED, _NOT_OF_ROWS
    for key in without:
        if key in file.model_fields_set:
            yield f"{key} has no effect beside {beside}; leave one of them out"
    for index, entry in enumerate(file.schedules):
        for key in of_rows:
            if key in entry.model_fields_set:
                yield f"schedules[{index}].{key} has no effect beside {beside}; leave it out"
    first, count = file.seeds[0], len(file.seeds)
    if file.seeds != [*range(first, first + count)]:
        yield f"seeds must follow each other beside {beside}, such as [0, 1, 2], got {file.seeds}"


def _row_faults(file: RecipeFile, cells: Sequence[Cell]) -> Iterator[str]:
    titles = [entry.title for entry in file.schedules]
    for place, (title, cell) in enumerate(zip(titles, cells, strict=True)):
        if title in titles[:place]:
            yield _twice(cell.where, title)
    for index, one in enumerate(file.published):
        if one.schedule not in titles:
            row = one_of("row", one.schedule, titles)
            yield f"published[{index}].schedule: {row}"


def _twice(where: str, title: str) -> str:
    return f"{where}: label {title!r} comes twice; give each row a label of its own"


def _wrong_settings(where: str, settings: dict[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        if not isinstance(value, bool | int | float | str):
            yield f"{where}.{key} must be a number, text, true or false, got {value!r}"


PROGRAM = "program.py"
"""A report's program, in place of a recipe."""


def reports_folder() -> Path | None:
    """The folder `reports/` here, else in the checkout around the package; None without one.

    Reports are not shipped: an installed package has none of its own.
    """
    candidates = (Path("reports"), shipped("models").parent / "reports")
    return next((path for path in candidates if os.path.isdir(path)), None)


def report_names() -> list[str]:
    """Names of the reports there, each its folder's: of recipes, then of programs, sorted."""
    folder, files = reports_folder(), (RECIPE, PROGRAM)
    found = [] if folder is None else [sorted(folder.glob(f"*/{file}")) for file in files]
    return [path.parent.name for paths in found for path in paths]


def folder_with(file: str, name_or_path: str) -> Path | None:
    """The folder with a file that a report's name, or a path, leads to; None where there is none.

    A path is that of the folder or of the file; a name of the folder `reports/` goes before it.
    """
    folder = reports_folder()
    if folder is not None and name_or_path in report_names():
        place = folder / name_or_path
    else:
        path = expanded(name_or_path)
        place = path.parent if path.name == file else path
    return place if os.path.isfile(place / file) else None


def recipe_folder(name_or_path: str) -> Path:
    """The folder that a name, the path of a folder or that of its recipe leads to.

    Raises:
        UnknownNameError: there is no such recipe.
    """
    if (found := folder_with(RECIPE, name_or_path)) is not None:
        return found
    if os.sep in name_or_path or name_or_path in (".", "..", RECIPE):
        raise UnknownNameError(f"no recipe in {name_or_path!r}; expected a folder with {RECIPE}")
    if reports_folder() is None:
        raise UnknownNameError(
            f"no recipe named {name_or_path!r}: there is no folder 'reports' here; go to a "
            f"checkout of ampsim, or give the path of a folder with {RECIPE}"
        )
    told = one_of("recipe", name_or_path, report_names())
    raise UnknownNameError(f"{told}; or give the path of a folder with {RECIPE}")
