"""Whether two installations of ampsim give the same numbers, and write the same files, to the bit.

    python tests/comparison/same_numbers.py OLD NEW
    python tests/comparison/same_numbers.py OLD NEW --only amp --only solvers

OLD and NEW are folders that hold the package `ampsim`: checkouts, or what
`pip install --target FOLDER` filled. There are four parts, each of which `--only` may name:

* `schedules`: every schedule on a chain, a loop, a tree and a graph model, in both modes, on one
  worker and several, with free links and with links that take time, and with each option that
  changes how steps are served (`--only` may name a schedule, too);
* `solvers`: every solver with each of its options, on free links, links, ports, devices whose time
  varies; and schedules on ports, shared edges, lanes, and devices that stop and come back;
* `dependency`: random programs on the dependency engine, under all of its policies;
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
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        return {"error": f"{type(error).__name__}: {error}", "part": part}


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
