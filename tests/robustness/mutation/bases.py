"""What the wrong inputs are made from: right ones, as small as they can be."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
from pathlib import Path
from typing import Any

import numpy as np

MODEL = '''"""Two layers on eight rows."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import ampsim
from ampsim.ir import Graph
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
from ampsim.optim import sgd


@dataclass(frozen=True)
class Config:
    """Options.

    Args:
        width: of the layers.
        rate: of learning.
    """

    width: int = 3
    rate: float = 0.1


class State(NamedTuple):
    instance: int


class Batch(NamedTuple):
    values: np.ndarray
    labels: np.ndarray

    @property
    def rows(self):
        return len(self.labels)


class Layer(Linear):
    def forward(self, port, state, payload):
        return super().forward(port, state, payload)

    def backward(self, port, state, payload):
        return super().backward(port, state, payload)


class Rows:
    name = "rows"
    description = "two numbers; which is larger?"

    def __init__(self, train_count):
        self.train_count = train_count

    def count(self, split):
        return self.train_count if split == "train" else 2

    def batch_count(self, split):
        return self.count(split)

    def batches(self, split, *, epoch, seed):
        random = np.random.default_rng([seed, epoch])
        for _ in range(self.count(split)):
            values = random.standard_normal((1, 2)).astype("float32")
            yield Batch(values, np.argmax(values, axis=1))


def pump(instance, batch):
    return [(0, State(instance), batch.values), (1, State(instance), batch.labels)]


def network(config):
    graph = Graph("toy")
    values, labels = graph.controller(values=("rows", 2), labels=("rows",))
    hidden = graph.add(Layer("first", 2, config.width), values)
    hidden = graph.add(ReLU("relu"), hidden)
    logits = graph.add(Layer("second", config.width, 2), hidden)
    graph.end(SoftmaxCrossEntropy("loss"), logits, labels)
    return graph


def build(config):
    return ampsim.Model(
        name="toy",
        config=config,
        make_graph=lambda: network(config),
        make_data=lambda seed, count: Rows(8 if count is None else min(count, 8)),
        pump=pump,
        optimizer=sgd(config.rate),
        target=0.9,
        dtype="float32",
    )
