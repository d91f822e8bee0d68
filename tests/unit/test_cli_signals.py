"""What ends the program from outside, and what is wrong with standard output."""

import errno
import os
import signal
import sys

import pytest

from ampsim.cli import signals, standard_output
from ampsim.cli.standard_output import UnwritableOutput


@pytest.mark.parametrize("name", [*signals.ENDING, "SIGINT"])
def test_a_signal_interrupts_and_decides_the_code(name):
    if not hasattr(signal, name):
        pytest.skip(f"this system has no {name}")
    number, before = getattr(signal, name), signal.getsignal(getattr(signal, name))
    with signals.interrupting() as received, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert received.code == 128 + number
    assert signal.getsignal(number) == before


def test_a_signal_that_the_caller_ignores_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with signals.interrupting() as received:
            signal.raise_signal(signal.SIGTERM)
        assert received.code == 130
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("kind", [OSError, ConnectionError, BrokenPipeError, ConnectionResetError])
def test_an_error_of_another_is_none_of_standard_output(kind):
    with pytest.raises(kind), standard_output.watched():
        raise kind("of a data function")


@pytest.mark.parametrize("how", ["write", "writelines", "flush"])
def test_an_error_of_standard_output_is_known_as_such(how, monkeypatch):
    class Full:
        def fail(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        write = writelines = flush = fail

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(UnwritableOutput) as caught, standard_output.watched():
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
