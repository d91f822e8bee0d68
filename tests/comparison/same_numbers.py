"""Whether two installations of ampsim give the same numbers, and write the same files, to the bit.

    python tests/comparison/same_numbers.py OLD NEW
    python tests/comparison/same_numbers.py OLD NEW --only amp --only solvers

OLD and NEW are folders that hold the package `ampsim`: checkouts, or what
`pip install --target FOLDER` filled. There are six parts, each of which `--only` may name:

* `schedules`: every schedule on a chain, a loop, a tree and a graph model, in both modes, on one
  worker and several, with free links and with links that take time, and with each option that
  changes how steps are served (`--only` may name a schedule, too);
* `solvers`: every solver with each of its options, on free links, links, ports, devices whose time
  varies; and schedules on ports, shared edges, lanes, and devices that stop and come back;
* `dependency`: random programs on the dependency engine, under all of its policies;
* `dataflow`: random nested programs with their gradients, on one device and several, that count
  memory, swap and dispatch or do not; and models that are programs, under all of their schedules;
* `questions`: forecasts, maps, what-ifs, roots and searches on the clusters of the solvers;
* `files`: whatever three forecasts, two runs and their charts write.

Tables are compared column by column, weights array by array, files byte by byte but for hashes of
code and times of day. Columns that only one of the two has are named, and are no difference. Exit
code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MODELS = {
    "mlp": ({"hidden": 16, "layers": 4, "data": "synthetic"}, 400),
    "rnn": ({"hidden": 8, "replicas": 2}, 300),
    "tree_lstm": ({"hidden": 6, "embedding": 5, "data": "synthetic"}, 6),
    "ggnn": ({"hidden": 12, "data": "synthetic"}, 8),
}
CLUSTERS = {
    "1 worker": (1, {}),
    "4 workers": (4, {}),
    "4 workers, links": (4, {"latency_s": 3e-7, "bandwidth_bytes_per_s": 2e9}),
    "7 cores, links": (7, {"latency_s": 1e-5}),
}
"""A name to a number of workers and the link's options; "cores" are `cpu-core`."""

SCHEDULES = {
    "sequential": "Sequential",
    "pipeline": "Pipeline",
    "gpipe": "GPipe",
    "1f1b": "OneFOneB",
    "1f1b-interleaved": "InterleavedOneFOneB",
    "zb-h1": "ZeroBubbleH1",
    "pipedream": "PipeDream",
    "pipedream-2bw": "PipeDream2BW",
    "amp": "Amp",
    "amp-budget": "AmpBudget",
}
"""By their names, which no installation may change, the classes' names in `ampsim`."""

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "amp": [
        {"max_active_keys": 4},
        {"max_active_keys": 8, "min_update_interval": 3},
        {"max_active_keys": 6, "max_group": 3},
        {"max_active_keys": 6, "max_group": 3, "group_wait_s": 2e-7},
        {"max_active_keys": 4, "remedy": "weight-prediction"},
    ],
    "amp-budget": [{"max_active_keys": 9, "staleness_budget": 1.5}],
    "pipeline": [{"max_active_keys": 3}],
    "gpipe": [{"max_active_keys": 3}],
    "1f1b": [{"max_active_keys": 3}],
    "pipedream": [{}, {"vertical_sync": True}],
    "pipedream-2bw": [{}, {"min_update_interval": 8}],
}
"""Of schedules that have others than their defaults."""


ORIGIN = '{ kind = "assumed", text = "made up" }'
DEVICES = {
    "plain": "flop_per_s = 1e12\n[sources]\nflop_per_s = @",
    "jitter": "flop_per_s = 1e12\njitter_cv = 0.4\n[sources]\nflop_per_s = @\njitter_cv = @",
    "lanes": (
        "flop_per_s = 1e12\ndispatch_s = 2e-8\ncopy_bandwidth_bytes_per_s = 1e10\n[sources]\n"
        "flop_per_s = @\ndispatch_s = @\ncopy_bandwidth_bytes_per_s = @"
    ),
}
"""Device files of the clusters below, by name; "@" is where a number is from."""

