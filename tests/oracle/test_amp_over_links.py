"""AMP and pipelines over links of their own: every step and staleness, by a machine of queues.

The machine is Algorithm 1 for a chain (Section 3): a worker takes updates before backward steps
before forward ones, each in the order in which they came; a link takes one message after the
other. Where a device names `dispatch_s`, each step is issued first, by the same order, one after
the other; gradients that come while an update is issued go into it. Where it names
`message_overhead_s`, a step lasts so much longer for each message from or to another place.
With groups a worker takes what waits for the same stage along, up to so many, in one step of the
cost of one, for a stage costs the same whatever its rows; its parts stand side by side. Before a
smaller one it may wait once, and takes then what is most urgent.
It shares no code with the engine. All costs are drawn, so that nothing meets by chance.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim import Amp, Pipeline, Sequential, simulate
from ampsim.hardware import Link

BYTES = 2 * 8  # of a row of two numbers
Job = tuple[str, int, int]
"""Forward, backward or update ("f", "b", "u"), instance or number of the update, stage; where
messages cost, also a label or prediction at the loss ("l", "p"), the stage behind the last."""


class Drawn(NamedTuple):
    """A chain on a machine: the worker of each stage, costs by stage, (s/byte, latency) by link.

    `issue_s` is what a device takes to issue a step, `message_s` for a message.
    """

    owner: list[int]
    costs: list[tuple[int, ...]]
    ways: dict[tuple[int, int], tuple[float, float]]
    issue_s: int
    message_s: int
    instances: int
    validated: int


def drawn(seed: int) -> Drawn:
    draw = random.Random(seed)
    workers, stages = draw.randint(1, 4), draw.randint(1, 7)
    ways = {
        pair: (draw.random() * 1e5 / BYTES, draw.random() * 1e5)
        for pair in itertools.permutations(range(workers), 2)
    }
    costs = [tuple(draw.randint(1, 10**5) for _ in range(3)) for _ in range(stages)]
    owner = [draw.randrange(workers) for _ in range(stages)]
    issue_s, message_s = (draw.choice([0, draw.randint(1, 10**5)]) for _ in range(2))
    return Drawn(owner, costs, ways, issue_s, message_s, draw.randint(1, 15), draw.randint(0, 9))


class Queues:
    """Workers that take what is most urgent, and what they have done.

    Args:
        drawn: what runs.
        in_flight: most instances at once.
        interval: gradients of a stage that make an update; None where a group drains first.
        most: messages of a stage in one step.
        wait_s: how long a worker waits for these.

    Attributes:
        spans: start and end of each job.
        over_s: when training and validation of each epoch are over.
        age: updates of a stage between an instance's forward and backward step there.
    """

    def __init__(
        self, drawn: Drawn, in_flight: int, interval: int | None, most: int, wait_s: int
    ) -> None:
        self.drawn, self.in_flight, self.interval = drawn, in_flight, interval
        self.most, self.wait_s = most, wait_s
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = itertools.count()
        self.now, self.first, self.last, self.under_way = 0.0, 0, 0, 0
        self.is_training, self.over_s = True, list[float]()
        self.waiting = {one: {kind: deque[Job]() for kind in "ubf"} for one in drawn.owner}
        self.unissued = {one: {kind: deque[Job]() for kind in "ubf"} for one in drawn.owner}
        self.busy, self.issuing, self.waited = set[int](), set[int](), set[int]()
        self.link_free_s: dict[tuple[int, int], float] = defaultdict(float)
        self.gradients, self.updates = defaultdict[int, int](int), defaultdict[int, int](int)
        self.due = set[int]()
        self.by_host, self.met = False, defaultdict[int, int](int)
        self.read: dict[tuple[int, int], int] = {}
        self.spans: dict[Job, tuple[float, float]] = {}
        self.age: dict[tuple[int, int], int] = {}

    def run(self, epochs: int) -> None:
        """Train on all instances; what gradients are left make an update at the end. Validate."""
        for _epoch in range(epochs):
            self.is_training, self.last = True, self.first + self.drawn.instances
            while self.first < self.last:
                self.admit()
                self.drain()
                self.by_host = True
                for stage in range(len(self.drawn.owner)):
                    if self.gradients[stage]:
                        self.update(stage)
                self.drain()
                self.by_host = False
            self.over_s.append(self.now)
            self.is_training, self.last = False, self.first + self.drawn.validated
            self.admit()
            self.drain()
            self.over_s.append(self.now)

    def drain(self) -> None:
        self.work()
        while self.events:
            self.now, _number, happen = heapq.heappop(self.events)
            happen()
            self.work()

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.number), happen))

    def admit(self) -> None:
        """Let in what there is room for."""
        while self.under_way < self.in_flight and self.first < self.last:
            self.under_way += 1
            self.queue("f", self.first, 0)
            if self.drawn.message_s:
                self.queue("l", self.first, len(self.drawn.owner))
            self.first += 1

    def queue(self, kind: str, number: int, stage: int) -> None:
        to = self.unissued if self.drawn.issue_s else self.waiting
        to[self.at(stage)]["f" if kind in "lp" else kind].append((kind, number, stage))

    def at(self, stage: int) -> int:
        """The worker of a stage, or of the loss behind the last one; the host is -1."""
        owner = self.drawn.owner
        return -1 if stage < 0 else owner[min(stage, len(owner) - 1)]

    def cost(self, job: Job) -> int:
        """What a step takes that begins, with its messages from and to other places."""
        kind, number, stage = job
        if kind in "lp":
            self.met[number] += 1
            far = (kind == "l") + (self.met[number] == 2)
        elif kind == "u":
            far = 2 * self.by_host  # the order, and word that it is done
        else:
            step = 1 if kind == "f" else -1
            came = -1 if kind == "f" and not stage else self.at(stage - step)
            far = (came != self.at(stage)) + (self.at(stage + step) != self.at(stage))
        own = 0 if kind in "lp" else self.drawn.costs[stage]["fbu".index(kind)]
        return own + far * self.drawn.message_s

    def work(self) -> None:
        for worker, queues in self.unissued.items():
            waiting = queues["u"] or queues["b"] or queues["f"]
            if waiting and worker not in self.issuing:
                self.issuing.add(worker)
                self.after(self.drawn.issue_s, partial(self.issued, worker, waiting.popleft()))
        for worker, queues in self.waiting.items():
            waiting = queues["u"] or queues["b"] or queues["f"]
            if waiting and worker not in self.busy:
                kind, _number, stage = first = waiting[0]
                jobs = [one for one in waiting if one[2] == stage][: self.most]
                if kind == "u":
                    self.gradients[stage] = 0
                    self.due.remove(stage)
                elif self.wait_s and len(jobs) < self.most and worker not in self.waited:
                    self.waited.add(worker)
                    self.busy.add(worker)
                    self.after(self.wait_s, partial(self.busy.remove, worker))
                    continue
                else:
                    self.waited.discard(worker)
                for job in jobs:
                    waiting.remove(job)
                    if kind == "f":
                        self.read[job[1], stage] = self.updates[stage]
                    elif kind == "b":
                        self.age[job[1], stage] = self.updates[stage] - self.read[job[1], stage]
                self.busy.add(worker)
                self.after(self.cost(first), partial(self.done, jobs, self.now))

    def issued(self, worker: int, job: Job) -> None:
        self.issuing.remove(worker)
        self.waiting[worker]["f" if job[0] in "lp" else job[0]].append(job)

    def update(self, stage: int) -> None:
        if stage in self.due:
            return
        self.due.add(stage)
        self.queue("u", self.updates[stage], stage)

    def done(self, jobs: list[Job], start_s: float) -> None:
        self.busy.remove(self.at(jobs[0][2]))
        part_s = (self.now - start_s) / len(jobs)
        for place, job in enumerate(jobs):
            self.spans[job] = start_s + place * part_s, start_s + (place + 1) * part_s
            self.gradients[job[2]] += job[0] == "b"
            self.ended(job)
        _kind, _number, stage = jobs[0]
        if self.interval is not None and self.gradients[stage] >= self.interval:
            self.update(stage)

    def ended(self, job: Job) -> None:
        kind, number, stage = job
        if kind in "lp":
            del self.spans[job]
            if self.met[number] == 2:
                self.evaluated(number)
        elif kind == "u":
            self.updates[stage] += 1
        elif kind == "f" and stage == len(self.drawn.owner) - 1:
            if self.drawn.message_s:
                self.queue("p", number, stage + 1)
            else:
                self.evaluated(number)
        elif kind == "f":
            self.send(job, stage + 1)
        elif stage:
            self.send(job, stage - 1)
        else:
            self.comes_back()

    def evaluated(self, number: int) -> None:
        if self.is_training:
            self.queue("b", number, len(self.drawn.owner) - 1)
        else:
            self.comes_back()

    def comes_back(self) -> None:
        self.under_way -= 1
        if self.interval is not None or not self.is_training:
            self.admit()

    def send(self, job: Job, stage: int) -> None:
        kind, number, sender = job
        link = self.drawn.owner[sender], self.drawn.owner[stage]
        if link[0] == link[1]:
            self.queue(kind, number, stage)
            return
        byte_s, latency_s = self.drawn.ways[link]
        left_s = max(self.now, self.link_free_s[link]) + BYTES * byte_s
        self.link_free_s[link] = left_s
        self.after(left_s + latency_s - self.now, partial(self.queue, kind, number, stage))


def found_of(result: Any) -> tuple[dict[Job, tuple[float, float]], dict[tuple[int, int], int]]:
    """Spans of stages, and the staleness of each backward step."""
    spans, age = {}, {}
    numbers = defaultdict[int, int](int)
    own = result.spans[result.spans["node"].str.startswith("stage")]
    own = own[own["lane"] == "compute"] if "lane" in own else own
    for one in own.sort_values("start_s").itertuples():
        stage = int(one.node.removeprefix("stage-")) - 1
        kind, number = one.direction[0], one.instance
        if kind == "u":
            number = numbers[stage]
            numbers[stage] += 1
        elif kind == "b":
            age[number, stage] = one.staleness
        spans[kind, number, stage] = one.start_s, one.end_s
    return spans, age


CASES = ("sequential", "pipeline", "amp", "amp in groups")


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.parametrize("name", CASES)
def test_every_step_update_and_staleness_is_what_a_machine_of_queues_has(
    chain, make_cluster, tmp_path, name, seed
):
    case, draw = drawn(seed), random.Random(-seed)
    many, interval, most, wait_s = draw.randint(1, 6), draw.randint(1, 5), 1, 0
    if name == "amp in groups":  # which are refused where a message costs something by itself
        case, most = case._replace(issue_s=0, message_s=0), draw.randint(2, 5)
        wait_s = draw.choice([0, draw.randint(1, 10**5)])
    schedule: Any = {
        "sequential": Sequential(),
        "pipeline": Pipeline(max_active_keys=many),
        "amp": Amp(max_active_keys=many, min_update_interval=interval),
        "amp in groups": Amp(
            max_active_keys=many, min_update_interval=interval, max_group=most, group_wait_s=wait_s
        ),
    }[name]
    links = {
        pair: Link(latency_s=latency_s, bandwidth_bytes_per_s=1 / byte_s)
        for pair, (byte_s, latency_s) in case.ways.items()
    }
    placed = tmp_path / "placed.toml"
    lines = [f"stage-{number} = {one}" for number, one in enumerate(case.owner, 1)]
    placed.write_text("\n".join([*lines, f"loss = {case.owner[-1]}"]), encoding="utf-8")
    cluster = make_cluster(max(case.owner) + 1 if len(case.ways) < 2 else 4, links=links)
    devices = tuple(
        one.model_copy(update={"dispatch_s": case.issue_s, "message_overhead_s": case.message_s})
        for one in cluster.devices
    )
    cluster = cluster.model_copy(update={"devices": devices})
    model = chain(tuple(case.costs), instances=case.instances, valid=case.validated).model()
    result = simulate(model, cluster, schedule, mode="sleep", placement=str(placed), epochs=2)
    drains = not name.startswith("amp")
    in_flight = 1 if name == "sequential" else many
    machine = Queues(case, in_flight, None if drains else interval, most, wait_s)
    machine.run(epochs=2)
    spans, age = found_of(result)
    assert spans.keys() == machine.spans.keys()
    for job, times in machine.spans.items():
        assert spans[job] == pytest.approx(times, rel=1e-9), job
    assert age == machine.age
    lasts = result.epochs[["train_s", "valid_s"]].to_numpy().ravel()
    assert np.allclose(np.cumsum(lasts), machine.over_s, rtol=1e-9)
    assert np.isclose(result.staleness_mean, np.mean(list(age.values())), rtol=1e-9)
