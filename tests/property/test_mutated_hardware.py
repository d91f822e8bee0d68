"""Spoilt device and cluster files, hundreds of each: read as written, or refused in a line."""

from __future__ import annotations

import copy
import datetime
import os
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from full_hardware import (
    CLUSTERS,
    FULL,
    LEFT_OUT,
    SOURCE,
    assert_edges_as_written,
    assert_part_as_written,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ampsim.errors import AmpsimError
from ampsim.hardware import HOST, Cluster, Device, load_cluster, load_device
from ampsim.hardware.device import NUMBERS
from ampsim.hardware.foreign import device_toml
from ampsim.hardware.load import is_cluster

LIMIT = timedelta(seconds=20)
"""A file that takes longer hangs."""

KEYS = {*Cluster.model_fields, "device", *Device.model_fields} - {"devices"}
"""What the message on a cluster file may begin with."""

ODD = st.one_of(
    st.sampled_from(
        [
            0, -1, 1, 2, 3, 0.0, -0.0, 0.5, 1.5, -1e-9, 1e-300, 1e300, 1e25, float("nan"),
            float("inf"), float("-inf"), 2**53 + 1, 2**63, -(2**63), 10**400, True, False, "",
            "host", "1e12", "tflops-1", "edge.toml", "cluster.toml", "\0", [], {}, [[]], [1], [{}],
            [[1, 0.5]], [[1, 0.5], [1, 0.6]], [[0, 0]], {"kind": "guess"}, SOURCE,
            datetime.date(2020, 1, 1), datetime.time(1, 2),
        ]
    ),
    st.floats(),
    st.integers(-(10**20), 10**20),
    st.text(max_size=6),
    st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 1)).map(list), max_size=4),
)  # fmt: skip
TOKENS = st.sampled_from([*'=[]{}"#\n\x00e-._,9é😀', "[[", "]]", "'''", "0x", "inf", "nan", "true"])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a table with each of its keys or indices."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@st.composite
def spoilt(draw: st.DrawFn, base: dict[str, Any]) -> str:
    """The text of a file with some of a base's keys, and up to three things changed in it."""
    table = copy.deepcopy(base)
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3]))):
        container, key = draw(st.sampled_from(places(table) or [(table, None)]))
        if key is None:
            break
        match draw(st.sampled_from(["replace", "remove", "rename", "swap", "add"])):
            case "replace":
                container[key] = copy.deepcopy(draw(ODD))
            case "remove":
                del container[key]
            case "rename" if isinstance(container, dict):
                new = draw(st.one_of(st.just(key[:-1]), st.text(max_size=4), st.just(key + "s")))
                container[new] = container.pop(key)
            case "swap":
                other, name = draw(st.sampled_from(places(table)))
                container[key] = copy.deepcopy(other[name])
            case _ if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case _:
                container[draw(st.text(max_size=4))] = copy.deepcopy(draw(ODD))
    text = tomli_w.dumps(table)
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 6))
        text = text[:at] + draw(st.one_of(st.just(""), TOKENS)) + text[at + length :]
    return text


MEMORY = ("memory_bandwidth_bytes_per_s",)
GROUPS = (
    *((key,) for key in ("operation_overhead_s", "efficiency", "step_overhead_s")),
    *((key,) for key in ("matrix_efficiency", "memory_bytes", "jitter_cv", "price_usd_per_h")),
    MEMORY,
    (*MEMORY, "cache_bytes", "cache_bandwidth_bytes_per_s"),
    (*MEMORY, "light_bandwidth_bytes_per_s"),
    ("idle_power_w", "busy_power_w"),
    *((key,) for key in ("message_overhead_s", "dispatch_s", "copy_bandwidth_bytes_per_s")),
    ("copy_bandwidth_bytes_per_s", "copy_latency_s"),
    ("forward_efficiency", "backward_efficiency"),
    *((key,) for key in ("pass_bandwidth_bytes_per_s", "functions_per_s")),
)
"""Keys that go together."""


@st.composite
def device_texts(draw: st.DrawFn) -> str:
    """A spoilt device file of a choice of the keys."""
    kept = {key for group in draw(st.sets(st.sampled_from(GROUPS))) for key in group}
    table = {key: value for key, value in FULL.items() if key not in NUMBERS[1:] or key in kept}
    numbers = [key for key in table if key in NUMBERS]
    return draw(spoilt(table | {"sources": dict.fromkeys(numbers, SOURCE)}))


def told_in_a_line(error: AmpsimError, text: str, known: set[str]) -> None:
    """The error is one line on this file, and begins with a key where the file is a table."""
    said = str(error)
    assert len(said.splitlines()) == 1, said
    assert said.startswith("spoilt.toml: "), said
    assert all(one.isprintable() for one in said), said
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError):
        return
    said = said.removeprefix("spoilt.toml: ")
    is_other_kind = said == "expected a device file, got a cluster file"
    first = re.match(r"""(?:unknown|missing) key ['"]|a key must be text|['"]|([\w-]+)""", said)
    assert first is not None, said
    assert not table or is_other_kind or first[1] in {None, *known, *table}, said


def plain(value: Any) -> Any:
    """A value of a file as a device holds it: a whole number as float, a list as tuple."""
    if isinstance(value, list):
        return tuple(plain(one) for one in value)
    return value


def same(held: Any, value: Any) -> bool:
    """Whether a device holds what the file says, to the bit that a float has."""
    if isinstance(held, float):
        return held == float(value)
    return held == plain(value)


