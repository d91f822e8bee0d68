"""Runs: options, epochs, replicas, seeds, what a result says, and how a run ends badly."""

import re
from dataclasses import replace

import numpy as np
import pytest

from ampsim import Amp, Pipeline, Sequential, load_cluster, load_model, simulate
from ampsim.errors import DivergenceError, OptionError
from ampsim.hardware import Event
from ampsim.optim import sgd
from ampsim.runs.folder import run_to_keep
from ampsim.study import Result, Simulation, training
from ampsim.study.model import parameters_of
from ampsim.study.simulation import RunOptions

HEAVY = ((10, 20, 5),) * 2
DATA = 60


@pytest.fixture(scope="module")
def rnn():
    return load_model("rnn", hidden=4, replicas=2, batch=10)


@pytest.fixture(scope="module")
def cluster():
    return load_cluster("tflops-1", workers=6)


@pytest.fixture
def model(chain):
    return chain(HEAVY, instances=6, valid=3, rows=4).model()


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("epochs", 0, "epochs must be a whole number >= 1, got 0"),
        ("epochs", 1.5, "epochs must be a whole number >= 1, got 1.5"),
        ("instances", 0, "instances must be a whole number >= 1, got 0"),
        ("instances", -5, "instances must be a whole number >= 1, got -5"),
        ("seed", -1, "seed must be a whole number >= 0, got -1; try seed=0"),
        ("seed", 0.5, "seed must be a whole number >= 0, got 0.5"),
        (
            "target",
            97,
            "target must be an accuracy above 0 and at most 1, got 97; for 97 % write 0.97",
        ),
        ("mode", "slep", "no mode named 'slep'; did you mean 'sleep'? known: numeric, sleep"),
    ],
)
def test_an_impossible_option_is_refused(model, make_cluster, option, value, text):
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        simulate(model, make_cluster(2), Amp(), **{option: value})


@pytest.mark.parametrize("schedule", [Sequential(), Pipeline(3), Amp(3)])
def test_a_result_is_what_its_frames_say(model, make_cluster, schedule):
    result = simulate(model, make_cluster(2), schedule, epochs=2)
    spans, epochs, updates = result.spans, result.epochs, result.updates
    assert epochs["epoch"].tolist() == [1, 2]
    assert epochs["instances"].tolist() == [24, 24]
    assert epochs["valid_instances"].tolist() == [12, 12]
    assert result.train_per_s == pytest.approx(48 / epochs["train_s"].sum())
    assert result.valid_per_s == pytest.approx(24 / epochs["valid_s"].sum())
    assert result.makespan_s == spans["end_s"].max() == epochs["time_s"].iloc[-1]
    assert result.makespan_s == pytest.approx((epochs["train_s"] + epochs["valid_s"]).sum())
    busy_s = (spans["end_s"] - spans["start_s"]).sum()
    assert result.utilisation == pytest.approx(busy_s / (2 * result.makespan_s))
    assert result.messages == len(spans)
    gradients = spans[spans["staleness"] >= 0]["staleness"]
    assert result.staleness_mean == pytest.approx(gradients.mean())
    assert result.staleness_max == gradients.max()
    assert result.staleness["count"].sum() == len(gradients) == updates["gradient_count"].sum()
    assert spans["flop"].sum() == result.recorder.summary.flop
    assert re.match(
        rf"Result\(chain, {re.escape(str(schedule))}, workers=2, epochs=2, ", repr(result)
    )


def test_what_did_not_happen_is_nan_and_never_zero(chain, make_cluster):
    result = simulate(chain(HEAVY, valid=0).model(), make_cluster(2), Amp(2))
    assert np.isnan(result.valid_per_s)
    assert np.isnan(result.epochs["accuracy"]).all()
    free = simulate(chain(((0, 0, 0),)).model(), make_cluster(1), Sequential())
    assert np.isnan(free.train_per_s)
    assert np.isnan(free.utilisation)


