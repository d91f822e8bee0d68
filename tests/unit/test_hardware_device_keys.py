"""What a device may say beside its rate: each key is checked, sourced and counted."""

import pytest

from ampsim import assets
from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware import Device, Source, charges, load_device
from ampsim.hardware.device import NUMBERS, Sources

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
        ("p100", "9bcd558969e78811d878618715c586d07d0edd7aca4133b080f50b263d015997"),
    ],
)
def test_digest_of_a_file_in_published_manifests_stays_what_it_was(name, digest):
    assert load_device(name).digest == digest


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
