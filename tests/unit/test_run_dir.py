"""A run as a folder is whole or none, and comes back as it went."""

import dataclasses
import errno
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.errors import FileFormatError, OptionError, OutputError
from ampsim.files import sha256_of
from ampsim.model_parallel.schedules import SCHEDULES
from ampsim.runs.folder import (
    SELDOM,
    TABLES,
    Outcome,
    TraceWriter,
    run_to_keep,
    write_run,
)
from ampsim.runs.loaded_run import decoded, load_run
from ampsim.runs.run import run_of, to_plain
from ampsim.study.simulation import RunOptions


@pytest.fixture
def outcome(chain, make_cluster):
    one = chain(((1, 2, 1), (1, 2, 1)), instances=3, valid=1)
    cluster = make_cluster(2, link=ampsim.load_cluster("tflops-1", latency_s=0.5).link)
    return run_to_keep(one.model(), cluster, ampsim.PipeDream(), RunOptions(epochs=2))


def test_tables_come_back_with_their_types(outcome, tmp_path):
    written = write_run(outcome, tmp_path / "kept")
    assert [path.name for path in written] == [
        *(f"{t}.parquet" for t in (*TABLES, "memory")), "manifest.toml"
    ]  # fmt: skip
    kept = load_run(tmp_path / "kept")
    for name in (*TABLES, "memory", "outages"):
        pd.testing.assert_frame_equal(kept.table(name), getattr(outcome.result, name))
    assert min(len(kept.table("transfers")), len(kept.table("stashes"))) > 0
    named = (kept.model, kept.cluster, kept.workers, kept.schedule)
    assert named == ("chain", "test", 2, "pipedream")
    assert kept.devices == ["test", "test"]


def test_no_column_that_a_reader_adds_is_anothers(outcome, tmp_path):
    write_run(outcome, tmp_path / "kept")
    for run in (outcome.result, load_run(tmp_path / "kept"), run_of(outcome.result)):
        tables = [
            name
            for name in dir(run)
            if name[0] != "_" and name != "result" and isinstance(getattr(run, name), pd.DataFrame)
        ]
        assert {*TABLES, "memory", "outages", "waits"} & {*dir(run)} <= {*tables}
        for name in tables:
            frame = getattr(run, name)
            frame["mine"] = 1
            assert "mine" not in getattr(run, name), (type(run), name)


def test_chunks_are_the_table_in_pieces(outcome, tmp_path, monkeypatch):
    monkeypatch.setattr("ampsim.runs.folder._CHUNK_ROWS", 7)
    write_run(outcome, tmp_path)
    kept = load_run(tmp_path)
    for name in TABLES:
        chunks = list(kept.chunks(name))
        assert all(len(chunk) <= 7 for chunk in chunks)
        whole = pd.concat(chunks, ignore_index=True)
        pd.testing.assert_frame_equal(whole, kept.table(name), check_categorical=False)


