"""What several tests share: chains of stages whose steps cost what the test says."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from _pytest.runner import runtestprotocol
from invariants import watch

import ampsim
from ampsim.data import list_reduction, mnist
from ampsim.hardware import HOST, Cluster, Device, Link
from ampsim.hardware.topology import Route
from ampsim.ir import Direction, Graph, Send, Work
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd

CLASSES = 2

for _name, _usual in {
    "SIGHUP": signal.SIG_DFL, "SIGTERM": signal.SIG_DFL, "SIGQUIT": signal.SIG_DFL,
    "SIGINT": signal.default_int_handler,
}.items():  # fmt: skip
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, _name), _usual)  # under nohup, or behind a shell's "&"

QUIET = pytest.mark.skip(reason="needs a processor of its own: pytest -m quiet")

PASSED: list[str] = []
"""Names of the tests that passed, in the order in which they ended."""

COLLECTED: Counter[str] = Counter()
"""How many tests each file has, those included that are left out."""

PASSED_BEFORE = pytest.StashKey[frozenset[str]]()
"""Of a suite's second part: tests that passed in the first, and files all of whose tests did."""

TESTS = Path(__file__).parent

THOROUGH = ("oracle", "property", "validation")
"""Folders of tests that are tables of pairs, long runs, or comparisons with other programs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of a suite that is run in two parts, of which the second leaves out what passed."""
    options = parser.getgroup("ampsim", "a suite in parts")
    options.addoption("--note-passed", metavar="FILE", help="write the names of passed tests there")
    options.addoption("--leave-out", metavar="FILE", help="leave out the tests that FILE names")


APART = {
    "tests/test_notebooks.py", "tests/oracle/test_old_weights.py", "tests/property/test_models.py",
    "tests/property/test_modes.py", "tests/unit/test_page_examples.py",
}  # fmt: skip
"""Long files whose tests share nothing: several processes share such a file."""

TOGETHER = {"tests/property/test_bounds.py": "tests/property/test_every_schedule.py"}
"""Files that make the runs of others, which are kept within a process."""

SLOW_S, QUICK_S = 3.0, 0.1
"""Seconds of a test that is marked slow and does not say how slow, and of another; chosen."""


IMAGES_MAX = 20
"""Drawn data sets that are kept; chosen: 2,000 images are 1.6 MB."""

LISTS_MAX = 20
"""Likewise of lists, of which all 100,000 are drawn to see the first batch; chosen: 1.2 MB each."""


