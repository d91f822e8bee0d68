"""What a rank keeps back of its gradients: nothing is lost, and without it learning may stall."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_solvers import drawn
from solver_cases import FREE, Points, cluster, model, watched
from test_solvers_times import SLOW

import ampsim
from ampsim.data_parallel.top_k import ErrorFeedback


class Noted(ErrorFeedback):
    """Keeps what it was given and what it sent."""

    every: list[Noted]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.given: list[list[np.ndarray]] = [[] for _ in names]
        self.gone: list[list[np.ndarray]] = [[] for _ in names]
        self.every.append(self)

    def sent(self, place: int, gradient: np.ndarray, count: int, now_s: float) -> np.ndarray:
        self.given[place].append(gradient.copy())
        sent = super().sent(place, gradient, count, now_s)
        self.gone[place].append(sent.copy())
        assert np.count_nonzero(sent) <= count
        return sent


@pytest.mark.parametrize(
    "chosen",
    [ampsim.SyncSGD(3, compression=0.1), ampsim.AsyncSGD(2, compression=0.3),
     ampsim.Hogwild(2, compression=0.1), ampsim.SSP(2, compression=0.1)],
    ids=lambda one: one.name,
)  # fmt: skip
def test_what_was_sent_and_what_is_kept_are_all_gradients(chosen, monkeypatch):
    """Each as it counts in its step: in a mean of ranks, by the items of its batch.

    The last round of an epoch has batches of 3, 3 and 1 rows.
    """
    monkeypatch.setattr(Noted, "every", [], raising=False)
    monkeypatch.setattr("ampsim.data_parallel.rank.ErrorFeedback", Noted)
    made, hosts = drawn(11, 61, 3, layers=2), cluster([1e9, 3e9, 2e9], link=SLOW, jitter_cv=0.2)
    ampsim.simulate(made, hosts, chosen, epochs=6)
    assert len(Noted.every) == chosen.ranks
    for (number, rank), place in itertools.product(enumerate(Noted.every), (0, 1)):
        kept = rank.kept[place]
        assert kept is not None
        shares = np.ones(len(rank.given[place]))
        if isinstance(chosen, ampsim.SyncSGD):
            shares = np.tile([1 / 3] * 6 + [(3 / 7, 3 / 7, 1 / 7)[number]], 6)
        assert np.abs(kept).max() > 0
        assert len(rank.given[place]) >= 6 * 21 // 4
        sent = shares @ rank.gone[place] + shares[-1] * kept
        np.testing.assert_allclose(sent, shares @ rank.given[place], rtol=1e-12, atol=1e-15)


def test_the_server_merges_what_ranks_have_sent_and_nothing_else(monkeypatch):
    monkeypatch.setattr(Noted, "every", [], raising=False)
    monkeypatch.setattr("ampsim.data_parallel.rank.ErrorFeedback", Noted)
    chosen, seen = watched(ampsim.AsyncSGD, ranks=1, compression=0.3)
    ampsim.simulate(drawn(2, 30, 3), cluster([1e9, 1e9]), chosen, epochs=2)
    (rank,) = Noted.every
    for (_centre, parcel), sent in zip(seen, rank.gone[0], strict=False):
        assert parcel.tobytes() == sent.tobytes()
    assert len(seen) == 20


class Forgetful(ErrorFeedback):
    """Loses what it does not send."""

    def sent(self, place: int, gradient: np.ndarray, count: int, now_s: float) -> np.ndarray:
        sent = super().sent(place, gradient, count, now_s)
        self.kept[place] = None
        return sent


def tug() -> ampsim.Model:
    """Two batches, of inputs that are zero, pull one bias by 10 apart; both want 1 of the other."""
    y = np.tile([[10.0, 1.0], [-10.0, 1.0]], (50, 1))
    made = model(100, 1, rate=0.005)
    made = replace(made, make_data=lambda _seed, _count: Points(np.zeros((100, 3)), y, 1))
    return made.set_parameters({name: 0 * one for name, one in made.parameters().items()})


def second_bias(chosen: Any) -> float:
    result = ampsim.simulate(tug(), cluster([1e9] * 2, link=FREE), chosen, epochs=20)
    return float(result.model.parameters()["linear-1.bias"][1])


def test_the_largest_entry_alone_stalls_without_a_memory_and_converges_with_it(monkeypatch):
    """The largest entries of the two ranks cancel, and nothing else is ever sent."""
    chosen = ampsim.SyncSGD(ranks=2, compression=0.125)
    assert abs(second_bias(ampsim.SyncSGD(ranks=2)) - 1) < 0.01
    assert abs(second_bias(chosen) - 1) < 0.06
    monkeypatch.setattr("ampsim.data_parallel.rank.ErrorFeedback", Forgetful)
    assert second_bias(chosen) == 0
