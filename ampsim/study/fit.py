"""Whether schedules fit: tried out before the first run, so that no run is lost to the last."""

from __future__ import annotations

from collections.abc import Sequence

from ampsim.model_parallel import RunSettings, Schedule
from ampsim.study.placing import place_under, prober
from ampsim.study.task import Plan
from ampsim.study.training import Training


def require_fit(plan: Plan, schedules: Sequence[Schedule], seed: int) -> None:
    """Check that each schedule fits the model's graph, the cluster and the placement.

    Trainings are put together and thrown away: no time passes, and no data is read unless the
    placement asks for it.

    Args:
        plan: on what they are to run.
        schedules: what is to run.
        seed: of the first run.

    Raises:
        OptionError: one does not fit; the message says why.
        GraphError: the model's graph breaks a rule.
        FileFormatError: a placement file does not fit graph or cluster.
    """
    model, cluster = plan.model, plan.cluster
    graph = model.graph(seed)
    probed = prober(model, cluster, seed, lambda: model.data(seed, plan.instances))
    for schedule in schedules:
        settings = RunSettings(is_abstract=plan.mode == "sleep")
        workers = place_under(schedule, plan.placement, graph, cluster, seed=seed, probed=probed)
        Training(model, graph, cluster, workers, schedule, settings=settings)
