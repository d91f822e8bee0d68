"""Small faults, planted one by one: the tests must catch each.

    python tests/robustness/planted_faults.py
    python tests/robustness/planted_faults.py --only "lost cause" --tests oracle
    python tests/robustness/planted_faults.py --first --from "wrong tie"

A fault is one line of a copy of `ampsim` that is written otherwise; the tests then run on the copy,
and it is told how many fail. Exit code 1 where a fault is not caught, or its line has gone. It says
whether a suite that was made faster still sees what it saw before. With `--first` a fault takes up
to two minutes; who stops it goes on `--from` the fault that was told last.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    "golden", "oracle/test_closed_forms.py", "oracle/test_schedules_closed_forms.py",
    "oracle/test_sequential_sgd.py", "oracle/test_plain_loops.py", "oracle/test_solver_rates.py",
    "oracle/test_solvers_asynchrony.py", "oracle/test_several_servers.py",
    "oracle/test_max_min_shares.py",
    "oracle/test_dependency_closed_forms.py", "oracle/test_dataflow_closed_forms.py",
    "oracle/test_dataflow_devices.py",
    "property/test_trace_invariants.py", "property/test_memory.py", "property/test_transfers.py",
    "unit/test_instant.py", "unit/test_nodes_learning.py",
)  # fmt: skip
"""Those that ought to see them: closed forms, plain loops, and invariants of the trace."""


LEARNING = (
    "unit/test_learning_subject.py", "oracle/test_learning_apart.py",
    "unit/test_learning_killed.py", "oracle/test_learning_batched.py",
    "oracle/test_one_learning.py", "property/test_learning_apart_at_random.py",
)  # fmt: skip
"""Those that ought to see another order, digest, key, or learning kept."""


RUNS = (
    "unit/test_jobs.py", "unit/test_dask_client.py", "unit/test_kept_forecasts.py",
    "unit/test_whole_progress.py",
)  # fmt: skip
"""Those that ought to see a run that is kept, counted, asked for or taken as another."""


CLOSED_FLOWS = ("oracle/test_dataflow_closed_forms.py",)

_DEAD_EXIT = """        if iteration.is_dead[step.number]:
            return
        frame = iteration.frame
        assert"""


class Planted(NamedTuple):
    """One line that is written otherwise, and the tests that ought to see it."""

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...] = TESTS


def of_learning(file: str, right: str, wrong: str) -> Planted:
    """A fault in what is learned apart: its digest, its key, where it is kept, or its replay."""
    return Planted(file, right, wrong, LEARNING)


def of_runs(file: str, right: str, wrong: str) -> Planted:
    """A fault in what many runs share: keys, counts, and what becomes of each."""
    return Planted(file, right, wrong, RUNS)


def of_budget(right: str, wrong: str) -> Planted:
    """A fault in what a forecast's budget counts and buys."""
    return Planted("forecasting/budget.py", right, wrong, ("unit/test_spending.py",))


def of_answer(file: str, right: str, wrong: str) -> Planted:
    """A fault in what is said of a forecast's answer, or in what it spent on it."""
    return Planted(file, right, wrong, ("unit/test_budget_of_a_forecast.py",))


def of_engine(file: str, right: str, wrong: str) -> Planted:
    """A fault in what a dependency engine tells of its operations and its places."""
    return Planted(file, right, wrong, ("unit/test_dependency_engine.py",))


