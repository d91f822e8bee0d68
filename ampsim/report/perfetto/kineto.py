"""A run as traces of PyTorch's profiler, one for each worker, as tools of that format read them.

HTA (Holistic Trace Analysis) takes a worker for a rank. A step that takes time is a kernel of
stream 0, a step of a copy lane a `Memcpy` of a stream of its own, a dispatch what a processor does,
and a transfer an `nccl` kernel of the worker that sends. Two `Memset` of one unit mark where the
run begins and its last step ends, where a longer transfer is cut, so that HTA's idle time is out of
the whole run: its compute time is then our utilisation.

HTA knows whole microseconds, and drops what is shorter. So 1 µs in the file stands for a time that
is told in it, a power of ten and at most a hundredth of the shortest step.

Source: HTA 0.5's `trace_parser.py`, `trace_file.py` (which finds the rank in `"rank": 0` by a
pattern that needs the space) and `breakdown_analysis.py`.
"""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np

from ampsim.errors import OptionError
from ampsim.files import replacing
from ampsim.report.frames import (
    LANE_STEP,
    DataFrame,
    floats,
    integers,
    lane_of,
    owner_of,
    row_numbers,
    texts,
)
from ampsim.report.perfetto.events import sliced
from ampsim.report.perfetto.trace import Trace
from ampsim.report.words import IN_FULL, plain

FILES_AT_ONCE: Final = 64  # chosen: well below what a system lets a process open
LINK_STREAM: Final = 1000
"""Stream of transfers to worker 0; other lanes of a device have numbers above a million."""

FIRST_CORRELATION: Final = 1 << 20
"""What is added to a kernel's number. HTA keeps these in as few bytes as hold them, and then writes
numbers of rows in their place, which pandas 3 refuses where they need more."""

RUNTIME_PID: Final = 1_000_000
"""Process of the calls that launch kernels, beside those of workers."""

PARTS_OF_SHORTEST: Final = 100  # chosen: rounding then changes no step by more than a hundredth


def write_kineto(trace: Trace, folder: Path, *, title: str = "") -> tuple[int, float]:
    """Write a file ``worker-N.json`` for each worker into a folder that exists.

    Memory does not grow with the run.

    Args:
        trace: of one schedule.
        folder: where to; files of workers that an earlier run had are removed.
        title: name of the model and of the cluster, users' texts.

    Returns:
        How many steps and transfers were written, and the seconds that 1 µs stands for.

    Raises:
        OptionError: nothing in the run takes time.
        OutputError: a file cannot be written.
    """
    shortest_s, end_s = _extent(trace)
    if math.isinf(shortest_s):
        raise OptionError(
            f"no step of {trace.name} takes time on this cluster, so that a profile is empty; name "
            "a device that does, such as --device p100"
        )
    unit_s = 10.0 ** math.floor(math.log10(shortest_s / PARTS_OF_SHORTEST))
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "title": plain(f"{title}: {trace.name}", IN_FULL),
        "source": "ampsim",
        "time": f"1 us stands for {unit_s:g} s of virtual time",
    }
    count = 0
    for first in range(0, trace.workers, FILES_AT_ONCE):
        workers = range(first, min(first + FILES_AT_ONCE, trace.workers))
        with contextlib.ExitStack() as stack:
            files = {worker: _Profile(stack, folder, worker, head) for worker in workers}
            count += _fill(trace, files, unit_s, end_s)
            for file in files.values():
                file.finish(round(end_s / unit_s))
    for old in folder.glob("worker-*.json"):
        number = old.stem.removeprefix("worker-")
        if number.isdecimal() and int(number) >= trace.workers:
            old.unlink()
    return count, unit_s


