"""Names and paths lead to files, and a wrong one to a remedy."""

import os
import re
from pathlib import Path

import pytest

from ampsim import assets
from ampsim.errors import UnknownNameError, one_of


def test_shipped_devices_are_known_by_name():
    assert {"cpu-core", "tflops-1"} <= set(assets.names("devices"))
    assert assets.names("devices") == sorted(assets.names("devices"))


def test_every_name_leads_to_its_file():
    for kind in ("devices", "models"):
        for name in assets.names(kind):
            path = assets.locate(kind, name)
            assert path.is_file()
            assert path.stem == name


def test_installed_files_come_before_the_checkout(tmp_path, monkeypatch):
    package = tmp_path / "ampsim"
    for folder in (package / "_shipped" / "models", tmp_path / "models"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(assets, "_PACKAGE", package)
    assert assets.shipped("models") == package / "_shipped" / "models"
    (package / "_shipped" / "models").rmdir()
    assert assets.shipped("models") == tmp_path / "models"


def test_private_and_foreign_files_have_no_name(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    for file in ("rnn.py", "_draft.py", ".hidden.py", "notes.txt", "rnn.pyc"):
        (tmp_path / "models" / file).touch()
    monkeypatch.setattr(assets, "_PACKAGE", tmp_path / "ampsim")
    assert assets.names("models") == ["rnn"]


def test_misspelled_name_gets_the_nearest_and_all(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    for name in ("rnn", "tree_lstm"):
        (tmp_path / "models" / f"{name}.py").touch()
    monkeypatch.setattr(assets, "_PACKAGE", tmp_path / "ampsim")
    text = "no model named 'treelstm'; did you mean 'tree_lstm'? shipped: rnn, tree_lstm"
    with pytest.raises(UnknownNameError, match=f"^{re.escape(text)}$"):
        assets.locate("models", "treelstm")
    with pytest.raises(UnknownNameError, match=f"^{re.escape(text)}$"):
        assets.named("models", "treelstm")


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("devices", "nova", "no device named 'nova'; did you mean the file 'nova.toml'? shipped: "),
        ("models", "chain", "no model named 'chain'; did you mean the file 'chain.py'? shipped: "),
        ("devices", "chain.py", "chain.py: expected a device file (.toml), got a file of another "),
        ("models", "nova.toml", "nova.toml: expected a model file (.py), got a file of another ty"),
    ],
)
def test_a_file_that_is_here_is_named_with_what_is_amiss(kind, given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("nova.toml", "chain.py"):
        (tmp_path / name).touch()
    with pytest.raises(UnknownNameError, match=f"^{re.escape(said)}"):
        assets.locate(kind, given)


def test_name_like_no_other_gets_all_names():
    with pytest.raises(
        UnknownNameError, match=r"^no device named 'xyz'; shipped: a100, ampnet-core, "
    ):
        assets.locate("devices", "xyz")


def test_file_of_a_name_in_the_current_folder_does_not_hide_the_shipped(tmp_path, monkeypatch):
    (tmp_path / "tflops-1").touch()
    monkeypatch.chdir(tmp_path)
    assert assets.locate("devices", "tflops-1") == assets.shipped("devices") / "tflops-1.toml"


@pytest.mark.parametrize("given", ["mine.toml", "./mine.toml", "sub/other", Path("plain")])
def test_path_is_what_has_a_separator_or_the_suffix_or_is_a_path(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(given).parent.mkdir(exist_ok=True)
    Path(given).touch()
    assert assets.locate("devices", given) == Path(given)


def test_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "mine.py").touch()
    assert assets.locate("models", "~/mine.py") == tmp_path / "mine.py"


@pytest.mark.parametrize("given", ["absent.toml", "no/such"])
def test_missing_file_is_named_with_what_to_try(given):
    text = (
        f"no device file {given!r}; give the path of a .toml file, or a name: "
        f"{', '.join(assets.names('devices'))}"
    )
    with pytest.raises(UnknownNameError, match=f"^{re.escape(text)}$"):
        assets.locate("devices", given)


@pytest.mark.parametrize("given", ["a" * 5000 + ".toml", "nul\0byte.toml"])
def test_impossible_path_is_a_missing_file(given):
    with pytest.raises(UnknownNameError, match=r"no device file|no path can hold a zero byte"):
        assets.locate("devices", given)


def test_missing_path_object_is_a_missing_file(tmp_path):
    with pytest.raises(UnknownNameError, match="no model file"):
        assets.locate("models", tmp_path / "absent")


def test_known_names_are_called_what_the_caller_calls_them():
    assert one_of("device", "q", [], label="shipped") == "no device named 'q'; shipped: none"
    assert one_of("device", "q", ["b", "a"]) == "no device named 'q'; known: a, b"


def test_backslash_is_part_of_a_name_where_it_separates_nothing():
    if os.sep == "\\":
        pytest.skip("here a backslash separates folders")
    with pytest.raises(UnknownNameError, match="no device named"):
        assets.locate("devices", "a\\b")


@pytest.mark.parametrize("given", ["mine", "mine/", "./mine", Path("mine")])
def test_a_folder_is_told_with_what_is_in_it(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    said = "mine/?: expected a device file (.toml), got a folder; there is none in it"
    with pytest.raises(UnknownNameError, match=re.escape(said).replace(re.escape("/?"), "/?")):
        assets.locate("devices", given)
    for name in ("b.toml", "a.toml", "a.py"):
        (Path("mine") / name).touch()
    with pytest.raises(UnknownNameError, match=r"such as mine/a\.toml$"):
        assets.locate("devices", given)
    Path("tflops-1").mkdir()
    assert assets.locate("devices", "tflops-1") == assets.shipped("devices") / "tflops-1.toml"
