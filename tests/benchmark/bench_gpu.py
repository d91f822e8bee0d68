"""What a GPU reaches with PyTorch in single precision without TF32: the numbers of `h100`, `h200`.

    python tests/benchmark/bench_gpu.py > out.csv        (and bench_gpu.cu, on launches and copies)

* Small: PyTorch's smallest operation, and a kernel that does nothing.
* Products of k rows with a matrix, in the three layouts of `nn.Linear`; passes over arrays; power
  as NVML reports it, in the second half of six seconds each.
* Training steps of this project's models as one writes them in PyTorch, eagerly, and as one CUDA
  graph; kernels of the eager step, and the device's time in them.

What is said to be of the device is timed within a CUDA graph, so that the host's launches do not
hide it: events around one replay that is issued while another runs. Arrays are the same again and
again, so that what fits lies in the L2 cache. A row is what, case, size, median and quartiles.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pynvml  # pyright: ignore[reportMissingImports]  # NVML, where there is a GPU
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, pad
from torch.profiler import ProfilerActivity, profile

GPU = torch.device("cuda")
MATRICES = (
    (128, 128), (256, 256), (512, 512), (1024, 1024), (2048, 2048), (4096, 4096),
    (784, 784), (784, 10), (256, 128), (256, 512), (100, 100), (200, 400),
)  # fmt: skip
Row = tuple[str, str, object, float, float, float]
Step = Callable[[], Any]


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    return median, low, high


def captured(step: Step, calls: int = 1) -> torch.cuda.CUDAGraph:
    """Capture so many calls as a graph, after some on a stream of their own."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        for _ in range(calls):
            step()
    return graph


def device_us(step: Step, calls: int, rounds: int = 15) -> tuple[float, float, float]:
    """Microseconds of a call on the device."""
    graph, taken = captured(step, calls), list[float]()
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) * 1e3 / calls)
    return spread(taken)


def host_us(step: Step, calls: int, rounds: int = 31) -> tuple[float, float, float]:
    """Microseconds of a call by the host's clock; the device is done at the end of each round."""
    taken: list[float] = []
    for _ in range(rounds + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e6 / calls)
    return spread(taken[3:])


def small() -> Iterator[Row]:
    """Add to one element, and spin for no cycle."""
    one = torch.ones(1, device=GPU)
    for case, step in (("add", partial(one.add_, 1.0)), ("nothing", partial(torch.cuda._sleep, 0))):
        yield "small", case, "host", *host_us(step, 1000)
        yield "small", case, "device", *device_us(step, 500)


def products() -> Iterator[Row]:
    """Multiply as in the forward step, for the input's gradient, and for the weight's."""
    for d_in, d_out in MATRICES:
        weight = torch.randn(d_out, d_in, device=GPU)
        for rows in (2**power for power in range(14)):
            x, g = (torch.randn(rows, width, device=GPU) for width in (d_in, d_out))
            calls = max(2, min(40, int(4e10 / (2 * rows * d_in * d_out))))
            pairs = {"forward": (x, weight.t()), "input": (g, weight), "weight": (g.t(), x)}
            for way, pair in pairs.items():
                step = partial(torch.mm, *pair, out=torch.mm(*pair))
                yield f"product {way}", f"{d_in}x{d_out}", rows, *device_us(step, calls, 11)


def passes() -> Iterator[Row]:
    """Pass over an array, and write another; the size is that of both in bytes."""
    for elements in (4**power * 256 for power in range(11)):
        source, target = torch.randn(elements, device=GPU), torch.empty(elements, device=GPU)
        step = partial(torch.add, source, 1.0, out=target)
        yield "pass", "add", 8 * elements, *device_us(step, 4 if elements > 1e7 else 40)


def reader(parts: nn.ModuleList, rows: torch.Tensor) -> torch.Tensor:
    """Loop over the rows of images."""
    encode, cell, classify = parts
    h = c = torch.zeros(rows.shape[1], 128, device=GPU)
    for row in rows:
        h, c = cell(encode(row), (h, c))
    return classify(h)


def lists(parts: nn.ModuleList, tokens: torch.Tensor) -> torch.Tensor:
    """Loop over the tokens of lists."""
    table, layer, classify = parts
    h = torch.zeros(tokens.shape[1], 128, device=GPU)
    for word in table(tokens):
        h = torch.relu(layer(torch.cat([h, word], 1)))
    return classify(h)


def molecule(parts: nn.ModuleList, x: torch.Tensor, edges: list[torch.Tensor]) -> torch.Tensor:
    """Four steps over bonds of four types, and the readout."""
    gru, gate, value, *bonds = parts
    h = pad(x, (0, 89))
    for _ in range(4):
        received = torch.zeros_like(h)
        for bond, (source, target) in zip(bonds, edges, strict=True):
            received = received.index_add(0, target, bond(h[source]))
        h = gru(received, h)
    last = torch.cat([h, x], 1)
    return (torch.sigmoid(gate(last)) * value(last)).sum(0)


