"""PipeDream: 1F1B that never drains; each backward step updates, and sees what its forward saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import check_fields
from ampsim.model_parallel.schedules.turns import Admitted, one_forward_one_backward
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, VersionRule, Weights
from ampsim.options import Count


class Stashing:
    """Options of 1F1B pipelines that never drain, and stash versions of weights."""

    max_active_keys: int | None
    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)

    @property
    def admission(self) -> Admission:
        """Admit as many at a time as there are stages, or fewer; it never drains."""
        return Admission(self.max_active_keys)

    @property
    def order(self) -> Order:
        """Fixed turns, as 1F1B; stage 0 keeps as many forwards waiting as may be in flight."""
        return Order(turns=one_forward_one_backward(self.name, self.max_active_keys))

    @property
    def weights(self) -> Weights:
        """A step reads the version that its instance is to see."""
        return Weights(versions=self._versions)

    def _versions(self, stages: int, admitted: Admitted) -> list[VersionRule]:
        raise NotImplementedError


@dataclass(frozen=True)
class PipeDream(Stashing):
    """Asynchronous pipeline with weight stashing.

    As many instances are in flight as there are stages. A stage updates after each backward step,
    which reads the weights that the instance's forward step read there. In steady state gradients
    at stage s of p are p − 1 − s updates old, and one instance is done in each time that the
    slowest stage needs for one.

    With vertical sync an instance reads at all stages the version that the first stage gave it;
    its gradients are then p − 1 updates old everywhere.

    Source: Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training
    (SOSP 2019), Sections 3.2 and 3.3.

    Args:
        max_active_keys: instances in flight at most; None for as many as there are stages. Of more,
            some wait before the first stage.
        vertical_sync: one version of the weights for an instance, at all stages.

    Raises:
        OptionError: `max_active_keys` is below 1, or `vertical_sync` neither True nor False.
    """

    max_active_keys: Count | None = None
    vertical_sync: bool = False
    name: ClassVar[str] = "pipedream"
    updates = Updates(interval=1)

    def _versions(self, stages: int, admitted: Admitted) -> list[VersionRule]:
        """Forward reads the latest, or the version that the first stage gave the instance."""
        if not self.vertical_sync or stages == 1:
            return [VersionRule()] * stages
        first = _First(min(stages, self.max_active_keys or stages), admitted)
        return [first, *(_GivenByFirst(first) for _ in range(1, stages))]


class _First(VersionRule):
    """The first stage: an instance gets its latest version, and reads that at all others.

    All stages count their updates alike, so a version's number means the same at each.

    Args:
        in_flight: instances that it has begun and not ended, at most.
        admitted: says which instances come.

    Attributes:
        readers: for each other stage, the versions that instances are yet to read there.
    """

    def __init__(self, in_flight: int, admitted: Admitted) -> None:
        self._in_flight, self._admitted = in_flight, admitted
        self._at_start = self._next = 0
        self.readers: list[dict[int, int]] = []

    def pick(self, instance: int, latest: int) -> int:
        """The latest, for all stages."""
        if instance == self._admitted.first:
            self._at_start = latest
        self._next = instance + 1
        for given in self.readers:
            given[instance] = latest
        return latest

    def may_give(self, version: int) -> bool:
        """Tell whether an instance is to come that gets a version which other stages already have.

        The first stage begins an instance after the backward step of the one that makes room for
        it, and after its update, so that each instance gets one version more.
        """
        admitted = self._admitted
        if self._next >= admitted.known_until:
            return False
        without_room = admitted.first + self._in_flight - 1
        oldest = self._at_start + max(self._next - without_room, 0)
        newest = self._at_start + max(admitted.known_until - 1 - without_room, 0)
        return oldest <= version <= newest


class _GivenByFirst(VersionRule):
    """Another stage: an instance reads the version that the first stage gave it."""

    def __init__(self, first: _First) -> None:
        self._first = first
        self._given: dict[int, int] = {}
        first.readers.append(self._given)

    def pick(self, instance: int, latest: int) -> int:
        """Pick the version that was given."""
        return self._given.pop(instance)

    def awaits(self, version: int) -> bool:
        """Tell whether an instance has been given this version, or may be."""
        return version in self._given.values() or self._first.may_give(version)
