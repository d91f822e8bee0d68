"""Schedules, solvers and their options, as their own files and docstrings say them.

The classes import NumPy, and help and completion are to be there at once; so the files are read,
not imported. What a registry lists thus has its name, its options and their help here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).parents[2]
SEVERAL: Final = "N,..."
"""What stands for a value that may be several whole numbers."""

REGISTRIES: Final = {
    "Schedule": "ampsim/model_parallel/schedules/registry.py",
    "Solver": "ampsim/data_parallel/solvers/registry.py",
    "Program": "ampsim/dataflow/registry.py",
}
"""Which file lists what help shows the options of under this heading."""

Complete: TypeAlias = Callable[[str], list[str]]
"""What completes what was typed."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A class that is listed: its name on the command line, and the heading of its options."""

    name: str
    heading: str
    written: ast.ClassDef


@dataclass(frozen=True, slots=True)
class Option:
    """An option's help."""

    metavar: str | None  # its value; None of a flag, and of a choice
    text: str  # what it is, and what stands for it where that is not its default
    offered: Sequence[str] | Complete = ()  # values that the shell completes, or what gives them
    heading: str = "Solver"  # under which help lists an option of methods
    names: tuple[str, ...] = ()  # such as "--jobs" and "-j"; that of its argument unless given
    shows_default: bool = True  # whether help shows the default

    @property
    def kind(self) -> type:
        """The type of its value; text where it may be several."""
        kinds: dict[str | None, type] = {None: bool, "N": int, "X": float, "SECONDS": float}
        return kinds.get(self.metavar, str)


COLLECTIVES: Final = ("ring", "tree", "halving-doubling", "hierarchical", "star")
GROUPS: Final = ("fixed", "random")
SIDES: Final = ("server", "worker")
REMEDIES: Final = ("none", "weight-prediction")


_of_schedules = partial(Option, heading="Schedule")
_of_programs = partial(Option, heading="Program")

_WORDED: Final = {
    "max_active_keys": _of_schedules(
        SEVERAL,
        "Instances in flight at most; for schedules that drain, those of a group. sequential "
        "always has 1. Several (2,4,8) make a row of each; run and search take one.  [default: 8; "
        "pipedream and pipedream-2bw: as many as there are stages]",
    ),
    "min_update_interval": _of_schedules(
        SEVERAL,
        "Gradients between updates of a node, under amp, amp-budget and pipedream-2bw; several as "
        "of --max-active-keys.  [default: as the model prefers; pipedream-2bw: 8]",
    ),
    "remedy": _of_schedules(
        "NAME",
        "What amp and amp-budget do about delayed gradients: none, or weight-prediction.  "
        "[default: none]",
        REMEDIES,
    ),
    "max_group": _of_schedules(
        "N",
        "Messages for one node that a worker may merge into one step, under amp and amp-budget.  "
        "[default: 1]",
    ),
    "group_wait_s": _of_schedules(
        "SECONDS",
        "How long a worker waits, once, before it starts a smaller group.  [default: 0]",
    ),
    "ranks": Option(
        "N",
        "Copies of the model, or groups of copies, of a solver.  [default: as many as there is "
        "room for]",
    ),
    "workers_per_rank": Option("N", "Workers of each copy, of a solver.  [default: 1]"),
    "inner": Option(
        "NAME[:N]",
        "The schedule inside each copy, of a solver, and its --max-active-keys: such as "
        "pipeline:4, or, where weights are exchanged, amp:8. Or a solver and its ranks, such as "
        "sync-sgd:4: each rank is a group of so many, whose copies may have a schedule, as in "
        "sync-sgd:4/pipeline:2.  [default: sequential]",
    ),
    "groups": Option(
        "HOW",
        "Which copies make a group, where each rank is one: fixed, copies beside each other, or "
        "random, drawn from the seed.  [default: fixed]",
        GROUPS,
    ),
    "collective": Option(
        "NAME",
        "How ranks add up what they have, under sync-sgd, sync-easgd, local-sgd and diloco: ring, "
        "tree, halving-doubling, hierarchical or star.  [default: ring]",
        COLLECTIVES,
    ),
    "ranks_per_group": Option("N", "Ranks in a group of the hierarchical collective."),
    "bucket_bytes": Option(
        "N",
        "Layers share a message of a collective, from the last one on, until it has so many "
        "bytes; 0 for a message of each layer.  [default: one message of all]",
    ),
    "compression": Option(
        "X",
        "The share of each gradient that a rank sends, the entries of the largest magnitude, with "
        "an index each, under sync-sgd (a ring all-gather), async-sgd, hogwild and ssp; it adds "
        "the others to its next gradient.  [default: all entries, without indices]",
    ),
    "servers": Option(
        "N",
        "Workers that are servers, each with a part of the weights, under async-sgd, hogwild, "
        "ssp, easgd, async-easgd and ea-wild.  [default: 1]",
    ),
    "moving_rate": Option(
        "X",
        "Alpha of elastic averaging, under easgd and its kin.  [default: 0.9 / ranks]",
    ),
    "period": Option(
        "N",
        "Steps of a rank from one exchange to the next, under easgd and its kin, local-sgd and "
        "diloco.  [default: 1; local-sgd: 8; diloco: 50]",
    ),
    "elastic": Option(
        "SIDE",
        "Who takes the difference of elastic averaging, under easgd, async-easgd and ea-wild: "
        "server or worker.  [default: server]",
        SIDES,
    ),
    "parallel_iterations": _of_programs(
        "N", "Iterations of a loop under way at a time, under dataflow.  [default: 32]"
    ),
    "swap_threshold": _of_programs(
        "X", "The share of the memory above which what lies on stacks moves.  [default: 0.7]"
    ),
    "round_trip_s": _of_programs(
        "SECONDS", "Of each decision of the client, under out-of-graph.  [default: 0.0002]"
    ),
}
"""Options that several methods have, or whose defaults are names."""


