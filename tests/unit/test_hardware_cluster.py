"""A cluster has one device for each worker and a link for each way."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware import (
    FREE_LINK,
    HOST,
    Cluster,
    Device,
    Link,
    Route,
    Topology,
    load_cluster,
    load_device,
)

DEVICE = Device(name="d", flop_per_s=1e9)
SOURCE = 'source = {kind = "assumed", text = "for tests"}\n'
TWO_KINDS = f"""
description = "two kinds"
[[device]]
name = "tflops-1"
count = 2
[[device]]
file = "own.toml"
[link]
latency_s = 1e-6
bandwidth_bytes_per_s = 1e9
{SOURCE}
[[links]]
from = 0
to = 2
latency_s = 5e-6
{SOURCE}
[[links]]
from = "host"
to = 1
"""
OWN = """
flop_per_s = 3e9
sources.flop_per_s = {kind = "assumed", text = "for tests"}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The cluster of a file with the given content, beside a device file own.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(OWN)

    def write_and_load(content: str, **options: int | float) -> Cluster:
        (tmp_path / "two.toml").write_text(content)
        return load_cluster("two.toml", **options)  # pyright: ignore[reportArgumentType] # mixed

    return write_and_load


@pytest.fixture
def rejection(load):
    """What is said of a cluster file with the given content."""

    def reject(content: str) -> str:
        with pytest.raises(FileFormatError) as caught:
            load(content)
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    return reject


def test_device_gives_sixteen_equal_workers_and_free_links():
    cluster = load_cluster("tflops-1")
    assert cluster.name == "16 x tflops-1"
    assert cluster.workers == 16
    assert cluster.devices == (load_device("tflops-1"),) * 16
    assert cluster.is_link_free


def test_options_set_workers_and_the_link():
    cluster = load_cluster("tflops-1", workers=3, latency_s=2e-6, bandwidth_bytes_per_s=1e9)
    assert cluster.workers == 3
    assert (cluster.link.latency_s, cluster.link.bandwidth_bytes_per_s) == (2e-6, 1e9)
    assert not cluster.is_link_free


def test_cluster_file_gives_devices_in_order_and_links_by_direction(load):
    cluster = load(TWO_KINDS)
    assert cluster.name == "two"
    assert [device.name for device in cluster.devices] == ["tflops-1", "tflops-1", "own"]
    assert cluster.link_between(0, 2).latency_s == 5e-6
    assert cluster.link_between(0, 2).bandwidth_bytes_per_s is None
    assert cluster.link_between(2, 0) == cluster.link
    assert cluster.link_between(HOST, 1).is_free
    assert cluster.link_between(1, HOST) == cluster.link


def test_message_within_a_worker_is_free(load):
    assert load(TWO_KINDS).link_between(1, 1) == FREE_LINK


def test_options_replace_the_default_link_of_a_cluster_file_alone(load):
    cluster = load(TWO_KINDS, workers=3, latency_s=7e-6)
    assert cluster.link_between(1, 0).latency_s == 7e-6
    assert cluster.link_between(1, 0).bandwidth_bytes_per_s == 1e9
    assert cluster.link_between(0, 2).latency_s == 5e-6


def test_digest_tells_clusters_apart(load):
    before = load(TWO_KINDS).digest
    assert before == load(TWO_KINDS).digest
    assert before != load(TWO_KINDS.replace("1e-6", "2e-6")).digest
    assert before != load(TWO_KINDS.replace("count = 2", "count = 3")).digest
    assert before != load(TWO_KINDS.replace("[[links]]\nfrom = 0", "[[links]]\nfrom = 1")).digest
    assert re.fullmatch("[0-9a-f]{64}", before)


def test_equal_records_have_equal_hashes(load):
    assert hash(load(TWO_KINDS)) == hash(load(TWO_KINDS))


def test_records_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        DEVICE.flop_per_s = 2.0  # pyright: ignore[reportAttributeAccessIssue] # what is tested


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (0, "workers must be 1 to 1000000, got 0"),
        (-1, "workers must be 1 to 1000000, got -1"),
        (10**12, "workers must be 1 to 1000000, got 1000000000000"),
        (2.5, "workers must be a whole number, got 2.5"),
        (True, "workers must be a whole number, got True"),
        ("4", "workers must be a whole number, got '4'"),
    ],
)
def test_impossible_count_of_workers_is_rejected(workers, said):
    with pytest.raises(OptionError, match=f"^{re.escape(said)}$"):
        load_cluster("tflops-1", workers=workers)


