"""What is learned apart, from the order that a sleeping run decided, is what is learned live."""

from __future__ import annotations

import random
import re
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import among, pairwise
from short_runs import MODELS, PAIRS, schedule_of, small_model

import ampsim
from ampsim.hardware import (
    HOST,
    Checkpoints,
    Cluster,
    Device,
    Event,
    Failures,
    Link,
    Messages,
    Ports,
    Route,
)
from ampsim.learning import LearningStore, batches
from ampsim.model_parallel import SCHEDULES, PassOrder, PassTotals, Settled, needs_chain
from ampsim.model_parallel.order import OrderLog
from ampsim.runs import task as tasks
from ampsim.runs.task import RunPlan, Task
from ampsim.study import apart
from ampsim.study.apart import LostLearningError
from ampsim.study.simulation import RunOptions, Simulation

SEED = 3
SLOW = Event(kind="slow", worker=1, from_s=1e-8, until_s=1.0, factor=7.0)
STOPS = (
    Event(kind="pause", worker="all", from_s=1e-7, until_s=3e-7),
    Event(kind="stop", worker=1, from_s=4e-7, until_s=5e-7),
)
VARIES: dict[str, dict[str, Any]] = {
    "free links": {},
    "links": {"link": Link(latency_s=1e-7, bandwidth_bytes_per_s=1e9)},
    "slow and unlike": {
        "events": (SLOW,),
        "link": Link(latency_s=1e-8),
        "links": (Route(source=HOST, target=1, link=Link(latency_s=3e-7)),),
        "ports": Ports(egress_bytes_per_s=2e9, ingress_bytes_per_s=1e9),
        "sharing": "first-come",
    },
    "stops": {"events": STOPS},
    "chance": {"failures": Failures(mean_time_between_s=2e-6, mean_time_to_repair_s=1e-7)},
    "lost messages": {
        "messages": Messages(loss_probability=0.1, retry_after_s=1e-7, delay_cv=0.8),
        "link": Link(latency_s=1e-7),
    },
    "kept weights": {"checkpoints": Checkpoints(every_s=2e-7, takes_s=1e-8)},
}
DEVICES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "namesakes that jitter": {"jitter_cv": 0.5},
    "light work": {"step_overhead_s": 1e-9, "memory_bandwidth_bytes_per_s": 1e11},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "within": {"validate_every": 30},
    "off the clock": {"times_validation": False},
    "counted anywhere": {"counts_memory": True},
    "balanced": {"placement": "balanced"},
}
"""With "anywhere" the host of each node is drawn; a stage under turns keeps a worker of its own."""
PAIRWISE = [
    case
    for case in pairwise(SCHEDULES, MODELS, VARIES, DEVICES, OPTIONS)
    if (case[0], case[1]) in PAIRS
]
KEEPS = ("not kept", "kept")
"""Whether what is learned goes to a folder, where a run like that one finds it."""

CASES = among([(*case, keeps) for case in PAIRWISE for keeps in KEEPS])


def cluster_of(varies: str, device: str = "as it is", workers: int = 4, rate: float = 1e12) -> Any:
    one = Device(name="one", flop_per_s=rate, **DEVICES[device])
    rates = [rate / (1 + worker * ("namesakes" in device)) for worker in range(workers)]
    devices = tuple(one.model_copy(update={"flop_per_s": each}) for each in rates)
    return Cluster(name="some", devices=devices, **VARIES[varies])


def anywhere(model: Any, schedule: Any, workers: int = 4) -> Settled:
    """A worker for each node, the loss among them."""
    places, graph = random.Random(model.name), model.graph()
    own = [one.name for one in graph.parameterized] if needs_chain(schedule) else []
    drawn = {node.name: places.randrange(workers) for node in graph.nodes[1:]}
    stages = dict(zip(own, places.sample(range(workers), len(own)), strict=True))
    return Settled(drawn | stages, {"name": "anywhere"})


def result_of(model: Any, cluster: Any, schedule: Any, epochs: int = 2, **options: Any) -> Any:
    run = Simulation(model, cluster, schedule, seed=SEED, **options)
    for _epoch in range(epochs):
        run.run_epoch()
    return run.result()