def listed(root: Path = ROOT) -> list[Listed]:
    """Schedules and solvers of the package below `root`, in the order of their registries."""
    return [
        Listed(_value_of(written, "name"), heading, written)
        for heading, file in REGISTRIES.items()
        for written in _classes(root, _read(root / file))
    ]


def own_options(methods: list[Listed]) -> Iterator[tuple[str, Option]]:
    """The options that these methods have of their own, each as its class's docstring says it."""
    for one in methods:
        told = _arguments(ast.get_docstring(one.written) or "")
        for field in one.written.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                kind = ast.unparse(field.annotation)
                if not kind.startswith("ClassVar"):
                    name = field.target.id
                    said = re.sub(r"^\w, ", "", told.get(name, name))  # the paper's letter
                    text = f"{said} Under {one.name}.{_default_words(field)}"
                    yield name, Option(_metavar(kind), text[:1].upper() + text[1:], (), one.heading)


def _read(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def _classes(root: Path, registry: ast.Module) -> list[ast.ClassDef]:
    homes = {
        alias.name: node.module
        for node in registry.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    names: list[str] = _value_of(registry, "__all__")
    modules = dict.fromkeys(homes[name] for name in names)
    files = [root.joinpath(*module.split(".")).with_suffix(".py") for module in modules]
    found = {
        node.name: node
        for file in files
        for node in _read(file).body
        if isinstance(node, ast.ClassDef)
    }
    return [found[name] for name in names]


def _value_of(written: ast.Module | ast.ClassDef, name: str) -> Any:
    """The constant that is assigned to a name there."""
    for node in written.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
            ) if found == name:
                return ast.literal_eval(value)
            case _:
                pass
    place = written.name if isinstance(written, ast.ClassDef) else "a registry"
    raise AssertionError(f"{name} is assigned no value in {place}")


def _arguments(docstring: str) -> dict[str, str]:
    """Read the part `Args:` of a docstring: each argument's text."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)*)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", section[1] if section else "", re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def _default_words(field: ast.AnnAssign) -> str:
    """Its default at the end of a text, if that is a value."""
    value = field.value
    if isinstance(value, ast.Call):
        value = next((one.value for one in value.keywords if one.arg == "default"), None)
    if not isinstance(value, ast.Constant) or value.value is None or value.value is False:
        return ""
    return f"  [default: {value.value}]"


def _metavar(kind: str) -> str | None:
    """Return help's placeholder for values of a type; None of a flag."""
    words = {"bool": None, "int": "N", "Count": "N", "float": "X", "Amount": "X"}
    return words.get(kind.partition(" ")[0], "TEXT")


METHODS: Final = listed()
_OWN: Final = {name: one for name, one in own_options(METHODS) if name not in _WORDED}
OPTIONS: Final = {**_WORDED, **_OWN}
"""All options of all methods, by the names of their fields."""
