"""Memory at work: what lies in a device's memory, by category, and the most there has been."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ampsim.clock import Clock
from ampsim.errors import FEWER_IN_FLIGHT, OutOfMemoryError
from ampsim.units import format_bytes, format_seconds

SAMPLES_MAX: Final = 512
"""Samples of a timeline at most (chosen: more than a chart has pixels for)."""

TAKES_PER_SAMPLE: Final = 16
"""Takings that a sample covers at first (chosen: few enough to see the first instances)."""


class Sample(NamedTuple):
    """The fullest moment of a stretch of time.

    Args:
        time_s: when it was.
        bytes: what lay in memory then, for each category.
    """

    time_s: float
    bytes: tuple[int, ...]


class Memory:
    """The memory of one device.

    Args:
        name: what messages call the device.
        categories: what bytes are counted as; elsewhere a category is its place here.
        capacity_bytes: what there is room for; None where it never fills up.
    """

    __slots__ = (
        "_capacity_bytes", "_categories", "_clock", "_crest", "_crest_bytes", "_held", "_left",
        "_name", "_per_sample", "_samples", "total_bytes",
    )  # fmt: skip

    def __init__(
        self, name: str, categories: Sequence[str], clock: Clock, capacity_bytes: int | None
    ) -> None:
        self._name, self._categories, self._clock = name, tuple(categories), clock
        self._capacity_bytes = capacity_bytes
        self._held = [0] * len(self._categories)
        self.total_bytes = 0
        self._samples: list[Sample] = []
        self._per_sample = self._left = TAKES_PER_SAMPLE
        self._crest: tuple[float, list[int]]
        self._start_sample()

    def take(self, category: int, size_bytes: int) -> None:
        """Let so many bytes lie in memory; none of them do where there is no room.

        Raises:
            OutOfMemoryError: there is no room for them.
        """
        held = self._held
        held[category] += size_bytes
        self.total_bytes = total_bytes = self.total_bytes + size_bytes
        if total_bytes > self._crest_bytes:
            if self._capacity_bytes is not None and total_bytes > self._capacity_bytes:
                error = self._overflow(self._capacity_bytes)
                self.give(category, size_bytes)
                raise error
            self._crest_bytes = total_bytes
            self._crest = self._clock.now, held.copy()
        self._left = left = self._left - 1
        if not left:
            self._end_sample()

    def give(self, category: int, size_bytes: int) -> None:
        """Let so many bytes go that were taken."""
        left = self._held[category] - size_bytes
        assert left >= 0, f"{self._name}: gives {size_bytes} bytes that nobody took"
        self._held[category] = left
        self.total_bytes -= size_bytes

    def change(self, category: int, more_bytes: int) -> None:
        """Let so many bytes more lie in memory; less, where that is negative.

        Raises:
            OutOfMemoryError: there is no room for them.
        """
        if more_bytes > 0:
            self.take(category, more_bytes)
        else:
            self.give(category, -more_bytes)

    def held(self, category: int) -> int:
        """Return the bytes that lie in memory now, of one category."""
        return self._held[category]

    @property
    def peak(self) -> Sample:
        """The fullest moment so far, of several the first."""
        return max(self.timeline, key=lambda sample: sum(sample.bytes))

    @property
    def timeline(self) -> list[Sample]:
        """The fullest moment of each stretch of time so far; no moment was fuller than these."""
        return [*self._samples, self._sample()]

    def again(self, moments: Sequence[Sample], later_s: float) -> None:
        """Add fullest moments of a time that was as this one, which ends now and came later."""
        self._end_sample()
        for one in moments:
            self._add(Sample(one.time_s + later_s, one.bytes))
        self._start_sample()

    def _start_sample(self) -> None:
        self._crest_bytes = self.total_bytes
        self._crest = self._clock.now, self._held.copy()

    def _sample(self) -> Sample:
        """The present one; it is made where it is asked for, as a crest may soon be another."""
        time_s, held = self._crest
        return Sample(time_s, tuple(held))

    def _end_sample(self) -> None:
        """Begin another sample."""
        self._add(self._sample())
        self._left = self._per_sample
        self._start_sample()

    def _add(self, sample: Sample) -> None:
        """Keep a sample; where there are too many, let each cover twice as much."""
        self._samples.append(sample)
        if len(self._samples) == SAMPLES_MAX:
            halves = zip(self._samples[::2], self._samples[1::2], strict=True)
            self._samples = [max(pair, key=lambda sample: sum(sample.bytes)) for pair in halves]
            self._per_sample *= 2

    def _overflow(self, capacity_bytes: int) -> OutOfMemoryError:
        largest = sorted(zip(self._held, self._categories, strict=True), reverse=True)
        parts = ", ".join(f"{name} {format_bytes(size)}" for size, name in largest if size)
        return OutOfMemoryError(
            f"{self._name} is out of memory at {format_seconds(self._clock.now)}: it needs "
            f"{self.total_bytes:,} bytes of {capacity_bytes:,} ({parts}); {FEWER_IN_FLIGHT}, "
            "smaller batches, more workers, or a device with more memory_bytes"
        )
