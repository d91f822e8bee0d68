"""What users hold after a run: it cannot be bent, it pickles, and it is kept and loaded again."""

import asyncio
import io
import pickle
import re
from typing import Any

import pandas as pd
import pytest

import ampsim
import ampsim.figures
from ampsim import flow
from ampsim.clock import SimClock, WallClock
from ampsim.errors import OptionError
from ampsim.model_parallel import SCHEDULES
from ampsim.runs.folder import Outcome, write_run
from ampsim.runs.rows import TEXTS


def bend(frame):
    """Try to change every column of a frame in place, and to empty it."""
    for column in frame:
        try:
            frame.loc[frame.index[:1], column] = frame[column].iloc[-1:]
            frame[column].to_numpy()[:] = 0
        except (ValueError, TypeError):
            pass
    frame.drop(frame.index, inplace=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "table",
    [
        "spans", "transfers", "updates", "stashes", "epochs", "staleness", "group_sizes",
        "utilisation_by_worker",
    ],
)  # fmt: skip
def test_nobody_bends_a_result(model, cluster, table):
    made = ampsim.simulate(model, cluster, ampsim.Amp(2), instances=200)
    numbers = (made.train_per_s, made.valid_per_s, made.utilisation, made.makespan_s, made.digest)
    before = getattr(made, table).copy()
    bend(getattr(made, table))
    assert getattr(made, table).equals(before)
    after = (made.train_per_s, made.valid_per_s, made.utilisation, made.makespan_s, made.digest)
    assert after == numbers


def test_a_graph_and_an_engine_take_the_path_of_a_device_file(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('flop_per_s = 1e9\nsources.flop_per_s = {kind = "assumed", text = "a test"}\n')
    assert ampsim.DependencyEngine(path).cluster.workers == 16
    with flow.FlowGraph():
        assert flow.run(flow.constant(2.0) * 3, cluster=path).values == [6]


def computed():
    with flow.FlowGraph():
        ended = flow.while_loop(lambda i: i < 3, lambda i: (i + 1,), (flow.constant(0),))
        return flow.run(ended, cluster="p100")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "table", ["spans", "transfers", "memory", "frames", "decisions", "evaluations", "critical_path"]
)
def test_nobody_bends_what_a_graph_computed(table):
    made = computed()
    before = getattr(made, table).copy()
    bend(getattr(made, table))
    assert getattr(made, table).equals(before)


def test_what_users_hold_is_equal_to_itself_alone(model, cluster):
    engine = ampsim.DependencyEngine("p100")
    engine.push(None, work=ampsim.Work(flop=8))
    engine.wait_for_all()
    given = model.parameters()
    forecast = {"instances": 20, "max_epochs": 1, "mode": "sleep"}
    for make in (
        lambda: ampsim.simulate(model, cluster, "amp", instances=20, mode="sleep"),
        lambda: ampsim.forecast(model, cluster, "amp", **forecast),
        lambda: model.set_parameters(given),
        lambda: engine.result,
        computed,
    ):
        first, second = make(), make()
        assert first == first  # whose arrays are not compared
        assert first != second
        assert len({first, second}) == 2


class Pickler(pickle.Pickler):
    """Takes nothing of itertools, none of which pickles from Python 3.14 on."""

    def reducer_override(self, one: Any) -> Any:
        assert type(one).__module__ != "itertools", one
        return NotImplemented


def test_everything_that_users_hold_pickles(model, cluster, result):
    for one in (
        model,
        cluster,
        cluster.devices[0],
        ampsim.Link(),
        *(kind() for kind in SCHEDULES.values()),
    ):
        again = pickle.loads(pickle.dumps(one))
        assert type(again) is type(one)
    buffer = io.BytesIO()
    Pickler(buffer).dump(result)
    again = pickle.loads(buffer.getvalue())
    assert again.digest == result.digest
    assert again.spans.equals(result.spans)
    forecast = ampsim.forecast(model, cluster, "amp", instances=200, max_epochs=1)
    assert pickle.loads(pickle.dumps(forecast)).table.equals(forecast.table)


