"""How well `ampsim calibrate machine` foretells this machine: products, epochs, two processes.

    python tests/benchmark/bench_machine.py [--rounds 9]

Products: every other shape decides the fit, and the rest are foretold. Epochs of `mlp` and `rnn`: a
plain loop of NumPy, without simulator, against one simulated device that is calibrated on the same
half. Two processes: `mlp` cut into two stages, joined by a pipe, against two simulated devices.
Epochs are processor time, the pipeline wall time. Calibration and epochs take turns; each number is
the median of the rounds with their middle half, which is the machine's noise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import ampsim
from ampsim.hardware import Cluster, Device
from ampsim.study.calibration.machine_fit import fit_machine, predicted_s
from ampsim.study.calibration.machine_points import MATRICES, ROWS, MachinePoint, measure
from ampsim.study.leading import leading

BATCH, WIDTH, CLASSES, HIDDEN, TOKENS = 100, 784, 10, 128, 14
BATCHES = 20
BUCKETS = 60


def weights(*widths: int) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(0)
    return [
        (generator.normal(0, 0.05, shape).astype(np.float32), np.zeros(shape[1], np.float32))
        for shape in pairwise(widths)
    ]


def softmax_gradient(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    gradient = shifted / shifted.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    gradient /= len(labels)
    return gradient


def forward(layers, x: np.ndarray, last: bool) -> list[np.ndarray]:
    kept = [x]
    for place, (w, b) in enumerate(layers):
        y = kept[-1] @ w
        y += b
        is_end = last and place == len(layers) - 1
        kept.append(y if is_end else np.maximum(y, 0))
    return kept


def backward(layers, kept: list[np.ndarray], g: np.ndarray, first: bool) -> np.ndarray:
    """Gradients, SGD after each; the input's gradient where somebody needs it."""
    for place in range(len(layers) - 1, -1, -1):
        w, b = layers[place]
        d_w, d_b = kept[place].T @ g, g.sum(axis=0)
        if place or not first:
            g = g @ w.T
        if place:
            g *= kept[place] > 0
        d_w *= 0.1
        w -= d_w
        b -= 0.1 * d_b
    return g


def mlp_epoch() -> Callable[[], None]:
    layers = weights(WIDTH, WIDTH, WIDTH, WIDTH, CLASSES)
    images = np.random.default_rng(1).random((BATCH, WIDTH), np.float32)
    labels = np.arange(BATCH) % CLASSES

    def epoch() -> None:
        for _ in range(BATCHES):
            kept = forward(layers, images, last=True)
            backward(layers, kept, softmax_gradient(kept[-1], labels), first=True)

    return epoch


class Adam:
    def __init__(self, theta: np.ndarray) -> None:
        self.theta, self.m, self.v = theta, np.zeros_like(theta), np.zeros_like(theta)

    def step(self, g: np.ndarray) -> None:
        self.m *= 0.9
        self.m += 0.1 * g
        self.v *= 0.999
        self.v += 0.001 * g * g
        self.theta -= 1e-4 * self.m / (np.sqrt(self.v) + 1e-8)


def rnn_epoch(lengths: list[int]) -> Callable[[], None]:
    """One update a bucket, as the shipped model does in the mean."""
    ((w, b), (w2, b2)) = weights(2 * HIDDEN, HIDDEN)[0], weights(HIDDEN, CLASSES)[0]
    table = np.random.default_rng(2).standard_normal((TOKENS, HIDDEN)).astype(np.float32)
    optimizers = [Adam(one) for one in (w, b, w2, b2, table)]
    labels = np.arange(BATCH) % CLASSES
    start = np.zeros((BATCH, HIDDEN), np.float32)

    def bucket(tokens: np.ndarray) -> None:
        h, kept, embedded = start, [], table[tokens]
        for step in range(len(tokens)):
            x = np.concatenate([h, embedded[step]], axis=1)
            y = x @ w
            y += b
            h = np.maximum(y, 0)
            kept.append((x, h))
        g = softmax_gradient(h @ w2 + b2, labels)
        d_w2, d_b2 = h.T @ g, g.sum(axis=0)
        g = g @ w2.T
        given = np.empty_like(embedded)
        gradients = []
        for step in range(len(tokens) - 1, -1, -1):
            x, h = kept[step]
            g = g * (h > 0)
            gradients.append((x, g))
            d_x = g @ w.T
            g, given[step] = d_x[:, :HIDDEN], d_x[:, HIDDEN:]
        xs, gs = (np.concatenate(parts) for parts in zip(*gradients, strict=True))
        one_hot = (tokens.reshape(-1) == np.arange(TOKENS)[:, None]).astype(np.float32)
        d_table = one_hot @ given.reshape(-1, HIDDEN)
        for one, gradient in zip(
            optimizers, (xs.T @ gs, gs.sum(axis=0), d_w2, d_b2, d_table), strict=True
        ):
            one.step(gradient)

    generator = np.random.default_rng(3)
    buckets = [generator.integers(TOKENS, size=(length, BATCH)) for length in lengths]

    def epoch() -> None:
        for tokens in buckets:
            bucket(tokens)

    return epoch


