"""Two runs compared: origin, numbers, and where their traces first part."""

import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.errors import FileFormatError
from ampsim.report.compare_text import to_text, verdict
from ampsim.runs import folder as run_dir
from ampsim.runs.compare import compare_runs, number
from ampsim.runs.folder import SELDOM, TABLES, run_to_keep, write_run
from ampsim.runs.loaded_run import load_run
from ampsim.study.simulation import RunOptions

CHAIN = ((1, 2, 1), (1, 2, 1), (1, 2, 1))


@pytest.fixture
def keep(chain, make_cluster, tmp_path):
    """`keep("a", seed=1)` runs a chain and reads back what was kept of it."""

    def make(name, *, costs=CHAIN, schedule=None, **options):
        model = chain(costs, instances=6, valid=2).model()
        cluster = make_cluster(3, link=ampsim.load_cluster("tflops-1", latency_s=0.5).link)
        settled = RunOptions(epochs=options.pop("epochs", 2), **options)
        outcome = run_to_keep(model, cluster, schedule or ampsim.PipeDream(), settled)
        write_run(outcome, tmp_path / name)
        return load_run(tmp_path / name)

    return make


@pytest.fixture
def changed(keep, tmp_path):
    """`changed(table, change)`: a run, and the same with one table changed."""

    def make(table, change, **options):
        kept = keep("a", **options)
        frames = {name: kept.table(name) for name in (*TABLES, *SELDOM)}
        frames[table] = change(frames[table].copy())
        origin = {k: v for k, v in kept.manifest.items() if k not in ("kind", "format", "files")}
        result = SimpleNamespace(**frames, origin=origin, model=SimpleNamespace(config=None))
        outcome: Any = SimpleNamespace(result=result, ended="finished", epochs=2)
        write_run(outcome, tmp_path / "b")
        return kept, load_run(tmp_path / "b")

    return make


def parting_of(comparison, name) -> Any:
    return next(one["parting"] for one in comparison["tables"] if one["name"] == name)


def origin_of(a, b) -> dict[str, Any]:
    return {one["key"]: (one["a"], one["b"]) for one in compare_runs(a, b)["origin"]}


def test_the_same_run_twice_is_identical_to_the_bit(keep):
    comparison = compare_runs(keep("a"), keep("b"))
    assert comparison["is_identical"]
    assert comparison["origin"] == []
    assert all(one["difference"] == 0 for one in comparison["numbers"])
    assert [one["name"] for one in comparison["tables"]] == [*TABLES, *SELDOM]


@pytest.mark.parametrize("table", SELDOM)
def test_runs_may_differ_in_a_table_that_not_every_run_has(changed, table):
    def change(frame):
        if table == "outages":
            worker = np.zeros(1, np.int32)
            return pd.DataFrame({"worker": worker, "kind": "slow", "start_s": 0.0, "end_s": 1.0})
        return frame.iloc[:-1]

    comparison = compare_runs(*changed(table, change, schedule=ampsim.SyncSGD(3)))
    assert not comparison["is_identical"]
    assert verdict(comparison).startswith(f"Not identical: different {table}; the same ")
    assert f"{table}: " in to_text(comparison)


def test_the_command_is_no_difference_of_origin_but_everything_else_is(keep):
    a, b = keep("a"), keep("b", seed=7, costs=((1, 2, 1), (1, 3, 1), (1, 2, 1)))
    b.manifest["command"] = ["other"]
    found = origin_of(a, b)
    assert found == {"model.config.costs[1][1]": (2, 3), "seed": (0, 7)}


def test_a_key_that_only_one_run_has_is_none_in_the_other(keep):
    a = keep("a", schedule=ampsim.Amp(2))
    found = origin_of(a, keep("b"))
    assert found["schedule.name"] == ("amp", "pipedream")
    assert found["schedule.vertical_sync"] == (None, False)


def test_origin_knows_code_data_and_how_many_items(keep):
    a, b = keep("a"), keep("b")
    b.manifest.update(code="0", data=[{"file": "x", "sha256": "y"}], items={"train": 7, "valid": 2})
    found = origin_of(a, b)
    assert found.pop("code")[1] == "0"
    assert found == {
        "data[0].file": (None, "x"),
        "data[0].sha256": (None, "y"),
        "items.train": (6, 7),
    }


def test_numbers_are_those_of_the_result(chain, make_cluster, tmp_path):
    model, cluster = chain(CHAIN, instances=6, valid=2).model(), make_cluster(3)
    outcome = run_to_keep(model, cluster, ampsim.Amp(3), RunOptions(epochs=2))
    write_run(outcome, tmp_path)
    kept, result = load_run(tmp_path), outcome.result
    numbers = compare_runs(kept, kept)["numbers"]
    found = {one["name"]: one["a"] for one in numbers if one["epoch"] is None}
    names = "train_per_s valid_per_s makespan_s utilisation staleness_mean staleness_max messages"
    for name in names.split():
        assert found.pop(name) == pytest.approx(getattr(result, name)), name
    assert found == {"updates": len(result.updates), "epochs": 2}


