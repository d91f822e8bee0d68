"""A device file's cache says what it must, or one line says what is wrong with it."""

import pytest

from ampsim.errors import FileFormatError
from ampsim.hardware import load_device

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


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "memory_bandwidth_bytes_per_s = 2e9\ncache_bytes = 1000",
            "cache_bytes has no effect without cache_bandwidth_bytes_per_s; "
            "add cache_bandwidth_bytes_per_s",
        ),
        (
            "memory_bandwidth_bytes_per_s = 2e9\ncache_bandwidth_bytes_per_s = 1e10",
            "cache_bandwidth_bytes_per_s has no effect without cache_bytes; add cache_bytes",
        ),
        (
            "cache_bytes = 1000\ncache_bandwidth_bytes_per_s = 1e10",
            "cache_bytes has no effect without memory_bandwidth_bytes_per_s, "
            "the rate of what does not fit; add memory_bandwidth_bytes_per_s",
        ),
        (
            "memory_bandwidth_bytes_per_s = 2e9\n"
            "cache_bytes = 1000\ncache_bandwidth_bytes_per_s = 1e9",
            "cache_bandwidth_bytes_per_s must be >= 2e+09, memory_bandwidth_bytes_per_s, got 1e+09",
        ),
        ("cache_bytes = 0", "cache_bytes must be >= 1, got 0"),
        ("cache_bytes = 1e300", "cache_bytes must be a whole number, got 1e+300"),
        ("cache_bytes = 1.5e6", "cache_bytes must be a whole number, got 1500000.0; write 1500000"),
        (
            "cache_bytes = 2_000_000_000_000_000",
            "cache_bytes must be <= 1e+15, got 2000000000000000",
        ),
    ],
)
def test_cache_that_has_no_effect_or_no_sense_is_rejected(lines, said, rejection):
    assert rejection(f"{lines}\n{GOOD}") == f"bad.toml: {said}"


def test_cache_needs_a_source_for_each_number(rejection):
    lines = (
        "memory_bandwidth_bytes_per_s = 2e9\ncache_bytes = 9\ncache_bandwidth_bytes_per_s = 1e10"
    )
    sources = '[sources.memory_bandwidth_bytes_per_s]\nkind = "assumed"\ntext = "for tests"\n'
    said = rejection(f"{lines}\n{GOOD}{sources}")
    assert said.startswith("bad.toml: missing key 'sources.cache_bytes'; say where the number")
    sources += sources.replace("memory_bandwidth_bytes_per_s", "cache_bytes")
    said = rejection(f"{lines}\n{GOOD}{sources}")
    assert said.startswith("bad.toml: missing key 'sources.cache_bandwidth_bytes_per_s'; say wh")


def test_cache_is_read_as_written(tmp_path):
    numbers = {
        "memory_bandwidth_bytes_per_s": 2e9,
        "cache_bytes": 1_000_000,
        "cache_bandwidth_bytes_per_s": 2e9,
    }
    lines = [f"{key} = {number}" for key, number in numbers.items()]
    sources = [f'[sources.{key}]\nkind = "assumed"\ntext = "for tests"' for key in numbers]
    (tmp_path / "good.toml").write_text("\n".join([*lines, GOOD, *sources]))
    device = load_device(tmp_path / "good.toml")
    assert {key: getattr(device, key) for key in numbers} == numbers
