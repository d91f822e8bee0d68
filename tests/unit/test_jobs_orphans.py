"""Processes of `jobs` end with the one that they work for, whatever ends that."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ampsim.runs import local_slots

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="this system has no /proc to look for processes in"
)

IN_PYTHON = "while True: pass"
IN_NUMPY = "import numpy; one = numpy.ones((1500, 1500)); [one @ one for _ in range(10**9)]"

PROGRAM = """
import sys
from dataclasses import replace
import ampsim
from ampsim.runs import local_slots

local_slots.START_METHOD = {method!r}

def make_data(seed, count):
    {kernel}
    with open({folder!r} + f"/{{os.getpid()}}", "w"):
        pass
    {work}

import os
model = replace(ampsim.load_model("rnn", hidden=8), make_data=make_data)
cluster = ampsim.load_cluster("tflops-1", workers=2)
ampsim.forecast(model, cluster, [ampsim.Sequential(), ampsim.Amp()], jobs=2)
"""

WITHOUT_KERNEL = "import ctypes; ctypes.CDLL(None).prctl(1, 0)"
"""Takes back what the Linux kernel was asked for, so that the thread that watches is alone."""


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(holds, seconds: float) -> bool:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "number", "work", "kernel"),
    [
        ("fork", signal.SIGKILL, IN_PYTHON, "pass"),
        ("fork", signal.SIGKILL, IN_NUMPY, WITHOUT_KERNEL),
        ("fork", signal.SIGQUIT, IN_PYTHON, WITHOUT_KERNEL),
        ("fork", signal.SIGTERM, IN_NUMPY, "pass"),
        ("spawn", signal.SIGKILL, IN_NUMPY, WITHOUT_KERNEL),
    ],
)
def test_processes_end_with_their_parent(tmp_path, method, number, work, kernel):
    program = PROGRAM.format(method=method, folder=str(tmp_path), work=work, kernel=kernel)
    parent = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    assert wait_until(lambda: len(os.listdir(tmp_path)) == 2, 60)
    children = [int(name) for name in os.listdir(tmp_path)]
    assert all(map(is_alive, children))
    parent.send_signal(number)
    parent.wait(30)
    assert wait_until(lambda: not any(map(is_alive, children)), 30)


SENDING = """
import queue
import time
from multiprocessing.process import BaseProcess

from ampsim.runs.jobs import Listeners, opened, run_all


class Task:
    key = ""

    def run(self, tell):
        return bytes(10**6), None  # more than a pipe holds: who sends it waits for who takes it


class Interrupting:
    def put(self, news):
        pass

    def get(self):
        time.sleep(0.5)
        raise KeyboardInterrupt


kill, left = BaseProcess.kill, {interruptions}


def interrupted_kill(process):
    global left
    if left:
        left -= 1
        raise KeyboardInterrupt
    kill(process)


BaseProcess.kill, queue.SimpleQueue = interrupted_kill, Interrupting
try:
    with opened(2) as executor:
        run_all([Task(), Task()], executor, Listeners(print, print), lambda result, _: result)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.parametrize("interruptions", [0, 1, 2])
def test_further_signals_leave_nobody_waiting_for_a_process_that_sends(interruptions):
    program = SENDING.format(interruptions=interruptions)
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")


def test_a_process_that_nobody_started_cannot_end_with_its_parent():
    with pytest.raises(AssertionError, match="nobody has started this process"):
        local_slots.end_with_parent()