_PORTS = "[ports]\negress_bytes_per_s = 2e9\ningress_bytes_per_s = 1e9\nsource = @"
_STOPS = (
    '[failures]\nkind = "stop"\nmean_time_between_s = 4e-6\nmean_time_to_repair_s = 1e-6\n'
    "source = @"
)
HARDWARE = {
    "free": ("plain", ""),
    "links": ("plain", "[link]\nlatency_s = 3e-7\nbandwidth_bytes_per_s = 2e9\nsource = @"),
    "jitter": ("jitter", "[link]\nlatency_s = 3e-7\nsource = @"),
    "ports": ("plain", _PORTS),
    "ports, in turn": ("jitter", f'sharing = "first-come"\n{_PORTS}'),
    "ring": ("plain", ""),
    "lanes": ("lanes", "[link]\nbandwidth_bytes_per_s = 2e9\nsource = @"),
    "stops": ("plain", _STOPS),
    "checkpoints": (
        "plain",
        f'{_STOPS}\nweights = "checkpoint"\n[checkpoints]\nevery_s = 1e-6\ntakes_s = 1e-8\n'
        "source = @",
    ),
}
"""A name to the device of its workers, and what the cluster file has beside them."""

SOLVERS = {
    "sync-sgd": "SyncSGD",
    "async-sgd": "AsyncSGD",
    "hogwild": "Hogwild",
    "easgd": "EASGD",
    "async-easgd": "AsyncEASGD",
    "ea-wild": "EAWild",
    "sync-easgd": "SyncEASGD",
    "ssp": "SSP",
    "local-sgd": "LocalSGD",
    "diloco": "DiLoCo",
}
"""As `SCHEDULES`."""

OF_ALL_SOLVERS: list[dict[str, Any]] = [
    {},
    {"inner": "amp:2", "workers_per_rank": 2},
    {"inner": "sync-sgd:2"},
    {"inner": "sync-sgd:2", "groups": "random"},
    {"period": 3},
    {"compression": 0.1},
    {"servers": 2},
]
"""Options that are tried with each solver that has them."""

OF_ONE_SOLVER: dict[str, list[dict[str, Any]]] = {
    "sync-sgd": [
        {"collective": "tree"},
        {"bucket_bytes": 500},
        {"bucket_bytes": 500, "overlap": True},
        {"backup_ranks": 1},
        {"ranks_per_group": 2, "collective": "hierarchical"},
    ],
    "async-sgd": [{"momentum": 0.5}, {"staleness_rate": True}],
    "easgd": [{"elastic": "worker", "moving_rate": 0.3}],
    "ssp": [{"staleness_bound": 0}],
    "diloco": [{"period": 2, "outer_momentum": 0.5}],
}
PROGRAMS = 400
"""Random programs on the dependency engine."""
FLOWS = 400
"""Random programs of branches and loops."""

ELEMENTS = 300
"""Of their vectors, which take 2400 bytes: enough to be swapped."""

FLOW_MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 16, "layers": 2, "data": "synthetic"},
    "rnn": {"hidden": 8},
    "dynamic_lstm": {"hidden": 8, "batch": 10, "length": 12, "layers": 2},
    "moe_rnn": {"hidden": 6, "batch": 5},
    "act_rnn": {"hidden": 6, "batch": 5},
    "dqn": {"hidden": 6, "batch": 5, "learn_from": 5},
}
FLOW_SCHEDULES: dict[str, list[dict[str, Any]]] = {
    "Dataflow": [{}, {"parallel_iterations": 2, "broadcast_dead": True}, {"swap_memory": True}],
    "Unrolled": [{}],
    "OutOfGraph": [{}],
}

