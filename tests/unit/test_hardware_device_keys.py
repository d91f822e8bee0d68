"""What a device may say beside its rate: each key is checked, sourced and counted."""

import math

import pytest

import ampsim
from ampsim import assets
from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware import Device, MemoryRemedy, Source, charges, load_cluster, load_device
from ampsim.hardware.device import NUMBERS, REMARKS, Sources
from ampsim.study.provenance import cluster_origin

GOOD = """
flop_per_s = 2e12
[sources.flop_per_s]
kind = "assumed"
text = "for tests"
"""


@pytest.fixture
def rejection(tmp_path, monkeypatch):
    """What is said of a device file with the given content."""
    monkeypatch.chdir(tmp_path)

    def reject(content: str) -> str:
        (tmp_path / "bad.toml").write_text(content)
        with pytest.raises(FileFormatError) as caught:
            load_device("bad.toml")
        return str(caught.value)

    return reject


@pytest.mark.parametrize("name", assets.names("devices"))
def test_shipped_power_and_price_are_never_assumed(name):
    device = load_device(name)
    for key in ("idle_power_w", "busy_power_w", "price_usd_per_h"):
        assert key not in device.numbers or device.source(key).kind != "assumed"


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("tflops-1", "653bbe2ace2d3c92c2f58cd7d22294db94f40a0698964ff00711b57cc93aca58"),
        ("cpu-core", "b4f2d5409e122376ad554e6ca91e024715da8fdd7a36bcddef8a3dd3574fe6b8"),
        ("knl-7250", "b00cf0c5b41969fe29b8cd2782b2aa0f1dfdbf0d0edb377c36ac6b0a7c001f8d"),
    ],
)
def test_digest_of_a_file_in_published_manifests_stays_what_it_was(name, digest):
    assert load_device(name).digest == digest


GPUS = [one for one in assets.names("devices") if "NVIDIA" in load_device(one).description]
REAL = [
    one
    for one in assets.names("devices")
    if load_device(one).memory_bandwidth_bytes_per_s is not None
]


def test_the_shipped_gpus_are_found():
    assert {"a100", "k40", "p100", "v100-sxm2"} <= set(GPUS) < set(REAL)


@pytest.mark.parametrize("name", GPUS)
def test_a_shipped_gpu_has_memory_power_and_lanes_to_the_host(name):
    device = load_device(name)
    needed = ("memory_bytes", "idle_power_w", "busy_power_w")
    needed += ("copy_bandwidth_bytes_per_s", "copy_latency_s")
    assert set(needed) <= device.numbers.keys()
    assert device.source("memory_bytes").kind == "measured"  # as the driver tells it
    memory_bytes_per_s = device.memory_bandwidth_bytes_per_s or 0.0
    assert (device.copy_bandwidth_bytes_per_s or math.inf) < memory_bytes_per_s / 10


@pytest.mark.parametrize("name", GPUS)
def test_activations_move_to_the_host_on_a_shipped_gpu(name):
    gpu = load_device(name)
    cluster = ampsim.Cluster(name="c", devices=(gpu,) * 2, memory=MemoryRemedy(remedy="offload"))
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, batch=20)
    result = ampsim.simulate(model, cluster, ampsim.Amp(2), instances=100, mode="sleep")
    assert {"copy-out", "copy-in"} <= set(result.utilisation_by_lane["lane"])


@pytest.mark.parametrize("name", REAL)
def test_a_shipped_device_says_of_which_kind_its_rates_are(name):
    device = load_device(name)
    assert device.flop_format is not None
    assert device.memory_bandwidth_basis is not None
    kind = device.source("memory_bandwidth_bytes_per_s").kind
    assert (kind == "measured") == (device.memory_bandwidth_basis == "measured")
    said = " ".join(charge.what for charge in charges(device))
    assert f", in {device.flop_format}" in said
    assert {"peak": ", a peak", "measured": ", measured"}[device.memory_bandwidth_basis] in said
    (group,) = cluster_origin(load_cluster(name, workers=2))["groups"]
    assert {key: group[key] for key in REMARKS.values()} == {
        key: getattr(device, key) for key in REMARKS.values()
    }