def _extent(trace: Trace) -> tuple[float, float]:
    """Length of the shortest step or transfer before the last step ends, and when that is."""
    shortest_s, last_s = math.inf, 0.0
    for are_steps, chunks in ((True, trace.spans()), (False, trace.transfers())):
        for chunk in chunks:
            start_s, end_s = floats(chunk, "start_s"), floats(chunk, "end_s")
            last_s = max(last_s, float(end_s.max(initial=0.0))) if are_steps else last_s
            lasting_s = end_s.clip(max=last_s) - start_s
            shortest_s = min(shortest_s, float(lasting_s[lasting_s > 0].min(initial=math.inf)))
    return shortest_s, last_s


class _Profile:
    """The file of one worker while it is written."""

    def __init__(
        self, stack: contextlib.ExitStack, folder: Path, worker: int, head: dict[str, Any]
    ) -> None:
        temporary = stack.enter_context(replacing(folder / f"worker-{worker}.json"))
        self._file = stack.enter_context(temporary.open("w", encoding="ascii"))
        self._worker, self._launches, self._separator = worker, 0, ""
        about = {**head, "distributedInfo": {"rank": worker}}
        self._file.write(f'{json.dumps(about)[:-1]}, "traceEvents": [\n')
        self.kernel("Memset: the run begins", 0, 0, 1)

    def kernel(self, name: str, stream: int, start: int, end: int) -> None:
        """Write a kernel and the call that launched it; times in units."""
        self._launches += 1
        number = FIRST_CORRELATION + self._launches
        linked = {"correlation": number, "External id": number}
        own = {"device": self._worker, "stream": stream, **linked}
        self._add("kernel", name, (self._worker, stream), (start, end), own)
        self._add("cuda_runtime", "cudaLaunchKernel", (RUNTIME_PID, 0), (start, start), linked)

    def dispatch(self, name: str, start: int, end: int) -> None:
        """Write what the processor does that launches kernels, on a thread of its own."""
        self._add("cpu_op", f"dispatch {name}", (RUNTIME_PID, 1), (start, end), {})

    def _add(
        self, kind: str, name: str, place: tuple[int, int], when: tuple[int, int],
        told: dict[str, int],
    ) -> None:  # fmt: skip
        (pid, tid), (start, end) = place, when
        row: dict[str, Any] = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid}
        row |= {"ts": start, "dur": max(1, end - start), "args": told}
        self._file.write(f"{self._separator}{json.dumps(row)}")
        self._separator = ",\n"

    def finish(self, end: int) -> None:
        """Mark the end of the run, and close the list."""
        self.kernel("Memset: the run ends", 0, max(0, end - 1), end)
        self._file.write("\n]}\n")


def _fill(trace: Trace, files: dict[int, _Profile], unit_s: float, end_s: float) -> int:
    count = 0
    for chunk in sliced(trace.spans()):
        named = zip(texts(chunk, "direction"), texts(chunk, "node"), strict=True)
        columns = (row_numbers(chunk).tolist(), named, *_units(chunk, unit_s, end_s))
        for row, (direction, node), start, end in zip(*columns, strict=True):
            owner, lane = owner_of(row), (row + 1) // LANE_STEP
            if owner in files and end > start:
                name = plain(f"{direction} {node}", IN_FULL)
                if lane_of(row).startswith("dispatch"):
                    files[owner].dispatch(name, start, end)
                else:
                    files[owner].kernel(f"Memcpy {name}" if lane else name, lane, start, end)
                count += 1
    for chunk in sliced(trace.transfers()):
        ends = (integers(chunk, f"{end}_worker").tolist() for end in ("source", "target"))
        for source, target, start, end in zip(*ends, *_units(chunk, unit_s, end_s), strict=True):
            if source in files and end > start:
                stream = LINK_STREAM + target
                whom = "the host" if target < 0 else f"worker {target}"
                files[source].kernel(f"ncclDevKernel_Send to {whom}", stream, start, end)
                count += 1
    return count


def _units(frame: DataFrame, unit_s: float, end_s: float) -> list[list[int]]:
    """Starts and ends in units, no later than the end of the run."""
    times_s = (floats(frame, one).clip(max=end_s) for one in ("start_s", "end_s"))
    return [np.rint(one / unit_s).astype(int).tolist() for one in times_s]
