"""PipeDream: 1F1B that never drains; each backward step updates, and sees what its forward saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import check_fields
from ampsim.model_parallel.schedules.turns import (
    Admitted,
    OneForwardOneBackward,
    WorkerStages,
    one_stage_a_worker,
)
from ampsim.model_parallel.schedules.values import Admission, Order, PickVersion, Updates, Weights
from ampsim.options import Count


@dataclass(frozen=True)
class PipeDream:
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
        max_active_keys: instances in flight at most, if that is fewer than there are stages.
        vertical_sync: one version of the weights for an instance, at all stages.

    Raises:
        OptionError: `max_active_keys` is below 1, or `vertical_sync` neither True nor False.
    """

    max_active_keys: Count | None = None
    vertical_sync: bool = False
    name: ClassVar[str] = "pipedream"
    updates = Updates(interval=1)

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)

    @property
    def admission(self) -> Admission:
        """As many at a time as there are stages, or fewer; it never drains."""
        return Admission(self.max_active_keys)

    @property
    def order(self) -> Order:
        """Fixed turns."""
        return Order(turns=self._turns)

    @property
    def weights(self) -> Weights:
        """A step reads the version that its instance is to see."""
        return Weights(versions=self._versions)

    def _turns(self, placed: WorkerStages, admitted: Admitted) -> OneForwardOneBackward:
        """As 1F1B; stage 0 keeps as many forwards waiting as may be in flight.

        Raises:
            OptionError: a worker has several stages.
        """
        stage = one_stage_a_worker(self.name, placed)
        in_flight = self.max_active_keys or placed.stages
        return OneForwardOneBackward(stage, min(placed.stages - stage, in_flight), admitted)

    def _versions(self, stages: int, admitted: Admitted) -> list[PickVersion]:
        """Forward reads the latest, or the version that the first stage gave the instance."""
        if self.vertical_sync and stages > 1:
            return _synchronised(stages)
        return [_latest] * stages


def _latest(instance: int, latest: int) -> int:
    return latest


def _synchronised(stages: int) -> list[PickVersion]:
    """All stages count their updates alike, so a version's number means the same at each."""
    given: dict[int, int] = {}

    def first(instance: int, latest: int) -> int:
        given[instance] = latest
        return latest

    def between(instance: int, latest: int) -> int:
        return given[instance]

    def last(instance: int, latest: int) -> int:
        return given.pop(instance)

    return [first, *[between] * (stages - 2), last]
