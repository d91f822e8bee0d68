"""How often the advice on placements is right: random clusters, trials against long runs.

    python tests/benchmark/bench_placement_advice.py [--clusters 50] [--first 0] [--jobs 1]

Each cluster has 2 to 16 workers, of one or two kinds, and links that cost, of one or two kinds. The
advice is right if what it leaves a user with, the placement that it names or the default, is within
2 % of the fastest of all that it tries, over a run of at least 1,500 instances with another seed,
and if it names nothing that is slower than the default there; where it is silent, within what is
worth a line. The share is printed, and each cluster where it was wrong. It takes minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from functools import cache
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import ampsim
from ampsim.hardware import Cluster, Device, Link
from ampsim.hardware.topology import Route
from ampsim.study import Model
from ampsim.study.placement_advice import DEFAULT, KNOWING, WORTH, advice_on
from ampsim.study.placement_trials import Trials

WITHIN = 1.02
INSTANCES = 1500
SEED = 1  # of the long run; trials have their own
MODELS: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("mlp", {"data": "synthetic", "hidden": 64, "batch": 1}, INSTANCES, 1),
    ("mlp", {"data": "synthetic", "hidden": 512, "batch": 1}, INSTANCES, 1),
    ("rnn", {"hidden": 32, "replicas": 2, "batch": 4}, 4 * INSTANCES, 1),
    ("rnn", {"hidden": 128, "replicas": 4, "batch": 4}, 4 * INSTANCES, 1),
    ("tree_lstm", {"data": "synthetic", "words": 500}, INSTANCES // 2, 2),
    ("ggnn", {"data": "synthetic"}, INSTANCES // 2, 2),
)
"""Name, options, training items and epochs of the long run."""

CYCLE = (0, 2, 1, 0, 3, 1, 4, 2, 0, 1, 3, 5)
"""Places of models by number of the cluster: those are rarer that take longer."""


@cache
def model_of(kind: int) -> Model:
    name, options, _instances, _epochs = MODELS[kind]
    return ampsim.load_model(name, **options)


def cluster_of(random: np.random.Generator) -> Cluster:
    """Devices and links by chance; each kind of difference is there in half of the clusters."""
    workers = int(random.integers(2, 17))
    base = Device(name="base", flop_per_s=float(10 ** random.uniform(9.5, 12.5)))
    overhead_s = float(10 ** random.uniform(-7, -5.5)) if random.random() < 0.3 else 0.0
    base = base.model_copy(update={"step_overhead_s": overhead_s})
    slow = base.model_copy(
        update={"name": "slow", "flop_per_s": base.flop_per_s / float(random.uniform(2, 10))}
    )
    has_slow = random.random() < 0.5
    devices = tuple(slow if has_slow and random.random() < 0.5 else base for _ in range(workers))
    link = Link(
        latency_s=float(10 ** random.uniform(-7, -4.5)),
        bandwidth_bytes_per_s=float(10 ** random.uniform(8, 11)),
    )
    far = Link(latency_s=10 * link.latency_s, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s)
    half, is_split = workers // 2, random.random() < 0.5
    routes = tuple(
        Route(source=a, target=b, link=far)
        for a in range(workers)
        for b in range(workers)
        if is_split and (a < half) != (b < half)
    )
    return Cluster(name="random", devices=devices, link=link, links=routes)


def case(number: int) -> tuple[bool, float, str]:
    """Whether the advice is right on one cluster, the seconds of its trials, and what was found."""
    random = np.random.default_rng(number)
    kind = CYCLE[number % len(CYCLE)]
    model, (name, _options, instances, epochs) = model_of(kind), MODELS[kind]
    cluster = cluster_of(random)
    schedule = ampsim.Amp(int(random.choice([2, 4, 8, 16])))
    began_s = time.process_time()
    advice = advice_on(Trials(model, cluster, instances), [schedule], seed=SEED)
    took_s = time.process_time() - began_s
    words: dict[str, Any] = {"mode": "sleep", "instances": instances, "seed": SEED}
    rates = {
        each: ampsim.simulate(
            model, cluster, schedule, epochs=epochs, placement=each, **words
        ).train_per_s
        for each in (DEFAULT, *KNOWING)
    }
    named = DEFAULT if advice is None else advice.placement
    lost = max(rates.values()) / rates[named]
    is_right = lost <= (WORTH * WITHIN if advice is None else WITHIN)
    is_right = is_right and rates[named] >= rates[DEFAULT]
    shown = ", ".join(f"{each} {rate / rates[DEFAULT]:.3f}" for each, rate in rates.items())
    trial = "silent" if advice is None else f"{advice.slowest:.3f}"
    about = f"{name}, {cluster.workers} workers, {schedule.max_active_keys} in flight"
    return is_right, took_s, f"{number}: {about}: named {named} ({trial}); {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.clusters)
    right, trials_s = 0, 0.0
    with multiprocessing.Pool(given.jobs) as pool:
        for count, (is_right, took_s, text) in enumerate(pool.imap_unordered(case, numbers), 1):
            right, trials_s = right + is_right, trials_s + took_s
            print(f"{'right' if is_right else 'WRONG'} {right}/{count}  {text}", flush=True)
    print(
        f"right on {right} of {given.clusters} clusters ({right / given.clusters:.0%}); "
        f"trials took {trials_s / given.clusters:.1f} s each"
    )


if __name__ == "__main__":
    main()
