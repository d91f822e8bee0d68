"""PipeDream-2BW: PipeDream that updates every m gradients, with two versions of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.errors import OptionError
from ampsim.model_parallel.schedules.pipedream import Stashing
from ampsim.model_parallel.schedules.turns import Admitted
from ampsim.model_parallel.schedules.values import Updates, VersionRule
from ampsim.options import Count


@dataclass(frozen=True)
class PipeDream2BW(Stashing):
    """Asynchronous pipeline with double-buffered weights.

    m micro-batches in a row are a mini-batch; a stage applies their mean gradient after the last.
    Forward and backward of a micro-batch read, at every stage, the weights after all mini-batches
    but the one before its own: W(t + 1) = W(t) − rate · ∇f(W(t − 1)). Staleness is thus exactly 1,
    from the second mini-batch of an epoch on, and no stage keeps more than two versions.

    Source: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training (ICML 2021),
    Section 3.1.

    Args:
        min_update_interval: m, the micro-batches of a mini-batch; at least as many as are in
            flight, else two versions would not suffice.
        max_active_keys: instances in flight at most; None for as many as there are stages. Of more,
            some wait before the first stage.

    Raises:
        OptionError: a number is below 1.
    """

    min_update_interval: Count = 8
    max_active_keys: Count | None = None
    name: ClassVar[str] = "pipedream-2bw"

    @property
    def updates(self) -> Updates:
        """After every m gradients, whatever the model prefers; their mean counts."""
        return Updates(interval=self.min_update_interval, averages=True)

    def _versions(self, stages: int, admitted: Admitted) -> list[VersionRule]:
        """The version before the last that the mini-batches so far have made.

        Raises:
            OptionError: m is below the number of instances in flight.
        """
        in_flight = min(stages, self.max_active_keys or stages)
        if self.min_update_interval < in_flight:
            raise OptionError(
                f"{self.name}: min_update_interval must be >= {in_flight}, as many as are in "
                f"flight over {stages} stages, for two versions of the weights to suffice, got "
                f"{self.min_update_interval}; raise it, or lower max_active_keys"
            )
        return [_OneBehind(self.min_update_interval, admitted) for _ in range(stages)]


class _OneBehind(VersionRule):
    """The version after all mini-batches of so many instances but the one before its own."""

    def __init__(self, together: int, admitted: Admitted) -> None:
        self._together, self._admitted = together, admitted
        self._at_start = self._next = 0

    def pick(self, instance: int, latest: int) -> int:
        """Pick by the instance's place in its pass."""
        place = instance - self._admitted.first
        if place == 0:
            self._at_start = latest
        self._next = instance + 1
        return self._at_start + self._behind(place)

    def awaits(self, version: int) -> bool:
        """Tell if an instance to come reads it; none reads an older version than the one before."""
        first, until = self._admitted.first, self._admitted.known_until
        if self._next >= until:
            return False
        oldest, newest = self._behind(self._next - first), self._behind(until - 1 - first)
        return oldest <= version - self._at_start <= newest

    def _behind(self, place: int) -> int:
        return max(place // self._together - 1, 0)