def test_lanes_change_no_time_where_nothing_is_offloaded():
    gpu = load_device("p100")
    bare = gpu.model_copy(update={"copy_bandwidth_bytes_per_s": None, "copy_latency_s": 0.0})
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, batch=20)
    first, second = (
        ampsim.simulate(
            model, ampsim.Cluster(name="c", devices=(one,) * 3), ampsim.Amp(4), instances=200,
            mode="sleep",
        )
        for one in (gpu, bare)
    )  # fmt: skip
    assert first.spans.equals(second.spans)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('flop_format = "fp32"', "flop_format must be 'float64', 'float32', 'tf32'"),
        (
            'memory_bandwidth_bytes_per_s = 1e9\nmemory_bandwidth_basis = "best"',
            "memory_bandwidth_basis must be 'peak' or 'measured', got 'best'",
        ),
        (
            'memory_bandwidth_basis = "peak"',
            "memory_bandwidth_basis has no effect without memory_bandwidth_bytes_per_s; add",
        ),
    ],
)
def test_a_kind_of_rate_that_is_none_is_refused(rejection, lines, said):
    assert said in rejection(f"{lines}\n{GOOD}")


FULL = {
    "flop_per_s": 1e12,
    "operation_overhead_s": 1e-6,
    "memory_bandwidth_bytes_per_s": 1e9,
    "cache_bytes": 10,
    "cache_bandwidth_bytes_per_s": 1e10,
    "efficiency": ((1, 0.5),),
    "step_overhead_s": 1e-6,
    "light_bandwidth_bytes_per_s": 1e9,
    "matrix_efficiency": ((1, 0.5),),
    "memory_bytes": 1000,
    "jitter_cv": 0.1,
    "idle_power_w": 1.0,
    "busy_power_w": 20.0,
    "price_usd_per_h": 1.0,
    "message_overhead_s": 1e-6,
    "copy_bandwidth_bytes_per_s": 1e9,
    "copy_latency_s": 1e-6,
    "functions_per_s": 1e9,
}
IN_PLACE = {
    "dispatch_s", "forward_efficiency", "backward_efficiency", "pass_bandwidth_bytes_per_s"
}  # fmt: skip
"""Keys that `FULL` lacks, for they stand in place of others."""


def test_charges_show_every_number_that_is_set_with_its_value_and_source():
    source = Source(kind="measured", text="on a Tuesday")
    device = Device(name="d", **FULL, sources=Sources(**dict.fromkeys(FULL, source)))
    heavy, light, *rows = charges(device)
    told_keys = [row.what.split(" = ")[0] for row in rows]
    assert told_keys == [key for key in NUMBERS if key not in IN_PLACE]
    assert {(row.kind, row.text) for row in rows} == {("measured", "on a Tuesday")}
    told = {row.what for row in rows}
    assert {"jitter_cv = 0.1", "memory_bytes = 1000", "idle_power_w = 1"} <= told
    assert "matrix_efficiency = 0.5 at 1 to 0.5 at 1 elements" in told
    assert heavy.text.startswith(
        "roofline over the FLOP of AMPNet, Appendix C: step_overhead_s + operations x "
        "operation_overhead_s + max(FLOP / (flop_per_s x efficiency of the rows x "
        "matrix_efficiency of the elements), bytes / memory_bandwidth_bytes_per_s); weights with"
    )
    assert light.text == (
        "step_overhead_s + operations x operation_overhead_s + max(FLOP / (flop_per_s x "
        "efficiency of the rows), bytes / light_bandwidth_bytes_per_s) + functions / "
        "functions_per_s"
    )


SURFACE = ((1, 100, 0.1), (1, 1000, 0.2), (10, 100, 0.5), (10, 1000, 1.0))


def test_charges_tell_a_table_and_passes():
    device = Device(
        name="d",
        flop_per_s=1e12,
        forward_efficiency=SURFACE,
        backward_efficiency=SURFACE,
        pass_bandwidth_bytes_per_s=2e10,
    )
    heavy, light, *rows = charges(device)
    assert heavy.text == (
        "roofline over the FLOP of AMPNet, Appendix C: FLOP / (flop_per_s x forward_ or "
        "backward_efficiency of rows and elements) + bytes of passes / pass_bandwidth_bytes_per_s"
    )
    assert light.text == "FLOP / flop_per_s + bytes of passes / pass_bandwidth_bytes_per_s"
    assert "forward_efficiency = 0.1 to 1 at 4 rows and elements" in {row.what for row in rows}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"forward_efficiency": SURFACE},
            "forward_efficiency has no effect without backward_efficiency; add "
            "backward_efficiency",
        ),
        (
            {"forward_efficiency": SURFACE, "backward_efficiency": SURFACE,
             "efficiency": ((1, 0.5),)},
            "efficiency and forward_efficiency both say which fraction a product reaches; keep",
        ),
        (
            {"pass_bandwidth_bytes_per_s": 1e9, "memory_bandwidth_bytes_per_s": 1e9,
             "light_bandwidth_bytes_per_s": 1e9},
            "pass_bandwidth_bytes_per_s and light_bandwidth_bytes_per_s both say how fast light",
        ),
        (
            {"forward_efficiency": SURFACE[:3], "backward_efficiency": SURFACE},
            "expected each of 2 rows with each of 2 elements once, rows ascending, and elements "
            "within them, got 3 points",
        ),
        (
            {"forward_efficiency": SURFACE[::-1], "backward_efficiency": SURFACE},
            "expected each of 2 rows with each of 2 elements once",
        ),
        (
            {"forward_efficiency": [[1, 0.5]], "backward_efficiency": SURFACE},
            r"expected \[rows, elements, fraction\] in each place, got \[1, 0.5\]",
        ),
        (
            {"forward_efficiency": [[1, 0, 0.5]], "backward_efficiency": SURFACE},
            "expected elements as a whole number, 1 to 1000000000, got 0",
        ),
        (
            {"forward_efficiency": [[1, 1, 1.5]], "backward_efficiency": SURFACE},
            "expected a fraction above 0 and at most 1, got 1.5",
        ),
        (
            {"forward_efficiency": 0.5, "backward_efficiency": SURFACE},
            r"expected a list of \[rows, elements, fraction\] such as",
        ),
    ],
)  # fmt: skip
def test_a_table_that_says_things_twice_or_by_half_is_refused(keys, said):
    with pytest.raises(OptionError, match=said):
        Device(name="d", flop_per_s=1e12, **keys)


