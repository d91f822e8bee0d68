"""The perceptron cut into two stages, each a process of its own, joined by a pipe.

The first process has the first two layers and takes a gradient as soon as one has come; the
second has the other two. A message is an array as `Connection.send_bytes` sends it. The pipe's
buffer holds all messages on their way, so that nobody waits for the other to read.
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
    """The process of the last two layers; it answers what it is told to do."""
    widen(pipe)
    layers = stack(parameters(WIDTH, WIDTH, CLASSES), ["linear-1", "linear-2"])
    labels = np.arange(ROWS) % CLASSES
    while True:
        what, count = pipe.recv()
        if what == "end":
            return
        pipe.send("ready")
        for _ in range(count):
            if what == "echo":
                pipe.send_bytes(pipe.recv_bytes())
                continue
            taken = forward(layers, receive(pipe, WIDTH))
            gradient, _loss = softmax_gradient(taken[-1], labels)
            send(pipe, backward(layers, taken, gradient, is_start=False))


def widen(pipe):
    """Let the pipe's buffers hold the messages of a round."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


class TwoProcesses:
    """The first process; the second ends with it."""

    def __init__(self):
        self.pipe, there = multiprocessing.Pipe()
        widen(self.pipe)
        self.other = multiprocessing.Process(target=second, args=(there,), daemon=True)
        self.other.start()
        self.layers = stack(parameters(WIDTH, WIDTH, WIDTH), ["linear-1", "linear-2"])
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

    def train_s(self, batches, in_flight):
        """Wall seconds of so many batches, at most `in_flight` of them on the way."""
        self.begin("train", batches)
        start, waiting, sent = time.perf_counter(), [], 0
        while sent < batches or waiting:
            is_full = sent == batches or len(waiting) >= in_flight
            if waiting and (is_full or self.pipe.poll()):
                gradient, taken = receive(self.pipe, WIDTH), waiting.pop(0)
                backward(self.layers, taken, gradient * (taken[-1] > 0))
            else:
                waiting.append(forward(self.layers, self.images, is_end=False))
                send(self.pipe, waiting[-1][-1])
                sent += 1
        return time.perf_counter() - start

    def end(self):
        with contextlib.suppress(OSError):
            self.pipe.send(("end", 0))
        self.other.join()
