"""A dependency engine's run as a trace that ui.perfetto.dev and chrome://tracing open.

A track is a thread: the host's that pushes, those that compute, issue and copy at each place. An
operation that takes time is a slice; one that takes none is an instant. An arrow leads from the
operation whose end made another one ready to that one, if both take time. Counters show what lies
in each place's memory. Times are virtual, rounded to whole nanoseconds.

Source: "Trace Event Format", Google, 2016; Perfetto's `json_utils.cc` for how times are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ampsim.dependency import EngineResult
from ampsim.dependency.result import row_name
from ampsim.files import replacing
from ampsim.report.frames import DataFrame, floats, integers, texts
from ampsim.report.perfetto.event_json import (
    arguments,
    in_microseconds,
    in_microseconds_of,
    in_nanoseconds,
    metadata,
    quoted,
    track_names,
)
from ampsim.report.words import plain

_PID: Final = 1
_FIRST_TID: Final = 2
_MEMORY: Final = ("arrays", "workspace")
_LINES: Final = 1 << 14  # written at a time


def write_operations(result: EngineResult, path: str | Path) -> int:
    """Write a run into one JSON file, whole or not at all.

    Args:
        result: what ran.
        path: the file.

    Returns:
        How many slices and instants were written, those of pushes and of issuing too.

    Raises:
        OptionError: the run ends too late for the format.
        OutputError: the file cannot be written.
    """
    count, waiting = 0, list(_names(result))
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="ascii", newline="\n") as file,
    ):
        about = arguments({"source": "ampsim", "time": "virtual, whole nanoseconds"})
        file.write(f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":[\n')
        for line in _slices(result):
            count += 1
            waiting.append(line)
            if len(waiting) >= _LINES:
                file.write(",\n".join(waiting) + ",\n")
                waiting.clear()
        waiting += [*_arrows(result), *_memory(result)]
        file.write(",\n".join(waiting) + "\n]}\n")
    return count


def _names(result: EngineResult) -> Iterator[str]:
    """Names and order of the process and of all tracks, those of idle threads too."""
    name = f"dependency engine, {result.policy.name}"
    yield metadata(f'"pid":{_PID}', "process_name", {"name": name})
    yield metadata(f'"pid":{_PID}', "process_sort_index", {"sort_index": 0})
    for number, row in enumerate(result.rows):
        yield from track_names(_PID, _FIRST_TID + number, row_name(row), number)


def _slices(result: EngineResult) -> Iterator[str]:
    """Operations, pushes and what was issued."""
    table = result.operations
    names = [plain(name, 200) for name in table["name"]]
    about = (
        arguments({"operation": number, "flop": flop, "bytes": size, "state": state, **waited})
        for number, flop, size, state, waited in zip(
            range(len(table)),
            integers(table, "flop").tolist(),
            integers(table, "bytes").tolist(),
            texts(table, "state"),
            _waits(result, names),
            strict=True,
        )
    )
    labels = (
        f'"name":{quoted(name)},"cat":{quoted(kind)}'
        for name, kind in zip(names, texts(table, "kind"), strict=True)
    )
    yield from _events(table, integers(table, "thread").tolist(), labels, about)
    for frame, word in ((result.pushes, "push"), (result.dispatches, "dispatch")):
        lasting = frame[frame["end_s"] > frame["start_s"]]
        numbers = integers(lasting, "operation").tolist()
        rows: list[int] = (
            [0] * len(lasting) if word == "push" else integers(lasting, "thread").tolist()
        )
        labels = (f'"name":{quoted(f"{word} {names[one]}")},"cat":"{word}"' for one in numbers)
        yield from _events(lasting, rows, labels, (arguments({"operation": n}) for n in numbers))


def _waits(result: EngineResult, names: list[str]) -> Iterator[dict[str, str]]:
    """What each operation waited for, and through which variable, as arguments."""
    table = result.operations
    for waited_for, variable in zip(
        integers(table, "waited_for").tolist(), texts(table, "variable"), strict=True
    ):
        yield (
            {"waited for": names[waited_for], "through": plain(variable, 200)}
            if waited_for >= 0
            else {}
        )


def _events(
    frame: DataFrame, rows: list[int], labels: Iterator[str], about: Iterator[str]
) -> Iterator[str]:
    """A slice for each row that takes time, an instant for each other one."""
    start_s, end_s = floats(frame, "start_s"), floats(frame, "end_s")
    start_ns, end_ns = in_nanoseconds(start_s), in_nanoseconds(end_s)
    for free, ts, dur, row, label, said in zip(
        (start_s == end_s).tolist(),
        in_microseconds(start_ns),
        in_microseconds(end_ns - start_ns),
        rows,
        labels,
        about,
        strict=True,
    ):
        shape = '"ph":"i","s":"t"' if free else f'"ph":"X","dur":{dur!r}'
        place = f'"pid":{_PID},"tid":{_FIRST_TID + row}'
        yield f'{{{shape},"ts":{ts!r},{place},{label},"args":{said}}}'


def _arrows(result: EngineResult) -> Iterator[str]:
    """Arrows between the middles of slices."""
    table = result.operations
    start_s, end_s = floats(table, "start_s"), floats(table, "end_s")
    middle_ns = (in_nanoseconds(start_s) + in_nanoseconds(end_s)) // 2
    is_slice, rows = end_s > start_s, integers(table, "thread")
    joined = (one for one in result.dependencies if is_slice[one.source] and is_slice[one.target])
    for number, one in enumerate(joined, 1):
        common = f'"id":{number},"name":{quoted(plain(one.variable, 200))},"cat":"dependency"'
        for shape, end in (('"ph":"s"', one.source), ('"ph":"f","bp":"e"', one.target)):
            place = f'"pid":{_PID},"tid":{_FIRST_TID + int(rows[end])}'
            ts = in_microseconds_of(int(middle_ns[end]))
            yield f'{{{shape},{place},"ts":{ts!r},{common}}}'


def _memory(result: EngineResult) -> Iterator[str]:
    """A counter for each place: bytes in its memory, by category."""
    memory = result.memory
    times = in_microseconds(in_nanoseconds(floats(memory, "time_s")))
    parts: Any = [integers(memory, name).tolist() for name in _MEMORY]
    for place, ts, *sizes in zip(integers(memory, "place").tolist(), times, *parts, strict=True):
        name = "memory of the host" if place < 0 else f"memory of worker {place}"
        said = arguments(dict(zip(_MEMORY, sizes, strict=True)))
        yield f'{{"ph":"C","pid":{_PID},"ts":{ts!r},"name":{quoted(name)},"args":{said}}}'