def models() -> Iterator[tuple[str, nn.Module, Step, Callable[..., Any]]]:
    """Give each model's name, its parts, what computes its loss, and its optimizer."""
    draw, linear, adam = partial(torch.randint, device=GPU), nn.Linear, torch.optim.Adam
    digits, images = draw(10, (256,)), torch.rand(100, 784, device=GPU)
    layers = [linear(*pair) for pair in pairwise((784, 784, 784, 784, 10))]
    net = nn.Sequential(*(one for layer in layers for one in (layer, nn.ReLU())))[:-1].to(GPU)
    yield "mlp", net, lambda: cross_entropy(net(images), digits[:100]), torch.optim.SGD
    rows = torch.rand(28, 256, 28, device=GPU)
    lstm = nn.ModuleList([linear(28, 128), nn.LSTMCell(128, 128), linear(128, 10)]).to(GPU)
    yield "lstm_mnist", lstm, lambda: cross_entropy(reader(lstm, rows), digits), adam
    tokens = draw(14, (6, 100))  # lists have 6 in the mean
    rnn = nn.ModuleList([nn.Embedding(14, 128), linear(256, 128), linear(128, 10)]).to(GPU)
    yield "rnn", rnn, lambda: cross_entropy(lists(rnn, tokens), digits[:100]), adam
    atoms, target = torch.rand(8, 11, device=GPU), torch.rand(1, device=GPU)
    edges = [draw(8, (2, count)) for count in (12, 2, 2, 2)]
    bonds = [linear(100, 100) for _ in edges]
    ggnn = nn.ModuleList([nn.GRUCell(100, 100), linear(111, 1), linear(111, 1), *bonds]).to(GPU)
    yield "ggnn", ggnn, lambda: mse_loss(molecule(ggnn, atoms, edges), target), adam


def training() -> Iterator[Row]:
    """Train each model, step by step."""
    for name, parts, loss, make in models():
        for case in ("eager", "graph"):
            is_adam = make is torch.optim.Adam
            options: dict[str, Any] = {"capturable": case == "graph"} if is_adam else {}
            method = make(parts.parameters(), lr=1e-3, **options)

            def step(method: Any = method, loss: Step = loss) -> None:
                method.zero_grad()
                loss().backward()
                method.step()

            if case == "graph":
                yield "step", name, case, *host_us(captured(step).replay, 200)
            else:
                yield "step", name, case, *host_us(step, 50)
                count, busy_us = kernels(step)
                yield "kernels", name, "count", count, count, count
                yield "kernels", name, "us", busy_us, busy_us, busy_us


def kernels(step: Step, calls: int = 5) -> tuple[float, float]:
    """Count the kernels, fills and copies of a call, and microseconds in them."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    of_device = (one for one in found.events() or () if one.device_type.name == "CUDA")
    ran = [one for one in of_device if not one.name.startswith(("Optimizer.", "ProfilerStep"))]
    return len(ran) / calls, sum(one.time_range.elapsed_us() for one in ran) / calls


def watts(card: Any, step: Step | None = None, seconds: float = 6.0) -> tuple[float, float, float]:
    """Watts of the card while calls follow each other, one always waiting; None for rest."""
    seen, start, before = list[float](), time.monotonic(), None
    while (now := time.monotonic() - start) < seconds:
        if step is None:
            time.sleep(0.05)
        else:
            step()
            if before is not None:
                before.synchronize()
            before = torch.cuda.Event()
            before.record()
        if now > seconds / 2:
            seen.append(pynvml.nvmlDeviceGetPowerUsage(card) / 1e3)
    return spread(seen)


def power(card: Any) -> Iterator[Row]:
    """Measure watts of products, large and small, and of passes."""
    yield "power", "rest, with a context", "W", *watts(card)
    for rows, width, calls in ((8192, 4096, 10), (128, 784, 2000), (16, 128, 2000)):
        x, weight = (torch.randn(size, width, device=GPU) for size in (rows, width))
        step = captured(partial(torch.mm, x, weight, out=torch.empty_like(x)), calls).replay
        yield "power", f"products of {rows}x{width}x{width}", "W", *watts(card, step)
    source, target = torch.randn(2**28, device=GPU), torch.empty(2**28, device=GPU)
    step = captured(partial(torch.add, source, 1.0, out=target), 20).replay
    yield "power", "passes", "W", *watts(card, step)


def main() -> None:
    """Measure all, and print it row by row."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    print("what,case,size,median,low,high")
    print("power,rest,W", *watts(card), sep=",")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    memory = pynvml.nvmlDeviceGetMemoryInfo(card).total
    about = (
        f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}; CUDA {torch.version.cuda}"
    )
    print("memory", about, "bytes", *[memory] * 3, sep=",")
    gc.freeze()  # each capture collects garbage
    for part in (small(), training(), products(), passes(), power(card)):
        for what, case, size, *numbers in part:
            print(what, case, size, *(f"{number:.6g}" for number in numbers), sep=",", flush=True)


if __name__ == "__main__":
    main()
