"""ampsim calibrate: find a device's numbers, from published throughputs or from this machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ampsim.cli.console import Code, answer, complain, hold, object_of
from ampsim.cli.progress import SECONDS_BETWEEN_LINES
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.calibration import Calibration
    from ampsim.output_folder import OutputFolder

NAME = "this-machine"


def calibrate(
    what: Literal["table", "machine"],
    file: str | None = None,
    *,
    out: Path | None = None,
    rounds: int | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> Code:
    """Find the numbers of a device, with intervals, and write a device file that has them.

    table: rows of FILE that say is_fitted decide the named parameters, by runs in mode sleep; every
    other row is predicted.

    machine: products, light operations and a loop's messages are measured on one thread; the
    device file says on which processor, and how far the fit lies from the points.

    The object of --json: ampsim, device, fitted, points, median_error, rank_correlation. After
    machine, fitted has key and value, and the last two are null.
    """
    if what == "machine":
        if file is not None:
            raise OptionError(f"calibrate machine takes no FILE, got {file!r}; leave it out")
        return _machine(out, rounds, json, is_quiet=quiet)
    if file is None:
        raise OptionError("calibrate table takes a FILE of published rows, got none")
    if rounds is not None:
        raise OptionError("--rounds concerns calibrate machine; leave it out")
    return _table(file, out, json, is_quiet=quiet)


def _table(file: str, out: Path | None, json: str | None, *, is_quiet: bool) -> Code:
    from ampsim.calibration import calibrate as fit
    from ampsim.calibration import read_table_file
    from ampsim.calibration.page import FILES, device_file, verdict, write_calibration
    from ampsim.output_folder import taken
    from ampsim.report.words import slug

    table = read_table_file(file)
    folder = out or Path(f"calibration-{slug(table.file.name)}")
    place = hold(taken(folder, "calibration", (*FILES, device_file(table))))
    found = fit(table, None if is_quiet else _teller())
    written = write_calibration(found, place)
    answer(json, lambda: _as_json(found), lambda: f"{verdict(found)}\n{_wrote(place, written)}")
    return Code.FINE


def _machine(out: Path | None, rounds: int | None, json: str | None, *, is_quiet: bool) -> Code:
    from ampsim.calibration.machine import ROUNDS, fit_machine, measure
    from ampsim.calibration.page import POINTS, write_machine
    from ampsim.calibration.texts import summary
    from ampsim.options import require_count
    from ampsim.output_folder import taken

    count = ROUNDS if rounds is None else require_count("rounds", rounds, 10_000)
    folder = out or Path(f"calibration-{NAME}")
    place = hold(taken(folder, "calibration", (POINTS, f"{NAME}.toml")))
    fit = fit_machine(measure(rounds=count, on_point=None if is_quiet else _teller()))
    written = write_machine(NAME, fit, place)

    def content() -> str:
        pairs = zip(fit.points, fit.residuals, strict=True)
        return object_of(
            device=NAME,
            fitted=[{"key": key, "value": value} for key, value in fit.numbers.items()],
            points=[{**dataclasses.asdict(one), "error": rest} for one, rest in pairs],
            median_error=None,
            rank_correlation=None,
        )

    answer(json, content, lambda: f"{summary(fit)}\n{_wrote(place, written)}")
    return Code.FINE


def _wrote(folder: OutputFolder, files: list[Path]) -> str:
    return f"wrote {folder.path}: {', '.join(path.name for path in files)}"


def _teller() -> Callable[[str], None]:
    """Say now and then which run is made."""
    runs, said_s = 0, time.monotonic()

    def tell(label: str) -> None:
        nonlocal runs, said_s
        runs += 1
        if time.monotonic() - said_s >= SECONDS_BETWEEN_LINES:
            said_s = time.monotonic()
            complain(f"run {runs}: {label}")

    return tell


def _as_json(found: Calibration) -> str:
    from ampsim.calibration.fit import median_error, rank_correlation

    return object_of(
        device=found.device.name,
        fitted=[dataclasses.asdict(one) for one in found.fitted],
        points=[{**dataclasses.asdict(one), "error": one.error} for one in found.points],
        median_error=median_error(found.unseen),
        rank_correlation=rank_correlation(found.unseen),
    )
