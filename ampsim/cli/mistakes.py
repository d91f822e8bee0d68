"""One line for somebody who mistyped a command line, with what to type instead."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ampsim.errors import AmpsimError
from ampsim.units import SECONDS

BYTES: Final = {
    f"{prefix}{unit}": factor * of_one
    for prefix, factor in {
        "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
        "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
    }.items()
    for unit, of_one in {"B": 1.0, "bit": 0.125, "b": 0.125}.items()
}  # fmt: skip
"""Units of bytes and bits that people write behind a number."""

_UNITS: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "-bytes-per-s": (
        " of bytes a second",
        {f"{unit}{per}": factor for unit, factor in BYTES.items() for per in ("", "/s", "ps")},
    ),
    "-bytes": (" of bytes", BYTES),
    "-s": (" of seconds", SECONDS),
    "": ("", {"": 1.0, "%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6}),
}
"""What an option takes whose name ends so, the first that does: words, and units with factors."""

MEANT: Final = {
    "--bandwidth": "--bandwidth-bytes-per-s, such as --bandwidth-bytes-per-s 1e10",
    "--latency": "--latency-s, such as --latency-s 1e-6",
    "--rho": "--moving-rate: of elastic solvers, the learning rate times rho",
    "--alpha": "--moving-rate, of elastic solvers",
    "--tau": "--period, of local-sgd, diloco and elastic solvers",
    "--mak": "--max-active-keys",
    "--gpus": "--workers, and --device says which",
    "--nodes": "--workers",
    "--lr": "--set learning_rate=..., for the rate is an option of the model",
    "--learning-rate": "--set learning_rate=..., for the rate is an option of the model",
    "--batch": "--set batch=..., for it is an option of the model",
    "--batch-size": "--set batch=..., for it is an option of the model",
    "--hidden": "--set hidden=..., for it is an option of the model",
    "--optimizer": "--set optimizer=..., for it is an option of the model",
    "--seeds": "--repeats, as many seeds from --seed on",
    "--epochs": "--max-epochs",
}
"""What options of other programs and papers are called here."""

_IN_PYTHON: Final = dict.fromkeys(("--jobs", "-j"), "(?:jobs|executor)") | {
    "--trials": "(?:trials|tune)", "--for": "over", "--budget": "budget_s"
}  # fmt: skip
"""What options that have another name in Python are called there, as an expression."""

ONE_EACH: Final = "for several run the command once with each, or write a recipe with a [grid]"


def told(error: Any, arguments: Sequence[str]) -> str:
    """Tell what is wrong with a command line, and what to type.

    Args:
        error: of typer's parser, or of ampsim.
        arguments: as they were typed.
    """
    if isinstance(error, AmpsimError):
        return as_typed(str(error), arguments)
    said = error.format_message().rstrip(".")
    better = _of_number(error, arguments) or _of_option(error) or _of_choice(said)
    better = better or _of_setting(said, arguments)
    if better:
        return better
    typed = " ".join(["ampsim", *(one for one in arguments[:1] if not one.startswith("-"))])
    command = typed if error.ctx is None else error.ctx.command_path
    return f"{said}{'' if said.endswith('?') else ';'} see '{command} --help'"


def as_typed(message: str, arguments: Sequence[str]) -> str:
    """A message that begins with an argument's name in Python, with the option that was typed.

    >>> as_typed("ssp: staleness_bound must be >= 0, got -1", ["--staleness-bound", "-1"])
    'ssp: --staleness-bound must be >= 0, got -1'
    >>> as_typed("seed must be >= 0, got -1; try seed=0", ["--seed=-1"])
    '--seed must be >= 0, got -1; try --seed 0'
    >>> as_typed("workers must be >= 1, got 0", ["--workers", "2", "--for", "workers=0"])
    'workers must be >= 1, got 0'
    >>> as_typed("executor must be a whole number >= 1, got 0", ["-j0"])
    '-j must be a whole number >= 1, got 0'
    """
    keys = [one.partition("=")[0].strip() for one in _values_of(["--for"], arguments)]
    varied = {f"--{key.replace('_', '-')}" for key in keys}  # what is said of them is of --for
    for word in arguments:
        typed = re.match(r"--[a-z]+(-[a-z]+)*(?=$|=)|-[a-z](?=$|[0-9])", word)
        if typed and (option := typed[0]) not in varied:
            name = _IN_PYTHON.get(option, option[2:].replace("-", "_"))
            message = re.sub(
                rf"^((?:[\w-]+: )?){name}(?= must | compares |: )", rf"\1{option}", message
            )
            message = re.sub(rf"\b(try|take|or) {name}=", rf"\1 {option} ", message)
    return message


def _of_number(error: Any, arguments: Sequence[str]) -> str | None:
    options: list[str] = getattr(getattr(error, "param", None), "opts", None) or [""]
    kind = re.search(r"\b(integer|number|float)\b", error.format_message())
    typed = _values_of(options, arguments)
    if kind is None or not typed:
        return None
    text = typed[-1]
    option, is_whole = max(options, key=len), kind[1] == "integer"
    words, units = next(_UNITS[end] for end in _UNITS if option.endswith(end))
    said = f"{option} must be a {'whole number' if is_whole else f'number{words}'}, got {text!r}"
    if "," in text:
        return f"{said}; {ONE_EACH}"
    value = _with_unit(text, units)
    if value is None or (is_whole and (abs(value) > 2**53 or value != int(value))):
        return f"{said}; see '{error.ctx.command_path} --help'"
    return f"{said}; type {option} {value:.{16 if is_whole else 12}g}"


def _of_option(error: Any) -> str | None:
    name = getattr(error, "option_name", None)
    if name is None or not error.format_message().startswith("No such option"):
        return None
    params = error.ctx.command.params
    known = {one for each in params if each.param_type_name == "option" for one in each.opts}
    meant = MEANT.get(name)
    if meant is not None and re.split(r"[^-a-z]", meant)[0] in known:
        return f"no such option: {name}; here it is {meant}"
    words = {one.lstrip("-"): one for one in known}  # two dashes make no two words alike
    near = difflib.get_close_matches(name.lstrip("-"), words, n=1)
    hint = f"did you mean {words[near[0]]!r}? " if near else ""
    return f"no such option: {name}; {hint}see '{error.ctx.command_path} --help'"


def _of_choice(said: str) -> str | None:
    """Tell which of a few words to type; the parser may put the kind of its error in front."""
    of = re.search(r"value for '([^']+)':(?: Value error,)? '(.*)' is not one of (.+)", said)
    if of is None:
        return None
    return f"{of[1]} must be one of {of[3].replace(chr(39), '')}, got {of[2]!r}"


def _of_setting(said: str, arguments: Sequence[str]) -> str | None:
    if "unexpected extra argument" not in said:
        return None
    for option, key, *rest in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option == "--set" and "=" not in key and re.fullmatch(r"\w+", key):
            return f"--set takes KEY=VALUE as one word, got {key!r}; type --set {key}={rest[0]}"
    return None


def _values_of(options: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """List what was typed as the value of an option, each time."""
    found: list[str] = []
    for word, after in zip(arguments, (*arguments[1:], ""), strict=True):
        name, sign, value = word.partition("=")
        if word in options:
            found.append(after)
        elif sign and name in options:
            found.append(value)
    return found


def _with_unit(text: str, units: Mapping[str, float]) -> float | None:
    """A finite number with one of these units behind it; None where it is none."""
    match = re.fullmatch(
        r"([-+]?\d+(?:[_']?\d+)*(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*(\D*)", text.strip()
    )
    if match is None or match[2] not in units:
        return None
    value = float(re.sub("[_']", "", match[1])) * units[match[2]]
    return value if math.isfinite(value) else None
