"""`ampsim devices import` makes a device file of a foreign one, and says what it left out."""

import copy
import json
from pathlib import Path

import pytest

from ampsim.errors import FileFormatError
from ampsim.hardware import load_device
from ampsim.hardware.foreign import device_toml, import_device

MEMORY = {"GiB": 80, "GBps": 2000, "MB_efficiency": [[100, 0.9], [10, 0.75], [0, 0.3]]}
STEPS = [[128, 0.95], [16, 0.9], [0, 0.1]]
CALCULON = {
    "matrix": {"float16": {"tflops": 300, "gflops_efficiency": STEPS}},
    "vector": {"float16": {"tflops": 78, "gflops_efficiency": [[0, 0.5]]}},
    "mem1": MEMORY,
    "mem2": {"GiB": 512, "GBps": 32},
    "processing_mode": "no_overlap",
    "networks": [{"bandwidth": 300}],
}
FORMS = {
    "a table for each kind of numbers": CALCULON["matrix"],
    "fractions for each kind of numbers": {"tflops": 300, "gflops_efficiency": {"float16": STEPS}},
    "fractions alone": {"tflops": 300, "gflops_efficiency": STEPS},
    "one fraction": {"tflops": 300, "efficiency": 0.95},
}
SIMUMAX = {
    "sys_name": "x",
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
        "bandwidth": {
            "default": {"gbps": 1000, "efficient_factor": 0.5, "latency_us": 40},
            "ce": {"gbps": 1000, "efficient_factor": 0.8, "latency_us": 40},
        },
        "mode": "roofline",
    },
    "networks": {},
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder to write foreign files into."""
    monkeypatch.chdir(tmp_path)


def written(content, name="theirs.json"):
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


@pytest.mark.parametrize("form", FORMS)
def test_calculon_gives_rate_bandwidth_and_memory_in_every_form_of_its_files(form):
    device, simulator, _ = import_device(written(CALCULON | {"matrix": FORMS[form]}))
    assert (simulator, device.name) == ("Calculon", "theirs")
    assert device.numbers == {
        "flop_per_s": 300e12 * 0.95,
        "memory_bandwidth_bytes_per_s": 2000e9 * 0.9,
        "memory_bytes": 80 * 2**30,
    }


def test_sources_name_the_file_and_the_keys():
    device = import_device(written(CALCULON)).device
    assert device.source("flop_per_s").text == (
        "theirs.json, a file of Calculon: matrix.float16.tflops, 300 x 10^12, times 0.95 of "
        "matrix.float16.gflops_efficiency"
    )
    assert "mem1.GBps" in device.source("memory_bandwidth_bytes_per_s").text
    assert "accelerator.op.matmul.tflops" in (
        import_device(written(SIMUMAX)).device.source("flop_per_s").text
    )


def test_what_calculon_says_beside_is_told_once_each():
    left_out = import_device(written(CALCULON)).left_out
    assert [one.split(":")[0] for one in left_out] == [
        "matrix.float16.gflops_efficiency",
        "mem1.MB_efficiency",
        "mem2",
        "networks",
        "processing_mode",
        "vector",
    ]


def test_single_precision_is_preferred_and_the_others_are_told():
    kinds = {"float8": {"tflops": 600}, "float32": {"tflops": 20}, "float16": {"tflops": 300}}
    device, _, left_out = import_device(written(CALCULON | {"matrix": kinds}))
    assert device.flop_per_s == 20e12
    assert left_out[1] == "matrix: float8, float16: one kind of numbers is taken, float32"


def test_simumax_counts_in_powers_of_two():
    device, simulator, left_out = import_device(written(SIMUMAX))
    assert simulator == "SimuMax"
    assert device.numbers == {
        "flop_per_s": 312e12 * 0.75,
        "memory_bandwidth_bytes_per_s": 1000 * 2**30 * 0.5,
        "memory_bytes": 80 * 2**30,
    }
    assert [one.split(":")[0] for one in left_out] == [
        "accelerator.op.matmul.accurate_efficient_factor",
        "accelerator.op",
        "accelerator.bandwidth.default.latency_us",
        "accelerator.bandwidth",
        "networks",
    ]


def test_simumax_with_one_bandwidth_and_no_products_of_its_own_is_read():
    older = copy.deepcopy(SIMUMAX)
    older["accelerator"]["bandwidth"] = {"gbps": 2000, "efficient_factor": 0.7, "latency_us": 0}
    del older["accelerator"]["op"]["matmul"]
    device, _, left_out = import_device(written(older))
    assert device.flop_per_s == 312e12 * 0.5
    assert device.memory_bandwidth_bytes_per_s == 2000 * 2**30 * 0.7
    assert [one.split(":")[0] for one in left_out] == ["networks"]


@pytest.mark.parametrize("content", [CALCULON, SIMUMAX])
def test_the_file_that_is_written_is_the_device_that_was_read(content, call):
    name = written(content, "some system.json")
    ended = call("devices", "import", name, "--out", "new/folder")
    assert (ended.code, ended.out.split(":")[0]) == (0, "new/folder/some system.toml")
    imported = import_device(name)
    assert load_device(Path("new/folder/some system.toml")) == imported.device
    notes = [f"ampsim: note: {name}: not carried over: {one}" for one in imported.left_out]
    assert ended.err.splitlines() == notes
    again = call("devices", "import", name, "--out", "new/folder")
    assert (again.code, again.err) == (
        2,
        "ampsim: new/folder/some system.toml exists; remove it, or choose another folder with "
        "--out\n",
    )


def test_a_shipped_device_is_written_as_it_is_read():
    for name in ("cpu-core", "h100", "tflops-1"):
        Path("copy.toml").write_text(device_toml(load_device(name)), encoding="utf-8")
        assert load_device(Path("copy.toml")) == load_device(name)


def changed(content, *keys, to):
    """The content with the value under some keys replaced, or removed where `to` is ...."""
    content = copy.deepcopy(content)
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    if to is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = to
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"a": 1}, "expected a system file of Calculon, with the keys matrix and mem1, or of "),
        ([1], r"expected a table in braces, got \[1\]"),
        ("", "is not valid JSON: Expecting value"),
        ("{", "is not valid JSON: "),
        ("[" * 200_000, "is nested too deeply|is not valid JSON"),
        (changed(CALCULON, "mem1", to=3), "mem1: expected a table, got 3"),
        (changed(CALCULON, "mem1", "GiB", to=...), "missing key 'mem1.GiB'"),
        (changed(CALCULON, "mem1", "GiB", to="80"), "mem1.GiB: expected a number above 0 and at "),
        (changed(CALCULON, "mem1", "GBps", to=True), "mem1.GBps: expected a number .* got True"),
        (changed(CALCULON, "mem1", "GBps", to=float("nan")), "mem1.GBps: expected .* got nan"),
        (changed(CALCULON, "mem1", "GiB", to=1e-12), "memory_bytes must be >= 1, got 0"),
        (changed(CALCULON, "matrix", to={}), "matrix.float32: expected a kind of numbers"),
        (
            changed(CALCULON, "matrix", "float16", "gflops_efficiency", to=[]),
            r"matrix.float16.gflops_efficiency: expected a list of \[GFLOP, fraction\], got \[\]",
        ),
        (
            changed(CALCULON, "matrix", "float16", "gflops_efficiency", to=[[1, 2]]),
            "matrix.float16.gflops_efficiency: expected a number above 0 and at most 1, got 2",
        ),
        (
            changed(CALCULON, "matrix", "float16", "gflops_efficiency", to=[1]),
            r"matrix.float16.gflops_efficiency: expected \[size, fraction\] in each place, got 1",
        ),
        (changed(SIMUMAX, "accelerator", to=None), "accelerator: expected a table, got None"),
        (changed(SIMUMAX, "accelerator", "op", to={}), "missing key 'accelerator.op.default'"),
        (
            changed(SIMUMAX, "accelerator", "op", "matmul", "tflops", to=-1),
            "accelerator.op.matmul.tflops: expected a number above 0 and at most 1e.12, got -1",
        ),
        (
            changed(SIMUMAX, "accelerator", "bandwidth", to={"gbps": 1}),
            "missing key 'accelerator.bandwidth.efficient_factor'",
        ),
    ],
)
def test_a_file_that_is_no_system_is_refused_in_one_line(content, said):
    with pytest.raises(FileFormatError, match=f"^theirs.json: ({said})") as caught:
        import_device(written(content))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("import",), "import needs a file: give a system file of Calculon or SimuMax"),
        (("a100", "h100"), "one device is shown at a time, got 'a100' and 'h100'; give one"),
        (("a100", "--out", "x"), "--out belongs to import; leave it out, or give the word import"),
        (("import", "no.json"), "no.json: cannot be read: no such file or directory; check"),
        (("import", "."), ".: expected a .json file, got a folder; name a file in it"),
    ],
)
def test_words_that_do_not_fit_import_are_refused_in_one_line(words, said, call):
    ended = call("devices", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"ampsim: {said}")
    assert len(ended.err.splitlines()) == 1


def test_json_gives_the_device_alone_on_standard_output(call):
    ended = call("devices", "import", written(CALCULON), "--json", "-")
    (device,) = json.loads(ended.out)["devices"]
    assert (device["kind"], device["memory_bytes"]) == ("device", 80 * 2**30)
