"""Where a model's nodes go: what a placement may look at, put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ampsim.data_parallel import Solver, cluster_of_rank
from ampsim.hardware import Cluster, load_cluster
from ampsim.ir import Graph
from ampsim.model_parallel import Job, Placement, Probe, Schedule, Situation, probe
from ampsim.model_parallel.placements.file import FromFile, read_placement
from ampsim.rng import stream
from ampsim.study.model import Model
from ampsim.study.process_settings import fixed_settings
from ampsim.study.user_data import UserData


def job_of(model: Model, graph: Graph) -> Job:
    """What an engine runs of a model, on a graph of it."""
    return Job(graph, model.pump, model.optimizer, model.update_interval)


def workers_of(
    placement: Placement,
    graph: Graph,
    cluster: Cluster,
    seed: int,
    probed: Callable[[], Probe],
) -> list[int]:
    """Return a worker for each node of `graph`, in their order; `probed` is asked at need."""
    return placement.place(Situation(graph, cluster, stream(seed, "placement"), probed))


def place_under(
    schedule: Schedule,
    placement: Placement,
    graph: Graph,
    cluster: Cluster,
    seed: int,
    probed: Callable[[], Probe],
) -> list[int]:
    """Return a worker for each node of `graph`; of a solver, in the first copy of the model.

    Raises:
        OptionError: ranks and servers of a solver do not fit the cluster.
    """
    if isinstance(schedule, Solver):
        cluster = cluster_of_rank(cluster, schedule)
    return workers_of(placement, graph, cluster, seed, probed)


def require_placed(file: str, model: Model) -> None:
    """Check that a placement file has a worker for each node of a model, and for no other.

    Raises:
        FileFormatError: it has not, cannot be read, or has a line that is not NODE = WORKER.
    """
    workers = 1 + max(read_placement(file).values())
    cluster = load_cluster("tflops-1", workers=workers)
    probed = prober(model, cluster, 0, lambda: model.data(0, None))
    workers_of(FromFile(file), model.graph(), cluster, 0, probed)


def prober(
    model: Model, cluster: Cluster, seed: int, make_data: Callable[[], UserData]
) -> Callable[[], Probe]:
    """Return what probes a model, once: it needs data, and a graph of its own."""

    @cache
    def probed() -> Probe:
        job = job_of(model, model.graph(seed))
        data = make_data()
        with fixed_settings():
            batches = data.batches("train", epoch=0, seed=seed)
            return probe(job, cluster.devices[0], batches)

    return probed