def test_messages_on_free_links_are_no_transfers(model, make_cluster):
    assert simulate(model, make_cluster(2), Amp()).transfers.empty


def test_replicas_are_equal_after_an_epoch_and_their_mean(rnn, cluster, monkeypatch):
    before = {}
    average = training.average_replicas

    def spy(graph):
        before.update(parameters_of(graph))
        average(graph)

    monkeypatch.setattr(training, "average_replicas", spy)
    after = simulate(rnn, cluster, Amp(4), instances=DATA).model.parameters()
    for name in ("weight", "bias"):
        copies = [before[f"linear-1.{i}.{name}"] for i in (0, 1)]
        assert (copies[0] != copies[1]).any()
        mean = (copies[0] + copies[1]) / 2
        assert after[f"linear-1.0.{name}"] == pytest.approx(mean, rel=1e-6)
        assert (after[f"linear-1.0.{name}"] == after[f"linear-1.1.{name}"]).all()


def test_replicas_start_equal_and_do_not_share_memory(rnn):
    first, second = rnn.graph().replica_groups[0]
    assert (first.theta == second.theta).all()
    assert not np.shares_memory(first.theta, second.theta)


def test_the_same_seed_gives_the_same_bits_and_another_gives_others(rnn, cluster):
    digests = [
        simulate(rnn, cluster, Amp(4), instances=DATA, seed=seed).digest for seed in (0, 0, 1)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_the_digest_is_over_what_is_not_kept_of_a_trace_too(model, make_cluster):
    """A device is slow for a while, earlier or later: weights, epochs and what is kept are same."""
    results = list[Result]()
    for start_s in (100.0, 100.0, 200.0):
        slow = Event(kind="slow", worker=0, from_s=start_s, until_s=start_s + 8, factor=2.0)
        cluster = make_cluster(1).model_copy(update={"events": (slow,)})
        run = Simulation(model, cluster, Sequential(), spans_kept=2)
        run.run_epoch()
        results.append(run.result())
    early, again, late = results
    assert max(early.spans["end_s"].max(), early.updates["time_s"].max()) < 100
    assert early.epochs.equals(late.epochs)
    assert early.digest == again.digest != late.digest


def test_the_digest_is_over_trace_and_weights(model, make_cluster):
    result = simulate(model, make_cluster(2), Amp())
    other = replace(result, model=replace(result.model, given={}))
    assert other.digest != result.digest
    weights = result.model.parameters()
    weights["stage-1.bias"][0] = np.nextafter(weights["stage-1.bias"][0], 9)
    other = replace(result, model=replace(result.model, given=weights))
    assert other.digest != result.digest
    assert replace(result, model=replace(result.model)).digest == result.digest


def test_a_run_with_given_parameters_starts_from_them_whatever_its_seed(chain, make_cluster):
    model = chain(HEAVY).model()
    model = model.set_parameters({k: 0 * a for k, a in model.parameters().items()})
    for seed in (0, 3):
        graph = model.graph(seed)
        assert not any(node.theta.any() for node in graph.parameterized)


def test_instances_limit_what_is_trained_on(rnn, cluster):
    result = simulate(rnn, cluster, Amp(4), instances=DATA, mode="sleep")
    assert result.epochs["instances"].tolist() == [DATA]


def test_a_target_that_is_reached_ends_the_run(model, make_cluster):
    full = simulate(model, make_cluster(2), Sequential(), epochs=4)
    target = float(full.epochs["accuracy"].iloc[0])
    assert 0 < target < 1
    assert len(simulate(model, make_cluster(2), Sequential(), epochs=4, target=target).epochs) == 1
    missed = simulate(model, make_cluster(2), Sequential(), epochs=2, target=1.0)
    assert len(missed.epochs) == 2


def test_only_the_first_records_are_kept_where_told_and_all_are_counted(model, make_cluster):
    run = Simulation(model, make_cluster(2), Amp(2), spans_kept=7)
    run.run_epoch()
    result = run.result()
    full = simulate(model, make_cluster(2), Amp(2))
    assert (len(result.spans), len(result.updates)) == (7, 7)
    assert result.spans.equals(full.spans[:7])
    assert (result.messages, result.utilisation) == (full.messages, full.utilisation)


@pytest.fixture
def diverging(chain):
    """A learning rate at which weights stay finite for a while, and a loss does not."""
    return lambda rate: replace(chain(HEAVY, instances=40).model(), optimizer=sgd(rate))


def test_weights_that_are_no_numbers_name_node_update_instance_and_time(diverging, make_cluster):
    text = (
        r"^weights of (stage-\d) \(Stage\) stopped being finite in update \d+ "
        r"with gradients of instance \d+ at [0-9.]+ s; try a lower learning rate$"
    )
    with pytest.raises(DivergenceError, match=text) as caught:
        simulate(diverging(1e200), make_cluster(2), Sequential())
    partial = caught.value.partial
    assert partial.messages > 0
    assert partial.epochs.empty
    assert np.isfinite(partial.model.parameters()["stage-1.weight"]).all()


def spoiled(model, after):
    """The model with a pump that gives NaN from instance `after` on."""

    def pump(instance, batch):
        (port, state, values), *rest = model.pump(instance, batch)
        return [(port, state, values * (np.nan if instance >= after else 1.0)), *rest]

    return replace(model, pump=pump)


@pytest.mark.parametrize("schedule", [Sequential(), Pipeline(3), Amp(3)])
def test_a_loss_that_is_no_number_names_node_instance_and_time(model, make_cluster, schedule):
    text = (
        r"^the loss at loss \(SoftmaxCrossEntropy\) became nan for instance 4 at [0-9.]+ s; "
        "try a lower learning rate$"
    )
    with pytest.raises(DivergenceError, match=text) as caught:
        simulate(spoiled(model, 4), make_cluster(2), schedule)
    assert caught.value.partial.spans["instance"].max() >= 4


def test_what_was_finished_before_a_loss_diverged_is_kept(model, make_cluster):
    with pytest.raises(DivergenceError, match="instance 11") as caught:  # an epoch has 6 + 3
        simulate(spoiled(model, 11), make_cluster(2), Sequential(), epochs=3)
    partial = caught.value.partial
    assert len(partial.epochs) == 1
    assert partial.train_per_s > 0


def test_a_loss_that_overflows_under_numpys_warnings_is_a_divergence(model, make_cluster):
    def pump(instance, batch):
        (port, state, values), *rest = model.pump(instance, batch)
        return [(port, state, values * 1e308 * 10), *rest]

    with pytest.raises(DivergenceError, match="became nan"):
        simulate(replace(model, pump=pump), make_cluster(2), Amp())


def test_a_kept_run_says_how_it_ended(model, make_cluster):
    fine = run_to_keep(model, make_cluster(2), Amp(), RunOptions(epochs=2))
    assert (fine.ended, len(fine.result.epochs)) == ("finished", 2)
    failed = run_to_keep(spoiled(model, 11), make_cluster(2), Amp(1), RunOptions(epochs=3))
    assert failed.ended.startswith("failed after 1 of 3 epochs: the loss at loss")
    assert len(failed.result.epochs) == 1

    def stop(progress):
        if progress.epoch == 2:
            raise KeyboardInterrupt

    stopped = run_to_keep(model, make_cluster(2), Amp(), RunOptions(epochs=3), stop)
    assert stopped.ended == "interrupted after 1 of 3 epochs"
    assert stopped.is_interrupted
    assert stopped.result.messages > fine.result.messages / 2


def test_a_kept_run_stops_at_its_target(model, make_cluster):
    options = RunOptions(epochs=5, target=1e-9)
    assert len(run_to_keep(model, make_cluster(2), Amp(), options).result.epochs) == 1