COMMANDS = {
    "forecast of a chain": (
        "forecast mlp --set data=synthetic --set hidden=16 --schedule sequential,pipeline,1f1b,amp "
        "--max-active-keys 2,4 --workers 4 --instances 1500 --target 0.9 --max-epochs 3 --repeats 2"
    ),
    "forecast of a loop on links": (
        "forecast rnn --set hidden=8 --workers 4 --latency-s 1e-7 --instances 3000 --target 0.2 "
        "--max-epochs 2 --schedule pipeline,amp,amp-budget"
    ),
    "forecast of solvers": (
        "forecast mlp --set data=synthetic --set hidden=16 --schedule sync-sgd,easgd,diloco,amp "
        "--ranks 2 --workers 4 --instances 1500 --target 0.9 --max-epochs 2 --validate-every 700"
    ),
    "run": "run rnn --set hidden=8 --workers 4 --instances 2000 --epochs 2 --schedule amp",
    "run in sleep": (
        "run ggnn --set data=synthetic --set hidden=12 --mode sleep --workers 3 --instances 20"
    ),
    "chart": "gantt rnn --set hidden=8 --workers 4 --instances 1000 --schedule pipeline,amp",
}
"""What writes files, by what it is called."""

CHARTS = ("svg", "html", "json")


def found_in(part: str, make: Any) -> Any:
    """What `make` gives, or in what words it was refused; a failed assertion is told, too."""
    import ampsim

    try:
        return make()
    except (ampsim.errors.AmpsimError, AssertionError) as error:
        told = re.sub(r" \(\S+, line \d+\)", "", str(error))  # lines of models, wherever they lie
        return {"error": f"{type(error).__name__}: {told}", "part": part}


def schedule_cases() -> Iterator[tuple[str, Any]]:
    """(name, hashes) of every run of a schedule."""
    import ampsim

    for model, (settings, instances) in MODELS.items():
        for place, (workers, link) in CLUSTERS.items():
            cluster = ampsim.load_cluster(
                "cpu-core" if "cores" in place else "tflops-1", workers=workers, **link
            )
            for mode in ("numeric", "sleep"):
                for schedule, options in _schedules():
                    name = f"{model}, {place}, {mode}, {schedule} {options}"
                    job = (model, settings, instances, cluster, mode)
                    yield schedule, (name, lambda s=schedule, o=options, job=job: _run(*job, s, o))


def _schedules() -> Iterator[tuple[str, dict[str, Any]]]:
    for schedule in SCHEDULES:
        for options in OPTIONS.get(schedule, [{}]):
            yield schedule, options


def _run(
    model: str, settings: dict[str, Any], instances: int, cluster: Any, mode: Any, *method: Any
) -> dict[str, str]:
    import ampsim

    name, options = method
    made = getattr(ampsim, {**SCHEDULES, **SOLVERS}[name])(**options)
    result = ampsim.simulate(
        ampsim.load_model(model, **settings),
        cluster,
        made,
        epochs=2,
        seed=1,
        mode=mode,
        instances=instances,
    )
    return hashes(result)


def solver_cases() -> Iterator[tuple[str, Any]]:
    """(solver, (name, run)) of every run on the clusters of `HARDWARE`."""
    import ampsim

    settings, _instances = MODELS["mlp"]
    with tempfile.TemporaryDirectory() as folder:
        for hardware in HARDWARE:
            path = _cluster_file(hardware, Path(folder))
            topology = "ring" if hardware == "ring" else None
            link: dict[str, Any] = (
                {"latency_s": 1e-7, "bandwidth_bytes_per_s": 2e9} if topology else {}
            )
            cluster = ampsim.load_cluster(str(path), topology=topology, **link)
            methods = [(one, how) for one in SOLVERS for how in _options_of(one)]
            for method, options in [*methods, *_schedules()]:
                for mode in ("numeric", "sleep"):
                    name = f"mlp on {hardware}, {mode}, {method} {options}"
                    job = ("mlp", settings, 600, cluster, mode, method, options)
                    yield method, (name, lambda job=job: _run(*job))


def _options_of(solver: str) -> Iterator[dict[str, Any]]:
    import ampsim

    known = inspect.signature(getattr(ampsim, SOLVERS[solver])).parameters
    for options in [*OF_ALL_SOLVERS, *OF_ONE_SOLVER.get(solver, [])]:
        if set(options) <= set(known):
            yield {"ranks": 2 if "inner" in options else 4, **options}


