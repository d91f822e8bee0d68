"""The program as a process: its streams, its signals, its speed."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ampsim

PROGRAM = (sys.executable, "-m", "ampsim")
UNPAINTED = (sys.executable, str(Path(__file__).parents[1] / "unpainted.py"))
SMALL = ("--instances", "200", "--set", "hidden=8")
MLP = ("--set", "data=synthetic", "--set", "hidden=8", "--instances", "200", "--workers", "2")


def start(
    folder: Path, *words: str, stdout: int = subprocess.PIPE, program: tuple[str, ...] = PROGRAM
) -> "subprocess.Popen[str]":
    kept = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.Popen(
        [*program, *words],
        cwd=folder,
        env=kept,
        text=True,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def cpu_s() -> float:
    """Seconds of the processor that finished child processes took; others do not disturb it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interrupt_when(process: "subprocess.Popen[str]", start_of_line: str) -> tuple[str, str]:
    """Press Ctrl-C once a line on standard error begins like that."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(start_of_line):
            break
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=60)


def test_help_and_version_answer_at_once(tmp_path):
    for word, said in (("--help", "forecast"), ("--version", ampsim.__version__)):
        before_s = cpu_s()
        process = start(tmp_path, word)
        out, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        assert said in out
        assert cpu_s() - before_s < 0.5


def test_help_imports_nothing_heavy(tmp_path):
    program = (
        "import sys; sys.argv = ['ampsim', '--help']; import ampsim.cli, atexit\n"
        "names = ('numpy', 'pandas', 'matplotlib', 'pydantic', 'networkx', 'simpy', 'pyarrow')\n"
        "assert not [name for name in names if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_without_a_command_it_helps(tmp_path):
    process = start(tmp_path)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "Usage: ampsim" in out


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_the_schedules_that_finished(tmp_path, jobs):
    words = ("forecast", "rnn", "--instances", "6000", "--set", "hidden=8", "--workers", "2")
    words = (*words, "--schedule", "sequential", "--repeats", "16", "--target", "0.001")
    words = (*words, "--jobs", str(jobs))
    process = start(tmp_path, *words, program=UNPAINTED)
    out, err = interrupt_when(process, f"ampsim: sequential {jobs + 1}/16")  # one has ended
    assert process.returncode == 130
    assert "sequential" in out
    assert err.splitlines()[-1].startswith("ampsim: interrupted: ")
    assert err.splitlines()[-1].endswith("what finished is in forecast-rnn; run again to go on")
    assert (tmp_path / "forecast-rnn" / "forecast.md").is_file()


@pytest.mark.slow
def test_ctrl_c_before_anything_finished_leaves_no_folder(tmp_path):
    process = start(tmp_path, "forecast", "rnn", "--quick", "--schedule", "amp")
    while not (tmp_path / "forecast-rnn").is_dir():
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "interrupted" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_keeps_the_trace_of_a_run(tmp_path):
    words = ("run", "rnn", *SMALL, "--workers", "2", "--epochs", "1000000")
    process = start(tmp_path, *words, program=UNPAINTED)
    out, err = interrupt_when(process, "ampsim: amp, epoch ")
    assert process.returncode == 130
    assert "wrote run-rnn" in out
    assert "; the trace until then is in run-rnn" in err
    assert (tmp_path / "run-rnn" / "manifest.toml").is_file()


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    process = start(tmp_path, "models", "rnn", stdout=writing)
    os.close(writing)
    _, err = process.communicate()
    assert (process.returncode, err) == (1, "")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_standard_output_on_a_full_disk_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        process = start(tmp_path, "models", stdout=full.fileno())
        _, err = process.communicate()
    said = "ampsim: cannot write to standard output: No space left on device\n"
    assert (process.returncode, err) == (1, said)


@pytest.mark.slow
def test_a_terminal_that_knows_ascii_only_gets_its_table(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    words = ("--schedule", "amp", "--mode", "sleep", "--workers", "2")
    process = start(tmp_path, "forecast", *SMALL, *words, program=UNPAINTED)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.isascii()
    assert "amp" in out


INTERRUPTED = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Config: ...

def build(config):
    exec("import os, signal; os.kill(os.getpid(), signal.{name})")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_within_a_text_that_is_executed_ends_with_its_code_too(tmp_path, name, code):
    """As while a data class is made: CPython then ends `python -m` by SIGINT unless told not to."""
    (tmp_path / "own.py").write_text(INTERRUPTED.format(name=name))
    process = start(tmp_path, "gantt", "own.py", "--out", "new/g.json")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", "ampsim: interrupted\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_cache_of_fonts_that_cannot_be_kept_is_no_line(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLCONFIGDIR", "/proc")  # there, and writable by nobody
    process = start(tmp_path, "gantt", "mlp", *MLP, "--out", "g.png")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert "g.png" in out