def pytest_configure(config: pytest.Config) -> None:
    """Have every run that a test makes obey what all runs obey; keep the order of long files.

    What is made while tests are collected stays to the end, so that nobody looks for garbage in it.
    Nobody waits for the disk: no test cuts the power. That the file is open is asked all the same.
    """
    path = config.getoption("--leave-out")
    passed = Path(path).read_text(encoding="utf-8").split("\0") if path is not None else ()
    config.stash[PASSED_BEFORE] = frozenset(passed)
    patch = pytest.MonkeyPatch()
    watch(patch)
    patch.setattr(mnist, "_draw", draw_once(mnist._draw))
    patch.setattr(list_reduction, "_draw", lru_cache(LISTS_MAX)(list_reduction._draw))
    patch.setattr(os, "fsync", os.fstat)
    gc.disable()
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def draw_once(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draw synthetic images once for many runs: they take as long as a short run, and are frozen.

    Patterns hang on the seed alone.
    """
    known: dict[tuple[int, str, int], Any] = {}

    def drawn(seed: int, patterns: Any, split: str, count: int) -> Any:
        if len(known) > IMAGES_MAX:
            known.clear()
        key = seed, split, count
        if key not in known:
            known[key] = draw(seed, patterns, split, count)
        return known[key]

    return drawn


def pytest_collection_finish() -> None:
    """Look for garbage again, but seldom, and not in what was collected."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which every test would be left out."""
    is_thorough = collection_path.parent == TESTS and collection_path.name in THOROUGH
    file = Path(os.path.relpath(collection_path, config.rootpath)).as_posix()
    is_left_out = is_thorough and config.option.markexpr == "not thorough"
    return True if is_left_out or file in config.stash[PASSED_BEFORE] else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give out whole files, for their tests share runs, but single tests of those in `APART`."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return nodeid if file in APART else TOGETHER.get(file, file)

    return Files(config, log)


def longest_first(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process ends with one of them alone."""
    seconds: dict[Path, float] = {}
    for item in items:
        slow = item.get_closest_marker("slow")
        taken_s = QUICK_S if slow is None else next(iter(slow.args), SLOW_S)
        seconds[item.path] = seconds.get(item.path, 0.0) + taken_s
    items.sort(key=lambda item: -seconds[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Tell the process that counts, of a test that is well, one report and that it ended.

    Reports that it was prepared and tidied up are the longer part of what is sent.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what passed; under xdist this is told where the report is put together."""
    if report.when == "call" and report.passed:
        PASSED.append(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn how many tests each file has from one of the processes that collected them."""
    if not COLLECTED:
        COLLECTED.update(getattr(node, "workeroutput", {}).get("collected", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down what passed, unless this is one of several processes."""
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["collected"] = dict(COLLECTED)
        return
    path = session.config.getoption("--note-passed")
    if path is not None:
        names = [*PASSED, *whole_files(PASSED, COLLECTED)]
        Path(path).write_text("\0".join(names), encoding="utf-8")


def whole_files(passed: list[str], collected: Mapping[str, int]) -> list[str]:
    """The files all of whose tests passed: none was skipped, or marked for another part."""
    counts = Counter(map(file_of, passed))
    return [file for file, count in collected.items() if counts[file] == count]


def file_of(name: str) -> str:
    """The file of a test, by the test's name."""
    return name.partition("::")[0]


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that passed before."""
    passed = config.stash[PASSED_BEFORE]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark thorough tests; leave out those that really wait where others run beside them."""
    COLLECTED.update(file_of(item.nodeid) for item in items)
    leave_out(config, items)
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in THOROUGH:
            item.add_marker("thorough")
    if "PYTEST_XDIST_WORKER" in os.environ:
        longest_first(items)
        for item in items:
            if item.get_closest_marker("quiet"):
                item.add_marker(QUIET)


class One(NamedTuple):
    """State of a message in a chain: there is nothing to count but instances."""

    instance: int


class Rows(NamedTuple):
    """A batch: inputs and labels."""

    values: np.ndarray
    labels: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.labels)


class Stage(Linear):
    """A square linear layer whose steps cost a fixed number of FLOP, whatever the payload."""

    def __init__(self, name: str, cost: tuple[int, int, int]) -> None:
        super().__init__(name, CLASSES, CLASSES)
        forward, backward, update = cost
        self.flop = {
            Direction.FORWARD: forward,
            Direction.BACKWARD: backward,
            Direction.UPDATE: update,
        }

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        return Work(self.flop[direction])

    def work_of_halves(self, shape: tuple[int, ...] | None) -> tuple[Work, Work]:
        """The weight's gradient costs a third of the backward step, rounded down."""
        weight = self.flop[Direction.BACKWARD] // 3
        return Work(self.flop[Direction.BACKWARD] - weight), Work(weight)


@dataclass(frozen=True)
class Chain:
    """Stages in a row, then a loss; it is the data set and the configuration too.

    Args:
        costs: FLOP of a forward step, a backward step and an update, for each stage.
        instances: training instances, of `rows` rows each.
        valid: validation instances.
        rows: rows of an instance.
        update_interval: gradients between updates that the model prefers.
    """

    costs: tuple[tuple[int, int, int], ...]
    instances: int = 4
    valid: int = 0
    rows: int = 1
    update_interval: int = 1

    name = "chain"
    description = "random numbers"

    def count(self, split: str) -> int:
        return self.rows * self.batch_count(split)

    def batch_count(self, split: str) -> int:
        return self.instances if split == "train" else self.valid

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Rows]:
        random = np.random.default_rng([seed, epoch, split == "train"])
        for _ in range(self.batch_count(split)):
            labels = random.integers(0, CLASSES, self.rows)
            yield Rows(random.standard_normal((self.rows, CLASSES)), labels)

    def graph(self) -> Graph:
        graph = Graph("chain")
        wire, label = graph.controller(values=("rows", CLASSES), label=("rows",))
        for number, cost in enumerate(self.costs, 1):
            wire = graph.add(Stage(f"stage-{number}", cost), wire)
        graph.end(SoftmaxCrossEntropy("loss"), wire, label)
        return graph

    def model(self) -> ampsim.Model:
        return ampsim.Model(
            name="chain",
            config=self,
            make_graph=self.graph,
            make_data=lambda _seed, _count: self,
            pump=pump_rows,
            optimizer=sgd(0.01),
            min_update_interval=self.update_interval,
            dtype="float64",
        )


def pump_rows(instance: int, batch: Rows) -> list[Send]:
    return [(0, One(instance), batch.values), (1, One(instance), batch.labels)]


@pytest.fixture(scope="session")
def chain() -> Callable[..., Chain]:
    """`chain(costs, instances=…)`; its `model()` is what runs."""
    return Chain


@pytest.fixture(scope="session")
def make_cluster() -> Callable[..., Cluster]:
    """`make_cluster(workers, flop_per_s=1.0, link=…, links={(source, target): link})`."""

    def make(workers: int, *, flop_per_s: float = 1.0, **ways: Any) -> Cluster:
        own = ways.get("links", {})
        return Cluster(
            name="test",
            devices=(Device(name="test", flop_per_s=flop_per_s),) * workers,
            link=ways.get("link", Link()),
            links=tuple(Route(source=s, target=t, link=link) for (s, t), link in own.items()),
        )

    return make


@pytest.fixture(scope="session")
def random_cluster(make_cluster: Callable[..., Cluster]) -> Callable[..., Cluster]:
    """`random_cluster(workers, seed=…, latency_s_max=…)`: a latency of its own for each pair."""

    def make(workers: int, *, seed: int, latency_s_max: float, **link: Any) -> Cluster:
        random = np.random.default_rng(seed)
        places = [HOST, *range(workers)]
        links = {
            (source, target): Link(latency_s=float(random.uniform(0.0, latency_s_max)), **link)
            for source in places
            for target in places
            if source != target
        }
        return make_cluster(workers, flop_per_s=1e12, links=links)

    return make


OF_A_CELL = re.compile(
    r"(?P<cell>.+?)(-(o|i|f-(left|right|state)|g|r|z|n))?(-(?P<port>input|state))?[.](?P<what>.+)"
)


@pytest.fixture(scope="session")
def as_fused() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """`as_fused(parameters)` of composed cells, called and put side by side as in fused ones."""

    def rename(parameters: dict[str, Any]) -> dict[str, Any]:
        parts: dict[str, list[Any]] = {}
        for name, values in parameters.items():
            match = OF_A_CELL.fullmatch(name)
            assert match
            port = f"_{match['port']}" if match["port"] else ""
            parts.setdefault(f"{match['cell']}.{match['what']}{port}", []).append(values)
        return {name: np.concatenate(values, axis=-1) for name, values in parts.items()}

    return rename
