"""A result says where it comes from, so that it can be made again."""

import subprocess
from dataclasses import asdict, replace

import pytest

from ampsim import Amp, AmpBudget, Pipeline, Sequential, load_cluster, load_model, simulate
from ampsim.dataflow import PROGRAMS
from ampsim.hardware import Cluster, Device, Link, Ports, Route, Source, Topology
from ampsim.study import provenance


def test_a_result_names_everything_that_decided_it(chain, make_cluster):
    model = replace(chain(((1, 1, 1),)).model(), origin={"file": "mine.py", "sha256": "0" * 64})
    origin = simulate(model, make_cluster(2), Amp(3), seed=5).origin
    assert (origin["seed"], origin["mode"]) == (5, "numeric")
    assert origin["model"]["name"] == "chain"
    assert origin["model"]["file"] == "mine.py"
    assert origin["model"]["config"]["costs"] == ((1, 1, 1),)
    assert origin["cluster"]["workers"] == 2
    for name in ("command", "ampsim", "commit", "python", "numpy", "simpy"):
        assert origin[name], name


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("ampsim/__main__.py", "ampsim"), ("bin/ampsim", "ampsim"), ("mine.py", "mine.py"),
        ("other/__main__.py", "__main__.py"),
    ],
)  # fmt: skip
def test_a_command_is_told_as_one_types_it_under_python_m_too(program, name, monkeypatch):
    monkeypatch.setattr("sys.argv", [program, "run", "rnn"])
    assert provenance.software.__wrapped__()["command"] == [name, "run", "rnn"]


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Sequential(), {"name": "sequential"}),
        (Pipeline(5), {"name": "pipeline", "max_active_keys": 5}),
        (
            Amp(2),
            {
                "name": "amp",
                "max_active_keys": 2,
                "min_update_interval": "as the model prefers",
                "remedy": "none",
                "max_group": 1,
                "group_wait_s": 0.0,
            },
        ),
        (
            AmpBudget(2, {"l": 3}),
            {
                "name": "amp-budget",
                "max_active_keys": 2,
                "min_update_interval": {"l": 3},
                "staleness_budget": 4.0,
                "remedy": "none",
                "max_group": 1,
                "group_wait_s": 0.0,
            },
        ),
    ],
)
def test_a_schedule_tells_its_options(schedule, told):
    assert provenance.schedule_origin(schedule) == told


def test_a_model_tells_its_file_hash_and_options():
    model = load_model("rnn", hidden=4)
    told = provenance.model_origin(model)
    assert (told["name"], told["file"], told["config"]["hidden"]) == ("rnn", "rnn.py", 4)
    assert told["sha256"] == model.origin["sha256"]


def test_a_cluster_tells_each_kind_of_device_once():
    cluster = load_cluster("tflops-1", workers=3)
    told = provenance.cluster_origin(cluster)
    assert (told["workers"], told["sha256"]) == (3, cluster.digest)
    assert told["devices"] == {"tflops-1": cluster.devices[0].digest}
    other = cluster.devices[0].model_copy(update={"flop_per_s": 2e12})
    two = provenance.cluster_origin(
        cluster.model_copy(update={"devices": (other, *cluster.devices)})
    )
    assert [*two["devices"].values()] == [other.digest, cluster.devices[0].digest]


def test_unlike_devices_of_one_name_are_told_apart_by_group_and_cost():
    """As the hashes tell them: two files called chip.toml, in two folders."""
    slow, fast = (Device(name="chip", flop_per_s=rate) for rate in (1e12, 2e12))
    cluster = Cluster(name="c", devices=(slow, slow, fast))
    told = provenance.cluster_origin(cluster)
    assert told["groups"] == [
        {"device": "chip", "workers": 2},
        {"device": "chip (2)", "workers": 1},
    ]
    assert told["devices"] == {"chip": slow.digest, "chip (2)": fast.digest}
    rates = {r["of"]: r["what"] for r in provenance.costs(cluster) if "flop_per_s =" in r["what"]}
    assert rates == {"chip": "flop_per_s = 1e+12", "chip (2)": "flop_per_s = 2e+12"}


