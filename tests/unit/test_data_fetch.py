"""Download by hash, from a server on this machine: what is kept, and what is not."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ampsim.data import Copy, DataFile, DataSource, MissingDataError, fetch
from ampsim.errors import FileFormatError, OutputError, UnknownNameError

CONTENT = b"(2 (2 a) (3 b))\n" * 1000


class Handler(BaseHTTPRequestHandler):
    """Gives out `CONTENT` in ways that its paths name."""

    def do_GET(self) -> None:
        if self.path == "/absent":
            self.send_error(404)
            return
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "file:///etc/hosts")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.path == "/silent":
            self.server.silence.wait(5)  # type: ignore[attr-defined] set by the fixture below
        elif self.path == "/cut":
            self.wfile.write(CONTENT[:500])
        elif self.path == "/wrong":
            self.wfile.write(CONTENT[::-1])
        else:
            self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.silence = threading.Event()  # type: ignore[attr-defined] read by the handler above
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.silence.set()  # type: ignore[attr-defined] as above
        httpd.shutdown()
        thread.join()


def source(*urls: str, content: bytes = CONTENT) -> DataSource:
    copy = Copy("train.txt", len(content), hashlib.sha256(content).hexdigest(), urls)
    return DataSource(
        "sst", "trees", "a server", {"train": DataFile(("train.txt",), "trees", 1, (copy,))}
    )


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_is_fetched_once_and_is_what_was_asked_for(server: str, tmp_path: Path) -> None:
    said: list[str] = []
    asked = source(f"{server}/train.txt")
    assert fetch(asked, tmp_path, say=said.append) == [tmp_path / "sst" / "train.txt"]
    assert (tmp_path / "sst" / "train.txt").read_bytes() == CONTENT
    assert fetch(asked, tmp_path, say=said.append) == []
    assert said == [f"train.txt: 16,000 bytes from {server}/train.txt"]


def test_a_file_that_is_there_in_another_form_is_left_alone(server: str, tmp_path: Path) -> None:
    (tmp_path / "sst").mkdir()
    (tmp_path / "sst" / "train.txt.xz").write_bytes(b"mine")
    assert fetch(source(f"{server}/train.txt"), tmp_path) == []
    assert files(tmp_path) == ["train.txt.xz"]


def test_a_file_of_another_hash_is_not_kept(server: str, tmp_path: Path) -> None:
    got = hashlib.sha256(CONTENT[::-1]).hexdigest()
    with pytest.raises(FileFormatError, match=f"/wrong: expected .* got {got}; nothing was kept"):
        fetch(source(f"{server}/wrong"), tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("cut", "the connection broke off"),
        ("absent", "the server answered 404 Not Found"),
        ("silent", "the server (fell silent|cannot be reached)"),
        ("away", "it leads to an address without http:// or https://"),
    ],
)
def test_a_download_that_fails_leaves_nothing(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    monkeypatch.setattr("ampsim.data.download.TIMEOUT_S", 0.2)
    with pytest.raises(MissingDataError, match=f"/{path}: cannot be downloaded: {reason}; try"):
        fetch(source(f"{server}/{path}"), tmp_path)
    assert files(tmp_path) == []


ADDRESSES = (
    "file:///etc/hosts", "ftp://x/y", "/etc/hosts", "train.txt", "", "doi:10.1/x", "data:,a",
    "http://", "http://[::1", "https://a b/c", "HTTP://", "http://x:99999/", "javascript://",
)  # fmt: skip


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_is_none_of_the_web_is_one_line(url: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="cannot be downloaded: ") as caught:
        fetch(source(url), tmp_path)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == []


def test_a_server_that_is_not_there_is_told(server: str, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{other.getsockname()[1]}/train.txt"
        with pytest.raises(MissingDataError, match="the server cannot be reached; try again later"):
            fetch(source(url), tmp_path)
    assert files(tmp_path) == []


def test_the_next_server_is_tried(server: str, tmp_path: Path) -> None:
    fetch(source(f"{server}/absent", f"{server}/wrong", f"{server}/train.txt"), tmp_path)
    assert files(tmp_path) == ["train.txt"]


def test_what_nobody_gives_out_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"qm9: qm9\.npz cannot be downloaded: it is made"):
        fetch("qm9", tmp_path)


def test_a_data_set_that_is_generated_needs_no_file(tmp_path: Path) -> None:
    assert fetch("list_reduction", tmp_path / "nowhere") == []
    assert files(tmp_path) == []


def test_an_unknown_data_set_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no data set named 'imagenet'"):
        fetch("imagenet", tmp_path)


def test_a_folder_that_cannot_be_written_is_told(server: str, tmp_path: Path) -> None:
    (tmp_path / "sst").write_text("a file")
    with pytest.raises(
        OutputError, match=r"cannot create folder .*sst: it exists and is not a folder"
    ):
        fetch(source(f"{server}/train.txt"), tmp_path)


def test_a_disk_that_is_full_is_told(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pooch.retrieve", fill)
    with pytest.raises(OutputError, match=r"cannot write .*train\.txt: no space left on device"):
        fetch(source(f"{server}/train.txt"), tmp_path)
