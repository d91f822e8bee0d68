"""Synchronous SGD: ranks add up their gradients and all take the same step.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Section 3.2: w <- w - eta / P sum of gradients
on every machine, by any optimizer. A rank's gradient counts as many times as it has items, so
that P ranks do what one does with their batches in one.

With b backup ranks a step has the first K = P - b gradients, and their mean: J. Chen, X. Pan, R.
Monga, S. Bengio and R. Jozefowicz, "Revisiting Distributed Synchronous SGD" (arXiv 1604.00981),
with backup workers; K-sync SGD of S. Dutta et al., "Slow and Stale Gradients Can Win the Race"
(arXiv 1803.01113), whose late ranks are cancelled, as here. What becomes of a late rank:

* It is told at once, when the K-th gradient is there. The step that its device is in is cut short,
  the rest of the batch is dropped, and nothing of it is in any gradient. A transfer that is on its
  way still arrives, and the rank is not free before. Freeing what it held takes no time.
* Its batch goes back to the queue, and is assigned again first. So an epoch has each item once,
  whoever is late. Where no more than K ranks have a batch, at the end of an epoch, all are awaited.
* It brings nothing to the collective, but takes part in it, and then in the update, as the others
  do: all ranks have the same weights. One that is still in the update before is awaited by nobody;
  it has no batch in this step, and updates once more when it has come so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.decisions import Sends
from ampsim.data_parallel.solver_bases import CollectiveSolver, Sparsified
from ampsim.errors import OptionError
from ampsim.options import require_count


@dataclass(frozen=True)
class SyncSGD(Sparsified, CollectiveSolver):
    """All ranks read the same weights; a batch of all, or of the first, is one step.

    Args:
        overlap: whether the collective of a bucket begins as soon as all ranks have its gradients,
            beside the backward pass; for models that are a chain of layers. Without
            `bucket_bytes` all layers of a worker are one bucket, with nothing left beside it.
        backup_ranks: b, ranks that a step does not wait for: it has the first P - b gradients.
    """

    name: ClassVar[str] = "sync-sgd"
    sends: ClassVar[Sends] = "gradient"

    overlap: bool = field(default=False, kw_only=True)
    backup_ranks: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if require_count("backup_ranks", self.backup_ranks, least=0) == 0:
            return
        if self.ranks is not None:
            self._require_backups(self.ranks)
        fault = None
        if self.overlap:
            fault = "overlap adds up gradients of which nobody knows yet whose are first"
        elif self.workers_per_rank > 1:
            fault = "a rank is cancelled on one worker, not on several"
        if fault is not None:
            raise OptionError(
                f"{self.name}: {fault}, got backup_ranks={self.backup_ranks} with "
                f"overlap={self.overlap} and workers_per_rank={self.workers_per_rank}; "
                "leave backup_ranks out"
            )

    @property
    def averaged_ranks(self) -> int | None:
        """Ranks whose mean gradient is one step."""
        averaged = super().averaged_ranks
        return None if averaged is None else averaged - self.backup_ranks

    def ranks_on(self, workers: int) -> int:
        """Count the ranks on so many workers; some rank must be awaited."""
        ranks = super().ranks_on(workers)
        self._require_backups(ranks)
        return ranks

    def _require_backups(self, ranks: int) -> None:
        if self.backup_ranks >= ranks:
            raise OptionError(
                f"{self.name}: backup_ranks must be below the ranks, got {self.backup_ranks} of "
                f"{ranks}; take fewer backup ranks"
            )