def test_missing_numbers_are_nan_in_columns_of_floats(cluster):
    table = ampsim.forecast("rnn", cluster, "amp", instances=500, mode="sleep").table
    assert table["is_tied_with_best"].isna().all()
    numbers = table.drop(columns=[*TEXTS, *(one for one in table if str(one).startswith("is_"))])
    assert {dtype.kind for dtype in numbers.dtypes} <= {"i", "f"}
    assert table["best_accuracy"].isna().all() and table["time_to_target_s"].isna().all()


def test_a_cluster_is_one_short_line():
    line = repr(ampsim.load_cluster("tflops-1", workers=3, latency_s=1e-6))
    assert re.fullmatch(r"Cluster\('3 x tflops-1': 3 x tflops-1; links latency 1.00 [^\n]*\)", line)


@pytest.mark.slow
def test_a_forecast_saves_what_the_command_writes(model, cluster, tmp_path):
    forecast = ampsim.forecast(model, cluster, "amp", instances=200, max_epochs=1)
    written = forecast.save(tmp_path / "out")
    assert {"index.html", "forecast.md", "forecast.csv", "manifest.toml"} <= {
        p.name for p in written
    }


@pytest.mark.slow
def test_a_kept_run_is_loaded_as_a_result(model, cluster, tmp_path):
    made = ampsim.simulate(model, cluster, ampsim.Amp(2), instances=200)
    write_run(Outcome(made, 1), tmp_path)
    run = ampsim.load_run(tmp_path)
    for table in ("spans", "transfers", "updates", "stashes", "epochs"):
        read, original = getattr(run, table), getattr(made, table)
        assert list(read) == list(original)
        assert not len(original) or read.equals(original), table
    for number in (
        "makespan_s",
        "train_per_s",
        "valid_per_s",
        "messages",
        "workers",
        "staleness_mean",
        "staleness_max",
        "max_active_keys",
    ):
        assert getattr(run, number) == pytest.approx(getattr(made, number)), number
    assert run.utilisation == pytest.approx(made.utilisation)
    pd.testing.assert_frame_equal(run.utilisation_by_worker, made.utilisation_by_worker)
    pd.testing.assert_frame_equal(run.staleness, made.staleness)
    assert len(ampsim.figures.gantt(run, made).axes) >= 2
    ampsim.figures.staleness(run)
    ampsim.figures.utilisation(run)


def test_a_wall_clock_runs_within_a_running_loop(model, cluster):
    async def cell():
        clock = WallClock(0.001)
        try:
            return ampsim.simulate(model, cluster, ampsim.Amp(2), instances=200, clock=clock)
        finally:
            clock.close()

    assert len(asyncio.run(cell()).epochs) == 1


def dataflow_run(clock):
    with flow.FlowGraph():
        flow.run(flow.tanh(flow.constant([4.0])), clock=clock)


WHAT_RUNS: dict[str, Any] = {
    "schedule": lambda clock: ampsim.simulate("rnn", "tflops-1", "amp", instances=9, clock=clock),
    "solver": lambda clock: ampsim.simulate(
        ampsim.load_model("rnn", replicas=1), "tflops-1", "sync-sgd", instances=9, clock=clock
    ),
    "program": lambda clock: ampsim.simulate(
        "rnn", "tflops-1", "dataflow", instances=9, clock=clock
    ),
    "dataflow": dataflow_run,
    "dependency": lambda clock: ampsim.DependencyEngine("tflops-1", clock=clock),
}


@pytest.mark.parametrize("what", WHAT_RUNS)
def test_a_clock_that_another_run_had_is_refused(what):
    """Times, and all that is of a run's time, would be of both runs."""
    clock = SimClock()
    clock.call_later(2.5, lambda: None)
    clock.run()
    with pytest.raises(OptionError, match=r"^clock must be a new one for each run, got one at 2.5"):
        WHAT_RUNS[what](clock)
