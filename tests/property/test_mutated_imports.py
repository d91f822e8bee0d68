"""Spoilt files of other simulators: imported in our ranges, or refused in a line on the file."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_mutated_hardware import LIMIT, ODD, TOKENS, places

from ampsim.errors import AmpsimError
from ampsim.hardware import load_device
from ampsim.hardware.foreign import device_toml, import_device

CALCULON = {
    "matrix": {"float16": {"tflops": 300, "gflops_efficiency": [[128, 0.95], [0, 0.1]]}},
    "mem1": {"GiB": 80, "GBps": 2000, "MB_efficiency": [[100, 0.9], [0, 0.3]]},
    "processing_mode": "no_overlap",
    "networks": [{"bandwidth": 300}],
}
SIMUMAX = {
    "accelerator": {
        "mem_gbs": 80,
        "op": {
            "default": {"tflops": 312, "efficient_factor": 0.5},
            "matmul": {
                "tflops": 312,
                "efficient_factor": 0.75,
                "accurate_efficient_factor": {"b=1, m=4096": 0.78},
            },
        },
        "bandwidth": {"default": {"gbps": 1000, "efficient_factor": 0.5, "latency_us": 40}},
    },
    "networks": {},
}


@st.composite
def spoilt(draw: st.DrawFn, base: dict[str, Any]) -> str:
    """The text of a file with up to three things changed in it."""
    table = copy.deepcopy(base)
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3]))):
        container, key = draw(st.sampled_from(places(table) or [(table, "matrix")]))
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                container[key] = copy.deepcopy(draw(ODD))
            case "remove" if container:
                del container[key]
            case _ if isinstance(container, dict):
                container[draw(st.text(max_size=4))] = copy.deepcopy(draw(ODD))
            case _:
                pass
    text = json.dumps(table, default=str)
    if draw(st.integers(0, 3)) == 0:
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 4))
        text = text[:at] + draw(TOKENS) + text[at + length :]
    return text


@pytest.mark.slow
@settings(
    max_examples=400,
    derandomize=True,
    deadline=LIMIT,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=st.sampled_from([CALCULON, SIMUMAX]).flatmap(spoilt))
def test_a_spoilt_foreign_file_becomes_a_device_or_one_line(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("spoilt.json").write_text(text, encoding="utf-8")
    try:
        imported = import_device("spoilt.json")
    except AmpsimError as error:
        said = str(error)
        assert said.startswith("spoilt.json: ")
        assert said.isprintable()
        return
    assert all(one.isprintable() for one in imported.left_out)
    Path("ours.toml").write_text(device_toml(imported.device), encoding="utf-8")
    assert load_device(os.path.join(os.curdir, "ours.toml")) == imported.device
