"""What a chain schedule advises where stages and workers do not match: to follow it helps."""

from __future__ import annotations

import re

import pytest

from ampsim.errors import OptionError
from ampsim.model_parallel import (
    PLACEMENTS,
    SCHEDULES,
    Engine,
    RunSettings,
    needs_chain,
    placement_of,
)
from ampsim.study.model import job_of
from ampsim.study.placement_trials import Trials
from ampsim.trace import Recorder

STAGES = 4
CHAIN_KINDS = [kind for kind in SCHEDULES.values() if needs_chain(kind())]
PLACED = [*PLACEMENTS, "1-hop", "all-on-one.toml"]


@pytest.fixture
def fault(chain, make_cluster):
    """`fault(kind, placement, workers)`: what is wrong with it; None where it fits."""

    def attempt(kind, placement, workers):
        model, cluster = chain(((1, 1, 1),) * STAGES).model(), make_cluster(workers)
        graph = model.graph(0)
        placed = Trials(model, cluster, None, graph=graph).place(placement_of(placement), kind(), 0)
        recorder = Recorder([node.name for node in graph.nodes], workers)
        settings = RunSettings(is_abstract=True)
        try:
            job = job_of(model, graph)
            Engine(job, cluster, placed, kind(), recorder=recorder, settings=settings)
        except OptionError as error:
            return str(error)
        return None

    return attempt


@pytest.mark.parametrize("placement", PLACED)
@pytest.mark.parametrize("kind", CHAIN_KINDS, ids=lambda kind: kind.name)
def test_what_a_chain_schedule_advises_makes_it_fit(fault, kind, placement, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"stage-{stage + 1}" for stage in range(STAGES)] + ["loss"]
    (tmp_path / "all-on-one.toml").write_text("".join(f"{name} = 0\n" for name in names))
    for workers in (1, 2, 3, 4, 5, 12):
        said = fault(kind, placement, workers)
        if said is None:
            continue
        advice = said.rpartition("; ")[2]
        more = re.search(r"take workers=(\d+) or (more|a divisor)", advice)
        assert (more is not None) == (workers < STAGES and bool(STAGES % workers or "more" in said))
        assert "the placement 'paper'" in advice
        counts = {workers} if more is None else {int(more[1])}
        if more and more[2] == "more":
            counts |= {int(more[1]) + 1, 3 * int(more[1])}
        if more and more[2] == "a divisor":
            counts |= {n for n in range(1, STAGES) if STAGES % n == 0}
        for count in counts:
            assert fault(kind, "paper", count) is None, (workers, said)


def test_twelve_workers_for_four_stages_are_not_told_to_be_four_or_more(fault, tmp_path):
    path = tmp_path / "two.toml"
    path.write_text("stage-1 = 0\nstage-2 = 0\nstage-3 = 1\nstage-4 = 2\nloss = 3\n")
    for kind in CHAIN_KINDS:
        said = fault(kind, str(path), 12)
        assert "4 stages on 12 workers, one of them with stages 1, 2; " in said
        assert "take workers" not in said and "take the placement 'paper'" in said
