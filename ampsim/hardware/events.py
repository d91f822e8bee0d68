"""Events of a cluster: outages, failures, and checkpoints of weights.

`docs/decisions/0012-time-that-varies.md` says what is modelled and what is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from ampsim.hardware.record import (
    UNSOURCED,
    Consistent,
    Rate,
    Seconds,
    Source,
    Variation,
    wrong,
)
from ampsim.options import SECONDS_MAX
from ampsim.text import short
from ampsim.toml_file import Record

Kind = Literal["slow", "pause", "stop"]
"""Of an outage: the device takes longer, does nothing for a while, or is lost and comes back."""

FACTOR_MAX = 1e6
"""Most times as long as usual that a slow device takes; chosen, to catch a slip."""

MEAN_S_MIN = 1e-9
"""Shortest mean time that a file may name; chosen: below any step's, so a shorter one is a slip."""


def _workers(value: Any) -> Any:
    """Read which workers are meant: one, a list, or all; as a tuple, or the word."""
    if value == "all":
        return value
    given = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
    if not given or any(type(one) is not int or one < 0 for one in given):
        raise wrong(f"expected a worker's index, a list of them, or 'all', got {short(value)}")
    if len(set(given)) < len(given):
        raise wrong(f"expected each worker once, got {short(value)}")
    return tuple(given)


Workers = Annotated[tuple[int, ...] | Literal["all"], BeforeValidator(_workers)]
Factor = Annotated[float, Field(ge=1, le=FACTOR_MAX)]
MeanSeconds = Annotated[float, Field(ge=MEAN_S_MIN, le=SECONDS_MAX)]


class _Outage(Consistent):
    """An outage: for a while a device is slow, does nothing, or is lost.

    Args:
        kind: "slow", "pause" or "stop".
        worker: which workers: an index, several, or "all".
        factor: how many times as long as usual a slow device takes.
        loses_step: whether a stop loses the step in its middle, which is done again from its start;
            True unless told.
        weights: "kept", or "checkpoint" for a stop after which the parameters and the optimizer's
            state are those of the device's last checkpoint; "kept" unless told.
        source: where the numbers come from; a file must say.
    """

    kind: Kind = "stop"
    worker: Workers = "all"
    factor: Factor | None = None
    loses_step: bool | None = None
    weights: Literal["kept", "checkpoint"] | None = None
    source: Source | None = None

    def _faults(self) -> Iterator[str]:
        """A factor belongs to a slow device, a step that is lost to a stop."""
        if (self.kind == "slow") != (self.factor is not None):
            what = "needs a factor" if self.kind == "slow" else "has no factor"
            yield f'kind "{self.kind}" {what}; only a slow device takes so many times as long'
        if self.loses_step is not None and self.kind != "stop":
            yield f'kind "{self.kind}" has no loses_step; only a stop can lose a step'
        if self.weights is not None and self.kind != "stop":
            yield f'kind "{self.kind}" has no weights; only a stop can lose them'
        if self.loses_weights and self.loses_step is False:
            yield (
                'weights "checkpoint" loses the step in the middle, too, got loses_step = false; '
                "leave it out"
            )

    @property
    def slowness(self) -> float:
        """Times as long as usual that a step takes; infinite where the device does nothing."""
        return float("inf") if self.factor is None else self.factor

    @property
    def is_step_lost(self) -> bool:
        """Tell whether a step in the middle is done again from its start."""
        return self.kind == "stop" and self.loses_step is not False

    @property
    def loses_weights(self) -> bool:
        """Tell whether parameters and the optimizer's state go back to the last checkpoint."""
        return self.weights == "checkpoint"

    def hits(self, worker: int) -> bool:
        """Tell whether a worker is among those meant."""
        return self.worker == "all" or worker in self.worker


class Event(_Outage):
    """An outage from one time to another.

    Args:
        from_s: when it begins, in seconds of the run.
        until_s: when it is over.
    """

    kind: Kind
    worker: Workers
    from_s: Seconds
    until_s: Seconds

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        if self.until_s <= self.from_s:
            yield f"until_s must be > {self.from_s:g}, from_s, got {self.until_s:g}"


class Failures(_Outage):
    """Outages by chance: times from the end of one to the start of the next, and to repair.

    Both are exponential, drawn for each worker alone.

    Args:
        mean_time_between_s: from the end of an outage, or the start, to the next outage.
        mean_time_to_repair_s: from the start of an outage to its end.
    """

    mean_time_between_s: MeanSeconds
    mean_time_to_repair_s: MeanSeconds


class Messages(Consistent):
    """Messages may be lost or delayed on their way over a link.

    Args:
        loss_probability: share of transmissions that do not arrive.
        retry_after_s: from when a lost one should have arrived to when it is sent again.
        delay_cv: coefficient of variation of a link's latency, which is lognormal around its mean.
        source: where the numbers come from; a file must say.
    """

    loss_probability: Annotated[float, Field(ge=0, le=0.99)] = 0.0
    retry_after_s: Seconds | None = None
    delay_cv: Variation = 0.0
    source: Source | None = None

    def _faults(self) -> Iterator[str]:
        if self.loss_probability and self.retry_after_s is None:
            yield "loss_probability needs retry_after_s, when to send again; add it"
        if self.retry_after_s is not None and not self.loss_probability:
            yield "retry_after_s has no effect without loss_probability; add it"
        elif not self.loss_probability and not self.delay_cv:
            yield "expected loss_probability or delay_cv, got neither; add one"


