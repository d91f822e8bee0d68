"""CC ratio: how much a network computes for each parameter that it would have to send.

Source: Wongpanich, You and Demmel, "Rethinking the value of asynchronous solvers for distributed
deep learning", 2020, Section 4.6: operations to process a sample, over parameters. Operations are
the FLOP of the forward pass, 2 for each multiplication with its addition.
"""

from __future__ import annotations

import itertools

from ampsim.data import MissingDataError
from ampsim.hardware import load_cluster
from ampsim.model_parallel import Sequential
from ampsim.study.model import Model
from ampsim.study.process_settings import fixed_settings
from ampsim.study.training import Training


def cc_ratio(model: Model) -> float | None:
    """FLOP of a forward pass, an item of the first training batch in the mean, over parameters.

    Returns:
        None where the data are not there, or where there is no batch.

    Raises:
        SimulationError: a step failed.
    """
    graph = model.graph()
    try:
        with fixed_settings():
            batches = model.data(0, None).batches("train", epoch=0, seed=0)
            first = list(itertools.islice(batches, 1))
    except MissingDataError:
        return None
    count = sum(node.parameter_count for node in graph.parameterized)
    if not first or not first[0].rows or not count:
        return None
    workers = [-1, *[0] * (len(graph.nodes) - 1)]
    cluster = load_cluster("tflops-1", workers=1)
    training = Training(model, graph, cluster, workers, Sequential())
    training.start_epoch(0)
    training.validate(first)
    training.recorder.flush()
    return training.recorder.summary.flop / first[0].rows / count
