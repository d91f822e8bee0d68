"""Output files are written whole or not at all, and errors say what to do."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

import pytest

from ampsim.errors import OutputError, UnknownNameError
from ampsim.files import (
    expanded,
    prepare_folder,
    prepared_file,
    replacing,
    sha256_of,
    write_bytes,
    write_text,
)

needs_dev_full = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs /dev/full, a disk that is always full"
)
needs_ordinary_user = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="permissions do not bind the superuser",
)


def test_text_and_bytes_arrive_as_given(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "6.55 µs\r\nnext\n")
    write_bytes(tmp_path / "b.bin", b"\x00\xff")
    assert (tmp_path / "a.txt").read_bytes() == "6.55 µs\r\nnext\n".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\xff"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.bin"]


def test_the_temporary_is_in_the_same_folder_and_keeps_the_suffix(tmp_path: Path) -> None:
    with replacing(tmp_path / "gantt.svg") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".svg"
        temporary.write_text("<svg/>")
        assert not (tmp_path / "gantt.svg").exists()
    assert (tmp_path / "gantt.svg").read_text() == "<svg/>"


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    write_text(tmp_path / "ours", "")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "ours")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_goes_wrong_the_old_file_stays_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")

    def interrupted() -> None:
        with replacing(target) as temporary:
            temporary.write_text("ne")
            raise error

    with pytest.raises(error):
        interrupted()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_and_not_replaced() -> None:
    write_text(os.devnull, "gone")
    assert not os.path.isfile(os.devnull)
    assert os.path.exists(os.devnull)


def test_a_block_that_writes_nothing_is_a_programming_mistake(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"nothing was written to .*\.csv"),
        replacing(tmp_path / "table.csv"),
    ):
        pass


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "no permission to write there; choose a folder of your own"),
        (errno.EROFS, "the file system is read-only; choose a folder elsewhere"),
        (errno.ENOSPC, "the disk is full; free some space or choose a folder on another disk"),
        (errno.EIO, "input/output error; choose another folder"),
    ],
)
def test_a_failed_write_is_one_line_and_leaves_nothing(
    tmp_path: Path, number: int, reason: str
) -> None:
    target = tmp_path / "table.csv"

    def failing() -> None:
        with replacing(target) as temporary:
            temporary.write_text("ha")
            raise OSError(number, os.strerror(number))

    with pytest.raises(OutputError) as caught:
        failing()
    assert str(caught.value) == f"cannot write {target}: {reason}"
    assert os.listdir(tmp_path) == []


def test_an_error_about_another_file_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"input\.csv"), replacing(tmp_path / "out.csv"):
        (tmp_path / "input.csv").read_text()


def test_an_error_without_a_number_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of a library"), replacing(tmp_path / "out.csv"):
        raise OSError("of a library")


@needs_dev_full
def test_a_full_disk_is_named() -> None:
    with pytest.raises(OutputError, match=r"^cannot write /dev/full: the disk is full; free"):
        write_text("/dev/full", "x")


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"it is a folder; choose another file name$"):
        write_text(tmp_path, "x")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no/a\.txt: its folder does not exist; create"):
        write_text(tmp_path / "no" / "a.txt", "x")


def test_a_name_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"the name is too long; choose a shorter one$"):
        write_text(tmp_path / ("n" * 300), "x")
    assert os.listdir(tmp_path) == []


def test_a_folder_is_created_with_its_parents_and_left_empty(tmp_path: Path) -> None:
    folder = prepare_folder(tmp_path / "a" / "b")
    assert folder == tmp_path / "a" / "b"
    assert os.listdir(folder) == []
    assert prepare_folder(str(folder)) == folder


def test_a_name_that_begins_as_a_home_folder_does_is_a_name_by_its_whole_path(
    tmp_path: Path,
) -> None:
    said = "no home folder '~my.py', .* or the whole path of a name that begins so$"
    for given in ("~my.py", "./~my.py"):  # which is the former to pathlib
        with pytest.raises(UnknownNameError, match=said):
            expanded(given)
    assert expanded(f"{tmp_path}/~my.py") == tmp_path / "~my.py"


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert prepare_folder("~/out") == tmp_path / "out"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OutputError) as caught:
        prepare_folder(tmp_path / "taken")
    assert str(caught.value) == (
        f"cannot create folder {tmp_path / 'taken'}: it exists and is not a folder; "
        "choose another name or remove it"
    )
    with pytest.raises(OutputError, match=r"a part of the path is a file, not a folder; choose"):
        prepare_folder(tmp_path / "taken" / "below")
    assert (tmp_path / "taken").read_text() == "mine"


@needs_ordinary_user
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    with pytest.raises(OutputError, match=r"cannot write in folder .*locked: no permission"):
        prepare_folder(locked)
    with pytest.raises(OutputError, match=r"cannot create folder .*below: no permission"):
        prepare_folder(locked / "below")


@pytest.mark.parametrize(
    ("method", "attempt"), [("mkdir", "create folder"), ("write_bytes", "write in folder")]
)
def test_a_file_system_that_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, attempt: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(OutputError) as caught:
        prepare_folder(tmp_path / "out")
    assert str(caught.value) == (
        f"cannot {attempt} {tmp_path / 'out'}: the file system is read-only; "
        "choose a folder elsewhere"
    )


def test_a_hash_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ampsim" * 100_000)
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"ampsim" * 100_000).hexdigest()


def test_a_file_to_come_has_its_folder_made_and_nothing_else(tmp_path: Path) -> None:
    with prepared_file(tmp_path / "a" / "b.json") as path:
        assert path == tmp_path / "a" / "b.json"
        assert list((tmp_path / "a").iterdir()) == []
        path.write_text("{}")
    assert path.exists()
    with prepared_file("/dev/null") as device:
        assert device == Path("/dev/null")


def test_a_file_that_does_not_come_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), prepared_file(tmp_path / "a" / "b" / "c.json"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_file_to_come_that_is_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder; choose another file name"):
        prepared_file(tmp_path).__enter__()


def test_a_file_to_come_in_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match=r"cannot create folder .*file: it exists and is not a"):
        prepared_file(tmp_path / "file" / "b.json").__enter__()