'''

DEVICE: dict[str, Any] = {
    "name": "small",
    "description": "a device",
    "flop_per_s": 1e9,
    "operation_overhead_s": 1e-6,
    "memory_bandwidth_bytes_per_s": 1e9,
    "cache_bytes": 1000,
    "cache_bandwidth_bytes_per_s": 1e10,
    "efficiency": [[1, 0.5], [4, 1.0]],
    "step_overhead_s": 1e-6,
    "light_bandwidth_bytes_per_s": 1e9,
    "matrix_efficiency": [[10, 0.5], [40, 1.0]],
    "memory_bytes": 1_000_000,
    "jitter_cv": 0.1,
    "idle_power_w": 1.0,
    "busy_power_w": 2.0,
    "price_usd_per_h": 0.5,
    "message_overhead_s": 1e-7,
    "copy_bandwidth_bytes_per_s": 1e9,
    "copy_latency_s": 1e-7,
    "functions_per_s": 1e9,
    "sources": {
        key: {"kind": "assumed", "text": "for a test"}
        for key in (
            *("flop_per_s", "operation_overhead_s", "memory_bandwidth_bytes_per_s", "efficiency"),
            *("cache_bytes", "cache_bandwidth_bytes_per_s", "step_overhead_s", "memory_bytes"),
            *("light_bandwidth_bytes_per_s", "matrix_efficiency", "jitter_cv", "idle_power_w"),
            *("busy_power_w", "price_usd_per_h", "message_overhead_s"),
            *("copy_bandwidth_bytes_per_s", "copy_latency_s", "functions_per_s"),
        )
    },
}

_ASSUMED = {"kind": "assumed", "text": "for a test"}

CLUSTER: dict[str, Any] = {
    "name": "two kinds",
    "description": "a cluster",
    "device": [{"name": "tflops-1", "count": 2}, {"file": "device.toml", "count": 1}],
    "link": {"latency_s": 1e-6, "bandwidth_bytes_per_s": 1e9, "source": _ASSUMED},
    "links": [
        {"from": 0, "to": 2, "bandwidth_bytes_per_s": 1e8, "source": _ASSUMED},
        {"from": "host", "to": 1, "latency_s": 1e-6, "source": _ASSUMED},
    ],
}

PLACEMENT: dict[str, Any] = {"first": 0, "relu": 1, "second": 2, "loss": 2}

RECIPE: dict[str, Any] = {
    "title": "Toy",
    "text": "A *toy*.",
    "model": "./model.py",
    "set": {"width": 4},
    "cluster": "./cluster.toml",
    "seeds": [0, 1],
    "instances": 4,
    "max_epochs": 1,
    "target": 0.9,
    "mode": "numeric",
    "figures": ["utilisation"],
    "schedules": [
        {"name": "sequential"},
        {"name": "amp", "label": "amp, 2", "max_active_keys": 2, "placement": "balanced"},
    ],
    "published": [
        {"schedule": "amp, 2", "quantity": "train_per_s", "value": 5, "source": "nobody"}
    ],
}

CALIBRATION: dict[str, Any] = {
    "name": "fitted",
    "description": "a device",
    "workers": 2,
    "seed": 0,
    "placement": "paper",
    "train_instances": 4,
    "valid_instances": 2,
    "device": {"memory_bytes": 1_000_000},
    "fit": {"flop_per_s": {"start": 1e9, "min": 1e8, "max": 1e10}},
    "rows": [
        {
            "label": "amp",
            "model": "./model.py",
            "set": {"width": 4},
            "schedule": "amp",
            "max_active_keys": 2,
            "is_fitted": True,
            "train_per_s": 1e6,
            "source": "nobody",
        },
        {"label": "all", "model": "./model.py", "valid_per_s": 2e6, "source": "nobody"},
    ],
}

_TREES = b"(3 (2 A) (4 (3 good) (2 tree)))\n(1 (2 not) (1 (1 bad) (2 ,)))\n(2 (2 so) (2 so))\n"
_TAGGED = b"Ada|I-PER lives|O in|O London|I-LOC\nShe|O works|O\n\nUN|I-ORG .|O\n"
_VECTORS = b"a 0.1 0.2 0.3\ngood 0.3 -1e-2 2\nthe 1 2 3\n"


def _idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def _molecules() -> bytes:
    """Four waters, as `qm9.npz` has them."""
    count = 8
    content = io.BytesIO()
    np.savez(
        content,
        index=np.arange(count, dtype=np.int32),
        atom_offset=np.arange(count + 1, dtype=np.int32) * 3,
        z=np.array([8, 1, 1] * count, np.uint8),
        bond_offset=np.arange(count + 1, dtype=np.int32) * 2,
        bonds=np.array([[0, 1, 1], [0, 2, 1]] * count, np.uint8),
        mu=np.linspace(1, 2, count, dtype=np.float32),
        bond_status=np.zeros(count, np.uint8),
    )
    return content.getvalue()


def data_files() -> dict[str, bytes]:
    """Small files of every data set, by their paths in a data folder."""
    random = np.random.default_rng(0)
    files: dict[str, bytes] = {}
    for part, count in (("train", 6), ("t10k", 3)):
        images = _idx(random.integers(0, 256, (count, 28, 28)))
        files[f"mnist/{part}-images-idx3-ubyte.gz"] = gzip.compress(images, mtime=0)
        files[f"mnist/{part}-labels-idx1-ubyte"] = _idx(random.integers(0, 10, count))
    files["sst/train.txt"] = _TREES * 2
    files["sst/dev.txt.xz"] = lzma.compress(_TREES)
    files["qm9/qm9.npz"] = _molecules()
    files["wikiner/train.txt.xz"] = lzma.compress(_TAGGED * 2)
    files["wikiner/dev.txt"] = _TAGGED
    return files


def vectors() -> bytes:
    """Word vectors of three words."""
    return _VECTORS


def lay_out_data(folder: Path) -> None:
    """Write `data_files` into a data folder."""
    for name, content in data_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