FAULTS = {
    "last come, first served": Planted(
        "model_parallel/worker.py", "message = queue.popleft()", "message = queue.pop()"
    ),
    "wrong tie": Planted(
        "machine/processor.py", "processor = waiting.popleft()", "processor = waiting.pop()"
    ),
    "lost cause": Planted(
        "model_parallel/worker.py",
        "self.send_on(placed, direction, state, sends, number)",
        "self.send_on(placed, direction, state, sends, cause)",
    ),
    "one byte kept": Planted(
        "machine/memory.py",
        "self.total_bytes -= size_bytes",
        "self.total_bytes -= max(size_bytes - 1, 0)",
    ),
    "staleness off by one": Planted(
        "model_parallel/update.py",
        "node.staleness_sum / max(count, 1), node.staleness_max",
        "(node.staleness_sum + 1) / max(count, 1), node.staleness_max + 1",
    ),
    "a sum for a mean": Planted(
        "model_parallel/update.py", "len(node.instances) > 1", "len(node.instances) > 2"
    ),
    "no latency after a wait": Planted(
        "machine/first_come.py",
        "delay_s = wait_s + held_s + delay_s",
        "delay_s = wait_s + held_s + (0.0 if wait_s else delay_s)",
    ),
    "more bandwidth than there is": Planted(
        "machine/max_min.py",
        "used + flow.limit_bytes_per_s > capacity.bytes_per_s",
        "used > capacity.bytes_per_s",
    ),
    "a weight's work forgotten": Planted("nodes/linear.py", "flop = 2 * rows", "flop = rows"),
    "an epoch's place off by one": Planted(
        "data_parallel/batch_queue.py",
        "passed = self._number - self._first",
        "passed = self._number - self._first + 1",
    ),
    "a server that forgets the oldest": Planted(
        "data_parallel/servers.py",
        "size_bytes, max(stale), distance",
        "size_bytes, stale[-1], distance",
    ),
    "a writer beside readers": Planted(
        "dependency/execution.py",
        "        if variable.queue and not variable.readers:\n",
        "        if variable.queue:\n",
    ),
    "a pool that does not ask how urgent": Planted(
        "dependency/policies.py", "heappush(self._waiting, entry(operation))",
        "heappush(self._waiting, (0.0, *entry(operation)[1:]))",
        ("oracle/test_dependency_event_loop.py",),
    ),
    "a window too wide": Planted(
        "dataflow/plan.py",
        "self.latest - self.first + 1 >= window",
        "self.latest - self.first + 1 > window",
    ),
    "a host that waits for its device": Planted(
        "dataflow/executor.py",
        "step.is_on_device and self._run_ahead and not step.is_read",
        "False",
    ),
    "an instance that follows its own worker": Planted(
        "dataflow/session.py", "            host.cause = last\n", "",
        ("oracle/test_elasticities.py",),
    ),
    "what a loop captures on stacks": Planted(
        "dataflow/gradient.py",
        "        if tensor.captured_from is not None:\n            return",
        "        if tensor.captured_from is not None and not isinstance(tensor.context, Loop):\n"
        "            return",
    ),
    "a message without its tag": Planted(
        "dataflow/rendezvous.py",
        "arrive = partial(self._arrive, recvs, path, sent)",
        "arrive = partial(self._arrive, recvs, path[:0], sent)",
    ),
    "a digest without the seed": of_learning("study/apart.py", '"seed": self.seed', '"seed": 0'),
    "a digest without the mean": of_learning(
        "study/apart.py", '"averages": self.schedule.updates.averages', '"averages": False'
    ),
    "a digest without the remedy": of_learning(
        "study/apart.py", '"remedy": self.schedule.weights.remedy', '"remedy": ""'
    ),
    "a digest without first weights": of_learning(
        "study/apart.py", "hasher.update(np.ascontiguousarray(node.theta).data)", "pass"
    ),
    "a digest without the optimizer": of_learning(
        "study/apart.py", "hasher.update(_behaviour(model.optimizer))", "pass"
    ),
    "a digest without data": of_learning(
        "study/apart.py", "            add_value(hasher, first, {})", "            pass"
    ),
    "a digest without options of nodes": of_learning(
        "study/apart.py", "            add_value(hasher, node, seen)", "            pass"
    ),
    "a chain without what came before": of_learning(
        "study/apart.py", "_named(chain, order.digest", '_named("", order.digest'
    ),
    "a chain without the rate": of_learning(
        "study/apart.py", "order.first_instance, epoch, *rates", "order.first_instance, epoch"
    ),
    "a key without the arithmetic": of_learning(
        "study/apart.py", "files, arithmetic, code", "files, code"
    ),
    "a key without data files": of_learning(
        "study/apart.py", "_named(self.digest, files,", "_named(self.digest, (),"
    ),
    "a validation of any instances": of_learning(
        "study/apart.py", '"valid", first_instance)', '"valid")'
    ),
    "replicas that have no mean": of_learning(
        "study/apart.py", "if is_mean and not self._held[1]", "if is_mean and self._held[1]"
    ),
    "an order without reads": of_learning(
        "model_parallel/order.py",
        "self._of_reads.digest() + self._of_gradients.digest()",
        "self._of_gradients.digest()",
    ),
    "an order without gradients": of_learning(
        "model_parallel/order.py",
        "self._of_reads.digest() + self._of_gradients.digest()",
        "self._of_reads.digest()",
    ),
    "a sequence for a set": of_learning(
        "model_parallel/order.py", "            _sort_by_state(rows)\n", ""
    ),
    "an older version forgotten": of_learning(
        "model_parallel/order.py", "(update - lag, update)", "(update, update)"
    ),
    "losses kept before weights": of_learning(
        "learning/kept.py",
        """        if weights is not None:
            self._write(digest, _WEIGHTS, weights)
        self._write(digest, _TOTALS, arrays)""",
        """        self._write(digest, _TOTALS, arrays)
        if weights is not None:
            self._write(digest, _WEIGHTS, weights)""",
    ),
    "an edited learning taken": of_learning(
        "learning/kept.py", "if hashlib.sha256(body).digest() != written:", "if not body:"
    ),
    "two that learn the same at once": of_learning(
        "learning/kept.py",
        'with FileLock(self.folder / f"{digest}.lock"):',
        "with contextlib.nullcontext():",
    ),
    "an update before its last gradient": of_learning(
        "learning/replay.py",
        "self.node.gradient_count > 0 and not self._expected[version]",
        "self.node.gradient_count > 0",
    ),
    "an update before its last reader": of_learning(
        "learning/replay.py", "(self._stashes or version not in self._unread)", "True"
    ),
    "an optimizer that forgets": of_learning(
        "learning/replay.py", "enumerate(kept)", "enumerate(())"
    ),
    "rates of the first epoch": of_learning(
        "study/training.py", "self._apart.replay.updater.start_epoch(*start)", "pass"
    ),
    "a wrong learning that passes": of_learning(
        "runs/task.py", "if not _same_learning(simulation.result(), result)", "if False"
    ),
    "a run kept under another's key": of_runs(
        "runs/jobs.py", "keeping.put(known[left[index]], run)", "keeping.put(known[index], run)"
    ),
    "equal runs made twice": of_runs(
        "runs/jobs.py",
        "places.setdefault(task.key or uuid.uuid4().hex, [])",
        "places.setdefault(uuid.uuid4().hex, [])",
    ),
    "an end that is counted twice": of_runs(
        "runs/jobs.py", "finished=whole.finished + 1", "finished=whole.finished + 2"
    ),
    "what was cancelled taken for finished": of_runs(
        "runs/dask_client.py",
        "made.set_result(asked.result())",
        'made.set_result(None if asked.status == "cancelled" else asked.result())',
    ),
    "last asked for, first made": of_runs(
        "runs/dask_client.py", "priority=-self._count", "priority=self._count"
    ),
    "weights lost with a checkpoint": of_learning(
        "study/apart.py", "any(loses_weights(cluster, worker) for", "any(False for"
    ),
    "a window that no loop heeds": Planted(
        "dataflow/plan.py", "return bool(window) and", "return False and",
        ("property/test_dataflow_options.py",),
    ),
    "a schedule's window ignored": Planted(
        "dataflow/schedules.py", "Running(**self._fixed, **vars(self))",
        'Running(**{**vars(self), "parallel_iterations": 32, **self._fixed})',
        ("property/test_dataflow_options.py",),
    ),
    "a gradient that met the next version": Planted(
        "model_parallel/placed_node.py", "self._brought((state, learner.version, lag))",
        "self._brought((state, learner.version + 1, lag))", ("property/test_every_schedule.py",),
    ),
    "an exchange caused by the last one": Planted(
        "data_parallel/rank.py", "cause = await rank.compute(batches, exchange, cause)",
        "await rank.compute(batches, exchange, cause)", ("property/test_every_solver.py",),
    ),
    "dead Exits of a large loop not held": Planted(
        "dataflow/executor.py", _DEAD_EXIT,
        _DEAD_EXIT.replace(":", " and len(iteration.frame.plan.exits) < 6:"), CLOSED_FLOWS,
    ),
    "dead Exits of small loops not held": Planted(
        "dataflow/executor.py", _DEAD_EXIT,
        _DEAD_EXIT.replace(":", " and len(iteration.frame.plan.exits) >= 6:"), CLOSED_FLOWS,
    ),
    "dead Exits of a long loop not held": Planted(
        "dataflow/executor.py", _DEAD_EXIT,
        _DEAD_EXIT.replace(":", " and iteration.number < 6:"), CLOSED_FLOWS,
    ),
    "a large loop that no dead value leaves": Planted(
        "dataflow/executor.py", "if step.number not in frame.left:",
        "if step.number not in frame.left and len(frame.plan.exits) < 6:", CLOSED_FLOWS,
    ),
    "trials that cost nothing": of_answer(
        "forecasting/budget.py", "            self._count(tuned.runs)\n", ""
    ),
    "a budget spent once more on seeds": of_budget(
        "self._budget.work_s - self._spent_s\n", "self._budget.work_s\n"
    ),
    "a budget that would not do": of_budget(
        "seeds, trials / TUNING)", "seeds, trials)"
    ),
    "tuning that spends all": of_budget(
        "return cost_s >= TUNING * ", "return cost_s >= "
    ),
    "trials that end an epoch early": of_budget(
        "ceil(SLACK * of)", "ceil(SLACK * (of - 1))"
    ),
    "a first run of another optimizer": of_budget(
        " and one.plan.model is before.plan.model", ""
    ),
    "the slowest run for the median": of_answer(
        "forecasting/change.py", "[(len(times) - 1) // 2]", "[-1]"
    ),
    "the host's ports left as they are": of_answer(
        "hardware/load.py", "host = None if ports.host is None else changed(ports.host)",
        "host = ports.host",
    ),
    "edges left as they are": of_answer(
        "hardware/load.py", "edges=tuple(map(changed, cluster.edges))", "edges=cluster.edges"
    ),
    "a row broken with one seed of several": Planted(
        "exploring/making.py", "self.as_given(row, runs[label])",
        "self.as_given(row, runs[label][:1])", ("unit/test_fair_comparison.py",),
    ),
    "a map that scales a rate that its row sets": Planted(
        "exploring/making.py", '"none" if "learning_rate" in row.settings else None', "None",
        ("unit/test_recipe_explored.py",),
    ),
    "a search by other seeds": Planted(
        "recipes/rows.py", '"seed": file.seeds[0], "repeats"', '"seed": 0, "repeats"',
        ("unit/test_recipe_searched.py",),
    ),
    "nodes of another chart's worker": Planted(
        "report/frames.py", "places.setdefault(name, where) != where", "False",
        ("unit/report/test_gantt_rows.py",),
    ),
    "nodes by the time of the last chart": Planted(
        "report/frames.py", "busy_s[own] = busy_s.get(own, 0.0) + its_s", "busy_s[own] = its_s",
        ("unit/report/test_gantt_rows.py",),
    ),
    "behind what made it ready": of_engine(
        "dependency/result.py", "start_s[one] > ready_s[one] and before", "before"
    ),
    "behind another while it was issued": of_engine(
        "dependency/result.py", 'ready_s[dispatches["operation"]] = dispatches["end_s"]', "pass"
    ),
    "behind what takes no time": of_engine(
        "dependency/result.py", "if end_s[one] > start_s[one]:", "if end_s[one] >= start_s[one]:"
    ),
    "what had no room lies there": of_engine(
        "machine/memory.py", "                self.give(category, size_bytes)\n", ""
    ),
    "an update that has no turn": Planted(
        "model_parallel/assembly.py", "waits = accept_update is not append", "waits = False",
        ("unit/test_schedules.py",),
    ),
    "no peak where memory ran out": Planted(
        "dataflow/engine.py", "        finally:\n            self._note_memory()\n",
        "        except KeyError:\n            raise\n        self._note_memory()\n",
        ("oracle/test_dataflow_models.py",),
    ),
    "members of a group without a price": Planted(
        "model_parallel/price.py", "known.setdefault(kind, known[whole])", "pass",
        ("oracle/test_elasticities.py",),
    ),
    "known where the last value is": of_answer(
        "forecasting/change.py", "value, is_known and is_known_there", "value, is_known_there"
    ),
    "an optimizer's luckiest trial": of_answer(
        "forecasting/change.py", "of.median(skipna=False)", "of.min()"
    ),
    "a volume of what may not be taken": Planted(
        "exploring/sampling.py", 'if one.outcome == "complete":', "if one.values:",
        ("unit/test_search.py",),
    ),
    "all points of other searches": Planted(
        "exploring/sampling.py", "self._others()[:most]", "self._others()",
        ("unit/test_search.py",),
    ),
    "the slowest placement for the fastest": Planted(
        "study/placement_advice.py", "return max(filter(None, found)",
        "return min(filter(None, found)", ("unit/test_placement_advice.py",),
    ),
    "a lost run that is not told": Planted(
        "exploring/making.py", "self.lost |= dict.fromkeys(made.lost)", "pass",
        ("unit/test_questions.py",),
    ),
    "a sleep beyond what is due": Planted(
        "clock/simulated.py", "        heapify(events)\n", "", ("unit/test_clock.py",)
    ),
    "a transfer for its sender": Planted(
        "trace/recorder.py", 'columns["node"] = columns["target"]',
        'columns["node"] = columns["source"]',
        ("unit/report/perfetto/test_perfetto_links.py",),
    ),
    "joules of whole runs": Planted(
        "runs/rows.py", "getattr(run, name) * time_s / (run.makespan_s or 1)", "getattr(run, name)",
        ("unit/test_outages_and_upkeep.py",),
    ),
    "the cause of a later group": Planted(
        "trace/holding.py", "is_near(self._end_of(self._causes[one]), now_s)",
        "self._has_come(self._causes[one], now_s)", ("oracle/test_elasticities.py",),
    ),
    "a gradient that a node does not count": Planted(
        "model_parallel/placed_node.py", "                raise uncounted(learner, state)\n",
        "                pass\n", ("unit/test_faults_of_own_nodes.py",),
    ),
    "a graph that was given before": Planted(
        "study/model.py", "if of_both in _GIVEN:", "if False:",
        ("unit/test_faults_of_own_nodes.py",),
    ),
    "a label below the first class": Planted(
        "nodes/losses.py", "if 0 <= one < logits.shape[1]", "if one < logits.shape[1]",
        ("unit/test_labels.py",),
    ),
    "a mask that decides the charge": Planted(
        "nodes/attention.py", "uncharged_port = 3", "uncharged_port = -1",
        ("unit/test_charged_attention.py",),
    ),
    "what is sent after the host's steps": Planted(
        "dataflow/accounted.py", "self._advance(is_settled=False, starts_kernels=False)", "pass",
        ("property/test_dataflow_times.py",),
    ),
    "kernels of no time that wait": Planted(
        "dataflow/accounted.py", "if not task.cost.seconds:", "if False:",
        ("property/test_dataflow_times.py",),
    ),
    "a trial for a run": Planted(
        "runs/task.py", '"is_explained": (options.is_explained, True)', '"is_explained": (0, 0)',
        ("unit/test_spending.py",),
    ),
    "steps beyond the window": Planted(
        "report/gantt/view.py", "np.clip(self.values[end], *self.whole_s)", "self.values[end]",
        ("unit/report/test_gantt_html.py",),
    ),
}  # fmt: skip


