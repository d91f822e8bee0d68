"""A device file says what it must, or one line says what is wrong with it."""

import re
import tomllib

import pytest

from ampsim import assets
from ampsim.errors import FileFormatError, UnknownNameError
from ampsim.hardware import Device, Source, load_cluster, load_device
from ampsim.hardware.device import NUMBERS

GOOD = """
description = "for tests"
flop_per_s = 2e12
[sources.flop_per_s]
kind = "assumed"
text = "for tests"
"""


@pytest.fixture
def rejection(tmp_path, monkeypatch):
    """What is said of a device file with the given content."""
    monkeypatch.chdir(tmp_path)

    def reject(content: str | bytes) -> str:
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(FileFormatError) as caught:
            load_cluster("bad.toml")
        text = str(caught.value)
        assert len(text.splitlines()) == 1
        assert len(text) < 600  # an unknown key is answered with all keys that there are
        with pytest.raises(FileFormatError, match=f"^{re.escape(text)}$"):
            load_device("bad.toml")
        return text

    return reject


def test_device_file_is_read_as_written(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    device = load_device(tmp_path / "mine.toml")
    assert device == Device.model_validate(
        {
            "name": "mine",
            "description": "for tests",
            "flop_per_s": 2e12,
            "sources": {"flop_per_s": Source(kind="assumed", text="for tests")},
        }
    )


def test_whole_number_is_a_number(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD.replace("2e12", "2_000_000_000_000"))
    assert load_device(str(tmp_path / "mine.toml")).flop_per_s == 2e12


def test_byte_order_mark_is_skipped(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_device(tmp_path / "mine.toml").flop_per_s == 2e12


@pytest.mark.parametrize("name", assets.names("devices"))
def test_shipped_file_has_its_own_name_and_a_source_for_each_number(name):
    path = assets.locate("devices", name)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert table["name"] == name
    cluster = load_cluster(name)
    for key in NUMBERS:
        assert (key in table) == (cluster.devices[0].source(key).text in str(table))


def test_number_given_in_code_is_called_assumed():
    source = Device(name="d", flop_per_s=1.0).source("flop_per_s")
    assert source.kind == "assumed"
    assert "without a source" in source.text


def test_digest_changes_with_every_number_and_not_with_the_file(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text('name = "d"\n' + GOOD)
    (tmp_path / "c.toml").write_text('name = "d"\n' + GOOD.replace("2e12", "3e12"))
    first, second, other = (load_device(tmp_path / f"{one}.toml").digest for one in "abc")
    assert first == second != other
    assert re.fullmatch("[0-9a-f]{64}", first)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("-1.0", "flop_per_s must be > 0, got -1.0"),
        ("0", "flop_per_s must be > 0, got 0"),
        ("-5", "flop_per_s must be > 0, got -5"),
        ("1e-300", "flop_per_s must be >= 1e-06, got 1e-300"),
        ("1e25", "flop_per_s must be <= 1e+24, got 1e+25"),
        ("nan", "flop_per_s must be a finite number, got nan"),
        ("inf", "flop_per_s must be a finite number, got inf"),
        ("-inf", "flop_per_s must be a finite number, got -inf"),
        ("1e999", "flop_per_s must be a finite number, got inf"),
        ('"1e12"', "flop_per_s must be a number, got '1e12'"),
        ("true", "flop_per_s must be a number, got True"),
        ("2020-01-01", "flop_per_s must be a number, got datetime.date(2020, 1, 1)"),
        ("{}", "flop_per_s must be a number, got {}"),
    ],
)
def test_impossible_rate_is_named_with_file_key_and_value(value, said, rejection):
    assert rejection(GOOD.replace("2e12", value)) == f"bad.toml: {said}"


def test_whole_number_too_large_for_a_float_is_shortened(rejection):
    text = rejection(GOOD.replace("2e12", "9" * 400))
    assert text.startswith("bad.toml: flop_per_s must be a number that fits in 64 bits, got 999")
    assert len(text) < 150


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("operation_overhead_s = -1e-6", "operation_overhead_s must be >= 0, got -1e-06"),
        ("operation_overhead_s = 1e10", "operation_overhead_s must be <= 1e+09, got 10000000000.0"),
        ("memory_bandwidth_bytes_per_s = 0.0", "memory_bandwidth_bytes_per_s must be > 0, got 0.0"),
        ("name = 3", "name must be text in quotes, got 3"),
        ('name = ""', "name must be text that is not empty, got ''"),
    ],
)
def test_impossible_value_is_named_with_its_key(line, said, rejection):
    assert rejection(f"{line}\n{GOOD}") == f"bad.toml: {said}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0.5", "expected a list of [rows, fraction] such as [[1, 0.1], [64, 0.9]], got 0.5"),
        ("[]", "expected a list of [rows, fraction] such as [[1, 0.1], [64, 0.9]], got []"),
        ("[1, 0.5]", "expected [rows, fraction] in each place, got 1"),
        ("[[1]]", "expected [rows, fraction] in each place, got [1]"),
        ("[[0, 0.5]]", "expected rows as a whole number, 1 to 1000000000, got 0"),
        ("[[1.5, 0.5]]", "expected rows as a whole number, 1 to 1000000000, got 1.5"),
        ("[[true, 0.5]]", "expected rows as a whole number, 1 to 1000000000, got True"),
        ("[[1, 0]]", "expected a fraction above 0 and at most 1, got 0"),
        ("[[1, 1.5]]", "expected a fraction above 0 and at most 1, got 1.5"),
        ("[[1, nan]]", "expected a fraction above 0 and at most 1, got nan"),
        ('[[1, "a"]]', "expected a fraction above 0 and at most 1, got 'a'"),
        ("[[8, 0.5], [8, 0.6]]", "expected rows that ascend, got 8 after 8"),
        ("[[8, 0.5], [1, 0.6]]", "expected rows that ascend, got 1 after 8"),
    ],
)
def test_impossible_efficiency_is_named_with_its_key(value, said, rejection):
    assert rejection(f"efficiency = {value}\n{GOOD}") == f"bad.toml: efficiency: {said}"


