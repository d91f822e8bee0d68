"""What must hold where ranks send a share of their gradients, and what does not go with that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from solver_cases import CASES, COMPRESSED, SOLVERS, Link, cluster, model, solver, weights

import ampsim
from ampsim.data_parallel import CollectiveSolver, Sparsified
from ampsim.data_parallel.top_k import ErrorFeedback, kept_count, largest
from ampsim.errors import AmpsimError, DivergenceError

SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)
NAMES = [name.removesuffix(COMPRESSED) for name in CASES if name.endswith(COMPRESSED)]


def test_every_solver_that_sends_gradients_takes_it():
    assert [name for name, kind in SOLVERS.items() if kind.sends == "gradient"] == NAMES


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_entries_are_those_of_a_stable_sort(seed):
    """Few values, so that most magnitudes are equal to others."""
    random = np.random.default_rng(seed)
    vector = random.integers(-3, 4, int(random.integers(1, 40))).astype(np.float32)
    for count in range(1, len(vector) + 1):
        expected = np.zeros(len(vector), bool)
        expected[np.argsort(-np.abs(vector), kind="stable")[:count]] = True
        assert (largest(vector, count) == expected).all()


@pytest.mark.parametrize(
    ("share", "size", "count"),
    [(0.01, 700, 7), (0.01, 701, 8), (0.07, 100, 7), (0.29, 100, 29), (1e-9, 5, 1), (1.0, 9, 9),
     (0.999, 10, 10), (0.1, 1, 1)],
)  # fmt: skip
def test_the_count_of_entries_is_the_share_as_it_is_written_rounded_up(share, size, count):
    assert kept_count(share, size) == count


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_has_memory_for_what_it_keeps_back_and_a_server_for_what_it_is_sent(name):
    made, hosts = model(33, 3, layers=2), cluster([1e9, 2e9, 0.6e9, 1.3e9], link=SLOW)
    sent = ampsim.simulate(
        made, hosts, solver(name, ranks=3, compression=0.3), epochs=2, counts_memory=True
    )
    whole = ampsim.simulate(made, hosts, solver(name, ranks=3), epochs=2, counts_memory=True)
    held = 8 * (3 * 3 + 3 + 3 * 2 + 2)
    one, other = (each.peak_memory.set_index("worker") for each in (sent, whole))
    assert (one["gradients"].iloc[:3] == 2 * held).all()
    assert (other["gradients"].iloc[:3] == held).all()
    if solver(name).server_count:
        assert one["gradients"].iloc[3] == 0
        assert one["messages"].iloc[3] % 12 == 0
        assert 0 < one["messages"].iloc[3] <= 3 * 12 * (4 + 3)
        assert other["messages"].iloc[3] >= held


@pytest.mark.parametrize("name", NAMES)
def test_a_server_is_sent_entries_and_answers_with_all_weights(name):
    if not solver(name).server_count:
        pytest.skip("ranks meet each other")
    hosts = cluster([1e9] * 5, link=SLOW)
    chosen = solver(name, ranks=3, servers=2, compression=0.3)
    result = ampsim.simulate(model(33, 3, layers=2), hosts, chosen, epochs=2)
    transfers = result.transfers
    for server, size, count in ((3, 12, 4), (4, 8, 3)):
        assert set(transfers[transfers["target_worker"] == server]["bytes"]) == {12 * count}
        assert set(transfers[transfers["source_worker"] == server]["bytes"]) == {8 * size}
    assert set(result.exchanges["bytes"]) == {12 * 7}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [1, 2, 7, 9])
def test_ranks_without_a_batch_send_nothing_of_what_they_keep(name, rows):
    hosts = cluster([1e9] * 4, link=SLOW, jitter_cv=0.3)
    chosen = solver(name, ranks=3, compression=0.3)
    numeric, sleep = (
        ampsim.simulate(model(rows, 2), hosts, chosen, epochs=3, mode=mode)
        for mode in ("numeric", "sleep")
    )
    assert numeric.epochs["instances"].tolist() == [rows] * 3
    assert numeric.spans.equals(sleep.spans)
    busy = numeric.spans[numeric.spans["direction"] == "backward"]
    chosen_entries = numeric.spans[numeric.spans["flop"] == 5 * 8]
    assert 0 <= len(busy) - len(chosen_entries) <= 3


@pytest.mark.parametrize(
    "chosen",
    [
        ampsim.EAWild(2, inner=ampsim.SyncSGD(2, compression=0.3)),
        ampsim.AsyncSGD(2, inner=ampsim.SyncSGD(2, compression=0.3)),
        ampsim.AsyncSGD(4, inner=ampsim.SyncSGD(1, compression=0.3)),
        ampsim.LocalSGD(2, period=2, inner=ampsim.SyncSGD(2, compression=0.3)),
    ],
    ids=["ea-wild", "async-sgd", "groups of one", "local-sgd"],
)
def test_groups_compress_inside_and_send_whole_gradients_or_weights(chosen):
    hosts = cluster([1e9, 2e9, 0.6e9, 1.3e9, 1e9], link=SLOW, jitter_cv=0.3)
    made = model(33, 3, layers=2)
    numeric, sleep = (
        ampsim.simulate(made, hosts, chosen, epochs=2, mode=mode) for mode in ("numeric", "sleep")
    )
    assert numeric.spans.equals(sleep.spans)
    assert numeric.transfers.equals(sleep.transfers)
    assert numeric.epochs["instances"].tolist() == [33, 33]
    met = numeric.exchanges.groupby("server")["bytes"].unique()
    assert {server: sizes.tolist() for server, sizes in met.items()} == {
        server: [12 * 7 if server == -3 else 8 * 20] for server in met.index
    }
    plain = ampsim.simulate(
        made, hosts, replace(chosen, inner=replace(chosen.inner, compression=None)), epochs=2
    )
    assert weights(plain).tobytes() != weights(numeric).tobytes()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [1, 3])
def test_a_gradient_that_is_not_finite_is_told(count, wrong):
    feedback = ErrorFeedback(["linear-1"])
    feedback.sent(0, np.ones(3), count, 0.0)
    said = r"the gradient of linear-1 stopped being finite at 0\.5 s; try a lower learning rate"
    with pytest.raises(DivergenceError, match=said):
        feedback.sent(0, np.array([0.0, wrong, 1.0]), count, 0.5)


class OfWeights(Sparsified, CollectiveSolver):
    """A solver of one's own that makes no sense."""

    name = "of-weights"
    sends = "weights"


