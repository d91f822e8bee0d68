"""A folder of results has one writer, is replaced whole, and loses nothing that is not ours."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ampsim.errors import OutputError
from ampsim.files import sha256_of, write_text
from ampsim.output_folder import MANIFEST, staged, taken
from ampsim.text import to_toml

SHOWN = (".csv", ".md", ".png")


def fill(folder: Path, content: dict[str, str], kind: str = "forecast") -> None:
    """Write these files into a staged folder, as the commands do."""
    for name, text in content.items():
        write_text(folder / name, text)
    files = {name: sha256_of(folder / name) for name in content}
    write_text(folder / MANIFEST, to_toml({"kind": kind, "files": files}))


def write(folder: Path, **content: str) -> None:
    with staged(folder, "forecast") as place:
        fill(place, {name.replace("_", "."): text for name, text in content.items()})


def texts(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.iterdir() if path.is_file() and path.suffix in SHOWN]
    return {path.name: path.read_text() for path in paths}


def test_a_lock_that_its_holder_removed_meanwhile_is_nobodys(tmp_path, monkeypatch):
    """Whoever has opened it and then locks it would write beside who locks the next one."""
    fcntl: Any = pytest.importorskip("fcntl")
    lock, flock = tmp_path / ".ampsim.lock", fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        lock.unlink(missing_ok=True)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(OutputError, match="another ampsim is writing"), taken(tmp_path, "run"):
        assert lock.exists()
    monkeypatch.setattr(fcntl, "flock", flock)
    with taken(tmp_path, "run"):
        assert lock.exists()


KINDS = list(itertools.permutations(("run", "forecast", "exploration"), 2))


@pytest.mark.parametrize(("there", "comes"), KINDS)
def test_results_of_another_kind_are_not_replaced(there, comes, tmp_path):
    with staged(tmp_path, there) as place:
        fill(place, {"a.csv": "1"}, there)
    one, other = (f"an {kind}" if kind == "exploration" else f"a {kind}" for kind in (there, comes))
    said = f"holds {one}, which {other} must not replace; choose another folder"
    with pytest.raises(OutputError, match=said), taken(tmp_path, comes):
        pass


def test_files_appear_together_and_older_ones_of_ours_go(tmp_path):
    folder = tmp_path / "a" / "b"
    write(folder, a_csv="1", b_png="2")
    (folder / "mine.png").write_text("mine")
    with staged(folder, "forecast") as place:
        fill(place, {"a.csv": "3", "c.md": "4"})
        assert texts(folder) == {"a.csv": "1", "b.png": "2", "mine.png": "mine"}
    assert texts(folder) == {"a.csv": "3", "c.md": "4", "mine.png": "mine"}


def test_an_older_file_that_was_changed_stays(tmp_path):
    write(tmp_path, a_csv="1", b_png="2")
    (tmp_path / "b.png").write_text("changed")
    write(tmp_path, a_csv="3")
    assert texts(tmp_path) == {"a.csv": "3", "b.png": "changed"}


HOSTILE = (
    "recipe.toml", "model.py", "../b.csv", "/b.csv", "..", "sub/b.csv", "a\0.csv", "data.csv.gz",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_removed_but_what_is_written_here_whatever_a_manifest_says(name, tmp_path):
    folder = tmp_path / "out"
    write(folder, a_csv="1")
    victim = folder / name
    if "\0" not in name and name != ".." and not name.startswith("/"):
        victim.parent.mkdir(exist_ok=True)
        victim.write_text("mine")
    files = {"a.csv": sha256_of(folder / "a.csv"), name: sha256_of(folder / "a.csv")}
    if "\0" not in name and victim.is_file():
        files[name] = sha256_of(victim)
    (folder / MANIFEST).write_text(to_toml({"kind": "forecast", "files": files}))
    write(folder, a_csv="2")
    assert (folder / "a.csv").read_text() == "2"
    if "\0" not in name and name != ".." and not name.startswith("/"):
        assert victim.read_text() == "mine"


ODD: tuple[Any, ...] = (
    3, "text", [], [{"a": 1}], {"a.csv": 3}, {"a.csv": [1]}, {"a": {"sha256": 3}},
)  # fmt: skip


@pytest.mark.parametrize("files", ODD, ids=str)
def test_a_manifest_of_odd_types_makes_nothing_ours(files, tmp_path):
    (tmp_path / MANIFEST).write_text(to_toml({"kind": "forecast", "files": files}))
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(OutputError, match=r"a\.csv: is not replaced.*; what was made is in"):
        write(tmp_path, a_csv="1")
    assert (tmp_path / "a.csv").read_text() == "mine"


def test_what_was_made_is_kept_where_a_file_is_in_the_way(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(OutputError, match="what was made is in ") as caught:
        write(tmp_path, a_csv="1", b_csv="2")
    kept = Path(str(caught.value).rpartition("what was made is in ")[2])
    assert texts(kept) == {"a.csv": "1", "b.csv": "2"}
    assert kept.parent == tmp_path and kept.name.startswith("ampsim-kept-")


def test_a_link_is_not_followed_to_what_it_leads_to(tmp_path):
    (tmp_path / "theirs").write_text("1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.csv").symlink_to(tmp_path / "theirs")
    with pytest.raises(OutputError, match=r"a\.csv: is not replaced"):
        write(tmp_path / "out", a_csv="2")
    assert (tmp_path / "theirs").read_text() == "1"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OutputError, SystemExit])
def test_a_block_that_fails_leaves_the_folder_as_it_was(error, tmp_path):
    def fail(folder: Path) -> None:
        with staged(folder, "forecast") as place:
            (place / "a.csv").write_text("half")
            raise error(f"cannot write {place}")

    write(tmp_path / "old", a_csv="1")
    for folder in (tmp_path / "old", tmp_path / "new" / "deep"):
        with pytest.raises(error):
            fail(folder)
    assert texts(tmp_path / "old") == {"a.csv": "1"}
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_failed_write_is_named_as_it_would_have_been(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OutputError) as caught:
        write(tmp_path, a_csv="1")
    assert str(caught.value).startswith(f"cannot write {tmp_path / 'a.csv'}: the disk is full")


@pytest.mark.parametrize("moves", range(3))
def test_ctrl_c_while_files_are_put_in_their_places_waits_until_they_are(
    moves, tmp_path, monkeypatch
):
    write(tmp_path, a_csv="1", b_csv="1")
    replace, left = os.replace, [moves]

    def interrupted(source: Path, target: Path) -> None:
        if Path(target).parent == tmp_path and left[0] == 0:
            left[0] = -1
            raise KeyboardInterrupt
        left[0] -= Path(target).parent == tmp_path
        replace(source, target)

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, a_csv="2", b_csv="2")
    assert texts(tmp_path) == {"a.csv": "2", "b.csv": "2"}
    monkeypatch.undo()
    write(tmp_path, a_csv="3")
    assert texts(tmp_path) == {"a.csv": "3"}


KILLED = """
import os, signal, sys
from pathlib import Path
from ampsim.files import sha256_of, write_text
from ampsim.output_folder import staged
from ampsim.text import to_toml
replace, left = os.replace, [int(sys.argv[2])]
def counted(source, target):
    if Path(target).parent == Path(sys.argv[1]):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
    replace(source, target)