def test_charges_show_a_power_of_nothing_where_a_file_says_so():
    device = Device(name="d", flop_per_s=1e12, idle_power_w=0.0, busy_power_w=5.0)
    assert [row.what for row in charges(device)[3:]] == ["idle_power_w = 0", "busy_power_w = 5"]


@pytest.mark.parametrize("key", NUMBERS)
def test_digest_counts_every_number_and_source_that_is_set(key):
    if key == "dispatch_s":  # in place of the overhead of an operation
        pytest.skip("stands alone")
    numbers = FULL
    if key in IN_PLACE:
        tables = {"forward_efficiency": SURFACE, "backward_efficiency": SURFACE}
        numbers = {"flop_per_s": 1e12, "pass_bandwidth_bytes_per_s": 1e9, **tables}
    full = Device(name="d", **numbers)
    changed = SURFACE[:1] if key in IN_PLACE else ((1, 0.25),)
    if "efficiency" not in key:
        changed = 2 * numbers[key]
    source = Sources(**{key: Source(kind="assumed", text="for tests")})
    others = [full.model_copy(update={key: changed}), full.model_copy(update={"sources": source})]
    assert len({one.digest for one in (full, *others)}) == 3


RELATED = "memory_bandwidth_bytes_per_s = 2e9\ncache_bandwidth_bytes_per_s = 2e9\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("step_overhead_s = -1e-9", "step_overhead_s must be >= 0, got -1e-09"),
        (
            "light_bandwidth_bytes_per_s = 1e9",
            "light_bandwidth_bytes_per_s has no effect without memory_bandwidth_bytes_per_s, "
            "the rate of heavy steps; add memory_bandwidth_bytes_per_s",
        ),
        (
            "matrix_efficiency = [[8, 0.5], [8, 0.6]]",
            "matrix_efficiency: expected elements that ascend, got 8 after 8",
        ),
        (
            "matrix_efficiency = [[1.5, 0.5]]",
            "matrix_efficiency: expected elements as a whole number, 1 to 1000000000, got 1.5",
        ),
        ("memory_bytes = 0", "memory_bytes must be >= 1, got 0"),
        (
            "memory_bytes = 1.6e10",
            "memory_bytes must be a whole number, got 16000000000.0; write 16000000000",
        ),
        (
            RELATED + "cache_bytes = 11\nmemory_bytes = 10",
            "cache_bytes must be <= 10, memory_bytes, got 11",
        ),
        ("jitter_cv = -0.1", "jitter_cv must be >= 0, got -0.1"),
        ("jitter_cv = 10.5", "jitter_cv must be <= 10, got 10.5"),
        ("idle_power_w = 1", "idle_power_w has no effect without busy_power_w; add busy_power_w"),
        ("busy_power_w = 1", "busy_power_w has no effect without idle_power_w; add idle_power_w"),
        (
            "idle_power_w = 9\nbusy_power_w = 8",
            "busy_power_w must be >= 9, idle_power_w, got 8",
        ),
        ("price_usd_per_h = -1", "price_usd_per_h must be >= 0, got -1"),
        ("price_usd_per_h = 1e7", "price_usd_per_h must be <= 1e+06, got 10000000.0"),
    ],
)
def test_impossible_number_of_a_device_is_named_with_its_key(lines, said, rejection):
    assert rejection(f"{lines}\n{GOOD}") == f"bad.toml: {said}"
