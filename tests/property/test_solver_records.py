"""What runs of solvers hold in memory, and what they record of messages under way at the end."""

from __future__ import annotations

import tracemalloc

import pytest
from solver_cases import cluster, model, solver

import ampsim
from ampsim.hardware.topology import Ports
from ampsim.trace.causes import record_of

SPEEDS = [1e9, 2e9, 0.6e9, 1.3e9]


@pytest.mark.slow
def test_ranks_that_agree_hold_their_weights_once():
    """A rank more is a gradient more until ranks meet, not weights and a gradient."""

    def peak_bytes(ranks: int) -> int:
        made = ampsim.load_model("mlp", data="synthetic", batch=1, hidden=300)
        hosts = ampsim.load_cluster("tflops-1", workers=ranks)
        tracemalloc.start()
        ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=ranks), instances=2 * ranks)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    copy = 4 * (784 * 300 + 2 * 300 * 300 + 10 * 300 + 3 * 300 + 10)
    assert peak_bytes(8) - peak_bytes(2) < (6 + 3) * copy


@pytest.mark.parametrize("name", ["async-easgd", "ea-wild", "async-sgd"])
def test_a_run_that_is_cut_while_one_message_overtakes_another_has_a_critical_path(name):
    """Fair shares record transfers in the order of sending, and a cut leaves some under way."""
    hosts = cluster([*SPEEDS, 1e9, 2e9]).model_copy(
        update={"ports": Ports(ingress_bytes_per_s=2e9, egress_bytes_per_s=2e9)}
    )
    for rows in range(30, 37):
        chosen = solver(name, ranks=5)
        result = ampsim.simulate(model(rows, 1, layers=2), hosts, chosen, mode="sleep", epochs=2)
        assert result.critical_path["end_s"].iloc[-1] == result.makespan_s
        causes = [record_of(int(cause)) for cause in result.spans["cause"]]
        numbers = [number for table, number in causes if table == "transfer"]
        assert max(numbers) < len(result.transfers)
