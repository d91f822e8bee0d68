"""A perceptron of two layers, each a process of its own, joined by a pipe.

Each process keeps to 1F1B: the first sends two batches ahead, then takes a gradient and sends a
batch in turn. Nothing drains, and each layer is updated after each backward step. A message is an
array as `Connection.send_bytes` sends it. The pipe's buffer holds all messages on their way, so
that nobody waits for the other to read.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import time
from itertools import pairwise

import numpy as np

from plain_loops.mlp import backward, forward, stack
from plain_loops.parts import softmax_gradient

ROWS, WIDTH, CLASSES = 100, 784, 10
BUFFER_BYTES = 1 << 22
AHEAD = 2
"""Batches that the first process sends before it waits for a gradient: one for each stage."""

MESSAGE_BYTES = 4 * ROWS * WIDTH


def parameters(*widths):
    """Weights and biases of layers, by the model's names for those of the whole network."""
    generator, found = np.random.default_rng(0), {}
    for place, (d_in, d_out) in enumerate(pairwise(widths), 1):
        scale = (2 / d_in) ** 0.5
        found[f"linear-{place}.weight"] = generator.normal(0, scale, (d_in, d_out)).astype("f4")
        found[f"linear-{place}.bias"] = np.zeros(d_out, "f4")
    return found


def send(pipe, array):
    pipe.send_bytes(np.ascontiguousarray(array))


def receive(pipe, columns):
    return np.frombuffer(pipe.recv_bytes(), np.float32).reshape(-1, columns)


def second(pipe):
    """The process of the last layer; it answers what it is told to do."""
    widen(pipe)
    layers = stack(parameters(WIDTH, CLASSES), ["linear-1"])
    labels = np.arange(ROWS) % CLASSES
    while True:
        what, count = pipe.recv()
        if what == "end":
            return
        pipe.send("ready")
        log = []
        for _ in range(count):
            if what == "echo":
                pipe.send_bytes(pipe.recv_bytes())
                continue
            x = receive(pipe, WIDTH)
            log.append(("receive", time.process_time()))
            taken = forward(layers, x)
            gradient, _loss = softmax_gradient(taken[-1], labels)
            send(pipe, backward(layers, taken, gradient, is_start=False))
            log.append(("send", time.process_time()))
        if log:
            pipe.send(log)


def widen(pipe):
    """Let the pipe's buffers hold the messages of a round."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def undisturbed_s(first, second):
    """Seconds until the first process ends, if each process had a processor of its own.

    Between two events of its log a process takes what it took of a processor; what it receives it
    has not before the other has sent it.
    """
    clocks, sent, at = [0.0, 0.0], ([], []), [0, 0]
    logs = (first, [("start", second[0][1]), *second])
    taken = [0, 0]
    while at[0] < len(first) - 1:
        moved = False
        for own in (0, 1):
            while at[own] < len(logs[own]) - 1:
                (_before, low_s), (what, high_s) = logs[own][at[own] : at[own] + 2]
                if what == "receive":
                    if taken[own] == len(sent[1 - own]):
                        break
                    clocks[own] = max(clocks[own], sent[1 - own][taken[own]])
                    taken[own] += 1
                clocks[own] += high_s - low_s
                if what == "send":
                    sent[own].append(clocks[own])
                at[own] += 1
                moved = True
        assert moved, "each process waits for the other"
    return clocks[0]


class TwoProcesses:
    """The first process; the second ends with it."""

    def __init__(self):
        self.pipe, there = multiprocessing.Pipe()
        widen(self.pipe)
        self.other = multiprocessing.Process(target=second, args=(there,), daemon=True)
        self.other.start()
        self.layers = stack(parameters(WIDTH, WIDTH), ["linear-1"])
        self.images = np.random.default_rng(1).random((ROWS, WIDTH), np.float32)

    def begin(self, what, count):
        self.pipe.send((what, count))
        assert self.pipe.recv() == "ready"

    def echo_s(self, size_bytes, count):
        """Wall seconds of a message one way, half of the least round trip."""
        message, least_s = bytes(size_bytes), float("inf")
        self.begin("echo", count)
        for _ in range(count):
            start = time.perf_counter()
            self.pipe.send_bytes(message)
            self.pipe.recv_bytes()
            least_s = min(least_s, time.perf_counter() - start)
        return least_s / 2

    def train_s(self, batches):
        """Seconds of so many batches: on the wall, and with a processor for each process."""
        self.begin("train", batches)
        start, log, waiting = time.perf_counter(), [("start", time.process_time())], []
        for batch in range(batches + AHEAD):
            if batch >= AHEAD:
                gradient, taken = receive(self.pipe, WIDTH), waiting.pop(0)
                log.append(("receive", time.process_time()))
                backward(self.layers, taken, gradient * (taken[-1] > 0))
            if batch < batches:
                waiting.append(forward(self.layers, self.images, is_end=False))
                send(self.pipe, waiting[-1][-1])
                log.append(("send", time.process_time()))
        log.append(("end", time.process_time()))
        wall_s = time.perf_counter() - start
        return wall_s, undisturbed_s(log, self.pipe.recv())

    def end(self):
        with contextlib.suppress(OSError):
            self.pipe.send(("end", 0))
        self.other.join()