def rounded(plain: Any) -> Any:
    """The same, to twelve digits: sums over chunks are rounded otherwise than over the whole."""
    if isinstance(plain, dict):
        return {key: rounded(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [rounded(value) for value in plain]
    return f"{plain:.12g}" if isinstance(plain, float) else plain


@pytest.mark.parametrize("method", [*SCHEDULES, *SOLVERS])
def test_rows_written_as_they_come_are_the_run(method, chain, make_cluster, tmp_path, monkeypatch):
    """In chunks that end within an epoch, the first few rows kept; names come later, too."""
    monkeypatch.setattr("ampsim.trace.table.CHUNK_ROWS", 7)
    monkeypatch.setattr("ampsim.runs.folder.ROWS_KEPT", 5)
    made: Any = {**SCHEDULES, **SOLVERS}[method]
    one = chain(((1, 2, 1), (1, 2, 1)), instances=8, valid=2)
    link = ampsim.load_cluster("tflops-1", latency_s=0.5).link
    job = (one.model(), make_cluster(4, link=link), made())
    whole = run_to_keep(*job, RunOptions(epochs=2))
    with TraceWriter(tmp_path) as trace:
        streamed = run_to_keep(*job, RunOptions(epochs=2, on_rows=trace))
        write_run(streamed, tmp_path, trace=trace)
    assert len(streamed.result.spans) < len(whole.result.spans)
    kept = load_run(tmp_path)
    assert kept.max_active_keys in (None, whole.result.max_active_keys)
    for name in (*TABLES, *SELDOM):
        read, made = kept.table(name), getattr(whole.result, name)
        assert list(read) == list(made)
        if len(made):
            pd.testing.assert_frame_equal(read, made)
    first, second = (rounded(to_plain(run_of(one.result))) for one in (streamed, whole))
    assert first == second


def test_states_that_come_in_a_later_chunk_keep_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr("ampsim.trace.table.CHUNK_ROWS", 50)
    model = ampsim.load_model("rnn", hidden=2)
    job = (model, ampsim.load_cluster("tflops-1", workers=4), ampsim.Amp(4))
    options = RunOptions(mode="sleep", instances=2_000)
    with TraceWriter(tmp_path) as trace:
        outcome = run_to_keep(*job, dataclasses.replace(options, on_rows=trace))
        write_run(outcome, tmp_path, trace=trace)
    states = run_to_keep(*job, options).result.spans["state"]
    assert len(states.cat.categories) > 10
    pd.testing.assert_series_equal(load_run(tmp_path).table("spans")["state"], states)


def test_a_disk_that_fills_up_meanwhile_is_one_line_and_leaves_nothing(
    chain, make_cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr("ampsim.trace.table.CHUNK_ROWS", 7)
    written: list[int] = []

    def write_table(writer, table, **options):
        written.append(len(table))
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", write_table)
    model = chain(((1, 2, 1), (1, 2, 1)), instances=30, valid=2).model()
    with (
        pytest.raises(OutputError, match=r"cannot write .*\.parquet: the disk is full; free some"),
        TraceWriter(tmp_path) as trace,
    ):
        run_to_keep(model, make_cluster(2), ampsim.Amp(2), RunOptions(on_rows=trace))
    assert not list(tmp_path.iterdir())


def test_a_kept_run_has_the_critical_path_that_it_had(outcome, tmp_path):
    write_run(outcome, tmp_path)
    kept, made = ampsim.load_run(tmp_path), outcome.result
    for name in ("critical_path", "critical_path_parts"):
        first, second = (getattr(one, name).astype({"node": str}) for one in (kept, made))
        pd.testing.assert_frame_equal(first, second)
    assert len(made.critical_path) > 10


@pytest.mark.parametrize("cause", [None, 5000, -5000, -5001])
def test_a_path_through_rows_that_are_not_a_runs_is_refused(outcome, tmp_path, cause):
    """Even where the manifest was made to fit."""
    write_run(outcome, tmp_path)
    path, manifest = tmp_path / "spans.parquet", tmp_path / "manifest.toml"
    before, frame = sha256_of(path), pd.read_parquet(path)
    if cause is None:
        frame = frame.sample(frac=1, random_state=1)
    else:
        frame["cause"] = cause
    frame.to_parquet(path, index=False)
    manifest.write_text(manifest.read_text().replace(before, sha256_of(path)))
    with pytest.raises(FileFormatError, match=r"spans.parquet: expected rows in .*; run again, or"):
        _ = load_run(tmp_path).critical_path


def test_chunks_of_a_file_that_was_changed_or_lost_are_refused(outcome, tmp_path):
    write_run(outcome, tmp_path)
    (tmp_path / "spans.parquet").write_bytes(b"other")
    (tmp_path / "updates.parquet").unlink()
    with pytest.raises(FileFormatError, match=r"spans\.parquet: is not the file that manifest"):
        next(load_run(tmp_path).chunks("spans"))
    with pytest.raises(FileFormatError, match=r"updates\.parquet: cannot be read: no such file"):
        next(load_run(tmp_path).chunks("updates"))


def test_an_empty_table_comes_back_empty(chain, make_cluster, tmp_path):
    model = chain(((1, 2, 1),), instances=1).model()
    write_run(run_to_keep(model, make_cluster(1), ampsim.Amp(1), RunOptions()), tmp_path)
    assert load_run(tmp_path).table("transfers").empty


def test_the_manifest_says_where_the_run_came_from(outcome, tmp_path):
    write_run(outcome, tmp_path)
    manifest = load_run(tmp_path).manifest
    assert manifest["ended"] == "finished"
    assert {"ampsim", "commit", "seed", "mode", "costs", "command"} <= set(manifest)
    assert manifest["files"]["epochs"]["rows"] == 2


def test_the_same_run_is_written_with_the_same_bytes(outcome, tmp_path):
    write_run(outcome, tmp_path / "a")
    write_run(outcome, tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_folder_whose_writing_failed_holds_no_run(outcome, tmp_path, monkeypatch):
    write_run(outcome, tmp_path)

    def full(writer, table, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    with pytest.raises(OutputError, match="the disk is full"):
        write_run(outcome, tmp_path)
    with pytest.raises(FileFormatError, match=r"but it has no manifest\.toml"):
        load_run(tmp_path)


def test_a_table_that_changed_is_refused(outcome, tmp_path):
    write_run(outcome, tmp_path)
    spans = tmp_path / "spans.parquet"
    spans.write_bytes(spans.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match=r"spans\.parquet: is not the file that manifest"):
        load_run(tmp_path).table("spans")


def test_a_table_that_is_gone_is_named(outcome, tmp_path):
    write_run(outcome, tmp_path)
    (tmp_path / "updates.parquet").unlink()
    with pytest.raises(FileFormatError, match=r"updates\.parquet: cannot be read: no such file"):
        load_run(tmp_path).table("updates")


def test_what_is_no_folder_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="expected a folder that `ampsim run` wrote, found"):
        load_run(tmp_path / "none")


MANIFESTS = {
    "kind =": "is not valid TOML",
    "\udcff": "is not valid TOML",
    'seeds = [0]\nmode = "numeric"': "is not the manifest of a run; .* a forecast does not",
    'kind = "run"\nformat = 99': "format must be 2, got 99; another version of ampsim wrote it",
    'kind = "run"\nformat = 2\nmodel = 3': "missing key 'model.name'; run again",
    'kind = "run"\nformat = 2\n[model]\nname = "a"': "missing key 'cluster.name'; run again",
}


@pytest.mark.parametrize("text", MANIFESTS, ids=range(len(MANIFESTS)))
def test_a_manifest_that_is_not_a_runs_is_refused(text, tmp_path):
    (tmp_path / "manifest.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileFormatError, match=MANIFESTS[text]):
        load_run(tmp_path)


def test_a_manifest_without_a_tables_hash_is_refused(outcome, tmp_path):
    write_run(outcome, tmp_path)
    path = tmp_path / "manifest.toml"
    path.write_text(re.sub(r"\[files\.spans\][^\[]*", "", path.read_text()))
    with pytest.raises(FileFormatError, match=r"missing key 'files\.spans\.sha256'"):
        load_run(tmp_path)


EDITED = {
    r"^seed = .*\n": ("", r"missing key 'seed'; run again"),
    r"^seed = .*": ('seed = "x"', r"seed must be a whole number >= 0, got 'x'; run again"),
    r"^ranks = .*\n": ("", r"missing key 'schedule\.ranks'; run again"),
    r"^ranks = .*": ("ranks = -1", r"schedule\.ranks must be a whole number >= 0, got -1"),
    r"^ranks = \d+": (f"ranks = {10**30}", r"schedule must be a schedule, with counts"),
    r"^workers_per_rank = .*": ('workers_per_rank = "x"', r"schedule must be a schedule, with"),
    r"^workers_per_rank = \d+": ("workers_per_rank = []", r"schedule must be a schedule, with"),
    r"^\[schedule\.inner\]": ("[[schedule.inner]]", r"schedule must be a schedule, with"),
}


@pytest.mark.parametrize("line", EDITED, ids=range(len(EDITED)))
def test_a_manifest_without_what_waits_are_told_by_is_refused(line, chain, make_cluster, tmp_path):
    one = chain(((1, 2, 1), (1, 2, 1)), instances=8, valid=2)
    job = (one.model(), make_cluster(4), ampsim.EASGD(2))
    write_run(run_to_keep(*job, RunOptions(epochs=1)), tmp_path)
    path, (put, said) = tmp_path / "manifest.toml", EDITED[line]
    path.write_text(re.sub(line, put, path.read_text(), count=1, flags=re.MULTILINE))
    with pytest.raises(FileFormatError, match=said):
        load_run(tmp_path)


def test_a_manifest_that_cannot_be_read_is_named(outcome, tmp_path, monkeypatch):
    write_run(outcome, tmp_path)

    def denied(path, *label):
        raise PermissionError(errno.EACCES, "denied", str(path))

    monkeypatch.setattr("ampsim.output_folder.read_regular", denied)
    with pytest.raises(FileFormatError, match=r"manifest\.toml: cannot be read: permission denied"):
        load_run(tmp_path)


def test_epochs_are_counted(chain, make_cluster):
    with pytest.raises(OptionError, match="epochs must be a whole number >= 1, got 0"):
        run_to_keep(
            chain(((1, 2, 1),)).model(), make_cluster(1), ampsim.Amp(1), RunOptions(epochs=0)
        )


def test_ctrl_c_keeps_the_epochs_that_ended(chain, make_cluster):
    def interrupt(progress):
        if progress.epoch == 3 and not progress.is_epoch_end:
            raise KeyboardInterrupt

    model = chain(((1, 2, 1),), instances=3, valid=1).model()
    ended = run_to_keep(
        model, make_cluster(1), ampsim.Amp(1), RunOptions(epochs=5), on_progress=interrupt
    )
    assert ended.is_interrupted
    assert ended.ended == "interrupted after 2 of 5 epochs"
    assert len(ended.result.epochs) == 2
    assert ended.result.spans["start_s"].max() > ended.result.epochs["time_s"].max()


def test_an_outcome_says_in_words_how_it_ended(outcome):
    failed = Outcome(outcome.result, 7, failure="the loss became nan")
    assert failed.ended == "failed after 2 of 7 epochs: the loss became nan"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("instance", 2**31, "instance must be -1 to 2,147,483,647"),
        ("instance", -2, "instance must be -1 to 2,147,483,647"),
        ("flop", -1, "flop must be >= 0"),
        ("end_s", np.inf, "end_s must be a finite time >= 0"),
        ("worker", 9, "worker must be 0 to 1"),
    ],
)
def test_values_that_no_run_has_are_refused(outcome, column, value, said):
    """Even where the manifest was made to fit: pages hold instances in 32 bits."""
    frame = outcome.result.spans.copy()
    frame[column] = frame[column].astype(frame[column].dtype).where(frame.index != 1, value)
    with pytest.raises(FileFormatError, match=re.escape(f"spans.parquet: {said}")):
        decoded(lambda: frame, "spans", Path("spans.parquet"), 2)