def assert_as_written(device: Device, table: dict[str, Any], stem: str) -> None:
    """Every value of the file is in the device, and nothing else is."""
    assert set(table) <= set(Device.model_fields)
    assert device.name == table.get("name", stem)
    assert device.description == table.get("description", "")
    for key in NUMBERS:
        held = getattr(device, key)
        if key in table:
            assert same(held, table[key]), key
            assert device.source(key).model_dump(exclude_none=True) == table["sources"][key]
        else:
            assert held == Device.model_fields[key].default
            assert getattr(device.sources, key) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good device and a good cluster beside what is spoilt."""
    folder = tmp_path_factory.mktemp("hardware")
    for name, left_out in LEFT_OUT.items():
        table = {key: value for key, value in FULL.items() if key not in left_out}
        sources = dict.fromkeys((key for key in table if key in NUMBERS), SOURCE)
        (folder / f"{name}.toml").write_text(tomli_w.dumps(table | {"sources": sources}))
    (folder / "cluster.toml").write_text('[[device]]\nname = "tflops-1"\n')
    return folder


def in_folder(folder: Path, text: str) -> None:
    """Write the spoilt file and stand beside it."""
    os.chdir(folder)
    Path("spoilt.toml").write_bytes(text.encode("utf-8", "surrogatepass"))


@pytest.fixture(autouse=True)
def back() -> Any:
    """Stand where the tests started when they are done."""
    start = os.getcwd()
    yield
    os.chdir(start)


HUNDREDS = settings(
    max_examples=400,
    derandomize=True,  # others come by the thousand from tests/robustness
    deadline=LIMIT,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.slow
@HUNDREDS
@given(text=device_texts())
def test_a_spoilt_device_file_is_read_as_written_or_refused_in_one_line(folder, text):
    in_folder(folder, text)
    try:
        device = load_device("spoilt.toml")
    except AmpsimError as error:
        told_in_a_line(error, text, set(Device.model_fields))
        return
    assert_as_written(device, tomllib.loads(text), "spoilt")
    Path("again.toml").write_text(device_toml(device), encoding="utf-8")
    assert load_device("again.toml").numbers == device.numbers


def assert_cluster_as_written(cluster: Cluster, table: dict[str, Any]) -> None:
    """Every device, link and way of the file is in the cluster, and nothing else is."""
    assert set(table) <= KEYS
    assert cluster.name == table.get("name", "spoilt")
    expected: list[Device] = []
    for entry in table["device"]:
        device = load_device(entry["name"] if "name" in entry else Path(entry["file"]))
        expected += [device] * entry.get("count", 1)
    assert list(cluster.devices) == expected
    assert_link_as_written(cluster.link, table.get("link", {}))
    assert (cluster.host is None) == ("host" not in table)
    if cluster.host is not None:
        named = table["host"]["device"]
        assert cluster.host == load_device(Path(named) if named.endswith(".toml") else named)
    memory = None if cluster.memory is None else cluster.memory.model_dump(exclude_unset=True)
    assert memory == table.get("memory")
    for key in ("events", "failures", "checkpoints", "messages", "topology", "ports", "sharing"):
        assert_part_as_written(getattr(cluster, key), table.get(key))
    if "edges" in table:
        assert_edges_as_written(cluster, table["edges"])
    ways = table.get("links", [])
    assert len(cluster.links) == len(ways)
    for route, way in zip(cluster.links, ways, strict=True):
        ends = [HOST if way[key] == "host" else way[key] for key in ("from", "to")]
        assert [route.source, route.target] == ends
        assert_link_as_written(route.link, way)


def assert_link_as_written(link: Any, entry: dict[str, Any]) -> None:
    assert link.latency_s == float(entry.get("latency_s", 0.0))
    assert same(link.bandwidth_bytes_per_s, entry.get("bandwidth_bytes_per_s"))
    held = None if link.source is None else link.source.model_dump(exclude_none=True)
    assert held == entry.get("source")


@pytest.mark.parametrize("name", CLUSTERS)
def test_an_interval_of_what_a_cluster_file_says_itself_is_refused(folder, name):
    whole = CLUSTERS[name]
    paths = [place for place, (_held, key) in enumerate(places(whole)) if key == "source"]
    for place in paths:
        table = copy.deepcopy(whole)
        held, key = places(table)[place]
        held[key] = SOURCE | {"low": 1e-9, "high": 1.0}
        in_folder(folder, tomli_w.dumps(table))
        with pytest.raises(AmpsimError, match=r"^spoilt\.toml: \S+\.source: low and high have an"):
            load_cluster("spoilt.toml")
    assert len(paths) >= 1


@pytest.mark.slow
@HUNDREDS
@given(text=st.sampled_from(list(CLUSTERS.values())).flatmap(spoilt))
def test_a_spoilt_cluster_file_is_read_as_written_or_refused_in_one_line(folder, text):
    in_folder(folder, text)
    try:
        cluster = load_cluster("spoilt.toml")
    except AmpsimError as error:
        told_in_a_line(error, text, KEYS)
        return
    table = tomllib.loads(text)
    if is_cluster(table):
        assert_cluster_as_written(cluster, table)
    else:
        assert cluster.workers == 16
        assert_as_written(cluster.devices[0], table, "spoilt")


def test_what_is_spoilt_is_good_before(folder):
    os.chdir(folder)
    for name, left_out in LEFT_OUT.items():
        assert load_device(f"{name}.toml").numbers.keys() == {*NUMBERS} - left_out
    for table in CLUSTERS.values():
        in_folder(folder, tomli_w.dumps(table))
        assert_cluster_as_written(load_cluster("spoilt.toml"), table)
    written = {key for table in CLUSTERS.values() for key in table}
    assert {*Cluster.model_fields} - {"devices", "name"} <= written
