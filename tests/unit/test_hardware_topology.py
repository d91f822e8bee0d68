"""Edges, ports and ways of a cluster: what a file says, where a message goes, what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import networkx as nx
import pytest

from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware import HOST, Cluster, Device, Edge, Level, Topology, load_cluster

DEVICE = Device(name="d", flop_per_s=1e9)
SOURCE = 'source = {kind = "assumed", text = "for tests"}'
COST = f"latency_s = 1e-6\nbandwidth_bytes_per_s = 1e9\n{SOURCE}"
WORKERS = '[[device]]\nname = "tflops-1"\ncount = 4\n'
RING = f'sharing = "fair"\n{WORKERS}[topology]\nkind = "ring"\n{COST}\n'
EDGES = f"""{WORKERS}
[[edges]]
between = [0, "top"]
{COST}
[[edges]]
between = ["top", 1]
{COST}
[[edges]]
between = [2, "top"]
duplex = "half"
{COST}
[[edges]]
between = [2, 3]
[[edges]]
between = ["host", "top"]
"""
PORTS = f"""{WORKERS}
[ports]
egress_bytes_per_s = 1e9
{SOURCE}
[ports.host]
ingress_bytes_per_s = 2e9
{SOURCE}
"""
LEVELS = f"""{WORKERS}
[topology]
kind = "hierarchy"
[[topology.levels]]
members = 2
{COST}
[[topology.levels]]
members = 2
"""


def cluster_of(workers: int, **keys: Any) -> Cluster:
    return Cluster(name="c", devices=(DEVICE,) * workers, **keys)


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_and_load(content: str, **options: Any) -> Cluster:
        (tmp_path / "c.toml").write_text(content)
        return load_cluster("c.toml", **options)

    return write_and_load


DIGESTS = {
    "tflops-1": "ccf487b3787cee045e929f3001c69e35d279716e793cacb77fdfddac3adae93a",
    "cpu-core": "2a65b55b211184ec84d2762c2ec2d2a2742081356b584daffbf92c5eb9da9468",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_digests_in_published_reports_stay(name):
    assert load_cluster(name, workers=4).digest == DIGESTS[name]


def test_each_new_key_counts_in_the_digest():
    told = [{}, {"topology": Topology(kind="ring")}, {"topology": Topology(kind="star")}]
    told += [{**told[1], "sharing": sharing} for sharing in ("fair", "first-come")]
    told += [{"edges": (Edge(between=(0, 1)),)}, {"edges": (Edge(between=(1, 0)),)}]
    digests = {cluster_of(2, **keys).digest for keys in told}
    assert len(digests) == len(told)


SHAPES = {
    "fully-connected": ({}, lambda n: nx.complete_graph(n), 6),
    "ring": ({}, lambda n: nx.cycle_graph(n), 6),
    "mesh": ({"shape": (3, 4)}, lambda _n: nx.grid_graph((4, 3)), 12),
    "torus": ({"shape": (3, 4)}, lambda _n: nx.grid_graph((4, 3), periodic=True), 12),
    "star": ({}, lambda n: nx.star_graph(n), 6),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_a_shape_is_that_of_networkx(kind):
    keys, make, workers = SHAPES[kind]
    network = cluster_of(workers, topology=Topology(kind=kind, **keys)).network  # pyright: ignore[reportArgumentType]  # a kind
    assert network is not None
    graph = nx.Graph([edge.between for edge in network.edges])
    assert nx.is_isomorphic(graph, make(workers))


def test_a_mesh_is_numbered_row_by_row():
    network = cluster_of(6, topology=Topology(kind="mesh", shape=(2, 3))).network
    assert network is not None
    assert {frozenset(edge.between) for edge in network.edges} == set(
        map(frozenset, [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)])
    )


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_small_ring_has_no_edge_twice(workers):
    network = cluster_of(workers, topology=Topology(kind="ring")).network
    assert network is not None
    assert len(network.edges) == {1: 0, 2: 1, 3: 3}[workers]


def test_a_torus_of_two_in_a_row_has_one_edge_between_them():
    network = cluster_of(4, topology=Topology(kind="torus", shape=(2, 2))).network
    assert network is not None
    assert len(network.edges) == 4


def test_a_fat_tree_of_radix_4_is_that_of_its_paper():
    """Sixteen hosts, 4 pods of 2 + 2 switches, 4 core switches; ways of 2, 4 or 6 edges."""
    network = cluster_of(16, topology=Topology(kind="fat-tree", radix=4)).network
    assert network is not None
    switches = [place for place in network.places if isinstance(place, str)]
    assert Counter(name.split("-")[0] for name in switches) == {
        "edge": 8, "aggregation": 8, "core": 4,
    }  # fmt: skip
    assert len(network.edges) == 48
    assert [len(network.route(0, target)) - 1 for target in (1, 2, 4, 15)] == [2, 4, 6, 6]
    cores = Counter(
        place
        for source, target in itertools.permutations(range(16), 2)
        for place in network.route(source, target)
        if str(place).startswith("core")
    )
    assert len(cores) == 4 and max(cores.values()) == min(cores.values()), "all carry as much"


@pytest.mark.parametrize("kind", [*SHAPES, "fat-tree", "hierarchy"])
def test_a_route_is_a_shortest_path_and_always_the_same(kind):
    levels = [{"members": 3}, {"members": 4}]
    more: dict[str, Any] = {"fat-tree": {"radix": 4}, "hierarchy": {"levels": levels}}
    keys = more.get(kind) or SHAPES[kind][0]
    topology = Topology(kind=kind, **keys)
    first, again = (cluster_of(12, topology=topology).network for _ in range(2))
    assert first is not None and again is not None
    graph = nx.Graph([edge.between for edge in first.edges])
    for source, target in itertools.permutations(range(12), 2):
        route = first.route(source, target)
        assert len(route) - 1 == nx.shortest_path_length(graph, source, target)
        assert nx.is_path(graph, route) and route[0] == source and route[-1] == target
        assert route == again.route(source, target)


def test_of_several_shortest_ways_the_first_in_the_order_of_places_is_taken():
    """On a mesh: all of them, listed by networkx, and sorted."""
    network = cluster_of(12, topology=Topology(kind="mesh", shape=(3, 4))).network
    assert network is not None
    graph = nx.Graph([edge.between for edge in network.edges])
    for source, target in itertools.permutations(range(12), 2):
        assert network.route(source, target) == min(nx.all_shortest_paths(graph, source, target))


def test_a_file_of_edges_says_what_a_message_crosses(load):
    cluster = load(EDGES)
    way = cluster.way_between(0, 3)
    assert way.latency_s == 2e-6
    assert [share.of for share in way.shares] == [(0, "top", "edge"), (2, "top", "edge")]
    back = cluster.way_between(3, 0)
    assert [share.of for share in back.shares] == [(2, "top", "edge"), ("top", 0, "edge")]
    assert cluster.way_between(HOST, 3).latency_s == 1e-6
    assert cluster.way_between(2, 3).is_free
    link = cluster.link_between(0, 3)
    assert (link.latency_s, link.bandwidth_bytes_per_s) == (2e-6, 1e9)


def test_edges_that_cost_the_same_may_stand_in_one_table(load):
    costly = f"{WORKERS}[[edges]]\nbetween = [[0, 1], [1, 2], [2, 3], [3, 'host']]\n{COST}\n"
    cluster = load(costly)
    assert [edge.between for edge in cluster.edges] == [(0, 1), (1, 2), (2, 3), (3, HOST)]
    assert cluster.link_between(HOST, 0).latency_s == pytest.approx(4e-6)
    with pytest.raises(FileFormatError, match=r"edges\[0\]\.between: expected two .* got \[2\]"):
        load(costly.replace("[2, 3]", "[2]"))


def test_ports_are_of_both_ends_and_the_host_has_its_own(load):
    cluster = load(PORTS)
    assert [share.of for share in cluster.way_between(0, 1).shares] == [(0, "egress")]
    assert [share.of for share in cluster.way_between(0, HOST).shares] == [
        (0, "egress"), (HOST, "ingress"),
    ]  # fmt: skip
    assert cluster.way_between(HOST, 1).is_free
    assert cluster.link_between(1, HOST).bandwidth_bytes_per_s == 1e9
    assert not cluster.is_link_free


def test_without_an_edge_to_the_host_its_messages_go_over_the_link(load):
    cluster = load(f"{RING}[link]\nlatency_s = 7e-6\n{SOURCE}\n")
    assert cluster.link_between(HOST, 2).latency_s == 7e-6
    assert cluster.link_between(0, 2).latency_s == 2e-6


def test_a_cluster_of_edges_that_cost_nothing_is_free():
    assert cluster_of(3, topology=Topology(kind="ring")).is_link_free
    assert not cluster_of(3, topology=Topology(kind="ring", latency_s=1e-9)).is_link_free


def test_options_replace_the_numbers_of_each_edge(load):
    cluster = load(RING, latency_s=3e-6)
    assert cluster.link_between(0, 1).latency_s == 3e-6
    assert cluster.link_between(0, 1).bandwidth_bytes_per_s == 1e9
    for content in (EDGES.replace('["host", "top"]', "[0, 3]"), LEVELS):
        with pytest.raises(OptionError, match=r"latency_s has no effect on c\.toml, which says"):
            load(content, latency_s=3e-6)
    with pytest.raises(OptionError, match="topology star has no effect on c, whose file says"):
        load(RING, topology="star")


REFUSED = {
    "kind": (RING, '"ring"', '"rng"', "topology.kind must be 'fully-connected', 'ring', 'mesh', "),
    "dimensions": (
        RING, '"ring"', f'"mesh"\nshape = {[1] * 21}',
        "topology.shape must be a list of at most 20, got (1, 1, 1, 1, 1, 1, ",
    ),
    "key": (RING, "latency_s", "latncy_s", "unknown key 'latncy_s' in topology; did you mean 'lat"),
    "latency": (RING, "1e-6", "-1.0", "topology.latency_s must be >= 0, got -1.0"),
    "rate": (RING, "1e9", "0.0", "topology.bandwidth_bytes_per_s must be > 0, got 0.0"),
    "source": (RING, SOURCE, "", "topology has no key 'source'; say where its numbers come from"),
    "duplex": (RING, 'kind = "ring"', 'kind = "ring"\nduplex = "no"', "topology.duplex must be 'f"),
    "sharing": (RING, '"fair"', '"fairly"', "sharing must be 'fair' or 'first-come', got 'fairly'"),
    "alone": (RING, f'[topology]\nkind = "ring"\n{COST}', "", "sharing has no effect without port"),
    "shape": (RING, '"ring"', '"mesh"', "topology: missing key 'shape' of a mesh; add shape = [4,"),
    "product": (
        RING, '"ring"', '"mesh"\nshape = [2, 3]',
        "topology: expected extents of shape whose product is 4, the count of workers, got 2 x 3 ",
    ),
    "no shape": (RING, '"ring"', '"ring"\nshape = [4]', "topology: shape has no effect on kind 'r"),
    "extent": (RING, '"ring"', '"mesh"\nshape = [4, 0]', "topology.shape[1] must be >= 1, got 0"),
    "radix": (RING, '"ring"', '"fat-tree"\nradix = 3', "topology: expected an even radix, half up"),
    "few": (RING, '"ring"', '"fat-tree"\nradix = 2', "topology: expected at most 2 workers in a f"),
    "members": (LEVELS, "members = 2", "members = 3", "topology: expected members of levels whose"),
    "level source": (LEVELS, SOURCE, "", "topology.levels[0] has no key 'source'; say where"),
    "own numbers": (
        LEVELS, '"hierarchy"', f'"hierarchy"\nlatency_s = 1e-6\n{SOURCE}',
        "topology: latency_s has no effect on a hierarchy; give it in each level",
    ),
    "place": (EDGES, "[2, 3]", "[2, 4]", "edges: between = [2, 4] must name workers below 4"),
    "negative": (EDGES, "[2, 3]", "[2, -1]", "edges[3].between: expected two places, each a wor"),
    "one place": (EDGES, "[2, 3]", "[2]", "edges[3].between: expected two places, each a wor"),
    "same": (EDGES, "[2, 3]", "[2, 2]", "edges: between = [2, 2] must name two places; got"),
    "twice": (EDGES, "[2, 3]", '["top", 2]', "edges: between = ['top', 2] must be there once; "),
    "apart": (EDGES, "[2, 3]", '[2, "x"]', "edges: expected a way from worker 0 to every place, g"),
    "edge source": (EDGES, SOURCE, "", "edges[0] has no key 'source'; say where its numbers come"),
    "no edges": (WORKERS, "[[device]]", "edges = []\n[[device]]", "edges must be a list of at lea"),
    "table": (EDGES, "[[edges]]\nbetween = [2, 3]", "", "edges: expected a way from worker 0 to e"),
    "both": (
        EDGES, "[[edges]]\nbetween = [2, 3]",
        '[topology]\nkind = "ring"\n[[edges]]\nbetween = [2, 3]',
        "edges and topology both say what the edges are; leave one of the two out",
    ),
    "link": (
        EDGES, WORKERS, f"{WORKERS}[link]\nlatency_s = 1e-6\n{SOURCE}\n",
        "link has no effect where edges lead to the host and all workers; leave it out",
    ),
    "links": (
        RING, WORKERS, f"{WORKERS}[[links]]\nfrom = 0\nto = 1\n",
        "links[0] has no effect where edges join its places; leave it out",
    ),
    "port": (PORTS, "egress_bytes_per_s", "egress", "unknown key 'egress' in ports; did you mean "),
    "port rate": (PORTS, "1e9", "-1.0", "ports.egress_bytes_per_s must be > 0, got -1.0"),
    "port source": (PORTS, SOURCE, "", "ports has no key 'source'; say where its numbers come fro"),
    "host": (PORTS, "ingress_bytes_per_s = 2e9", "", "ports.host: expected egress_bytes_per_s or "),
    "host key": (PORTS, "ingress_bytes", "ingres_bytes", "unknown key 'ingres_bytes_per_s' in por"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_a_mistake_is_told_in_one_line_with_its_place(fault, load):
    content, before, after, said = REFUSED[fault]
    assert before in content
    with pytest.raises(FileFormatError) as caught:
        load(content.replace(before, after, 1))
    told = str(caught.value)
    assert told.startswith(f"c.toml: {said}")
    assert len(told.splitlines()) == 1


def test_too_many_edges_are_refused():
    with pytest.raises(OptionError, match="expected at most 100000 edges, got more with 500 work"):
        cluster_of(500, topology=Topology(kind="fully-connected"))


def test_the_latency_of_a_level_is_crossed_twice():
    levels = (Level(members=2, latency_s=1.0), Level(members=2, latency_s=10.0))
    cluster = cluster_of(4, topology=Topology(kind="hierarchy", levels=levels))
    assert [cluster.way_between(0, other).latency_s for other in (1, 2)] == [2.0, 22.0]