def _cluster_file(hardware: str, folder: Path) -> Path:
    device, rest = HARDWARE[hardware]
    (folder / f"device-{device}.toml").write_text(DEVICES[device].replace("@", ORIGIN))
    path = folder / f"{hardware.replace(', ', '-').replace(' ', '-')}.toml"
    here = f'[[device]]\nfile = "device-{device}.toml"\ncount = 6\n'
    keys, tables = rest.split("\n", 1) if rest.startswith("sharing") else ("", rest)
    path.write_text(f"{keys}\n{here}\n{tables}\n".replace("@", ORIGIN))
    return path


def program_cases() -> Iterator[tuple[str, Any]]:
    """(policy, (name, run)) of random programs on the dependency engine."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "property"))
    from dependency_programs import Program

    def run(seed: int) -> dict[str, str]:
        result = Program(seed).run()
        found = {"makespan_s": repr(result.makespan_s)}
        for table in ("operations", "transfers", "critical_path", "pushes", "memory"):
            found |= _columns(table, getattr(result, table))
        return found

    for seed in range(PROGRAMS):
        yield "dependency", (f"program {seed}", lambda seed=seed: run(seed))


def flow_cases() -> Iterator[tuple[str, Any]]:
    """("dataflow", (name, run)) of random programs of branches and loops, and of models."""
    import ampsim

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "property"))
    for seed in range(FLOWS):
        yield "dataflow", (f"flow {seed}", lambda seed=seed: _flow(random.Random(seed)))
    k40 = ampsim.load_cluster("k40").devices[0]
    small = k40.model_copy(
        update={"memory_bytes": 10**7, "dispatch_s": 5e-6, "operation_overhead_s": 0.0}
    )
    cluster = ampsim.Cluster(name="k40", devices=(small,) * 2)
    for model, settings in FLOW_MODELS.items():
        for schedule, many in FLOW_SCHEDULES.items():
            for options in many:
                made = getattr(ampsim, schedule)(**options)
                loaded = ampsim.load_model(model, **settings)

                def run(loaded: Any = loaded, made: Any = made) -> dict[str, str]:
                    return hashes(ampsim.simulate(loaded, cluster, made, epochs=2, instances=20))

                yield "dataflow", (f"{model}, {schedule} {options}", run)


def _flow(draw: random.Random) -> dict[str, str]:
    """A random program with its gradients, somewhere, somehow."""
    from dataflow_programs import Built, interpret

    from ampsim import flow
    from ampsim.dataflow.plan import needed

    with flow.FlowGraph():
        a, b = (flow.input(name, (ELEMENTS,), "float64") for name in "ab")
        product = ("float", 0, "multiply", (0, 0), (0, 1))  # its gradient needs both factors
        block = [("while", draw.randrange(7), False, [*_block(draw, 2), product])]
        state = interpret(block, [(a, b, flow.input("k", (), "int64"))], Built())
        asked = [flow.identity(one) for one in state]
        asked += flow.gradients(flow.sum(asked[0] * asked[1] + asked[1] * 2.0), [a, b])
    cluster = _cluster(draw)
    workers, has_memory = cluster.workers, cluster.devices[0].memory_bytes is not None
    feeds = {"a": np.linspace(0.5, 1, ELEMENTS), "b": np.linspace(-0.5, 0.2, ELEMENTS), "k": 3}
    nodes, does_swap = needed(asked), has_memory and draw.random() < 0.8
    skipped = ("constant", "enter", "enter-constant", "next-iteration")
    placed = [one.name for one in nodes if one.operator.name not in skipped]
    result = flow.run(
        asked,
        {one.name: feeds[one.name] for one in nodes if one.name in feeds},
        cluster=cluster,
        mode=draw.choice(["numeric", "sleep"]),
        parallel_iterations=draw.randrange(4),
        run_ahead=draw.random() < 0.8,
        **({"swap_memory": True, "swap_threshold": draw.choice([0.0, 0.3])} if does_swap else {}),
        broadcast_dead=draw.random() < 0.3,
        placement={one: draw.randrange(workers) for one in placed} if workers > 1 else None,
        seed=1,
    )
    found = {
        "makespan_s": repr(result.makespan_s), "sent": str(result.sent),
        "swapped": f"{result.swapped_out_bytes} {result.swapped_in_bytes}",
        "window_max": str(result.window_max),
        "values": hashlib.sha256(b"".join(_bytes(one) for one in result.values)).hexdigest(),
    }  # fmt: skip
    for table in ("spans", "transfers", "memory", "frames", "decisions", "evaluations"):
        found |= _columns(table, getattr(result, table))
    return found | _columns("critical_path", result.critical_path)


def _cluster(draw: random.Random) -> Any:
    """Devices and links of some kind."""
    from ampsim.hardware import Cluster, Device, Link

    dispatch_s = draw.choice([0.0, 0.0, 0.25])
    told: dict[str, Any] = {
        "flop_per_s": 1.0, "copy_bandwidth_bytes_per_s": 4800.0, "dispatch_s": dispatch_s,
        "memory_bytes": draw.choice([None, 10**9, 50_000, 90_000]),
        "operation_overhead_s": 0.0 if dispatch_s else draw.choice([0.0, 1.0]),
        "jitter_cv": draw.choice([0.0, 0.0, 0.3]),
    }  # fmt: skip
    workers = draw.choice([1, 1, 1, 2, 3])
    devices = tuple(Device(name=f"d{number}", **told) for number in range(workers))
    link = Link(latency_s=draw.choice([0.0, 0.5]), bandwidth_bytes_per_s=draw.choice([None, 4e3]))
    return Cluster(name="drawn", devices=devices, link=link)


def _bytes(value: Any) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray | np.generic) else str(value).encode()


def _block(draw: random.Random, depth: int) -> list[Any]:
    """Statements of `dataflow_programs`, nested so deep at most."""
    found: list[Any] = []
    for _ in range(draw.randint(1, 3)):
        kind = draw.choice(["float", "integer", "swap", "if", "while"] if depth else ["float"])
        found.append(
            {
                "float": lambda: (
                    draw.randrange(2), draw.choice(["add", "subtract", "multiply", "halve"]),
                    *((draw.randrange(4), draw.randrange(2)) for _ in range(2)),
                ),
                "integer": lambda: (draw.randint(1, 3), draw.randrange(6)),
                "swap": lambda: (0,),
                "if": lambda: (
                    draw.choice(["even", "more"]), draw.randrange(5),
                    _block(draw, depth - 1), _block(draw, depth - 1),
                ),
                "while": lambda: (
                    draw.randrange(6), draw.random() < 0.5, _block(draw, depth - 1)
                ),
            }[kind]()
        )  # fmt: skip
        found[-1] = (kind, *found[-1])
    return found


def question_cases() -> Iterator[tuple[str, Any]]:
    """("questions", (name, run)) of everything that is asked of many runs."""
    import ampsim

    model = ampsim.load_model("mlp", **MODELS["mlp"][0])
    common: dict[str, Any] = {"target": 0.15, "max_epochs": 6, "repeats": 2, "instances": 300}
    over = {"device.flop_per_s": "1e11..1e13:log"}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "forecast": ("forecast", {"tune": 3}),
        "map": ("explore", {"over": over, "points": 3}),
        "what-if": ("whatif", {"learn": 1}),
        "root": ("solve", {"over": over, "until": "time_s(amp:4) <= 3e-3"}),
        "root of a ratio": ("solve", {"over": over, "until": "epoch_s(amp:4) <= epoch_s(gpipe)"}),
        "search": ("search", {"over": over, "trials": 4}),
    }
    with tempfile.TemporaryDirectory() as folder:
        for hardware in HARDWARE:
            path = _cluster_file(hardware, Path(folder))
            cluster = ampsim.load_cluster(
                str(path), topology="ring" if hardware == "ring" else None
            )
            for what, (function, options) in asked.items():
                rows = () if function == "solve" else ("amp:4,gpipe",)  # its condition names them
                ask = (function, (model, cluster, *rows), {**common, **options})
                yield "questions", (f"{what} on {hardware}", lambda ask=ask: _asked(*ask))


def _asked(function: str, given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, str]:
    import ampsim

    return _columns("table", getattr(ampsim, function)(*given, **options).table)


def file_cases() -> Iterator[tuple[str, Any]]:
    """(command, (name, run)) of what writes files."""
    for what, command in COMMANDS.items():
        if what == "chart":
            for suffix in CHARTS:
                words = [*command.split(), "--out", f"chart.{suffix}"]
                yield "files", (f"chart as {suffix}", lambda words=words: _files(words))
        else:
            words = [*command.split(), "--out", "made", "--json", "rows.json", "--quiet"]
            yield "files", (what, lambda words=words: _files(words))


def _files(words: list[str]) -> dict[str, str]:
    """A hash of each file that a command writes, and of what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "ampsim", *words], cwd=folder, capture_output=True, check=False
        )
        found = {"printed": _hash(ended.stdout), "exit": str(ended.returncode)}
        assert ended.returncode == 0, ended.stderr.decode()
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                found[str(path.relative_to(folder))] = _hash(path.read_bytes())
    return found