def told(result: Any) -> tuple[str, ...]:
    """All that is to be equal, to the bit: trace, weights and losses; and the digest."""
    return result.digest, result.validations.to_csv(), result.learning_digest


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_what_is_learned_apart_is_what_is_learned_live(case, tmp_path):
    """The order is learned from, or found: by who learned it, and where kept by a run like that."""
    schedule, model = schedule_of(case[0]), small_model(case[1])
    cluster, options = cluster_of(case[2], case[3]), OPTIONS[case[4]]
    if "anywhere" in case[4]:
        options = {**options, "placement": anywhere(model, schedule)}
    live = told(result_of(model, cluster, schedule, **options))
    for folder in (None,) if case[5] == "not kept" else (tmp_path, tmp_path):
        found = result_of(model, cluster, schedule, learning="apart", learnings=folder, **options)
        assert told(found) == live
    asleep = result_of(model, cluster, schedule, mode="sleep", **options)
    assert asleep.learning_digest == live[2]


def test_weights_that_are_predicted_are_predicted_apart_too():
    schedule = ampsim.Amp(4, min_update_interval=2, remedy="weight-prediction")
    for name in ("rnn", "mlp"):
        args = small_model(name), cluster_of("links"), schedule
        assert told(result_of(*args)) == told(result_of(*args, learning="apart"))


@pytest.mark.parametrize("name", ["mlp", "rnn", "tree_lstm"])
def test_messages_that_are_one_step_are_learned_one_by_one_apart_as_live(name):
    """A group is one step of the clock, and its members are served each by itself."""
    schedule = ampsim.Amp(5, min_update_interval=3, max_group=4, group_wait_s=1e-8)
    what = small_model(name), cluster_of("links", rate=1e9), schedule
    live, asleep = result_of(*what), result_of(*what, mode="sleep")
    assert live.group_size_mean > 1
    assert told(result_of(*what, learning="apart")) == told(live)
    assert asleep.learning_digest == live.learning_digest


MODEL = {"data": "synthetic", "hidden": 6, "layers": 3, "batch": 10, "learning_rate": 0.02}
REMEMBERING = {**MODEL, "optimizer": "adam", "rate_policy": "exponential:0.5"}
"""What goes on from weights needs the optimizer's state, and the rate of its own epoch."""


def drawn(chance: random.Random, workers: tuple[int, ...] = (2, 3, 4)) -> Cluster:
    """A cluster whose devices and links are drawn."""
    rates = [10 ** chance.uniform(10, 13) for _worker in range(chance.choice(workers))]
    devices = tuple(Device(name=f"d{rate:.3g}", flop_per_s=rate) for rate in rates)
    return Cluster(name="drawn", devices=devices, link=Link(latency_s=10 ** chance.uniform(-9, -5)))


def learned(result: Any) -> bytes:
    return b"".join(array.tobytes() for array in result.model.parameters().values())


@pytest.mark.slow
def test_equal_digests_have_equal_weights_and_most_unequal_ones_have_unequal_weights():
    """Of 24 drawn clusters under AMP."""
    chance, model = random.Random(7), ampsim.load_model("mlp", **MODEL)
    schedules = [ampsim.Amp(1), ampsim.Amp(2), ampsim.Amp(4), ampsim.Amp(3, min_update_interval=2)]
    by_digest: dict[str, set[bytes]] = defaultdict(set)
    runs = 0
    for _cluster in range(24):
        cluster = drawn(chance)
        for schedule in schedules:
            result = result_of(model, cluster, schedule, epochs=1, instances=120)
            by_digest[result.learning_digest].add(learned(result))
            runs += 1
    assert all(len(weights) == 1 for weights in by_digest.values())
    weights = {one for found in by_digest.values() for one in found}
    assert 20 < len(by_digest) < runs - 18
    assert len(weights) >= 0.95 * len(by_digest)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("mlp", 100), ("rnn", 24)])