def test_count_of_workers_must_be_that_of_the_cluster_file(load):
    said = (
        "workers must be 3, as in the cluster file two.toml, got 4; leave it out or edit the file"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(said)}$"):
        load(TWO_KINDS, workers=4)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("latency_s", -1.0, "latency_s must be >= 0, got -1.0"),
        ("latency_s", float("nan"), "latency_s must be a finite number, got nan"),
        ("bandwidth_bytes_per_s", 0, "bandwidth_bytes_per_s must be > 0, got 0"),
        (
            "bandwidth_bytes_per_s",
            float("inf"),
            "bandwidth_bytes_per_s must be a finite number, got inf",
        ),
    ],
)
def test_impossible_link_option_is_rejected(option, value, said):
    with pytest.raises(OptionError, match=f"^{re.escape(said)}$"):
        load_cluster("tflops-1", **{option: value})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("count = 2", "count = 0", "device[0].count must be >= 1, got 0"),
        ("count = 2", "count = 2.0", "device[0].count must be a whole number, got 2.0; write 2"),
        (
            "count = 2",
            'count = 2\nsharing = "fair"',
            "unknown key 'sharing' in device[0]; known: name, file, count; sharing of the whole "
            "file stands above the first table",
        ),
        (
            'name = "tflops-1"',
            'name = "own.toml"',
            "device[0].name must be a shipped device, got 'own.toml'; a file beside this one is "
            'file = "own.toml"',
        ),
        ("count = 2", "cuont = 2", "unknown key 'cuont' in device[0]; did you mean 'count'?"),
        ("latency_s = 1e-6", "latency_s = -1.0", "link.latency_s must be >= 0, got -1.0"),
        ("= 1e9", "= -1.0", "link.bandwidth_bytes_per_s must be > 0, got -1.0"),
        ("latency_s = 1", "latncy_s = 1", "unknown key 'latncy_s' in link; did you mean 'latency_"),
        ("to = 2", "to = 3", "links[0]: to must be a worker below 3 or 'host', got 3"),
        ("to = 2", "to = -1", "links[0].to must be a worker's index or 'host', got -1"),
        ("to = 2", "to = 'hots'", "links[0].to must be a worker's index or 'host', got 'hots'"),
        ("to = 2", "two = 2", "unknown key 'two' in links[0]; did you mean 'to'?"),
        ("to = 2\n", "", "missing key 'links[0].to'; add it to links[0]"),
        (
            "to = 2",
            "to = 0",
            "links[0]: from and to must differ, got 0 twice; messages within a worker are free",
        ),
        (
            'from = "host"\nto = 1',
            'from = "host"\nto = "host"',
            "links[1]: from and to must differ, got host twice; messages within a worker are free",
        ),
        (
            'from = "host"\nto = 1',
            "from = 0\nto = 2",
            "links[1]: repeats from and to of links[0]; keep one of the two",
        ),
        ("[[links]]", "[[linkz]]", "unknown key 'linkz'; did you mean 'link'?"),
        ("[[device]]", "[[devices]]", "unknown key 'devices'; did you mean 'device'?"),
        ('name = "tflops-1"', "", "device[0] must have one of the keys 'name' and 'file'; give"),
        (
            'name = "tflops-1"',
            'name = "tflops-1"\nfile = "own.toml"',
            "device[0] must have one of the keys 'name' and 'file'; give one",
        ),
        ('file = "own.toml"', 'file = "two.toml"', "device[1]: two.toml: expected a device file"),
        ('file = "own.toml"', 'file = "no.toml"', "device[1]: no device file 'no.toml'; give the"),
        (
            '"tflops-1"',
            '"tflop-1"',
            "device[0]: no device named 'tflop-1'; did you mean 'tflops-1'? shipped: ",
        ),
        (
            '"tflops-1"',
            '"own"',
            "device[0]: no device named 'own' is shipped; the file beside this one is file = "
            '"own.toml"',
        ),
    ],
)
def test_mistake_in_a_cluster_file_is_named_with_its_place(before, after, said, rejection):
    assert before in TWO_KINDS
    assert rejection(TWO_KINDS.replace(before, after)).startswith(f"two.toml: {said}")


def test_a_device_beside_the_file_is_named_by_the_key_that_takes_it(rejection):
    said = "two.toml: host: no device named 'own' is shipped; the file beside this one is device = "
    assert rejection(f'{TWO_KINDS}\n[host]\ndevice = "own"\n') == f'{said}"own.toml"'


def test_links_in_single_brackets_are_taken_for_the_link_that_all_have(rejection):
    said = rejection('[[device]]\nname = "p100"\n[links]\nlatency_s = 1e-6\n')
    assert said.startswith("two.toml: links must be a list of tables, each under double brackets")
    assert said.endswith("got {'latency_s': 1e-06}; did you mean [link]?")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"devices": ["a100"]},
            "devices[0] must be an ampsim.Device, such as ampsim.load_cluster(",
        ),
        (
            {"host": "a100"},
            "host must be an ampsim.Device, such as ampsim.load_cluster('a100').dev",
        ),
        ({"link": 3}, "link must be an ampsim.Link, such as ampsim.Link(latency_s=1e-6), got 3"),
        ({"links": [3]}, "links[0] must be of class Route, got 3"),
    ],
)
def test_a_call_in_python_asks_for_an_object_and_not_for_a_table(given, said):
    device = load_cluster("a100", workers=1).devices[0]
    with pytest.raises(OptionError, match=f"^Cluster: {re.escape(said)}"):
        Cluster(**{"name": "x", "devices": [device], **given})


