"""Searches of a space that a grid knows whole: how often the whole front is found, and how soon.

    python tests/benchmark/bench_search.py [--seeds N] [--trials N] [--learns]

60 points: six counts of workers, five of instances in flight, pipeline and AMP. Two objectives,
time of an epoch and bytes of the fullest memory; with --learns, time to the target in place of the
former, with and without pruning, and how many runs pruning saves. For each seed, whether the front
that was found is the true one, by TPE and at random, and the hypervolumes.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from typing import Any

import ampsim
from ampsim.exploring.axes import Setup, setup_at
from ampsim.exploring.sampling import SamplerName
from ampsim.exploring.trials import dominates

OVER: dict[str, Any] = {"workers": [1, 2, 3, 4, 6, 8], "max_active_keys": [1, 2, 4, 8, 16]}
INSTANCES = 400


def setup() -> Setup:
    model = ampsim.load_model("rnn", hidden=16, replicas=2, batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=2, latency_s=1e-7)
    return Setup(model, cluster, (ampsim.Pipeline(4), ampsim.Amp(4)))


def true_front(of: Setup, seed: int) -> set[tuple[float, float]]:
    """The front of all points."""
    found: list[tuple[float, float]] = []
    for schedule, values in product(of.schedules, product(*OVER.values())):
        model, cluster, (one,) = setup_at(
            of._replace(schedules=(schedule,)), dict(zip(OVER, values, strict=True))
        )
        ran = ampsim.simulate(
            model, cluster, one, mode="sleep", seed=seed, instances=INSTANCES, counts_memory=True
        )
        found.append((float(ran.epochs["time_s"].iloc[0]), float(ran.peak_bytes.max())))
    return {one for one in found if not any(dominates(other, one) for other in found)}


def timed(of: Setup, seeds: int, trials: int) -> None:
    """Search by what timing alone tells."""
    right: dict[SamplerName, int] = {"tpe": 0, "random": 0}
    for seed in range(seeds):
        truth = true_front(of, seed)
        for sampler in right:
            started_s = time.process_time()
            found = ampsim.search(
                *of, over=OVER, minimise="epoch_s,peak_bytes", trials=trials, sampler=sampler,
                instances=INSTANCES, seed=seed,
            )  # fmt: skip
            front = {tuple(one) for one in found.front[["epoch_s", "peak_bytes"]].to_numpy()}
            right[sampler] += front == truth
            print(
                f"seed {seed}, {sampler}: {len(front & truth)} of {len(truth)} points, volume "
                f"{found.hypervolume:.4g}, {time.process_time() - started_s:.0f} s",
                flush=True,
            )
        print(f"the whole front: {right} of {seed + 1}", flush=True)


def learned(of: Setup, trials: int) -> None:
    """Search with runs that learn, with and without pruning."""
    fronts: list[Any] = []
    for prunes in (True, False):
        started_s = time.process_time()
        found = ampsim.search(
            *of, over=OVER, minimise="time_s,peak_bytes", trials=trials, sampler="random",
            prunes=prunes, instances=2000, target=0.15, max_epochs=20, repeats=3,
        )  # fmt: skip
        fronts.append(found.front[["time_to_target_s", "peak_bytes"]].to_numpy().tolist())
        outcomes = dict(found.table["outcome"].value_counts())
        print(f"prunes {prunes}: {time.process_time() - started_s:.1f} s, {outcomes}")
    print(f"pruned front = unpruned: {fronts[0] == fronts[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--learns", action="store_true")
    given = parser.parse_args()
    if given.learns:
        learned(setup(), given.trials)
    else:
        timed(setup(), given.seeds, given.trials)


if __name__ == "__main__":
    main()
