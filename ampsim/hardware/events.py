"""What varies on a cluster while a run goes on: events at set times, outages by chance, messages.

`docs/decisions/0012-time-that-varies.md` says what is modelled and what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ampsim.hardware.record import SECONDS_MAX, UNSOURCED, Seconds, Source, Variation
from ampsim.shown import short
from ampsim.toml_file import Record

Kind = Literal["slow", "pause", "stop"]
"""Of an outage: the device takes longer, does nothing for a while, or is lost and comes back."""

FACTOR_MAX = 1e6
"""Most times as long as usual that a slow device takes; chosen, to catch a slip."""

MEAN_S_MIN = 1e-9
"""Shortest mean time that a file may name; chosen: below any step's, so a shorter one is a slip."""


def _workers(value: Any) -> Any:
    """Which workers: one, a list, or all; as a tuple, or the word."""
    if value == "all":
        return value
    given = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
    if not given or any(type(one) is not int or one < 0 for one in given):
        raise _wrong(f"expected a worker's index, a list of them, or 'all', got {short(value)}")
    if len(set(given)) < len(given):
        raise _wrong(f"expected each worker once, got {short(value)}")
    return tuple(given)


Workers = Annotated[tuple[int, ...] | Literal["all"], BeforeValidator(_workers)]
Factor = Annotated[float, Field(ge=1, le=FACTOR_MAX)]
MeanSeconds = Annotated[float, Field(ge=MEAN_S_MIN, le=SECONDS_MAX)]


class _Outage(Record):
    """What happens to a device while it is not as usual.

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

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        """A factor belongs to a slow device, a step that is lost to a stop."""
        if (self.kind == "slow") != (self.factor is not None):
            what = "needs a factor" if self.kind == "slow" else "has no factor"
            raise _wrong(
                f'kind "{self.kind}" {what}; only a slow device takes so many times as long'
            )
        if self.loses_step is not None and self.kind != "stop":
            raise _wrong(f'kind "{self.kind}" has no loses_step; only a stop can lose a step')
        if self.weights is not None and self.kind != "stop":
            raise _wrong(f'kind "{self.kind}" has no weights; only a stop can lose them')
        if self.loses_weights and self.loses_step is False:
            raise _wrong(
                'weights "checkpoint" loses the step in the middle, too, got loses_step = false; '
                "leave it out"
            )
        return self

    @property
    def slowness(self) -> float:
        """How many times as long as usual a step takes; infinite where the device does nothing."""
        return float("inf") if self.factor is None else self.factor

    @property
    def is_step_lost(self) -> bool:
        """Whether a step in the middle is done again from its start."""
        return self.kind == "stop" and self.loses_step is not False

    @property
    def loses_weights(self) -> bool:
        """Whether parameters and the optimizer's state go back to the last checkpoint."""
        return self.weights == "checkpoint"

    def hits(self, worker: int) -> bool:
        """Whether a worker is among those meant."""
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

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        """It ends after it begins."""
        if self.until_s <= self.from_s:
            raise _wrong(f"until_s must be > {self.from_s:g}, from_s, got {self.until_s:g}")
        return self


class Failures(_Outage):
    """Outages by chance: times from the end of one to the start of the next, and to repair.

    Both are exponential, drawn for each worker alone.

    Args:
        mean_time_between_s: from the end of an outage, or the start, to the next outage.
        mean_time_to_repair_s: from the start of an outage to its end.
    """

    mean_time_between_s: MeanSeconds
    mean_time_to_repair_s: MeanSeconds


class Messages(Record):
    """What befalls messages on their way over a link.

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

    @model_validator(mode="after")
    def _check_retry(self) -> Self:
        """What can be lost is sent again after a time, and only that."""
        if self.loss_probability and self.retry_after_s is None:
            raise _wrong("loss_probability needs retry_after_s, when to send again; add it")
        if self.retry_after_s is not None and not self.loss_probability:
            raise _wrong("retry_after_s has no effect without loss_probability; add it")
        return self


def fault_of_events(events: Sequence[Event], failures: Failures | None, workers: int) -> str | None:
    """What is wrong with the events of a cluster of so many workers, if anything.

    Pauses and stops of one worker must not overlap; slow times may, and their factors multiply. An
    event and an outage by chance may overlap, too: the device is up when both are over.
    """
    named: list[tuple[str, _Outage]] = [(f"events[{i}]", one) for i, one in enumerate(events)]
    if failures is not None:
        named.append(("failures", failures))
    for name, outage in named:
        if outage.worker != "all" and max(outage.worker) >= workers:
            got = max(outage.worker)
            return f"{name}.worker must be below {workers}, the count of workers, got {got}"
    down = [(i, one) for i, one in enumerate(events) if one.kind != "slow"]
    named_workers = {w for _i, one in down if one.worker != "all" for w in one.worker}
    for worker in sorted({0, *named_workers}):  # of what hits all, worker 0 tells
        own = sorted((one.from_s, one.until_s, i) for i, one in down if one.hits(worker))
        for (_from_s, until_s, first), (from_s, _until_s, second) in pairwise(own):
            if from_s < until_s:
                return (
                    f"events[{second}] overlaps events[{first}] on worker {worker}, from "
                    f"{from_s:g} s; make one of the two, or let it begin at {until_s:g}"
                )
    return None


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("events", "{text}", {"text": text})


def variations_of(
    events: Sequence[Event], failures: Failures | None, messages: Messages | None
) -> list[tuple[str, str, Source]]:
    """What varies, in words: of what, what, and where the numbers come from."""
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