def test_mistake_in_a_device_file_of_a_cluster_names_both(rejection, tmp_path):
    (tmp_path / "own.toml").write_text(OWN.replace("3e9", "-3e9"))
    said = "two.toml: device[1]: own.toml: flop_per_s must be > 0, got -3000000000.0"
    assert rejection(TWO_KINDS) == said


def test_too_many_devices_in_all_are_rejected(rejection):
    row = '[[device]]\nname = "tflops-1"\ncount = 1_000_000\n'
    said = "two.toml: device must count 1 to 1000000 in all, got 2000000"
    assert rejection(row + row) == said
    assert rejection("device = []").endswith("in all, got 0")


def test_table_in_place_of_a_list_is_explained(rejection):
    said = "two.toml: device must be a list of tables, each under double brackets, got {'name': "
    assert rejection('[device]\nname = "tflops-1"').startswith(said)


@pytest.mark.parametrize("place", ["link", "links[0]"])
def test_link_that_costs_something_needs_a_source(place, rejection):
    head, *tail = TWO_KINDS.split(SOURCE)
    content = head + SOURCE.join(tail) if place == "link" else head + SOURCE + "".join(tail)
    said = f"two.toml: {place} has no key 'source'; say where its numbers come from, as in source"
    assert rejection(content).startswith(said)


def test_cluster_file_is_no_device(load):
    load(TWO_KINDS)
    with pytest.raises(FileFormatError, match=r"^two\.toml: expected a device file, got a cluster"):
        load_device("two.toml")


def test_route_outside_the_cluster_is_rejected_in_code_too():
    route = Route(source=0, target=5, link=Link())
    with pytest.raises(OptionError, match="to must be a worker below 1 or 'host', got 5"):
        Cluster(name="c", devices=(DEVICE,), links=(route,))


def test_a_link_keeps_its_digest_where_its_source_gives_no_interval():
    """Its digest of before sources could have intervals, as in the manifests of reports."""
    made = load_cluster("tflops-1", workers=4, latency_s=8e-6)
    known = "1a758920895d2711ef02a5764b7be59e37f9360daadda13f0cfa83634de5a38b"
    assert made.digest == known


def test_a_device_is_checked_once_however_many_workers_have_it(monkeypatch):
    """A million equal devices took 16 s, of which no budget of a question knew."""
    device, checked = Device(name="d", flop_per_s=1e9), list[str]()
    faults = Device._faults

    def counted(self: Device) -> Any:
        checked.append(self.name)
        return faults(self)

    monkeypatch.setattr(Device, "_faults", counted)
    other = device.model_copy(update={"name": "other"})
    cluster = Cluster(name="c", devices=(device, other) * 500)
    assert checked == ["d", "other"]
    assert [one.name for one in cluster.devices] == ["d", "other"] * 500
    wrong = device.model_copy(update={"copy_latency_s": 1e-6})
    with pytest.raises(OptionError, match=r"devices.* copy_latency_s has no effect without"):
        Cluster(name="c", devices=(device, device, wrong))


def test_parts_of_a_cluster_may_be_lists_and_a_single_one_is_told():
    link = Link(latency_s=1e-6)
    parts: dict[str, Any] = {
        "devices": [DEVICE] * 2,
        "links": [Route(source=0, target=1, link=link)],
    }
    tuples = {key: tuple(one) for key, one in parts.items()}
    assert Cluster(name="c", **parts) == Cluster(name="c", **tuples)
    with pytest.raises(
        OptionError, match=r"^Cluster: devices must be a list or tuple, got Device\("
    ):
        Cluster(name="c", devices=DEVICE)  # pyright: ignore[reportArgumentType]  # what it refuses


@pytest.mark.parametrize("parts", [{"links": ()}, {"topology": None}, {"devices": (DEVICE,) * 3}])
def test_a_copy_of_a_cluster_with_other_values_has_their_ways(parts):
    """A copy kept the ways of what it was copied from, so that a faster link changed nothing."""
    slow, ring = Link(latency_s=1.0), Topology(kind="ring", latency_s=1.0)
    own = {"links": (Route(source=0, target=1, link=slow),)} if "links" in parts else {}
    shape = {} if own else {"topology": ring}
    cluster = Cluster(name="c", devices=(DEVICE,) * 4, link=FREE_LINK, **own, **shape)
    assert cluster.link_between(0, 1).latency_s == 1.0
    copied = cluster.model_copy(update=parts)
    anew = Cluster(**{**{key: getattr(cluster, key) for key in Cluster.model_fields}, **parts})
    pairs = [(a, b) for a in range(anew.workers) for b in range(anew.workers)]
    assert [copied.link_between(*one) for one in pairs] == [
        anew.link_between(*one) for one in pairs
    ]


def test_unlike_devices_of_one_name_are_counted_apart():
    """They were "3 x d", and two rows called d."""
    cluster = Cluster(name="c", devices=(DEVICE, Device(name="d", flop_per_s=2e9), DEVICE))
    assert "2 x d, 1 x d (2); links" in repr(cluster)
    assert "d (2)" in cluster._repr_html_()