def foretold(device: Device, name: str, instances: int, **config) -> float:
    """Virtual seconds of a training pass of one device, an instance at a time."""
    model = leading(ampsim.load_model(name, **config), instances, 1)
    result = ampsim.simulate(
        model,
        Cluster(name="one", devices=(device,)),
        ampsim.Amp(max_active_keys=1),
        mode="sleep",
        counts_memory=False,
    )
    return float(result.epochs.train_s[0])


def stage(pipe, batches: int) -> None:
    """The last two layers, in a process of their own."""
    layers = weights(WIDTH, WIDTH, CLASSES)
    labels = np.arange(BATCH) % CLASSES
    pipe.send(None)
    for _ in range(batches):
        kept = forward(layers, pipe.recv(), last=True)
        pipe.send(backward(layers, kept, softmax_gradient(kept[-1], labels), first=False))


def two_processes(batches: int = 40, in_flight: int = 4) -> float:
    """Wall seconds of `batches`, at most `in_flight` on the way, the first two layers here."""
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=stage, args=(there, batches))
    worker.start()
    layers = weights(WIDTH, WIDTH, WIDTH)
    images = np.random.default_rng(1).random((BATCH, WIDTH), np.float32)
    here.recv()
    arrived: queue.Queue[np.ndarray] = queue.Queue()  # or both ends would wait to be read

    def read() -> None:
        for _ in range(batches):
            arrived.put(here.recv())

    threading.Thread(target=read, daemon=True).start()
    start, waiting, sent = time.perf_counter(), [], 0
    while sent < batches or waiting:
        is_full = sent == batches or len(waiting) >= in_flight
        if waiting and (is_full or not arrived.empty()):
            g = arrived.get()
            kept = waiting.pop(0)
            backward(layers, kept, g * (kept[-1] > 0), first=True)
        else:
            waiting.append(forward(layers, images, last=False))
            here.send(waiting[-1][-1])
            sent += 1
    seconds = time.perf_counter() - start
    worker.join()
    return seconds


def foretold_pipeline(device: Device, batches: int, in_flight: int) -> float:
    model = leading(ampsim.load_model("mlp", data="synthetic"), batches, 1)
    stages = {f"linear-{layer}": int(layer > 2) for layer in (1, 2, 3, 4)}
    stages |= {"relu-1": 0, "relu-2": 0, "relu-3": 1, "loss": 1}
    lines = "".join(f"{name} = {worker}\n" for name, worker in stages.items())
    path = "bench-two-stages.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "\n".join(
                f'"{line.split(" ")[0]}" ={line.split("=")[1]}' for line in lines.splitlines()
            )
        )
    try:
        result = ampsim.simulate(
            model,
            Cluster(name="two", devices=(device, device)),
            ampsim.Amp(max_active_keys=in_flight),
            mode="sleep",
            placement=path,
            counts_memory=False,
        )
    finally:
        os.remove(path)
    return float(result.epochs.train_s[0]) * batches / result.epochs.instances[0] * BATCH


def halves(points: list[MachinePoint]) -> tuple[list[MachinePoint], list[MachinePoint]]:
    """Every other shape of the products, a chessboard of rows and matrices; all else to the fit."""

    def is_seen(one: MachinePoint) -> bool:
        if one.kind != "product":
            return True
        k, *matrix = one.shape
        return (ROWS.index(k) + MATRICES.index(tuple(matrix))) % 2 == 0

    return [p for p in points if is_seen(p)], [p for p in points if not is_seen(p)]


def show(name: str, told: list[float], taken: list[float]) -> None:
    middle = statistics.median(taken)
    low, high = np.quantile(taken, [0.25, 0.75])
    print(
        f"{name:22} foretold {statistics.median(told):.4f} s, taken {middle:.4f} s, ratio"
        f" {statistics.median(told) / middle:.3f}; middle half of rounds {low / middle - 1:+.1%}"
        f" to {high / middle - 1:+.1%}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    data = ampsim.load_model("rnn", replicas=1).make_data(0, None)
    batches = data.batches("train", epoch=0, seed=0)
    lengths = [batch.steps for batch, _ in zip(batches, range(BUCKETS), strict=False)]
    epochs = {"mlp": mlp_epoch(), "rnn": rnn_epoch(lengths)}
    taken: dict[str, list[float]] = {name: [] for name in (*epochs, "pipe")}
    for epoch in epochs.values():
        epoch()
    rounds_of_points = []
    for _ in range(rounds):
        rounds_of_points.append(measure(rounds=1))
        for name, epoch in epochs.items():
            start = time.process_time()
            epoch()
            taken[name].append(time.process_time() - start)
        taken["pipe"].append(two_processes())
    points = [
        replace(same[0], seconds=statistics.median(one.seconds for one in same))
        for same in zip(*rounds_of_points, strict=True)
    ]
    seen, unseen = halves(points)
    device = Device(name="half", **fit_machine(seen).numbers)
    errors = sorted(abs(predicted_s(device, one) / one.seconds - 1) for one in unseen)
    print(
        f"{len(unseen)} unseen products: median {errors[len(errors) // 2]:.1%},"
        f" most {errors[-1]:.0%}"
    )
    show("mlp", [foretold(device, "mlp", BATCHES, data="synthetic")], taken["mlp"])
    show("rnn", [foretold(device, "rnn", BUCKETS, replicas=1)], taken["rnn"])
    show("mlp, two processes", [foretold_pipeline(device, 40, 4)], taken["pipe"])


if __name__ == "__main__":
    main()