def given_text(kind: Any) -> Any:
    return kind(compression="1%")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ampsim.SyncSGD(compression=0), "sync-sgd: compression must be a number > 0 and"),
        (lambda: ampsim.SyncSGD(compression=-0.1), "got -0.1; try 0.01"),
        (lambda: ampsim.AsyncSGD(compression=1.5), "the share of entries that is sent, got 1.5"),
        (lambda: ampsim.AsyncSGD(compression=float("nan")), "compression must be a .*, got nan"),
        (lambda: given_text(ampsim.SSP), "compression must be a number, got '1%'"),
        (lambda: ampsim.Hogwild(compression=True), "compression must be a number, got True"),
        (lambda: OfWeights(compression=0.1), "compression is of gradients, but ranks send weights"),
        (
            lambda: ampsim.SyncSGD(compression=0.1, collective="tree"),
            "does not go with collective='tree'; take collective='ring', or leave compression out",
        ),
        (
            lambda: ampsim.SyncSGD(compression=0.1, collective="hierarchical", ranks_per_group=2),
            "take collective='ring'",
        ),
        (lambda: ampsim.SyncSGD(compression=0.1, overlap=True), "leave overlap out"),
        (lambda: ampsim.SyncSGD(4, compression=0.1, backup_ranks=1), "leave backup_ranks out"),
        (
            lambda: ampsim.SyncSGD(2, inner=ampsim.SyncSGD(2), compression=0.1),
            r"give it to the solver inside, as inner=SyncSGD\(ranks=4, compression=0.01\)",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused_in_one_line(make: Any, said: str):
    with pytest.raises(AmpsimError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_none_is_as_it_was():
    hosts = cluster([1e9, 2e9, 0.6e9, 1.3e9], link=SLOW)
    for name in NAMES:
        one, other = solver(name, ranks=3), solver(name, ranks=3, compression=None)
        assert one == other
        spans = ampsim.simulate(model(9, 3), hosts, one).spans
        updates = spans[spans["direction"] == "update"]
        assert set(updates["flop"]) == {6}
