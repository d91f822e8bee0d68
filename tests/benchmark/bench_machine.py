"""How well `ampsim calibrate machine` foretells this machine: products, epochs, two processes.

    python tests/benchmark/bench_machine.py [--rounds 9] [--nodes MODEL]

Products: every other shape decides the fit, and the rest are foretold. Epochs: the shipped models
as plain loops of NumPy (`plain_loops`), without simulator, against one simulated device that is
calibrated on the same half, schedule `sequential`, composed cells. What a message costs the
simulated device beside its operations is what the calibration's loop takes to pass one on; a plain
loop has no messages, but it keeps arrays and finds them again. Two processes: `mlp` with two
layers, each a stage, joined by a pipe, against two simulated devices and a link that is fitted to
echoes over the same pipe.

Calibration and epochs take turns, in short rounds. Epochs are processor time, added up from single
instances. Instances and the calibration's points are the lower quartile of their rounds, for what
other processes do to the caches only adds to them. The middle half of whole rounds is said beside.
The pipeline keeps to 1F1B without drains (`PipeDream`). Its wall time needs two free processors;
beside it, "undisturbed" is put together from the processor time that each process took
between messages, in the order of these, as if each had a processor of its own. With --nodes, where
the foretold time of a model is spent. With $AMPSIM_DATA, the data is real.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from plain_loops import LOOPS
from plain_loops.two_processes import AHEAD, MESSAGE_BYTES, TwoProcesses

import ampsim
from ampsim.calibration.machine import (
    MATRICES,
    ROWS,
    MachinePoint,
    fit_machine,
    measure,
    predicted_s,
)
from ampsim.hardware import Cluster, Device, Link
from ampsim.hardware.topology import Route
from ampsim.runs.witness import leading

CASES = {
    "mlp": ("mlp", {"data": "synthetic"}, 10),
    "mlp 3x256": ("mlp", {"data": "synthetic", "layers": 3, "hidden": 256, "batch": 32}, 40),
    "mlp 2x64": ("mlp", {"data": "synthetic", "layers": 2, "hidden": 64, "batch": 8}, 200),
    "rnn": ("rnn", {"replicas": 1}, 40),
    "tree_lstm": ("tree_lstm", {"data": "synthetic", "cell": "composed"}, 8),
    "ggnn": ("ggnn", {"data": "synthetic", "cell": "composed"}, 40),
    "bilstm_tagger": ("bilstm_tagger", {"data": "synthetic", "cell": "composed"}, 8),
}
"""Model, options and instances of each; with $AMPSIM_DATA the real data, else what is generated."""

EPOCHS = 3  # in a round
BATCHES = 20
ECHOES = (MESSAGE_BYTES // 8, MESSAGE_BYTES // 2, MESSAGE_BYTES)
STAGES = {"linear-1": 0, "relu-1": 0, "linear-2": 1, "loss": 1}


def model_of(name: str):
    """The model on its leading instances."""
    model, config, instances = CASES[name]
    if os.environ.get("AMPSIM_DATA"):
        config = {key: value for key, value in config.items() if key != "data"}
    return leading(ampsim.load_model(model, **config), instances, 1)


def run(device: Device, model, schedule, placement=None, link: Link | None = None):
    """A simulated training pass, in times alone."""
    workers = 1 if link is None else 2
    ways = [Route(source=a, target=1 - a, link=link) for a in (0, 1)] if link else []
    cluster = Cluster(name="this machine", devices=(device,) * workers, links=tuple(ways))
    options = {} if placement is None else {"placement": placement}
    return ampsim.simulate(model, cluster, schedule, mode="sleep", counts_memory=False, **options)


def foretold_s(device: Device, name: str) -> float:
    return float(run(device, model_of(name), ampsim.Sequential()).epochs.train_s[0])


def foretold_pipeline_s(device: Device, link: Link) -> float:
    model = leading(ampsim.load_model("mlp", data="synthetic", layers=2), BATCHES, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "two-stages.toml")
        path.write_text("".join(f'"{node}" = {worker}\n' for node, worker in STAGES.items()))
        result = run(device, model, ampsim.PipeDream(max_active_keys=AHEAD), str(path), link)
    return float(result.epochs.train_s[0])


def link_of(echoes: Mapping[int, float]) -> Link:
    """Latency and bandwidth by least squares of relative errors."""
    sizes, seconds = np.array(list(echoes)), np.array(list(echoes.values()))
    matrix = np.stack([np.ones(len(sizes)), sizes], axis=1) / seconds[:, None]
    latency_s, per_byte_s = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)[0]
    return Link(latency_s=max(float(latency_s), 0.0), bandwidth_bytes_per_s=1 / float(per_byte_s))


def is_seen(one: MachinePoint) -> bool:
    """Every other shape of the products, a chessboard of rows and matrices; all else to the fit."""
    if one.kind != "product":
        return True
    k, *matrix = one.shape
    return (ROWS.index(k) + MATRICES.index(tuple(matrix))) % 2 == 0


def show(name: str, told: float, taken: float, rounds: Sequence[float]) -> None:
    low, middle, high = np.quantile(rounds, [0.25, 0.5, 0.75])
    print(
        f"{name:14} foretold {told:.4f} s, taken {taken:.4f} s, ratio {told / taken:.3f}; rounds:"
        f" median {middle:.4f} s, middle half {low / middle - 1:+.1%} to {high / middle - 1:+.1%}",
        flush=True,
    )


def epoch_s(train, instances) -> list[float]:
    """Processor seconds of each instance."""
    marks = [time.process_time()]
    for instance in instances:
        train(instance)
        marks.append(time.process_time())
    return np.diff(marks).tolist()


def show_products(device: Device, unseen: list[MachinePoint]) -> None:
    for way in ("forward", "backward"):
        errors = [
            abs(predicted_s(device, one) / one.seconds - 1) for one in unseen if one.what == way
        ]
        print(
            f"{len(errors)} unseen products {way}: median {statistics.median(errors):.1%}, nine of"
            f" ten within {np.quantile(errors, 0.9):.0%}, most {max(errors):.0%}"
        )


def show_nodes(device: Device, name: str) -> None:
    spans = run(device, model_of(name), ampsim.Sequential()).spans
    spans = spans.assign(seconds=spans.end_s - spans.start_s)
    by_step = spans[spans.seconds > 0].groupby(["node", "direction"]).seconds
    table = by_step.agg(["size", "mean", "sum"]).sort_values("sum", ascending=False)
    print(table.head(25).to_string())


class Measured:
    """What the rounds took.

    Attributes:
        points: of the calibration.
        instances: by model, seconds of each instance in each epoch.
        echoes: least seconds of a message one way, by its bytes.
        piped: seconds of the pipeline, on the wall and undisturbed.
    """

    def __init__(self) -> None:
        self.rounds: list[list[MachinePoint]] = []
        self.instances: dict[str, list[list[float]]] = {name: [] for name in CASES}
        self.echoes: dict[int, float] = dict.fromkeys(ECHOES, float("inf"))
        self.piped: list[tuple[float, float]] = []

    def measure(self, rounds: int) -> None:
        loops: dict[str, Any] = {}
        for name in CASES:
            model = model_of(name)
            instances = list(model.make_data(0, None).batches("train", epoch=0, seed=0))
            loops[name] = LOOPS[CASES[name][0]](model.parameters()), instances
            epoch_s(*loops[name])
        stages = TwoProcesses()
        stages.train_s(AHEAD)
        for _ in range(rounds):
            self.rounds.append(measure(rounds=1))
            for name, loop in loops.items():
                self.instances[name] += [epoch_s(*loop) for _ in range(EPOCHS)]
            for size, least in self.echoes.items():
                self.echoes[size] = min(least, stages.echo_s(size, 10))
            self.piped += [stages.train_s(BATCHES) for _ in range(EPOCHS)]
        stages.end()

    @property
    def points(self) -> list[MachinePoint]:
        return [
            replace(same[0], seconds=float(np.quantile([one.seconds for one in same], 0.25)))
            for same in zip(*self.rounds, strict=True)
        ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--nodes", default=None, metavar="MODEL")
    options = parser.parse_args()
    measured = Measured()
    measured.measure(options.rounds)
    fit = fit_machine([one for one in measured.points if is_seen(one)])
    device = Device(name="half", **fit.numbers)
    for key, value in fit.numbers.items():
        if isinstance(value, float):
            print(f"{key} = {value:.4g}")
    for kind in ("product", "light"):
        sizes = [abs(one) for one in fit.of(kind)]
        print(f"{len(sizes)} {kind} points of the fit: median {statistics.median(sizes):.1%}")
    show_products(device, [one for one in measured.points if not is_seen(one)])
    for name, epochs in measured.instances.items():
        quartiles = np.quantile(epochs, 0.25, axis=0)
        show(name, foretold_s(device, name), float(quartiles.sum()), [sum(one) for one in epochs])
    link = link_of(measured.echoes)
    print(f"link: {link.latency_s:.3g} s, {link.bandwidth_bytes_per_s:.3g} bytes/s")
    wall, undisturbed = (list(times) for times in zip(*measured.piped, strict=True))
    told = foretold_pipeline_s(device, link)
    for name, times in (("two processes", wall), ("undisturbed", undisturbed)):
        show(name, told, float(np.quantile(times, 0.25)), times)
    if options.nodes:
        show_nodes(device, options.nodes)


if __name__ == "__main__":
    main()
