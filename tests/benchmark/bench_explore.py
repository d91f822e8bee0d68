"""Maps: what they cost, and whether cells that were predicted turn out as they were called.

    python tests/benchmark/bench_explore.py [--full | --shipped] [--maps N] [--cells N] [--jobs N]

Each map has another seed. Afterwards cells are drawn at random and trained in full, all methods
with all seeds; "stated" is the share of winners that the map promised to be right, of the points at
which something was predicted. With --full: rnn, 8 x 8 x 4 points, pipeline and AMP, eight seeds, a
budget of half an hour; with --shipped the same of the question that `ampsim forecast` asks, until
the map is sure. Else a small space of a small rnn.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from itertools import product
from typing import Any, NamedTuple

import ampsim
from ampsim.exploring.axes import Setup, setup_at

METHODS = [ampsim.Pipeline(8), ampsim.Amp(4)]
WIDE = {
    "latency_s": "1e-7..1e-4:log", "device.flop_per_s": "1e11..1e14:log", "workers": [2, 4, 8, 16],
}  # fmt: skip
NARROW = {
    "latency_s": "1e-7..1e-4:log", "device.flop_per_s": "1e10..1e13:log", "workers": [2, 4],
}  # fmt: skip


class Question(NamedTuple):
    """Options of rnn and of the map, and what varies."""

    model: dict[str, Any]
    how: dict[str, Any]
    over: dict[str, Any]


QUESTIONS = {
    "small": Question(
        {"hidden": 16, "replicas": 2},
        {"points": 4, "repeats": 5, "instances": 4000, "target": 0.2, "max_epochs": 20},
        NARROW,
    ),
    "shipped": Question(
        {"digits": 2, "hidden": 64, "batch": 50},
        {"points": 8, "repeats": 8, "instances": 5000},
        WIDE,
    ),
    "full": Question({}, {"points": 8, "repeats": 8, "budget_s": 1800.0}, WIDE),
}


def explored(asked: Question, seed: int, jobs: int) -> tuple[Setup, ampsim.Exploration]:
    """One map, and what it is of."""
    model = ampsim.load_model("rnn", **asked.model)
    setup = Setup(model, ampsim.load_cluster("tflops-1"), tuple(METHODS))
    started_s, worked_s = time.monotonic(), processor_s()
    found = ampsim.explore(*setup, over=asked.over, seed=seed, jobs=jobs, **asked.how)
    print(f"map {seed}: {time.monotonic() - started_s:.0f} s, {processor_s() - worked_s:.0f} s of")
    print(f"  processors; {found.interrupted or 'sure'}")
    print(f"  {found.learnings} trained, {dict(found.table['basis'].value_counts())}")
    print(f"  left out: {found.left_out}; stated wrong: {found.wrong:.3f}")
    return setup, found


def processor_s() -> float:
    """Of this process and of those that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def trained(setup: Setup, point: dict[str, Any], seed: int, how: dict[str, Any], jobs: int) -> str:
    """The schedule that is first at a point, trained in full."""
    at = setup_at(setup, point)
    kept = {key: how[key] for key in ("repeats", "instances", "target", "max_epochs") if key in how}
    made = ampsim.forecast(*at, seed=seed, jobs=jobs, placement="paper", **kept)
    times = made.table.set_index("schedule")["time_to_target_s"].dropna()
    return str(times.idxmin()) if len(times) else "nobody"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for question in ("full", "shipped"):
        parser.add_argument(f"--{question}", dest="asked", action="store_const", const=question)
    parser.add_argument("--maps", type=int, default=1)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    asked = QUESTIONS[given.asked or "small"]
    drawn = right = predicted = predicted_right = 0
    stated = 0.0
    for seed in range(0, 1000 * given.maps, 1000):
        setup, found = explored(asked, seed, given.jobs)
        names, values = list(found.over), [*found.over.values()]
        points = [dict(zip(names, one, strict=True)) for one in product(*values)]
        of_points = [rows for _point, rows in found.table.groupby(names, sort=False)]
        for place in random.Random(seed).sample(range(len(points)), given.cells):
            rows = of_points[place]
            first = rows.loc[rows["is_first"].fillna(False).astype(bool), "schedule"]
            is_right = trained(setup, points[place], seed, asked.how, given.jobs) == (
                first.iloc[0] if len(first) else "nobody"
            )
            is_predicted = bool((rows["basis"] == "predicted").any())
            drawn, right = drawn + 1, right + is_right
            predicted += is_predicted
            predicted_right += is_predicted and is_right
            stated += (1 - found.wrong) if is_predicted else 0.0
    print(f"drawn {drawn}: right {right}")
    if predicted:
        share = stated / predicted
        print(f"predicted {predicted}: right {predicted_right / predicted:.3f}, stated {share:.3f}")


if __name__ == "__main__":
    main()