def test_schedules_that_drain_have_one_digest_on_every_hardware(name, count):
    """On each of so many drawn clusters one of the schedules."""
    chance, model = random.Random(11), small_model(name)
    schedules = [ampsim.Pipeline(4), ampsim.GPipe(4)]
    schedules += [ampsim.OneFOneB(4), ampsim.ZeroBubbleH1(4)] if name == "mlp" else []
    digests = {
        result_of(model, drawn(chance, (4,)), schedule, mode="sleep").learning_digest
        for _cluster in range(count // len(schedules))
        for schedule in schedules
    }
    assert len(digests) == 1


def test_a_digest_is_of_the_order_not_of_the_unit_of_time():
    """Rates times c, latencies over c: the same steps in the same order."""
    model, schedule = small_model("rnn"), ampsim.Amp(4)
    device = Device(name="one", flop_per_s=1e12)
    for factor in (0.25, 8.0):
        digests = set()
        for scale in (1.0, factor):
            fast = device.model_copy(update={"flop_per_s": 1e12 * scale})
            link = Link(latency_s=2.0**-22 / scale)
            cluster = Cluster(name="some", devices=(fast,) * 4, link=link)
            digests.add(result_of(model, cluster, schedule, mode="sleep").learning_digest)
        assert len(digests) == 1


CHANGES: dict[str, dict[str, Any]] = {
    "model": {"model": {"hidden": 7}},
    "rate": {"model": {"learning_rate": 0.03}},
    "batch": {"model": {"batch": 12}},
    "data type": {"model": {"dtype": "float64"}},
    "optimizer": {"model": {"optimizer": "momentum"}},
    "momentum": {"model": {"optimizer": "momentum", "momentum": 0.5}},
    "decay": {"model": {"weight_decay": 0.01}},
    "rate policy": {"model": {"rate_policy": "exponential:0.5"}},
    "seed": {"seed": SEED + 1},
    "instances": {"instances": 130},
    "in flight": {"schedule": ampsim.Amp(2)},
    "interval": {"schedule": ampsim.Amp(4, min_update_interval=2)},
    "remedy": {"schedule": ampsim.Amp(4, remedy="weight-prediction")},
    "mean": {"schedule": ampsim.Pipeline(4)},
    "epochs": {"epochs": 1},
    "latency": {"latency_s": 1e-4},
}


def digest_of(change: dict[str, Any]) -> str:
    """The digest of a run in which one thing is other than usual."""
    model = ampsim.load_model("mlp", **{**MODEL, **change.get("model", {})})
    cluster = ampsim.load_cluster("tflops-1", workers=4, latency_s=change.get("latency_s", 1e-8))
    run = Simulation(
        model, cluster, change.get("schedule", ampsim.Amp(4)), seed=change.get("seed", SEED),
        mode="sleep", instances=change.get("instances", 120),
    )  # fmt: skip
    for _epoch in range(change.get("epochs", 2)):
        run.run_epoch()
    return str(run.result().learning_digest)


def test_a_digest_changes_with_all_that_learning_depends_on():
    digests = {name: digest_of(change) for name, change in {"none": {}, **CHANGES}.items()}
    assert len(set(digests.values())) == len(digests), digests


def test_first_weights_that_were_given_are_in_the_digest():
    model = ampsim.load_model("mlp", **MODEL)
    moved = {name: array + np.float32(0.5) for name, array in model.parameters().items()}
    cluster, schedule = cluster_of("links"), ampsim.Amp(4)
    two = {
        result_of(one, cluster, schedule, mode="sleep", instances=100).learning_digest
        for one in (model, model.set_parameters(moved))
    }
    assert len(two) == 2


def test_a_sum_and_a_mean_of_one_order_are_told_apart():
    """Four instances one by one read what four of a pipeline read, and update as they do."""
    model, cluster = ampsim.load_model("mlp", **MODEL), cluster_of("links")
    schedules = ampsim.Pipeline(4), ampsim.Amp(1, min_update_interval=4)
    runs = [result_of(model, cluster, one, epochs=1, instances=120) for one in schedules]
    assert len({one.learning_digest for one in runs}) == 2
    assert len({learned(one) for one in runs}) == 2


def test_a_chain_has_all_passes_in_it_and_their_rates():
    """Each change of one of two passes is another chain, also where the last pass is the same."""
    passes = [(PassOrder("a", 0), 0, [0.1], 6.0), (PassOrder("b", 6), 1, [0.1], 6.0)]
    changes = [(0, (PassOrder("c", 0), 0, [0.1], 6.0)), (0, (PassOrder("a", 0), 0, [0.2], 6.0))]
    changes += [(1, (PassOrder("c", 6), 1, [0.1], 6.0)), (1, (PassOrder("b", 6), 1, [0.2], 6.0))]
    found = set()
    for place, changed in [(0, passes[0]), *changes]:
        chain = ""
        for one in (*passes[:place], changed, *passes[place + 1 :]):
            chain = apart.chained(chain, *one)
        found.add(chain)
    assert len(found) == 1 + len(changes)


@pytest.mark.parametrize("table", ["reads", "gradients"])
def test_one_version_read_otherwise_changes_the_digest(table):
    """Each row of a pass is in its digest: a later version, or another update, is another order."""
    graph = small_model("rnn").graph()
    digests = set()
    for changed in (None, *range(4)):
        log = OrderLog(graph.parameterized, is_kept=False)
        log.start(0)
        order = log.of(graph.parameterized[0])
        for instance in range(4):
            later = int(instance == changed)
            order.reads.append(((instance, 0), instance + later * (table == "reads")))
            more = later * (table == "gradients")
            order.gradients.append(((instance, 0), instance + more, 0))
        digests.add(log.end().digest)
    assert len(digests) == 5


def test_a_digest_is_of_sets_not_of_sequences():
    """Who reads what counts, not who came first."""
    graph = small_model("rnn").graph()

    def digest(*rows: tuple[tuple[int, int], int]) -> str:
        log = OrderLog(graph.parameterized, is_kept=False)
        log.start(0)
        order = log.of(graph.parameterized[0])
        order.reads += rows
        order.gradients += [(*row, 0) for row in rows]
        return log.end().digest

    first, second = ((0, 0), 0), ((1, 0), 1)
    assert digest(first, second) == digest(second, first)
    assert digest(first, second) != digest(((1, 0), 0), ((0, 0), 1))


def plan_of(folder: Path | None, **options: Any) -> RunPlan:
    model = ampsim.load_model("mlp", **REMEMBERING)
    chosen = {"learning": "apart", "learnings": folder, "instances": 150, "epochs": 3}
    return RunPlan(model, cluster_of("links"), RunOptions(**{**chosen, **options}))


def run(plan: RunPlan, schedule: Any) -> Any:
    result, failure = Task(plan, schedule, SEED, "row", 1, 1).run(None)
    assert failure is None
    return result


def test_a_longer_run_goes_on_from_what_a_shorter_one_learned(tmp_path, monkeypatch):
    """As after a command that was killed between two epochs."""
    schedule, whole = ampsim.Amp(3), plan_of(None, learning="live")
    run(plan_of(tmp_path, epochs=2), schedule)
    learned_here: list[int] = []
    train = apart.Replay.train
    monkeypatch.setattr(
        apart.Replay, "train", lambda *args: (learned_here.append(1), train(*args))[1]
    )
    assert told(run(plan_of(tmp_path), schedule)) == told(run(whole, schedule))
    assert len(learned_here) == 1


@pytest.mark.parametrize("name", ["data_files", "linear_algebra", "code_digest"])
def test_what_other_files_kernels_or_code_gave_is_not_found(name, tmp_path, monkeypatch):
    run(plan_of(tmp_path), ampsim.Amp(3))
    monkeypatch.setattr(apart, name, lambda *_model: "another")
    assert apart_in(tmp_path, "apart").learnings_found == 0


def test_what_is_learned_in_batches_is_not_found_by_message(tmp_path, monkeypatch):
    """Their numbers differ in their last digits."""
    monkeypatch.setattr(batches, "FEW_ROWS", np.inf)
    for learning in ("apart", "batched"):
        first, again = (apart_in(tmp_path, learning) for _run in range(2))
        assert (first.learnings_found, again.learnings_found) == (0, 2)


def apart_in(folder: Path, learning: Any) -> Simulation:
    plan = plan_of(folder)
    made = Simulation(
        plan.model, plan.cluster, ampsim.Amp(3), plan.options, seed=SEED, learning=learning
    )
    for _epoch in range(2):
        made.run_epoch()
    return made


def test_two_that_want_the_same_learn_it_once(tmp_path, monkeypatch):
    """While one learns its first pass, the other waits for it."""
    learned_by, comes = list[str](), threading.Event()
    train, learning = apart.Replay.train, LearningStore.learning
    other = threading.Thread(target=lambda: run(plan_of(tmp_path), ampsim.Amp(3)), name="other")

    def noted(*args: Any) -> Any:
        learned_by.append(threading.current_thread().name)
        if len(learned_by) == 1:
            other.start()
            assert comes.wait(60)
            other.join(0.2)  # it would have learned the pass meanwhile, were it let
        return train(*args)

    def asked(store: LearningStore, digest: str) -> Any:
        if threading.current_thread() is other:
            comes.set()
        return learning(store, digest)

    monkeypatch.setattr(apart.Replay, "train", noted)
    monkeypatch.setattr(LearningStore, "learning", asked)
    run(plan_of(tmp_path), ampsim.Amp(3))
    other.join()
    assert len(learned_by) == plan_of(None).epochs


def test_weights_that_are_gone_are_learned_again(tmp_path):
    schedule, live = ampsim.Amp(3), run(plan_of(None, learning="live"), ampsim.Amp(3))
    run(plan_of(tmp_path, epochs=2), schedule)
    for file in tmp_path.glob("*.weights"):
        file.write_bytes(b"")
    with pytest.raises(LostLearningError, match="not there any more"):
        result_of(
            plan_of(None).model, cluster_of("links"), schedule, epochs=3, learning="apart",
            learnings=tmp_path, instances=150,
        )  # fmt: skip
    assert told(run(plan_of(tmp_path), schedule)) == told(live)


def test_a_learning_that_was_edited_is_made_again(tmp_path):
    schedule = ampsim.Amp(3)
    first = told(run(plan_of(tmp_path), schedule))
    for file in tmp_path.glob("*.totals"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(bytes(content))
    assert told(run(plan_of(tmp_path), schedule)) == first


def test_a_learning_of_which_any_byte_was_edited_is_not_taken(tmp_path):
    """Whichever byte it is, or where it ends early."""
    store, totals = LearningStore(tmp_path), PassTotals(instances=3, rows=30, losses=[0.5, 0.25])
    store.put("a", totals)
    assert store.totals("a") == totals
    (file,) = tmp_path.glob("*.totals")
    whole = file.read_bytes()
    for place in range(0, len(whole), 31):
        other = bytes([whole[place] ^ 1])
        file.write_bytes(whole[:place] + other + whole[place + 1 :])
        assert store.totals("a") is None
        file.write_bytes(whole[:place])
        assert store.totals("a") is None


def test_what_is_found_is_now_and_then_learned_again_and_a_wrong_one_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "CHECKED_OF", 1)
    schedule, store = ampsim.Amp(3), LearningStore(tmp_path)
    run(plan_of(tmp_path), schedule)
    run(plan_of(tmp_path), schedule)
    (last,) = (file.name.partition(".")[0] for file in tmp_path.glob("*.weights"))
    weights, totals = store.weights(last), store.totals(last)
    assert weights is not None and totals is not None
    store.put(last, totals, {name: part * 2 for name, part in weights.items()})
    with pytest.raises(ampsim.errors.SimulationError, match="is not what the run learns"):
        Task(plan_of(tmp_path), schedule, SEED, "row", 1, 1).run(None)


def test_a_run_that_diverges_tells_the_same_apart_as_live(tmp_path):
    plan = plan_of(tmp_path)
    model = ampsim.load_model("mlp", **MODEL | {"learning_rate": 1e9})
    told_of = [
        Task(replace(one, model=model), ampsim.Amp(3), SEED, "row", 1, 1).run(None)
        for one in (plan, plan.having(learning="live"))
    ]
    (found, why), (live, why_live) = told_of
    assert why == why_live and "stopped being finite" in str(why)
    assert found.digest == live.digest


REFUSED = {
    "a solver": ("mlp", lambda: ampsim.SyncSGD(ranks=2), cluster_of("links"), "exchanges"),
    "a program": ("mlp", ampsim.Dataflow, cluster_of("links"), "program"),
    "lost weights": (
        "mlp",
        lambda: ampsim.Amp(3),
        Cluster(
            name="some",
            devices=(Device(name="one", flop_per_s=1e12),) * 4,
            events=(Event(kind="stop", worker=1, from_s=2e-7, until_s=4e-7, weights="checkpoint"),),
            checkpoints=Checkpoints(every_s=1e-7),
        ),
        "checkpoint",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learned_apart_runs_live_and_has_no_digest(case):
    name, schedule, cluster, why = REFUSED[case]
    model = small_model(name)
    assert why in apart.why_live(model.graph(), cluster, schedule())
    live = result_of(model, cluster, schedule(), epochs=1)
    found = result_of(model, cluster, schedule(), epochs=1, learning="apart")
    assert found.learning_digest is None
    assert found.digest == live.digest


def test_a_node_that_decides_by_values_is_learned_live(monkeypatch):
    """Its model says so; the clock without numbers would go another way."""
    monkeypatch.setattr("ampsim.nodes.ReLU.reads_values", True)
    model, cluster, schedule = small_model("mlp"), cluster_of("links"), ampsim.Amp(3)
    said = apart.why_live(model.graph(), cluster, schedule)
    assert re.fullmatch(r"relu-1 \(ReLU\) decides by values", said), said
    live, found = (
        result_of(model, cluster, schedule, epochs=1, learning=learning)
        for learning in ("live", "batched")
    )
    assert found.digest == live.digest
    assert live.learning_digest is None and found.learning_digest is None


def test_another_way_of_learning_is_refused():
    with pytest.raises(ampsim.errors.OptionError, match="no learning named 'later'"):
        Simulation(small_model("mlp"), cluster_of("links"), ampsim.Amp(2), learning="later")