os.replace = counted
with staged(sys.argv[1], "forecast") as place:
    for name in ("a.csv", "b.csv"):
        write_text(place / name, "2")
    files = {name: sha256_of(place / name) for name in ("a.csv", "b.csv")}
    write_text(place / "manifest.toml", to_toml({"kind": "forecast", "files": files}))
"""


@pytest.mark.parametrize("moves", range(3))
def test_after_a_kill_at_any_move_the_next_one_takes_the_folder_and_clears_up(moves, tmp_path):
    write(tmp_path, a_csv="1", b_csv="1")
    words = (sys.executable, "-c", KILLED, str(tmp_path), str(moves))
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    write(tmp_path, a_csv="3", c_csv="3")
    assert texts(tmp_path) == {"a.csv": "3", "c.csv": "3"}


HOLDS = """
import sys
from ampsim.output_folder import taken
with taken(sys.argv[1], "run"):
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_a_lock_ends_with_its_process(tmp_path):
    words = (sys.executable, "-c", HOLDS, str(tmp_path / "out"))
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        with pytest.raises(OutputError, match="another ampsim is"), taken(tmp_path / "out", "run"):
            pass
        process.kill()
    with taken(tmp_path / "out", "run"):
        pass
    assert list((tmp_path / "out").iterdir()) == []


def test_folders_that_were_made_for_nothing_are_removed(tmp_path):
    with taken(tmp_path / "a" / "b", "run") as folder:
        assert folder.path.is_dir()
    assert list(tmp_path.iterdir()) == []
