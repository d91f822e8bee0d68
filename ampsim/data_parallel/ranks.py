"""Ranks put together: copies of a model, and groups of them inside groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ampsim.data_parallel.fitting import outer_of
from ampsim.data_parallel.group import Group
from ampsim.data_parallel.model_copy import ModelCopy
from ampsim.data_parallel.parameters import Parameters, shapes_of
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.share import Share
from ampsim.hardware import HOST
from ampsim.ir import Graph
from ampsim.model_parallel import Job, PassTotals


class RankMaker:
    """Makes ranks, copy after copy.

    Args:
        job: the network and how a rank trains it.
        make_graph: gives another graph of the network, without weights.
        placement: for each node, its worker in the first copy.
        blocks: for each copy, which block of `workers_per_rank` workers it lies on.
        totals: takes what the losses say, by part of the training.

    Attributes:
        copies: those that have been made.
    """

    def __init__(
        self,
        job: Job,
        make_graph: Callable[[], Graph],
        placement: Sequence[int],
        blocks: Sequence[int],
        totals: Callable[[int], PassTotals],
    ) -> None:
        self._job, self._make_graph, self._placement = job, make_graph, placement
        self._blocks, self._totals = blocks, totals
        self.copies: list[ModelCopy] = []

    def make(self, number: int, setting: Setting) -> Rank:
        """A rank of this number among those of `setting`."""
        if setting.solver.group is None:
            return self._copy(number, setting)
        return self._group(number, setting)

    def _copy(self, number: int, setting: Setting) -> ModelCopy:
        graph = self._make_graph()
        for node, theta in zip(graph.parameterized, setting.centre.thetas, strict=True):
            node.adopt(theta)
        each = setting.solver.workers_per_rank
        first = self._blocks[len(self.copies)] * each
        made = ModelCopy(
            (number, len(self.copies)),
            replace(self._job, graph=graph),
            range(first, first + each),
            [worker if worker == HOST else first + worker for worker in self._placement],
            setting,
            totals=self._totals,
        )
        self.copies.append(made)
        return made

    def _group(self, number: int, setting: Setting) -> Group:
        solver = setting.solver.group
        assert solver is not None
        assert solver.ranks is not None
        names = [node.name for node in setting.nodes]
        thetas, optimizer = setting.centre.thetas, self._job.optimizer
        share = Share(solver.ranks, solver.batches_per_deal)
        inner = replace(
            setting,
            solver=solver,
            pull=solver.pull(solver.ranks),
            centre=Parameters(names, thetas, optimizer, shapes_of(setting.nodes)),
            dealer=share,
            around=setting,
        )
        members = [self.make(one, inner) for one in range(solver.ranks)]
        return Group(
            number,
            members,
            share,
            (setting, inner),
            optimizer=optimizer,
            outer=Parameters(names, thetas, outer_of(solver)),
        )
