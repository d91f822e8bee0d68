"""A few kills of `tests/robustness/kill_at_random.py`, whose long version makes hundreds."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "robustness" / "kill_at_random.py"


@pytest.mark.slow(20)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to find processes in")
def test_two_signals_at_once_end_a_forecast_in_good_order(tmp_path):
    words = ["--each", "0", "--pairs", "2", "--unpainted"]
    ended = subprocess.run(
        [sys.executable, SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 kills, 0 with a fault" in ended.stdout


@pytest.mark.slow(15)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to find processes in")
def test_a_report_killed_at_random_loses_nothing_and_leaves_nothing_behind(tmp_path):
    words = ["--each", "1", "--command", "report", "--signal", "TERM", "--signal", "KILL"]
    words.append("--unpainted")
    ended = subprocess.run(
        [sys.executable, SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 kills, 0 with a fault" in ended.stdout
