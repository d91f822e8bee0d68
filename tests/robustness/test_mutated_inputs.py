"""Some wrong inputs of every kind; `mutated_inputs.py` makes as many as one likes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("mutated_inputs.py")
CALLS = 50
SEED = 0


@pytest.mark.slow(12)
def test_whatever_comes_in_is_done_or_refused_in_one_line():
    words = [sys.executable, str(SCRIPT), "--calls", str(CALLS), "--seed", str(SEED)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    told = ended.stdout[-6000:] + ended.stderr[-2000:]
    if ended.returncode:
        pytest.fail(told, pytrace=False)
    kinds = re.findall(r"^(\S+) +\d", ended.stdout, re.MULTILINE)
    assert len(kinds) > 10, told