def test_efficiency_needs_a_source_and_does_not_make_a_file_a_cluster(rejection, tmp_path):
    line = "efficiency = [[1, 0.25], [64, 1]]\n"
    assert rejection(line + GOOD).startswith("bad.toml: missing key 'sources.efficiency'; say wh")
    source = '[sources.efficiency]\nkind = "assumed"\ntext = "for tests"\n'
    (tmp_path / "good.toml").write_text(line + GOOD + source)
    assert load_device(tmp_path / "good.toml").efficiency == ((1, 0.25), (64, 1.0))
    assert load_cluster(tmp_path / "good.toml").workers == 16


def test_source_that_is_no_table_is_rejected(rejection):
    said = "bad.toml: sources.flop_per_s must be a table, got 3"
    assert rejection("flop_per_s = 1e12\nsources.flop_per_s = 3") == said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("flop_per_s =", "flops_per_s =", "unknown key 'flops_per_s'; did you mean 'flop_per_s'?"),
        (
            "sources.flop_per_s",
            "sources.flops_per_s",
            "unknown key 'flops_per_s' in sources; did you mean 'flop_per_s'?",
        ),
        ("kind", "knd", "unknown key 'knd' in sources.flop_per_s; did you mean 'kind'?"),
        (
            "description",
            "colour",
            "unknown key 'colour'; known: name, description, flop_per_s, flop_format, "
            "operation_overhead_s, memory_bandwidth_bytes_per_s, memory_bandwidth_basis, "
            "cache_bytes, cache_bandwidth_bytes_per_s, efficiency, "
            "step_overhead_s, light_bandwidth_bytes_per_s, matrix_efficiency, memory_bytes, "
            "jitter_cv, idle_power_w, busy_power_w, price_usd_per_h, message_overhead_s, "
            "dispatch_s, copy_bandwidth_bytes_per_s, copy_latency_s, forward_efficiency, "
            "backward_efficiency, pass_bandwidth_bytes_per_s, functions_per_s, measured_on, "
            "sources",
        ),
    ],
)
def test_misspelled_key_gets_a_suggestion(before, after, said, rejection):
    assert rejection(GOOD.replace(before, after)) == f"bad.toml: {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("flop_per_s = 2e12", "missing key 'flop_per_s'; add it"),
        ('kind = "assumed"', "missing key 'sources.flop_per_s.kind'; add it to sources.flop_per_s"),
    ],
)
def test_missing_key_is_named(line, said, rejection):
    assert rejection(GOOD.replace(line + "\n", "")) == f"bad.toml: {said}"


def test_number_without_source_is_rejected(rejection):
    said = "bad.toml: missing key 'sources.flop_per_s'; say where the number comes from, as in"
    assert rejection("flop_per_s = 2e12").startswith(said)
    said = "bad.toml: missing key 'sources.operation_overhead_s'; say where"
    assert rejection("operation_overhead_s = 0.0\n" + GOOD).startswith(said)


def test_source_without_number_is_rejected(rejection):
    extra = '[sources.operation_overhead_s]\nkind = "measured"\ntext = "here"\n'
    said = (
        "bad.toml: sources.operation_overhead_s belongs to no number; "
        "add operation_overhead_s or remove its source"
    )
    assert rejection(GOOD + extra) == said


def test_unknown_kind_of_source_gets_the_known_ones(rejection):
    said = (
        "bad.toml: sources.flop_per_s.kind must be 'assumed', 'measured', 'formula', "
        "'datasheet' or 'fitted', got 'guessed'"
    )
    assert rejection(GOOD.replace('"assumed"', '"guessed"')) == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("flop_per_s 2e12", r"is not valid TOML: .*\(at line 1, column 12\)"),
        ("a = 1\na = 2\n", r"is not valid TOML: .*line 2"),
        ("flop_per_s = 1" + "0" * 5000, "is not valid TOML: Exceeds the limit"),
        ("", "is empty; a device file has at least flop_per_s = 1e12"),
        ("# nothing but a comment\n", "is empty"),
        (b"\xff\xfe\x00", "expected UTF-8 text, got byte 0xff at offset 0; save it as UTF-8"),
        ("x" * 1_000_001, "expected at most 1000000 bytes, got more; is it a hardware file"),
        ("a = " + "[" * 9000 + "]" * 9000, "is nested too deeply; write flat tables"),
    ],
    ids=["syntax", "twice", "digits", "empty", "comment", "encoding", "size", "depth"],
)
def test_file_that_is_no_table_is_explained(content, said, rejection):
    assert re.match(f"bad.toml: {said}", rejection(content))


def test_folder_is_no_file(tmp_path):
    told = r"expected a device file \(\.toml\), got a folder; there is none in it"
    with pytest.raises(UnknownNameError, match=told):
        load_device(tmp_path)


def test_unreadable_file_is_explained(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ampsim.files.open_regular", refuse)
    with pytest.raises(
        FileFormatError, match=r"mine\.toml: cannot be read: permission denied; check the path"
    ):
        load_device(path)


def test_unknown_device_gets_a_suggestion():
    names = ", ".join(assets.names("devices"))
    said = rf"no device named 'tflop-1'; did you mean 'tflops-1'\? shipped: {names}"
    with pytest.raises(UnknownNameError, match=said):
        load_cluster("tflop-1")
    with pytest.raises(UnknownNameError, match=said):
        load_device("tflop-1")
