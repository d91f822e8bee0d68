"""What ends the program from outside, and what is wrong with standard output."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

import ampsim
from ampsim.cli import start as signals
from ampsim.cli.start import UnwritableOutput


@pytest.mark.parametrize("name", [*signals.ENDING, "SIGINT"])
def test_a_signal_interrupts_and_decides_the_code(name):
    if not hasattr(signal, name):
        pytest.skip(f"this system has no {name}")
    number, before = getattr(signal, name), signal.getsignal(getattr(signal, name))
    with signals.interrupting() as received, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert received.code == 128 + number
    assert signal.getsignal(number) == before


def test_several_signals_at_once_are_one_interruption(monkeypatch):
    now_s = 100.0
    monkeypatch.setattr("ampsim.cli.start.time.monotonic", lambda: now_s)
    with signals.interrupting() as received:
        for number in (signal.SIGTERM, signal.SIGINT):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
            for _ in range(3):
                now_s += 0.3
                signal.raise_signal(number)  # belongs to the one before
            now_s += signals.AGAIN_S
        received.is_over = True
        signal.raise_signal(signal.SIGTERM)  # there is nothing left to interrupt
    assert received.code == 128 + signal.SIGTERM


INTERRUPTING_IMPORT = """
import os, signal, sys

left = int(os.environ["INTERRUPT_AT"])
has_begun = False

def interrupt(event, arguments):
    global left, has_begun
    if event == "import":
        has_begun = has_begun or arguments[0] == "importlib.metadata"
        left -= has_begun
        if has_begun and left == 0:
            signal.raise_signal(signal.SIGINT)