def main() -> int:
    """Plant each fault, run the tests, and tell how many of them fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(FAULTS))
    parser.add_argument("--from", dest="begin", choices=list(FAULTS), help="leave out those before")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="instead of those of the fault")
    parser.add_argument("--first", action="store_true", help="one test that fails is enough")
    chosen = parser.parse_args()
    words = ["--maxfail=1"] if chosen.first else []
    names = chosen.only or list(FAULTS)
    if chosen.begin is not None:
        names = [name for name in list(FAULTS)[list(FAULTS).index(chosen.begin) :] if name in names]
    begun_s = time.monotonic()
    unseen = [
        name for name in names if not is_caught(name, chosen.tests or FAULTS[name].tests, words)
    ]
    minutes = (time.monotonic() - begun_s) / 60
    print(f"{len(names)} faults, {len(unseen)} not caught, {minutes:.0f} minutes")
    for name in unseen:
        print(f"not caught: {name}")
    return 1 if unseen else 0


def is_caught(name: str, tests: Sequence[str], more: list[str]) -> bool:
    """Whether a test fails on a copy that has the fault; `more` is for pytest."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "ampsim"
        shutil.copytree(ROOT / "ampsim", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for shared in ("models", "devices"):
            os.symlink(ROOT / shared, Path(temporary) / shared)
        try:
            plant(FAULTS[name], copy)
        except (AssertionError, OSError, SyntaxError) as error:
            print(f"{name:40}NOT PLANTED: {error}", flush=True)
            return False
        begun_s = time.monotonic()
        words = [
            *more,
            "-q",
            "-n",
            "auto",
            "--dist",
            "loadfile",
            "--tb=no",
            "-p",
            "no:cacheprovider",
        ]
        words += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        words += ["-m", "not quiet", *(str(ROOT / "tests" / one) for one in tests)]
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "pytest", *words], cwd=temporary, capture_output=True,
            text=True, env={**os.environ, "PYTHONPATH": temporary},
        )  # fmt: skip
        failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", ended.stdout, re.MULTILINE)
        seconds = time.monotonic() - begun_s
        first = failed[0] if failed else "NOT CAUGHT"
        print(f"{name:40}{seconds:5.0f} s {len(failed):5} fail: {first}", flush=True)
        return ended.returncode in (1, 2) and bool(failed)  # 2: stopped at the first


def plant(fault: Planted, package: Path) -> None:
    """Write the one line otherwise; the file must still be Python."""
    path = package / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.right) == 1, (
        f"{fault.file} has {text.count(fault.right)} {fault.right!r}"
    )
    text = text.replace(fault.right, fault.wrong)
    compile(text, fault.file, "exec")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
