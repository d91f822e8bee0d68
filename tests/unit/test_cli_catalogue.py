"""`ampsim devices`, `ampsim models` and `ampsim check`: what there is, and whether it is right."""

import json
from pathlib import Path

import pytest

import ampsim
from ampsim import assets

MODEL = Path(assets.named("models", "rnn")).read_text(encoding="utf-8")
CLUSTER = """
description = "Two kinds"
link = {latency_s = 1e-6, source = {kind = "assumed", text = "chosen"}}
[[device]]
name = "tflops-1"
count = 3
[[device]]
name = "cpu-core"
[[links]]
from = "host"
to = 3
bandwidth_bytes_per_s = 1e9
source = {kind = "assumed", text = "chosen, too"}
"""


def test_every_shipped_device_and_model_is_listed(call):
    for command in ("devices", "models"):
        ended = call(command)
        assert (ended.code, ended.err) == (0, "")
        rows = [line for line in ended.out.splitlines() if not line.startswith(" ")]  # wrapped
        assert [line.split()[0] for line in rows] == assets.names(command)


def test_a_device_shows_its_numbers_sources_and_charges(call):
    said = call("devices", "cpu-core").out
    for part in (
        "heavy steps",
        "roofline",
        "flop_per_s = 1.5e+11",
        "cache_bytes = 2097152",
        "measured",
        "numpy.add",
    ):
        assert part in said


@pytest.mark.parametrize("name", assets.names("models"))
def test_a_model_says_whether_schedules_of_programs_run_it_beside_its_graph(call, name):
    model = ampsim.load_model(name)
    said = call("models", name).out.splitlines()
    line = "Also a program of the same parameters: --schedule dataflow,unrolled,out-of-graph"
    assert (said[-1] == line) == (model.make_program is not None and model.make_graph is not None)
    assert sum("Also a program" in one for one in said) == (said[-1] == line)


def test_a_cluster_shows_its_devices_and_links(call):
    Path("mixed.toml").write_text(CLUSTER)
    said = call("devices", "mixed.toml").out
    for part in ("mixed: Two kinds", "4: 3 x tflops-1, 1 x cpu-core", "latency 1.00 µs"):
        assert part in said
    assert "bandwidth infinite (assumed: chosen)" in said
    assert "link host to 3" in said
    assert "bandwidth 1.00 GB/s" in said
    assert call("check", "mixed.toml").out == "ok: mixed.toml: cluster mixed, 4 workers\n"


NETWORK = """
[[device]]
name = "tflops-1"
count = 4
[topology]
kind = "torus"
shape = [2, 2]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e9
duplex = "half"
source = { kind = "assumed", text = "chosen" }
[ports]
egress_bytes_per_s = 2e9
source = { kind = "measured", text = "by hand" }
[ports.host]
ingress_bytes_per_s = 3e9
source = { kind = "assumed", text = "chosen" }
"""


def test_a_cluster_shows_its_topology_and_ports(call):
    Path("torus.toml").write_text(NETWORK)
    said = [" ".join(line.split()) for line in call("devices", "torus.toml").out.splitlines()]
    for line in (
        "link to and from the host free",
        "topology torus 2 x 2, 4 edges",
        "ports of each worker out 2.00 GB/s (measured: by hand)",
        "ports of the host in 3.00 GB/s (assumed: chosen)",
        "sharing max-min fair",
    ):
        assert line in said
    (edge,) = [line for line in said if line.startswith("each edge latency 1.00 µs")]
    assert edge.endswith("1.00 GB/s (assumed: chosen), both directions share it")
    assert call("check", "torus.toml").out == "ok: torus.toml: cluster torus, 4 workers\n"


def test_a_forecast_takes_groups_and_a_topology(once):
    words = ("rnn", "--set", "hidden=8", "--instances", "100", "--mode", "sleep", "--quiet")
    words += ("--schedule", "amp", "--device", "tflops-1:3,cpu-core:1", "--topology", "ring")
    words += ("--latency-s", "1e-6", "--bandwidth-bytes-per-s", "1e9", "--json", "-")
    told = json.loads(once("forecast", *words).out)
    assert told["cluster"] == "3 x tflops-1, 1 x cpu-core"
    free = json.loads(once("forecast", *words[:-8], "--out", "free", "--json", "-").out)
    assert told["rows"][0]["train_per_s"] < free["rows"][0]["train_per_s"]


def test_listing_models_executes_none(call, monkeypatch, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "loud.py").write_text('"""Says much."""\nraise SystemExit\n')
    (tmp_path / "models" / "mute.py").write_text("raise SystemExit\n")
    monkeypatch.setattr(assets, "shipped", lambda kind: tmp_path / kind)
    assert call("models").out == "loud  Says much.\nmute\n"


def test_a_model_shows_options_nodes_and_parameters(call):
    said = call("models", "rnn", "--set", "hidden=8", "--set", "replicas=2").out
    for part in ("Figure 2", "Source: AMPNet", "hidden", "int", "= 8", "lists in a bucket"):
        assert part in said
    count = 14 * 8 + 2 * (16 * 8 + 8) + 8 * 10 + 10
    assert f"{count} parameters" in said
    assert "weight 16 x 8, bias 8" in said


def test_a_model_draws_its_graph(call):
    assert call("models", "rnn", "--graph", "g.dot").out == "wrote g.dot\n"
    assert Path("g.dot").read_text().startswith('digraph "rnn"')


def test_shipped_files_check_as_fine(call):
    for name in assets.names("devices"):
        assert call("check", str(assets.named("devices", name))).out.startswith("ok: ")
    said = call("check", str(assets.named("models", "rnn"))).out
    assert "model rnn, " in said
    assert "went forward and back" in said
    assert "(mode sleep)" in said


def test_a_model_that_decides_by_values_is_tried_with_numbers(call, monkeypatch):
    monkeypatch.setattr("ampsim.nodes.SoftmaxCrossEntropy.reads_values", True)
    assert "(mode numeric)" in call("check", str(assets.named("models", "rnn"))).out


BROKEN = {
    "isu": (
        "Token(state.instance, state.step - 1, state.length)",
        "Token(state.instance, state.step - 2, state.length)",
        r"isu (Isu): the inverse must give the state back",
    ),
    "unconnected": (
        '    graph.connect(again, loop, "again")\n',
        "",
        "is not connected",
    ),
    "shape": ('Linear("linear-2", hidden, CLASSES)', 'Linear("linear-2", 3, CLASSES)', "linear-2"),
    "syntax": ("def build(", "def build((", "line "),
    "import": ("import numpy as np\n", "import numpie as np\n", "ModuleNotFoundError"),
    "config": ("class Config:", "class Options:", "Config"),
    "pump": ("length = batch.steps", "length = batch.stops", "AttributeError: "),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_model_is_one_line(what, mistake):
    right, wrong, said = BROKEN[what]
    assert right in MODEL
    Path("mine.py").write_text(MODEL.replace(right, wrong), encoding="utf-8")
    line = mistake("check", "mine.py")
    assert said in line


def test_a_broken_device_is_one_line(mistake):
    Path("mine.toml").write_text("flop_per_second = 1e12\n")
    line = mistake("check", "mine.toml")
    assert "mine.toml: unknown key 'flop_per_second'; did you mean 'flop_per_s'?" in line


def test_a_docstring_of_what_is_no_python_is_refused(call):
    from ampsim.errors import FileFormatError
    from ampsim.study.model import docstring_of

    Path("mine.py").write_text("def (")
    with pytest.raises(FileFormatError, match=r"mine\.py: is not valid Python: "):
        docstring_of(Path("mine.py"))
