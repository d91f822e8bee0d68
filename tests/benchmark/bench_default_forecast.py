"""Whether the default forecast may be acted on, and what it costs.

    python tests/benchmark/bench_default_forecast.py price
    python tests/benchmark/bench_default_forecast.py unseen [--seeds 20] [--jobs 2]
    python tests/benchmark/bench_default_forecast.py drawn [--count 20] [--first 0] [--times 20]

`price` measures what a run, a message and a FLOP take of a processor, by least squares over runs of
several sizes: the constants of `ampsim.forecasting.budget`. `unseen` asks the default question,
and runs its rows, tuned as they were, with seeds that neither trials nor the answer had. `drawn`
asks of configurations drawn at random, within a budget of so many runs of all rows and then within
ten times as much with other seeds, and counts firsts that are reversed and ties that are none. One
takes about a minute of a processor; 20 runs of all rows are little more than the least that ranks,
so that settings are chosen by few trials.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import ampsim
from ampsim.cli.forecast import BUDGET_S, MODEL, QUESTION, QUESTION_INSTANCES
from ampsim.forecasting import budget
from ampsim.forecasting.budget import Allowance, Spending, Spent, flop_per_item
from ampsim.forecasting.making import RunMaker, entries_of
from ampsim.model_parallel import placement_of
from ampsim.runs.jobs import opened
from ampsim.runs.ranking import SAME, rank
from ampsim.runs.rows import times_of
from ampsim.runs.task import Row, RunPlan, Task
from ampsim.runs.witness import leading
from ampsim.study.schedule_names import schedules_of
from ampsim.study.simulation import RunOptions

UNSEEN = 5_000_000
"""The first of the unseen seeds, far from those of answers and trials."""


def rows_of(
    model: ampsim.Model, cluster: Any, names: str, instances: int, target: float
) -> list[Row]:
    options = RunOptions(
        epochs=40, instances=instances, target=target, placement=placement_of("paper")
    )
    return entries_of(RunPlan(model, cluster, options), schedules_of(names), None)


def default_rows() -> list[Row]:
    model = ampsim.load_model(MODEL, **QUESTION)
    assert model.target is not None
    cluster = ampsim.load_cluster("tflops-1", workers=16)
    return rows_of(model, cluster, "sequential,pipeline,amp", QUESTION_INSTANCES, model.target)


def spend(rows: list[Row], budget_s: float, seed: int, jobs: int) -> Spent:
    with opened(jobs) as makes:
        return Spending(rows, Allowance(budget_s), seed, RunMaker(makes, None, None)).spend()


def answer_of(spent: Spent, rows: list[Row]) -> tuple[str, list[str], dict[str, float]]:
    """What is said, of which rows, the best first, and the median times."""
    goal = rows[0].plan.goal
    made = {of[0].label: times_of(goal, of) for of in spent.made.rows}
    found = rank([*made.values()], spent.sureness)
    times = {name: median(of.values()) for name, of in made.items()}
    if found is None:
        return "nothing", [], times
    tied = [name for name, standing in zip(made, found.standings, strict=True) if standing == "tie"]
    best = [*made][found.best]
    return found.answer, [best, *(name for name in tied if name != best)], times


def price() -> None:
    lines: list[list[float]] = []
    took: list[float] = []
    for options in ({"hidden": 16}, {"hidden": 64}, {"hidden": 128}, {"hidden": 256}):
        model = ampsim.load_model(MODEL, digits=2, batch=50, **options)
        flop = flop_per_item(model) or 0.0
        cluster = ampsim.load_cluster("tflops-1", workers=16)
        for instances in (200, 2_000, 5_000):
            (row,) = rows_of(model, cluster, "amp", instances, 1.0)
            plan = row.plan.having(epochs=3, target=None)
            task = Task(plan, row.schedule, 0, row.label, 1, 1)
            task.learning_in(Path(tempfile.mkdtemp())).run(None)
            start_s = time.process_time()
            result, _ = task.learning_in(Path(tempfile.mkdtemp())).run(None)
            took.append(time.process_time() - start_s)
            items = 3 * result.epochs["instances"].sum() + result.epochs["valid_instances"].sum()
            lines.append([1.0, float(result.messages), float(items) * flop])
    # relative errors count, so that short runs are priced as well as long ones
    weighted = np.array(lines) / np.array(took)[:, None]
    found, *_ = np.linalg.lstsq(weighted, np.ones(len(took)), rcond=None)
    for name, value in zip(("RUN_S", "MESSAGE_S", "FLOP_S"), found, strict=True):
        print(f"{name}: {value:.3g}, in the code {getattr(budget, name):.3g}")


def unseen(seeds: int, jobs: int) -> None:
    rows = default_rows()
    start_s = time.time(), time.process_time()
    spent = spend(rows, BUDGET_S, 0, jobs)
    print(*spent.said, sep="\n")
    print(f"took {time.time() - start_s[0]:.0f} s here, load {os.getloadavg()[0]:.1f}")
    answer, (best, *_tied), times = answer_of(spent, rows)
    print(answer, best, {name: f"{time_s:.3g}" for name, time_s in times.items()})
    tasks = [one.task(UNSEEN + seed) for one in spent.tuned.entries for seed in range(seeds)]
    with opened(jobs) as makes:
        made = RunMaker(makes, None, None).make(tasks)
    goal = rows[0].plan.goal
    later = {of[0].label: times_of(goal, of) for of in made.rows}
    for name, of in later.items():
        wins = sum(later[best][seed] < time_s for seed, time_s in of.items())
        ratio = median(of.values()) / median(later[best].values())
        print(
            f"{name}: {ratio:.2f} times the time of {best}, which is sooner with {wins} of {seeds}"
        )


def drawn_rows(number: int) -> tuple[str, list[Row]]:
    """A configuration: model, device, links and schedules, small enough for a short budget."""
    chance = np.random.default_rng(number)
    kind = str(chance.choice(["mlp", "rnn", "tree_lstm"], p=[0.5, 0.4, 0.1]))
    names, instances = ["sequential", "pipeline", "amp", "gpipe"], 50
    if kind == "rnn":
        options: dict[str, Any] = {
            "hidden": int(chance.choice([16, 32])), "digits": int(chance.integers(1, 3)),
            "batch": int(chance.choice([25, 50])), "replicas": int(chance.choice([1, 2])),
        }  # fmt: skip
        instances = 1_000 * options["digits"]
    elif kind == "mlp":
        options = {
            "data": "synthetic", "valid_images": 100, "hidden": int(chance.choice([32, 64])),
            "batch": int(chance.choice([5, 10])),
        }  # fmt: skip
        names, instances = [*names, "1f1b", "pipedream", "pipedream-2bw", "zb-h1"], 200
    else:
        options = {"data": "synthetic", "hidden": 16, "embedding": 16}
        options |= {"min_update_interval": 10, "embedding_update_interval": 10}
    chosen = sorted(chance.choice(names, size=int(chance.integers(2, 4)), replace=False))
    device = str(chance.choice(["tflops-1", "cpu-core", "ampnet-core"]))
    workers, latency_s = int(chance.choice([4, 8, 16])), float(chance.choice([0, 1e-6, 1e-5, 1e-4]))
    cluster = ampsim.load_cluster(device, workers=workers, latency_s=latency_s)
    model = leading(
        ampsim.load_model(kind, **options), instances, 40 if kind == "tree_lstm" else 500
    )
    said = f"{model!r} on {workers} {device}, {latency_s:g} s, {', '.join(chosen)}"
    target = 0.6 if kind == "tree_lstm" else 0.7
    return said, rows_of(model, cluster, ",".join(chosen), instances, target)


def once_s(rows: list[Row]) -> float:
    """The work of a run of each row."""
    flop = flop_per_item(rows[0].plan.model) or 0.0
    with opened(1) as makes:
        made = RunMaker(makes, None, None).make([one.task(0) for one in rows])
    return sum(budget.price_s(of[0], flop) for of in made.rows)


def drawn(count: int, first: int, times: float, jobs: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(first, first + count):
        said, rows = drawn_rows(number)
        start_s = time.process_time()
        budget_s = times * once_s(rows) / budget.PROCESSORS / budget.SHARE
        small, large = spend(rows, budget_s, 0, jobs), spend(rows, 10 * budget_s, 1000, jobs)
        answer, best, found = answer_of(small, rows)
        later, best_later, found_later = answer_of(large, rows)
        counts[answer] += 1
        if answer == later == "first" and best != best_later:
            counts["reversed"] += 1
        tied = [found_later[name] for name in best]
        if answer == "tie" and max(tied) > (1 + SAME) * min(tied):
            counts["no tie"] += 1
        print(f"{number}: {said}, budget {budget_s:.3g} s")
        for spent, words, of, medians in (
            (small, answer, best, found), (large, later, best_later, found_later)
        ):  # fmt: skip
            rules = {one.label: one.plan.rate for one in spent.tuned.entries}
            print("   ", words, *of, "|", *(
                f"{name} {time_s:.3g} ({rules[name].factor:.3g}, {rules[name].rule});"
                for name, time_s in medians.items()
            ))  # fmt: skip
            print("       ", "; ".join(spent.said))
        print(f"    {time.process_time() - start_s:.0f} s of this process", flush=True)
    print(dict(counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("price", "unseen", "drawn"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--times", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    if asked.what == "price":
        price()
    elif asked.what == "unseen":
        unseen(asked.seeds, asked.jobs)
    else:
        drawn(asked.count, asked.first, asked.times, asked.jobs)


if __name__ == "__main__":
    main()