def test_costs_of_links_and_host_are_of_the_kinds_that_their_sources_are():
    """They were all called assumed."""

    def source(kind, text="here"):
        return {"kind": kind, "text": text}

    def told(of, **parts):
        host = Device(name="h", flop_per_s=1e9, **parts.pop("host", {}))
        device = Device(name="d", flop_per_s=1e9)
        rows = provenance.costs(Cluster(name="c", devices=(device,) * 2, host=host, **parts))
        rows = [(row["kind"], row["text"].partition("(")[2]) for row in rows if row["of"] == of]
        return rows[: -1 if of == "host" else None]

    link = Link(latency_s=1e-6, source=Source(**source("measured", "ping")))
    other = Link(latency_s=2e-6, source=Source(**source("assumed")))
    ring = Topology(kind="ring", bandwidth_bytes_per_s=1e9, source=Source(**source("datasheet")))
    ports = Ports(egress_bytes_per_s=1e9, source=Source(**source("formula", "x")))
    assert told("links", link=link) == [("measured", "ping)")]
    assert told("links", link=link, links=[Route(source=0, target=1, link=other)]) == [
        ("measured", "ping)"), ("assumed", ""),
    ]  # fmt: skip
    assert told("links", topology=ring, ports=ports) == [("datasheet", "here)"), ("formula", "x)")]
    assert told("links", link=Link(latency_s=1e-6)) == told("links") == [("assumed", "")]
    keys = {"step_overhead_s": 1e-6, "message_overhead_s": 1e-6}
    sources = {key: source("measured", key) for key in keys}
    assert told("host", host={**keys, "sources": sources}) == [
        ("measured", "step_overhead_s; message_overhead_s)")
    ]
    assert told("host", host=keys) == [("assumed", "")]


def test_costs_say_what_links_charge(make_cluster):
    def links(cluster):
        (row,) = [row for row in provenance.costs(cluster) if row["of"] == "links"]
        return row["text"]

    assert links(make_cluster(2)) == "free between any two workers, as in the paper"
    slow = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9)
    shared = "first come first served, never shared"
    assert links(make_cluster(2, link=slow)) == (
        f"latency 1e-06 s, bandwidth 1e+09 bytes/s; {shared}"
    )
    assert links(make_cluster(2, links={(0, 1): slow})) == (
        f"latency 0 s, bandwidth infinite, 1 ways of their own; {shared}"
    )


def test_costs_say_that_the_host_is_free(make_cluster):
    assert provenance.costs(make_cluster(1))[-1]["text"] == "take no time"


LANES = {"dispatch_s": 2e-6, "copy_bandwidth_bytes_per_s": 1e9, "copy_latency_s": 3e-6}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("lanes", [LANES, {}])
def test_a_program_tells_its_lanes_its_host_and_all_that_decides_how_it_runs(name, lanes):
    """What is charged is listed with its number, and control flow that takes no time as that."""
    cluster = Cluster(name="c", devices=(Device(name="d", flop_per_s=1e9, **lanes),))
    schedule = PROGRAMS[name]()
    told = provenance.origin_of(load_model("rnn"), cluster, schedule, seed=0, mode="sleep")
    charged = {row["what"] for row in told["costs"] if row["of"] == "d"}
    assert {f"{key} = {value:g}" for key, value in lanes.items()} == {
        one for one in charged if one.startswith(("dispatch", "copy"))
    }
    (host,) = [row for row in told["costs"] if row["of"] == "host"]
    assert ("control flow of programs" in host["what"]) == (not lanes)
    assert told["schedule"] == {"name": name, **asdict(schedule)}


def test_control_flow_of_programs_takes_no_time_on_the_devices_that_issue_at_once():
    devices = [Device(name=one, flop_per_s=1e9, **LANES) for one in "ab"]
    devices[1] = devices[1].model_copy(update={"dispatch_s": 0.0})
    for placed in (devices, devices[::-1]):
        cluster = Cluster(name="c", devices=tuple(placed))
        (host,) = [
            row
            for row in provenance.costs(cluster, [PROGRAMS["dataflow"]()])
            if row["of"] == "host"
        ]
        assert host["what"].endswith(", control flow of programs on b")


def test_the_commit_of_a_wheel_is_the_one_written_into_it(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "shipped", lambda kind: tmp_path / kind)
    (tmp_path / "commit.txt").write_text("abc\n", encoding="utf-8")
    assert provenance.commit() == "abc"


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 10)])
def test_without_git_the_commit_is_unknown(tmp_path, monkeypatch, error):
    def fails(*arguments, **options):
        raise error

    monkeypatch.setattr(provenance, "shipped", lambda kind: tmp_path / kind)
    monkeypatch.setattr(provenance.subprocess, "run", fails)
    assert provenance.commit() is None


def test_a_checkout_with_changes_says_so(tmp_path, monkeypatch):
    answers = {"rev-parse": "abc", "status": " M file"}
    monkeypatch.setattr(provenance, "shipped", lambda kind: tmp_path / kind)
    monkeypatch.setattr(provenance, "_git", lambda folder, what, *rest: answers[what])
    assert provenance.commit() == "abc+changes"
    answers["status"] = ""
    assert provenance.commit() == "abc"