def _hash(content: bytes) -> str:
    """Of a file, without hashes of code and inputs, and times of day."""
    plain = re.sub(rb"\b[0-9a-f]{12,64}\b", b"HASH", content)
    plain = re.sub(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+\d\d:\d\d)?", b"TIME", plain)
    return hashlib.sha256(plain).hexdigest()


PARTS = {
    "schedules": schedule_cases,
    "solvers": solver_cases,
    "dependency": program_cases,
    "dataflow": flow_cases,
    "questions": question_cases,
    "files": file_cases,
}


def dump(only: list[str]) -> None:
    """Print, a line a case, what there is to compare: a hash of each column, or why it failed."""
    for part, cases in PARTS.items():
        for method, (name, make) in cases():
            if not only or part in only or method in only:
                print(json.dumps([name, found_in(part, make)]), flush=True)


def hashes(result: Any) -> dict[str, str]:
    """A hash of each column of each table, and of each weight."""
    found: dict[str, str] = {}
    for table in (
        "spans", "transfers", "updates", "stashes", "epochs", "staleness", "exchanges",
        "collectives", "outages", "memory", "critical_path",
    ):  # fmt: skip
        found |= _columns(table, getattr(result, table))
    for name, array in result.model.parameters().items():
        found[f"weights.{name}"] = hashlib.sha256(array.tobytes()).hexdigest()
    for number in ("makespan_s", "train_per_s", "utilisation", "staleness_mean", "messages"):
        found[number] = repr(getattr(result, number))
    return found


