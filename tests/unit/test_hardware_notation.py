"""Groups of devices and topologies in a word, as on the command line."""

from __future__ import annotations

import pytest

from ampsim.errors import AmpsimError
from ampsim.hardware import HOST, load_cluster, load_device

SOURCE = '{kind = "assumed", text = "for tests"}'


@pytest.mark.parametrize("text", ["p100:2,cpu-core:1,p100", " p100:2, cpu-core:1,p100 "])
def test_groups_of_devices_stand_in_the_order_in_which_they_are_named(text):
    cluster = load_cluster(text)
    assert [device.name for device in cluster.devices] == ["p100", "p100", "cpu-core", "p100"]
    assert cluster.name == "2 x p100, 1 x cpu-core, 1 x p100"


def test_one_group_is_that_many_workers():
    assert load_cluster("p100:3") == load_cluster("p100", workers=3)


def test_a_group_may_be_a_file(tmp_path):
    (tmp_path / "own.toml").write_text(f"flop_per_s = 1e9\nsources.flop_per_s = {SOURCE}\n")
    own = load_device(tmp_path / "own.toml")
    assert load_cluster(f"{tmp_path / 'own.toml'}:2,p100:1").devices[:2] == (own, own)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("p100:2,cpu-core:x", {}, "a group of devices must be NAME:COUNT with a count of 1 to 100"),
        ("p100:0", {}, "a group of devices must be NAME:COUNT with a count of 1 to 1000000, such "),
        ("p100,,cpu-core", {}, "a group of devices must be NAME:COUNT with a count of 1 to 100000"),
        ("p100:2,p10:1", {}, "no device named 'p10'; did you mean 'p100'? shipped: "),
        ("p100:900000,cpu-core:900000", {}, "devices must count 1 to 1000000 in all, got more in "),
        ("p100:2,cpu-core:1", {"workers": 4}, "workers must be 3, as in p100:2,cpu-core:1, got 4;"),
        ("p100:4", {"topology": "rng"}, "no topology named 'rng'; did you mean 'ring'? there are:"),
        ("p100:4", {"topology": "mesh"}, "topology mesh must be given as mesh:4x4, got 'mesh'"),
        ("p100:4", {"topology": "ring:4"}, "topology ring must be given as ring, got 'ring:4'"),
        ("p100:4", {"topology": "torus:2x"}, "topology torus must be given as torus:4x4, got 'tor"),
        ("p100:4", {"topology": "torus:0x4"}, "topology torus:0x4: shape[0] must be >= 1, got 0"),
        ("p100:4", {"topology": "fat-tree:4x4"}, "topology fat-tree must be given as fat-tree:4, "),
        ("p100:4", {"topology": "mesh:3x3"}, "Cluster: topology: expected extents of shape whose "),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_told_in_one_line(text, options, said):
    with pytest.raises(AmpsimError) as caught:
        load_cluster(text, **options)
    assert str(caught.value).startswith(said)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "hops"),
    [("ring", 2), ("star", 2), ("fully-connected", 1), ("mesh:2x2", 2), ("torus:4", 2),
     ("fat-tree:4", 4), ("hierarchy:2x2", 4)],
)  # fmt: skip
def test_a_topology_in_a_word_has_edges_like_the_link(text, hops):
    cluster = load_cluster("p100:4", topology=text, latency_s=1e-6, bandwidth_bytes_per_s=1e9)
    link = cluster.link_between(1, 3) if text != "mesh:2x2" else cluster.link_between(0, 3)
    assert (link.latency_s, link.bandwidth_bytes_per_s) == (pytest.approx(hops * 1e-6), 1e9)
    assert cluster.link_between(HOST, 0).latency_s == 1e-6
