"""Messages a second of two checkouts of ampsim, in turns: what a change costs, or saves.

    AMPSIM_DATA=... python tests/benchmark/bench_checkouts.py OLD NEW [CASE ...] [--rounds 20]

Each checkout trains in a process of its own, one pass at a time, first one and then the other, on
one thread; times are processor time without that of building. The ratio is NEW over OLD, so that
above 1 the new one is faster: of the best rounds, which a busy machine disturbs least, and the
median and quartiles of all rounds. `counted` says whether memory is counted; a checkout that cannot
count it does not. Where the two serve different numbers of messages, a model has changed, and their
costs are those of two networks: the line says so.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported


class Case(NamedTuple):
    """One run, a pass over `instances`.

    Args:
        model: name of the shipped model.
        instances: of the pass.
        settings: of the model; those that a checkout does not know, it does without.
        in_flight: instances in flight under "amp"; None for the schedule "sequential".
        workers: devices of 1 TFLOP/s.
        mode: "numeric" or "sleep".
    """

    model: str
    instances: int
    settings: dict[str, Any]
    in_flight: int | None = 16
    workers: int = 16
    mode: Any = "numeric"


SYNTHETIC = {"data": "synthetic"}
CASES = {
    "rnn, sleep": Case("rnn", 10_000, {"replicas": 4}, 8, mode="sleep"),
    "tree_lstm, sleep": Case("tree_lstm", 40, {**SYNTHETIC, "hidden": 168}, mode="sleep"),
    "rnn": Case("rnn", 5_000, {"replicas": 1}, None),
    "mlp": Case("mlp", 1_000, SYNTHETIC, 4, 4),
    "tree_lstm": Case("tree_lstm", 40, {**SYNTHETIC, "hidden": 168, "keep_probability": 1.0}),
    "ggnn": Case("ggnn", 60, SYNTHETIC),
    "bilstm_tagger": Case("bilstm_tagger", 30, SYNTHETIC),
}


def model_of(case: Case) -> Any:
    """The model, with as many of its settings as it knows."""
    import ampsim

    known = dict(case.settings)
    while True:
        try:
            return ampsim.load_model(case.model, **known)
        except ampsim.errors.AmpsimError:
            if not known:
                raise
            known.popitem()  # the last was added last


def serve() -> None:
    """For each line (case, counted) train for one pass; print (seconds, messages)."""
    import ampsim
    from ampsim.study import Simulation

    models = {name: model_of(case) for name, case in CASES.items()}
    can_count = "counts_memory" in inspect.signature(Simulation).parameters
    for line in sys.stdin:
        name, is_counted = json.loads(line)
        case = CASES[name]
        schedule = ampsim.Amp(case.in_flight) if case.in_flight else ampsim.Sequential()
        simulation = Simulation(
            models[name],
            ampsim.load_cluster("tflops-1", workers=case.workers),
            schedule,
            mode=case.mode,
            instances=case.instances,
            **({"counts_memory": is_counted} if can_count else {}),
        )
        start = time.process_time()
        simulation._training.train(simulation._batches("train"))
        seconds = time.process_time() - start
        print(json.dumps([seconds, simulation.result().messages]), flush=True)


class Checkout:
    """A process that trains with the package of one folder."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def per_s(self, name: str, is_counted: bool) -> tuple[float, int]:
        """Messages a second of one pass, and how many they were."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([name, is_counted]), file=self._process.stdin, flush=True)
        seconds, messages = json.loads(self._process.stdout.readline())
        return messages / seconds, messages


def compare(pair: list[Checkout], name: str, is_counted: bool, rounds: int) -> None:
    """Measure in turns and print the ratio."""
    rates: list[list[float]] = [[], []]
    messages = [one.per_s(name, is_counted)[1] for one in pair]  # which warms up
    for number in range(rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            rates[place].append(pair[place].per_s(name, is_counted)[0])
    ratios = [new / old for old, new in zip(*rates, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    old, new = map(max, rates)
    print(
        f"{name:15}{'counted' if is_counted else '':8}{old:11,.0f}{new:11,.0f}{new / old:7.2f}"
        f"{middle:7.2f}   ({low:.2f} to {high:.2f})"
        + (f", of {messages[0]} and {messages[1]} messages" if len({*messages}) > 1 else ""),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    pair = [Checkout(options.old), Checkout(options.new)]
    print(f"{'messages a second':23}{'old':>11}{'new':>11}{'best':>7}{'median':>7}   quartiles")
    for name in options.cases:
        for is_counted in (False, True) if CASES[name].mode == "numeric" else (False,):
            compare(pair, name, is_counted, options.rounds)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