sys.addaudithook(interrupt)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["module", "script"])
@pytest.mark.parametrize("at", [1, 4, 20, 60, 150, 350])
def test_ctrl_c_during_any_import_ends_the_program_in_a_line(tmp_path, way, at):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING_IMPORT)
    (tmp_path / "ampsim").write_text("from ampsim.cli import main\nmain()\n")
    words = ["-m", "ampsim"] if way == "module" else [str(tmp_path / "ampsim")]
    place = str(Path(ampsim.__file__).parents[1])
    paths = os.pathsep.join((str(tmp_path), place))
    ended = subprocess.run(
        [sys.executable, *words, "devices", "tflops-1"],
        env={**os.environ, "INTERRUPT_AT": str(at), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "ampsim: interrupted\n")


@pytest.mark.parametrize(
    ("argv", "orig_argv", "is_program"),
    [
        (["-m", "run"], ["python", "-m", "ampsim", "run"], True),
        (["-m", "run"], ["python", "-Imampsim", "run"], True),
        (["/bin/ampsim", "run"], ["python", "/bin/ampsim", "run"], True),
        (["ampsim.exe"], ["python.exe", "ampsim.exe"], True),
        (["-m", "ampsim"], ["python", "-m", "pytest", "ampsim"], False),
        (["study.py", "ampsim"], ["python", "study.py", "ampsim"], False),
        (["ampsim_study.py"], ["python", "ampsim_study.py"], False),
        (["-c"], ["python", "-c", "import ampsim"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_only_the_program_itself_takes_ctrl_c_while_it_is_imported(
    monkeypatch, argv, orig_argv, is_program
):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", orig_argv)
    assert vars(ampsim)["_is_program"]() is is_program


@pytest.mark.parametrize("name", signals.ENDING)
def test_a_signal_that_the_caller_ignores_stays_ignored(name):
    if not hasattr(signal, name):
        pytest.skip(f"this system has no {name}")
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with signals.interrupting() as received:
            signal.raise_signal(number)
        assert received.code == 130
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def ignoring(words: list[str], *names: str) -> subprocess.CompletedProcess[str]:
    """Run a program that ignores signals from its start, as behind `nohup` or a shell's "&"."""

    def ignore() -> None:
        for name in names:
            signal.signal(getattr(signal, name), signal.SIG_IGN)

    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, preexec_fn=ignore
    )


@pytest.mark.skipif(os.name == "nt", reason="has no such signals")
@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM"])
def test_the_program_goes_on_after_a_signal_that_it_ignores_from_its_start(name):
    program = (
        "import os, signal, sys, ampsim.cli\n"
        "import ampsim.assets as assets\n"
        "names = assets.names\n"
        "def hung_up(folder):\n"
        f"    os.kill(os.getpid(), signal.{name})\n"
        "    return names(folder)\n"
        "assets.names = hung_up\n"
        "ampsim.cli.main(['devices'])\n"
    )
    ended = ignoring(["-c", program], name)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "tflops-1" in ended.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="has no such signals")
def test_these_tests_pass_where_signals_are_ignored_from_the_start():
    test = f"{__file__}::{test_a_signal_interrupts_and_decides_the_code.__name__}"
    ended = ignoring(["-m", "pytest", "-q", "-p", "no:cacheprovider", test], "SIGHUP", "SIGINT")
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("kind", [OSError, ConnectionError, BrokenPipeError, ConnectionResetError])
def test_an_error_of_another_is_none_of_standard_output(kind):
    with pytest.raises(kind), signals.watched():
        raise kind("of a data function")


@pytest.mark.parametrize("how", ["write", "writelines", "flush"])
def test_an_error_of_standard_output_is_known_as_such(how, monkeypatch):
    class Full:
        def fail(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        write = writelines = flush = fail

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(UnwritableOutput) as caught, signals.watched():
        getattr(sys.stdout, how)(*["x"] * (how != "flush"))
    assert caught.value.reason == "No space left on device"
    assert isinstance(sys.stdout, Full)


class Interrupting:
    """What a class is made of, such as matplotlib's axes, when a signal comes in between."""

    def __set_name__(self, owner: type, name: str) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_while_a_class_is_made_interrupts_as_any_other(call, monkeypatch):
    monkeypatch.setattr(
        "ampsim.assets.names", lambda folder: type("Axes", (), {"part": Interrupting()})
    )
    ended = call("devices")
    assert (ended.code, ended.out, ended.err) == (143, "", "ampsim: interrupted\n")


def test_an_error_that_follows_from_a_signal_is_an_interruption(call, monkeypatch):
    def drop_the_interruption(folder):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise TypeError("of a library that dropped the interruption and went on with half a value")

    monkeypatch.setattr("ampsim.assets.names", drop_the_interruption)
    ended = call("devices")
    assert (ended.code, ended.out, ended.err) == (143, "", "ampsim: interrupted\n")


def test_an_error_without_a_signal_is_none(call, monkeypatch):
    def fail(folder):
        raise TypeError("of a library")

    monkeypatch.setattr("ampsim.assets.names", fail)
    with pytest.raises(TypeError, match="of a library"):
        call("devices")


class Deleted:
    """What interrupts while it is deleted, where Python drops any error."""

    def __init__(self, kind: type[BaseException] | None) -> None:
        self.kind = kind

    def __del__(self) -> None:
        if self.kind is not None:
            raise self.kind("dropped")
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.skipif(os.name == "nt", reason="wakes nothing that waits")
def test_an_interruption_that_python_drops_is_repeated(call, monkeypatch):
    def delete(folder):
        Deleted(None)
        threading.Event().wait(60)
        return []

    monkeypatch.setattr("ampsim.assets.names", delete)
    ended = call("devices")
    assert (ended.code, ended.out, ended.err) == (143, "", "ampsim: interrupted\n")


class Slow(threading.Timer):
    """A timer that is over before who starts it goes on, as where processors are few."""

    def start(self) -> None:
        super().start()
        self.join(0.1)


@pytest.mark.skipif(os.name == "nt", reason="wakes nothing that waits")
def test_an_interruption_is_repeated_once_python_has_dropped_it_not_before(monkeypatch):
    monkeypatch.setattr("ampsim.cli.start.threading.Timer", Slow)
    with signals.interrupting() as received:
        Deleted(None)
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(2)
    assert received.code == 128 + signal.SIGTERM


def test_any_other_error_that_python_drops_is_told_as_ever(monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: dropped.append(error.exc_type))
    usual = sys.unraisablehook
    with signals.interrupting() as received:
        Deleted(ValueError)
    assert dropped == [ValueError]
    assert not received.has_come
    assert sys.unraisablehook == usual


class Later:
    """A timer that is run when the test says so."""

    waiting: ClassVar[list[Callable[[], None]]] = []

    def __init__(self, interval: float, function: Callable[[], None]) -> None:
        self.function = function

    def start(self) -> None:
        self.waiting.append(self.function)


def test_an_interruption_is_not_repeated_once_the_program_is_over(monkeypatch):
    monkeypatch.setattr("ampsim.cli.start.threading.Timer", Later)
    with signals.interrupting() as received:
        Deleted(None)
    (interrupt,) = Later.waiting
    interrupt()
    assert received.has_come
