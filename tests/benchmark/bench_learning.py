"""Learning apart: what noting the order costs a sleeping run, and what replay takes beside live.

    python tests/benchmark/bench_learning.py [--rounds N] [--only MODEL ...]
                                             [--grid [--seeds N] | --torch]

Each round takes all variants in turn, processor time, one thread. `sleep` is a pass in mode "sleep"
whose order is taken down, `without` the same of an engine that nobody asks for its order, `live` a
pass in mode "numeric" without a count of memory, `replay` the same pass learned from its order.
Medians of the rounds; the spread is that of the middle half. With --grid: the 60 points of a map of
hardware, some of them live (the time of all is theirs in proportion), then all apart with one
folder, and how many learnings they share.

With --torch: the models as they are shipped on their real data, beside PyTorch eager, whose
optimizers step after as many instances as bring about a node's update interval. `live` is a pass
with its clock, `by message` and `batched` are replays, planning counted, `clock` the sleeping pass.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import bench_models  # first: it holds the libraries to one thread
import bench_tagger
import numpy as np
import torch

import ampsim
from ampsim.hardware import Cluster
from ampsim.learning import WHY_ALONE, Replay, pumped, why_by_message
from ampsim.model_parallel import Engine, RunSettings, needs_chain, placement_of
from ampsim.runs.task import RunPlan, Task
from ampsim.study.model import job_of
from ampsim.study.process_settings import fixed_settings
from ampsim.study.simulation import RunOptions
from ampsim.trace import Recorder

CASES: dict[str, tuple[dict[str, Any], int]] = {
    "mlp": ({"data": "synthetic"}, 4000),
    "rnn": ({"replicas": 4}, 10_000),
    "tree_lstm": ({"data": "synthetic", "hidden": 100}, 100),
    "ggnn": ({"data": "synthetic"}, 200),
    "bilstm_tagger": ({"data": "synthetic"}, 40),
}
WORKERS, IN_FLIGHT = 8, 16
PLACED = placement_of("paper")


def passed(
    name: str, kind: str, case: tuple[dict[str, Any], int] | None = None
) -> tuple[float, Any]:
    """Seconds of one pass of training, and its report."""
    options, instances = CASES[name] if case is None else case
    model = ampsim.load_model(name, **options)
    graph = model.graph(0)
    cluster = ampsim.load_cluster("tflops-1", workers=WORKERS, latency_s=1e-7)
    placement = [-1, *(i % WORKERS for i in range(len(graph.nodes) - 1))]
    recorder = Recorder([node.name for node in graph.nodes], WORKERS, 0)
    settings = RunSettings(is_abstract=kind != "live", keeps_order=kind in ("kept", "batched"))
    engine = Engine(
        job_of(model, graph), cluster, placement, ampsim.Amp(IN_FLIGHT), recorder=recorder,
        settings=settings,
    )  # fmt: skip
    if kind == "without":
        for placed in engine.placed_nodes:
            private: Any = placed
            private._read = private._brought = deque[Any](maxlen=0).append
    batches = list(model.data(0, instances).batches("train", epoch=0, seed=0))
    with fixed_settings():
        start = time.process_time()
        report = engine.run_pass(batches, is_training=True)
        if kind not in ("kept", "batched"):
            return time.process_time() - start, report
        job = job_of(model, model.graph(0))
        is_batched = kind == "batched" and not by_message(job, batches)
        replay = Replay(job, averages=False, batches=is_batched)
        start = time.process_time()
        assert report.order is not None
        replay.train(batches, report.order)
        return time.process_time() - start, report


def by_message(job: Any, batches: list[Any]) -> str:
    """Why a model is learned message by message."""
    alone = [WHY_ALONE.get(type(one), repr)(one) for one in job.graph.nodes[1:]]
    return "".join(alone) or why_by_message(job.graph, pumped(job.graph, job.pump, 0, batches[0]))


REAL: dict[str, tuple[dict[str, Any], int]] = {
    "tree_lstm": ({}, 200),
    "ggnn": ({}, 500),
    "bilstm_tagger": ({}, 100),
    "rnn": ({"replicas": 4}, 10_000),
    "mlp": ({}, 5_000),
}
SENTENCES_A_STEP = 2


def torch_seconds(name: str) -> float:
    """Seconds of one pass in PyTorch; NaN where it has no counterpart with that interval."""
    options, instances = REAL[name]
    model = ampsim.load_model(name, **options)
    batches = list(model.data(0, instances).batches("train", epoch=0, seed=0))
    if name == "bilstm_tagger":
        drawn = [bench_tagger.as_tensors(one) for one in batches]
        kind, every = bench_tagger.Cells, SENTENCES_A_STEP
        return instances / bench_tagger.torch_epoch(model.config, kind, drawn, every)
    contest = bench_models.CONTESTS.get(name)
    if contest is None:
        return float("nan")
    rate = bench_models.torch_per_s(contest, model, batches, contest.every)
    return contest.instances / rate


def beside_torch(names: list[str], rounds: int) -> None:
    """Print, for each model, how many times as fast as PyTorch each way of learning is."""
    torch.set_num_threads(1)
    kinds = {"live": "live", "clock": "sleep", "by message": "kept", "batched": "batched"}
    for name in names:
        found: dict[str, list[float]] = {kind: [] for kind in ("PyTorch", *kinds)}
        for _round in range(rounds):
            found["PyTorch"].append(torch_seconds(name))
            for label, kind in kinds.items():
                found[label].append(passed(name, kind, REAL[name])[0])
        count = REAL[name][1]
        told = [f"{label} {median(one) / count * 1e3:.3g} ms" for label, one in found.items()]
        with_clock = [a + b for a, b in zip(found["batched"], found["clock"], strict=True)]
        for label, one in (*list(found.items())[1:], ("batched and clock", with_clock)):
            ratios = [a / b for a, b in zip(found["PyTorch"], one, strict=True)]
            if math.isnan(ratios[0]):
                continue
            told.append(
                f"PyTorch/{label} {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            )
        ratios = [a / b for a, b in zip(found["live"], found["batched"], strict=True)]
        print(name, *told, f"live/batched {median(ratios):.2f}", sep=", ", flush=True)


GRID = {
    "rate": (1e11, 3e11, 1e12, 3e12, 1e13),
    "latency_s": (1e-7, 1e-6, 1e-5, 1e-4),
    "workers": (4, 8, 16),
}
SCHEDULES = {
    "pipeline": ampsim.Pipeline(8), "gpipe": ampsim.GPipe(8), "1f1b": ampsim.OneFOneB(4),
    "amp": ampsim.Amp(8),
}  # fmt: skip
EPOCHS = 3


def grid(name: str, seeds: int) -> None:
    """Print what the runs of a grid take live and apart, and on how many learnings they rest."""
    options, instances = CASES[name]
    model = ampsim.load_model(name, **options)
    link = ampsim.load_cluster("tflops-1", workers=WORKERS)
    for label, schedule in SCHEDULES.items():
        if needs_chain(schedule) and name != "mlp":
            continue
        tasks: list[Task] = []
        for rate, latency_s, workers in product(*GRID.values()):
            device = link.devices[0].model_copy(update={"flop_per_s": rate})
            cluster = Cluster(
                name="point", devices=(device,) * workers, link=ampsim.Link(latency_s=latency_s)
            )
            options_of = RunOptions(epochs=EPOCHS, instances=instances, placement=PLACED)
            plan = RunPlan(model, cluster, options_of)
            tasks += [Task(plan, schedule, seed, label, 1, 1) for seed in range(seeds)]
        start = time.process_time()
        live = {place: tasks[place].run(None)[0] for place in range(0, len(tasks), len(tasks) // 3)}
        between = time.process_time()
        with TemporaryDirectory() as folder:
            apart = [task.learning_in(Path(folder)).run(None)[0] for task in tasks]
        end = time.process_time()
        for place, one in live.items():
            found = apart[place]
            assert one.learning_digest == found.learning_digest
            for key, part in one.model.parameters().items():
                assert np.array_equal(part, found.model.parameters()[key])
            assert np.allclose(one.validations, found.validations, rtol=1e-12, equal_nan=True)
        learned = len({one.learning_digest for one in apart})
        live_s = (between - start) * len(tasks) / len(live)
        print(
            f"{name:14} {label:9} {len(tasks)} runs, {learned} learnings: live {live_s:.1f} s "
            f"(by {len(live)} of them), apart {end - between:.1f} s, "
            f"{live_s / (end - between):.1f} times as fast",
            flush=True,
        )


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=[*CASES])
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    if asked.torch:
        beside_torch(asked.only, asked.rounds)
        return
    if asked.grid:
        for name in asked.only:
            grid(name, asked.seeds)
        return
    print("model  sleep/without  live/replay  live/(sleep+replay)  ms: live sleep replay")
    for name in asked.only:
        found: dict[str, list[float]] = {kind: [] for kind in ("without", "sleep", "live", "kept")}
        for _round in range(asked.rounds):
            for kind, seconds in found.items():
                seconds.append(passed(name, kind)[0])
        without, sleep, live, replay = found.values()
        ratios = {
            "noting": [a / b for a, b in zip(sleep, without, strict=True)],
            "replay": [a / b for a, b in zip(live, replay, strict=True)],
            "apart": [a / (b + c) for a, b, c in zip(live, sleep, replay, strict=True)],
        }
        told = []
        for values in ratios.values():
            low, _middle, high = quantiles(values, n=4)
            told.append(f"{median(values):5.2f} [{low:.2f}, {high:.2f}]")
        times = " ".join(f"{median(one) * 1e3:.0f}" for one in (live, sleep, replay))
        print(f"{name:14} {'   '.join(told)}   {times}", flush=True)


if __name__ == "__main__":
    main()
