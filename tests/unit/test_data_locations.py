"""Where data sets are looked for, what is said of missing ones, and what a survey finds."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import platformdirs
import pytest

from ampsim.data import (
    DATASETS,
    MissingDataError,
    Mnist,
    Qm9Dipoles,
    data_folder,
    find_file,
    survey,
)
from ampsim.errors import AmpsimError, UnknownNameError


def test_a_folder_named_comes_before_the_variable_and_that_before_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AMPSIM_DATA", "~/there")
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == data_folder("") == Path("~/there").expanduser()
    monkeypatch.setenv("AMPSIM_DATA", "")
    assert data_folder() == platformdirs.user_cache_path("ampsim", appauthor=False)


def test_a_file_is_found_in_any_form(tmp_path: Path) -> None:
    (tmp_path / "sst").mkdir()
    for suffix in (".xz", ".gz", ""):
        path = tmp_path / "sst" / f"dev.txt{suffix}"
        path.touch()
        assert find_file("sst", "valid", tmp_path) == path


def test_the_whole_training_file_comes_before_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "wikiner").mkdir()
    for name in ("train-10k.txt", "train.txt.xz"):
        (tmp_path / "wikiner" / name).touch()
        assert find_file("wikiner", "train", tmp_path).name == name


def test_a_missing_file_is_told_with_its_place_its_source_and_what_to_try(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        Mnist.load(tmp_path)
    assert isinstance(caught.value, AmpsimError)
    assert str(caught.value) == (
        f"mnist: no train-images-idx3-ubyte (plain, .gz or .xz) in {tmp_path / 'mnist'};"
        " its source: LeCun, Cortes and Burges 1998, yann.lecun.com/exdb/mnist; try"
        " 'ampsim data mnist --download', --set data=synthetic, or AMPSIM_DATA=FOLDER if you have"
        " it elsewhere"
    )


def test_no_download_is_offered_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(
        MissingDataError, match=r"try --set data=synthetic, or AMPSIM_DATA"
    ) as caught:
        Qm9Dipoles.load(tmp_path)
    assert "--download" not in str(caught.value)


def test_an_unknown_data_set_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no data set named 'mnits'; did you mean 'mnist'"):
        survey(tmp_path, "mnits")


def test_a_survey_of_nothing_says_where_everything_comes_from(tmp_path: Path) -> None:
    rows = survey(tmp_path / "nothing")
    assert [row.dataset for row in rows] == 4 * ["mnist"] + 3 * ["sst"] + ["qm9"] + 2 * ["wikiner"]
    assert all(row.path is None and row.instances is None and not row.is_known for row in rows)
    assert all(row.source and row.size_bytes for row in rows)
    assert [row.file for row in rows if not row.can_fetch] == ["qm9.npz"]
    assert survey(tmp_path, "list_reduction") == []


def test_a_survey_counts_what_is_there_and_tells_what_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "sst").mkdir()
    (tmp_path / "sst" / "train.txt").write_text("(2 a)\n(2 (2 b) (3 c))\n")
    (tmp_path / "sst" / "dev.txt").write_text("(2 a)\n(2 (2 b) (3 c)\n")
    (tmp_path / "sst" / "test.txt.gz").write_bytes(gzip.compress(b"(2 a)\n")[:-4])
    train, valid, test = survey(tmp_path, "sst")
    assert (train.instances, train.is_known, train.problem) == (2, False, None)
    assert train.size_bytes == 22
    assert valid.instances is None
    assert "dev.txt: line 2: brackets are unbalanced" in str(valid.problem)
    assert "test.txt.gz: is cut off" in str(test.problem)


def test_every_address_is_one_of_a_file_with_a_hash() -> None:
    copies = [
        copy
        for source in DATASETS.values()
        for file in source.files.values()
        for copy in file.copies
    ]
    assert all(len(bytes.fromhex(copy.sha256)) == hashlib.sha256().digest_size for copy in copies)
    assert len({copy.sha256 for copy in copies}) == len(copies)
    assert all(url.startswith("https://") for copy in copies for url in copy.urls)


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_fetched_is_found_afterwards(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    for part, file in DATASETS[name].files.items():
        for copy in file.copies:
            path = tmp_path / name / copy.name
            path.touch()
            assert find_file(name, part, tmp_path).name == copy.name
            path.unlink()
