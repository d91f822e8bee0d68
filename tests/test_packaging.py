"""The wheel holds what git knows, no more and no less, and works from an empty folder."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("devices", "models")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    """The wheel or sdist of a source tree, built without isolation and so without network."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed; it comes with the extra 'test'")
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source)
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def files() -> list[str]:
    """What git knows or would add, of what is there."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so nothing says what belongs to the project")
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = run("git", "-c", "safe.directory=*", *listing, cwd=ROOT).split("\0")
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def tree(files, tmp_path_factory) -> Path:
    """A copy of those files, with droppings that must not be shipped."""
    copy = tmp_path_factory.mktemp("tree")
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    for folder in ("ampsim", *SHIPPED):
        (copy / folder / "__pycache__").mkdir()
        (copy / folder / "__pycache__" / "left.cpython-311.pyc").write_bytes(b"left over")
    return copy


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    """The wheel of the copy."""
    return build("wheel", tree, tmp_path_factory.mktemp("wheel"))


def names_in(wheel: Path) -> list[str]:
    """The files of a wheel beside its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(name for name in archive.namelist() if ".dist-info/" not in name)


def test_wheel_holds_the_package_and_the_shipped_files_and_nothing_else(wheel, files):
    package = [name for name in files if name.startswith("ampsim/")]
    shipped = [f"ampsim/_shipped/{name}" for name in files if name.split("/")[0] in SHIPPED]
    assert names_in(wheel) == sorted(package + shipped)
    for expected in ("devices/tflops-1.toml", "devices/p100.toml", "models/rnn.py"):
        assert f"ampsim/_shipped/{expected}" in shipped


def test_reports_and_notebooks_are_in_the_checkout_and_not_in_the_wheel(wheel, files):
    for folder in ("reports", "notebooks"):
        assert [name for name in files if name.startswith(f"{folder}/")]
        assert not [name for name in names_in(wheel) if folder in name.split("/")]


@pytest.mark.slow
def test_nothing_large_and_no_package_of_others_belongs_to_the_project(files):
    """As two wheels of a browser once did, for 54 MB of every clone."""
    large = {name: size for name in files if (size := (ROOT / name).stat().st_size) > 2_000_000}
    assert large == {}
    assert [name for name in files if name.endswith((".whl", ".tar.gz", ".zip"))] == []


def test_installed_code_means_the_same_as_that_of_the_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    program = "from ampsim.study.provenance import source_digest; print(source_digest())"
    digests = {
        run(sys.executable, "-c", program, cwd=tmp_path / "empty", PYTHONPATH=str(place))
        for place in (tmp_path / "site", ROOT)
    }
    assert len(digests) == 1


def test_wheel_names_its_licence_and_its_command(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = {name.split("/", 1)[1]: name for name in archive.namelist() if "-info/" in name}
        assert "ampsim = ampsim.cli:main" in archive.read(metadata["entry_points.txt"]).decode()
        assert "Apache License" in archive.read(metadata["licenses/LICENSE"]).decode()
        assert "License-Expression: Apache-2.0" in archive.read(metadata["METADATA"]).decode()


@pytest.mark.slow
def test_source_distribution_gives_the_same_wheel(tree, wheel, tmp_path):
    (tmp_path / "sdist").mkdir()
    (tmp_path / "wheel").mkdir()
    with tarfile.open(build("sdist", tree, tmp_path / "sdist")) as archive:
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safely)  # Python 3.11 has filters from 3.11.4 on
    (source,) = tmp_path.glob("ampsim-*")
    assert names_in(build("wheel", source, tmp_path / "wheel")) == names_in(wheel)


def test_installed_package_finds_its_files_from_an_empty_folder(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    program = (
        "from ampsim import assets; "
        "print(*(assets.locate(kind, name) for kind in ('devices', 'models') "
        "for name in assets.names(kind)), sep='\\n')"
    )
    # The unpacked wheel comes before any installed or editable ampsim.
    listing = run(
        sys.executable, "-c", program, cwd=tmp_path / "empty", PYTHONPATH=str(tmp_path / "site")
    )
    found = [Path(line) for line in listing.splitlines()]
    shipped = (tmp_path / "site" / "ampsim" / "_shipped").resolve()
    assert {path.name for path in found} >= {"cpu-core.toml", "tflops-1.toml", "rnn.py"}
    assert all(path.resolve().is_relative_to(shipped) for path in found)
