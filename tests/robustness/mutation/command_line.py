"""Commands with options whose values nobody expects, and with words that no command takes."""

from __future__ import annotations

from functools import cache
from typing import Any

from mutation import bases
from mutation.case import Call, Command, Place
from mutation.text import to_toml
from mutation.values import lay_out, word

_FEW = ["--instances", "4", "--workers", "2", "--schedule", "amp"]

BASES: dict[str, list[list[str]]] = {
    "forecast": [
        ["model.py", *_FEW, "--max-epochs", "1", "--jobs", "1", "--quiet", "--out", "made"]
    ],
    "run": [["model.py", *_FEW, "--quiet", "--out", "made"]],
    "gantt": [
        ["model.py", *_FEW, "--out", "chart.json"],
        ["model.py", *_FEW, "--out", "chart.html"],
        ["run-folder", "--out", "chart.json"],
        ["run-folder", "--out", "chart.svg"],
    ],
    "compare": [["run-folder", "run-folder"]],
    "devices": [[], ["device.toml"], ["cluster.toml"]],
    "models": [["model.py"], ["model.py", "--graph", "graph.dot"], []],
    "data": [["--data", "data"], ["mnist", "--data", "data"]],
    "report": [["--check", "toy"], ["--list"], ["--check", "toy", "--out", "made"]],
    "check": [["model.py"], ["device.toml"], ["reports/toy/recipe.toml"]],
}
"""A few right calls of each command, all of them quick."""

_LEFT_OUT = "--traceback"
"""The option that asks for what would be a fault."""

QUICK = ("gantt", "compare", "devices", "models", "data", "report", "check")
"""Commands that come more often, for they write no figures."""

_STREAMS = (
    "stdout closed",
    "stdout full",
    "stdout pipe",
    "stderr closed",
    "stdin closed",
    "both closed",
)


@cache
def commands() -> dict[str, list[Any]]:
    """The parameters of every command, as the program itself knows them."""
    import typer

    from ampsim.cli.entry import app

    group: Any = typer.main.get_command(app)
    named = {name: one.params for name, one in group.commands.items()}
    named[""] = group.params
    return {
        name: [one for one in parameters if _LEFT_OUT not in one.opts]
        for name, parameters in named.items()
    }


def options(place: Place) -> Call:
    """A command with one to three values that nobody expects."""
    random = place.random
    name = random.choice([*commands(), *QUICK, *QUICK])
    if not name:
        return Command(
            [
                random.choice(("--help", "--version", "-h", word(random)))
                for _ in range(random.choice((1, 2)))
            ]
        )
    lay_out_all(place)
    words = list(random.choice(BASES.get(name, [[]])))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        words = _changed(words, name, place)
    streams = random.choice(_STREAMS) if random.random() < 0.08 else ""
    return Command([name, *words], streams)


def lay_out_all(place: Place) -> None:
    """Write what `BASES` and `PATHS` name."""
    import shutil

    lay_out(place.folder)
    place.write("model.py", bases.MODEL)
    place.write("device.toml", to_toml(bases.DEVICE))
    place.write("cluster.toml", to_toml(bases.CLUSTER))
    place.write("placement.toml", to_toml(bases.PLACEMENT))
    shutil.copytree(place.shared / "run-folder", place.folder / "run-folder")
    shutil.copytree(place.shared / "reports", place.folder / "reports")
    (place.folder / "data").symlink_to(place.shared / "data")


def _changed(words: list[str], command: str, place: Place) -> list[str]:
    """Give one option a value, or change the words themselves."""
    random = place.random
    chosen = random.randrange(12)
    if chosen == 0 and words:
        at = random.randrange(len(words))
        return words if command == "forecast" and at == 0 else words[:at] + words[at + 1 :]
    if chosen == 1:
        at = random.randrange(1, len(words) + 1) if words else 0
        return [*words[:at], word(random), *words[at:]]
    if chosen == 2 and words:
        at = random.randrange(len(words))
        return [*words[:at], word(random), *words[at + 1 :]]
    return _with_option(words, random.choice(commands()[command]), place)


def _with_option(words: list[str], parameter: Any, place: Place) -> list[str]:
    random = place.random
    if parameter.param_type_name == "argument":
        return [word(random), *words[1:]]
    names = [*parameter.opts, *parameter.secondary_opts]
    option = random.choice(names)
    if parameter.is_flag:
        return [*words, option]
    value = _value(parameter, place)
    for name in names:
        while name in words:
            at = words.index(name)
            words = words[:at] + words[at + 2 :]
    together = option.startswith("--") and random.random() < 0.2
    return [*words, f"{option}={value}"] if together else [*words, option, value]


def _value(parameter: Any, place: Place) -> str:
    """A value for an option, of its own kind or of none."""
    random = place.random
    name = parameter.name
    if name == "settings" and random.random() < 0.8:
        key = random.choice(("width", "rate", "none", "", "\x1b[31m", "width.x"))
        return f"{key}{random.choice(('=', '=', '==', ' = ', ''))}{word(random)}"
    if name == "schedule" and random.random() < 0.5:
        from ampsim.model_parallel import SCHEDULES

        return ",".join(
            random.choice([*SCHEDULES, word(random)]) for _ in range(random.choice((1, 2)))
        )
    if name == "out" and random.random() < 0.4:
        return random.choice(("c.png", "c.pdf", "c.svg", "c.html", "c.json", "c.gif", "a/b/c.json"))
    if name == "window" and random.random() < 0.5:
        return f"{word(random)}:{word(random)}"
    return word(random)