def faults_of_events(
    events: Sequence[Event], failures: Failures | None, workers: int
) -> Iterator[str]:
    """Say what is wrong with the events of a cluster of so many workers, if anything is.

    Pauses and stops of one worker must not overlap; slow times may, and their factors multiply. An
    event and an outage by chance may overlap, too: the device is up when both are over.
    """
    named: list[tuple[str, _Outage]] = [(f"events[{i}]", one) for i, one in enumerate(events)]
    if failures is not None:
        named.append(("failures", failures))
    for name, outage in named:
        if outage.worker != "all" and max(outage.worker) >= workers:
            got = max(outage.worker)
            yield f"{name}.worker must be below {workers}, the count of workers, got {got}"
    down = [(i, one) for i, one in enumerate(events) if one.kind != "slow"]
    named_workers = {w for _i, one in down if one.worker != "all" for w in one.worker}
    for worker in sorted({0, *named_workers}):  # of what hits all, worker 0 tells
        own = sorted((one.from_s, one.until_s, i) for i, one in down if one.hits(worker))
        for (_from_s, until_s, first), (from_s, _until_s, second) in pairwise(own):
            if from_s < until_s:
                yield (
                    f"events[{second}] overlaps events[{first}] on worker {worker}, from "
                    f"{from_s:g} s; make one of the two, or let it begin at {until_s:g}"
                )


def variations_of(
    events: Sequence[Event], failures: Failures | None, messages: Messages | None
) -> list[tuple[str, str, Source]]:
    """List what varies, in words: of what, what, and where the numbers come from."""
    found = [
        (_whom(one), f"{_words(one)} from {one.from_s:g} s to {one.until_s:g} s", one.source)
        for one in events
    ]
    if failures is not None:
        between_s, repair_s = failures.mean_time_between_s, failures.mean_time_to_repair_s
        what = f"{_words(failures)} every {between_s:g} s for {repair_s:g} s in the mean"
        found.append((_whom(failures), what, failures.source))
    if messages is not None:
        lost = f"{messages.loss_probability:g} of transmissions lost"
        if messages.retry_after_s is not None:
            lost += f", sent again after {messages.retry_after_s:g} s"
        what = f"{lost}; coefficient of variation of latencies {messages.delay_cv:g}"
        found.append(("messages", what, messages.source))
    return [(of, what, source or UNSOURCED) for of, what, source in found]


def _words(outage: _Outage) -> str:
    if outage.kind == "slow":
        return f"{outage.factor:g} times as slow"
    rest = ", the step in its middle done again" if outage.is_step_lost else ""
    if outage.loses_weights:
        rest += ", weights of the last checkpoint"
    return f"{outage.kind}{rest}"


def _whom(outage: _Outage) -> str:
    if outage.worker == "all":
        return "all workers"
    several = "s" if len(outage.worker) > 1 else ""
    return f"worker{several} {', '.join(map(str, outage.worker))}"


class Checkpoints(Record):
    """Each device that has parameters keeps a copy of them elsewhere from time to time.

    A copy holds the parameters of the nodes on the device, the optimizer's state, and the smoothed
    steps of weight prediction. It takes no room in the device's memory.

    Args:
        every_s: a checkpoint is due at every multiple of it, in seconds of the run; it is left out
            where no update has been made since the last.
        takes_s: how long a checkpoint occupies its device, beside its bytes.
        bandwidth_bytes_per_s: at which its bytes leave the device meanwhile; None for at once.
        source: where the numbers come from; a file must say.
    """

    every_s: MeanSeconds
    takes_s: Seconds = 0.0
    bandwidth_bytes_per_s: Rate | None = None
    source: Source | None = None

    @property
    def is_free(self) -> bool:
        """Tell whether a checkpoint takes no time."""
        return not self.takes_s and self.bandwidth_bytes_per_s is None

    def seconds(self, size_bytes: int) -> float:
        """Seconds for which a checkpoint of so many bytes occupies its device."""
        rate = self.bandwidth_bytes_per_s
        return self.takes_s + (0.0 if rate is None else size_bytes / rate)


def faults_of_checkpoints(
    checkpoints: Checkpoints | None, events: tuple[Event, ...], failures: Failures | None
) -> Iterator[str]:
    """Say what is wrong with the checkpoints of a cluster where this happens, if anything is."""
    losing = [f"events[{i}]" for i, one in enumerate(events) if one.loses_weights]
    if failures is not None and failures.loses_weights:
        losing.append("failures")
    if losing and checkpoints is None:
        yield (
            f'{losing[0]}: weights "checkpoint" needs a table [checkpoints] that says every_s; '
            "add it"
        )
    if checkpoints is not None and checkpoints.is_free and not losing:
        yield (
            "checkpoints have no effect: they take no time, and no stop has "
            'weights = "checkpoint"; leave them out, or add one of the two'
        )


def checkpoints_in_words(checkpoints: Checkpoints) -> tuple[str, str, Source]:
    """Say of what it is, what it is, and where the numbers come from."""
    takes, rate = f", {checkpoints.takes_s:g} s each", checkpoints.bandwidth_bytes_per_s
    if rate is not None:
        takes += f" and {rate:g} bytes/s"
    takes = ", which take no time" if checkpoints.is_free else takes
    what = f"every {checkpoints.every_s:g} s{takes}"
    return "checkpoints", what, checkpoints.source or UNSOURCED