def test_epochs_have_their_losses_and_what_is_unknown_is_none(keep):
    a, b = keep("a"), keep("b", epochs=1, mode="sleep")
    of_epochs = [one for one in compare_runs(a, b)["numbers"] if one["epoch"] is not None]
    losses = [(one["epoch"], one["a"], one["b"]) for one in of_epochs if one["name"] == "loss"]
    assert losses == [(i + 1, x, None) for i, x in enumerate(a.table("epochs")["loss"])]
    assert {one["name"] for one in of_epochs} == {
        "time_s", "loss", "valid_loss", "train_accuracy", "accuracy",
    }  # fmt: skip


def test_a_number_has_difference_and_ratio_where_both_are_known():
    known = {(2.0, 3.0): (1.0, 1.5), (0.0, 3.0): (3.0, None), (None, 3.0): (None, None),
             (2.0, None): (None, None), (math.nan, 3.0): (None, None)}  # fmt: skip
    for (a, b), expected in known.items():
        made = number("x", a, b)
        assert (made["difference"], made["ratio"]) == expected


@pytest.mark.parametrize("chunk_rows", [1, 7, 1 << 17])
@pytest.mark.parametrize("row", [0, 11, 30])
def test_traces_part_at_the_first_span_that_differs(changed, monkeypatch, row, chunk_rows):
    monkeypatch.setattr(run_dir, "_CHUNK_ROWS", chunk_rows)

    def change(spans):
        spans.loc[row, "end_s"] = np.nextafter(spans.loc[row, "end_s"], np.inf)
        spans.loc[row, "instance"] += 1
        spans.loc[row + 1 :, "flop"] += 1
        return spans

    a, b = changed("spans", change, epochs=1)
    comparison = compare_runs(a, b)
    assert not comparison["is_identical"]
    parting = parting_of(comparison, "spans")
    assert (parting["index"], parting["columns"]) == (row, ["instance", "end_s"])
    expected = a.table("spans").iloc[row].to_dict()
    assert parting["a"] == expected
    assert parting["b"]["instance"] == expected["instance"] + 1
    assert parting_of(comparison, "updates") is None


def test_rows_are_compared_whatever_chunks_they_lie_in(keep, monkeypatch):
    a = keep("a")
    monkeypatch.setattr(run_dir, "_CHUNK_ROWS", 5)
    b = keep("b")
    assert a.manifest["files"]["spans"] != b.manifest["files"]["spans"]
    assert compare_runs(a, b)["is_identical"]


@pytest.mark.parametrize("table", TABLES)
def test_a_trace_that_goes_on_parts_where_the_other_ends(changed, table):
    a, b = changed(table, lambda frame: frame[:-1])
    parting = parting_of(compare_runs(a, b), table)
    assert parting["index"] == len(b.table(table))
    assert (parting["b"], parting["columns"]) == (None, [])
    assert parting["a"] is not None
    turned = parting_of(compare_runs(b, a), table)
    assert (turned["a"], turned["b"]) == (None, parting["a"])


def test_an_empty_table_parts_from_one_with_rows_at_once(keep):
    a, b = keep("a", schedule=ampsim.Amp(2)), keep("b")
    parting = parting_of(compare_runs(a, b), "stashes")
    assert (parting["index"], parting["a"]) == (0, None)


def test_unknown_losses_are_the_same_and_minus_zero_is_not_zero(changed, keep):
    a, b = changed("epochs", lambda epochs: epochs.assign(loss=-epochs["loss"] * 0.0))
    one, other = (keep(name, mode="sleep") for name in ("c", "d"))
    assert parting_of(compare_runs(a, b), "epochs")["columns"] == ["loss"]
    assert math.isnan(one.table("epochs")["loss"].iloc[0])
    assert compare_runs(one, other)["is_identical"]


def test_nodes_are_compared_by_name_not_by_code(changed):
    def other_codes(spans):
        node = spans["node"]
        order = [*reversed(node.cat.categories), "new"]
        return spans.assign(node=pd.Categorical(node.astype(str), categories=order))

    assert compare_runs(*changed("spans", other_codes))["is_identical"]


def test_a_table_that_was_changed_on_disk_is_refused_even_if_it_should_be_the_same(keep):
    a, b = keep("a"), keep("b")
    path = b.folder / "transfers.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match=re.escape("transfers.parquet: is not the file that")):
        compare_runs(a, b)