def _columns(table: str, frame: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in frame:
        values = frame[column]
        is_text = values.dtype.kind not in "biuf"
        content = "\n".join(map(str, values)).encode() if is_text else values.to_numpy().tobytes()
        found[f"{table}.{column}"] = hashlib.sha256(content).hexdigest()
    return found


def runs_of(folder: Path, only: list[str]) -> dict[str, dict[str, str]]:
    """What an installation gives, by run."""
    command = [sys.executable, str(Path(__file__).resolve()), "--dump"]
    command += [word for name in only for word in ("--only", name)]
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "PYTHONSAFEPATH": "1"}
    ended = subprocess.run(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(line) for line in ended.stdout.splitlines())


def main() -> int:
    """Run both, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--only", action="append", default=[], metavar="SCHEDULE")
    parser.add_argument("--dump", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.dump:
        dump(chosen.only)
        return 0
    if len(chosen.folders) != 2:
        parser.error("expected two folders, OLD and NEW")
    old, new = (runs_of(folder, chosen.only) for folder in chosen.folders)
    differing = 0
    for name in sorted({*old, *new}):
        first, second = old.get(name, {}), new.get(name, {})
        parts = [key for key in first if key in second and first[key] != second[key]]
        if parts or not first or not second or ("error" in first) != ("error" in second):
            differing += 1
            print(f"{name}: {', '.join(parts) or 'not in both'}")
    columns = [{key for run in runs.values() for key in run} for runs in (old, new)]
    print(f"only in OLD: {', '.join(sorted(columns[0] - columns[1])) or 'nothing'}")
    print(f"only in NEW: {', '.join(sorted(columns[1] - columns[0])) or 'nothing'}")
    refused = sum("error" in run for run in old.values())
    print(f"{len(old)} runs, {refused} of them refused by both; {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
