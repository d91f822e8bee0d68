"""`--for KEY=...`: what varies, and the model, cluster and schedules at a point."""

from __future__ import annotations

import dataclasses
import re
import shutil
from typing import Any

import pytest

import ampsim
from ampsim.assets import locate
from ampsim.errors import AmpsimError, FileFormatError, OptionError
from ampsim.exploring.axes import (
    DEVICE_NUMBERS,
    Axis,
    Setup,
    axes_over,
    keys_of,
    setup_at,
    texts_over,
)
from ampsim.hardware import Messages, Topology
from ampsim.hardware.device import HOST_NUMBERS
from ampsim.hardware.load import replaced


def axes_of(texts: list[str], setup: Setup) -> tuple[Axis, ...]:
    return axes_over(texts_over(texts), setup)


@pytest.fixture(scope="module")
def setup() -> Setup:
    model = ampsim.load_model("rnn", hidden=8)
    cluster = ampsim.load_cluster("ampnet-core", workers=4)
    return Setup(model, cluster, (ampsim.Amp(max_active_keys=8), ampsim.Sequential()))


def test_texts_become_axes(setup):
    axes = axes_of(
        ["latency_s=1e-7..1e-4:log", "workers=2,4,8", "flop_per_s=1e9..3e9", "schedule=amp"], setup
    )
    assert axes == (
        Axis("latency_s", low=1e-7, high=1e-4, is_log=True),
        Axis("workers", (2, 4, 8), is_whole=True),
        Axis("device.flop_per_s", low=1e9, high=3e9),
        Axis("schedule", ("amp",)),
    )
    assert axes[2].points(3) == (1e9, 2e9, 3e9)


def test_values_in_python_become_the_same_axes(setup):
    given: dict[str, Any] = {"latency_s": "1e-7..1e-4:log", "workers": [2, 4], "topology": ["ring"]}
    assert axes_over(given, setup) == axes_of(
        ["latency_s=1e-7..1e-4:log", "workers=2,4", "topology=ring"], setup
    )


POINTS: dict[str, tuple[Any, Any]] = {
    "workers": (2, lambda at: at.cluster.workers),
    "latency_s": (1e-6, lambda at: at.cluster.link.latency_s),
    "bandwidth_bytes_per_s": (1e9, lambda at: at.cluster.link.bandwidth_bytes_per_s),
    "topology": ("ring", lambda at: at.cluster.topology.kind),
    "model.hidden": (16, lambda at: at.model.config.hidden),
    "max_active_keys": (2, lambda at: at.schedules[0].max_active_keys),
    "ports.egress_bytes_per_s": (1e9, lambda at: at.cluster.ports.egress_bytes_per_s),
}


@pytest.mark.parametrize("key", POINTS)
def test_a_point_has_the_value_and_else_what_there_was(setup, key):
    value, read = POINTS[key]
    at = setup_at(setup, {key: value})
    assert read(at) == value
    same = [one == other for one, other in zip(at, setup, strict=True)]
    assert sum(same) == 2, "one of model, cluster and schedules changes"
    assert at.schedules[1] == ampsim.Sequential()


@pytest.mark.parametrize("key", ["device.flop_per_s", "host.step_overhead_s", *POINTS])
def test_a_latency_of_0_goes_with_each_key_where_messages_are_late(setup, key):
    value, read = POINTS.get(key, (1e-6, lambda at: 1e-6))
    late = setup.cluster.model_copy(
        update={"link": ampsim.Link(latency_s=1e-6), "messages": Messages(delay_cv=0.5)}
    )
    ring = replaced(late, topology=Topology(kind="ring", latency_s=1e-6))
    for cluster in (late,) if key == "topology" else (late, ring):
        at = setup_at(setup._replace(cluster=cluster), {"latency_s": 0.0, key: value})
        assert read(at) == value
        assert at.cluster.messages == late.messages


VALUES = {"jitter_cv": 0.1, "memory_bytes": 10**9}
NEEDED = {
    "cache_bytes": {"cache_bandwidth_bytes_per_s": 1e10, "memory_bandwidth_bytes_per_s": 1e9},
    "cache_bandwidth_bytes_per_s": {"cache_bytes": 1000, "memory_bandwidth_bytes_per_s": 1e9},
    "light_bandwidth_bytes_per_s": {"memory_bandwidth_bytes_per_s": 1e9},
    "idle_power_w": {"busy_power_w": 2e9 / 2},
    "busy_power_w": {"idle_power_w": 0.0},
    "copy_latency_s": {"copy_bandwidth_bytes_per_s": 1e9},
}


@pytest.mark.parametrize("number", DEVICE_NUMBERS)
def test_every_number_of_a_device_can_vary(setup, number):
    value = VALUES.get(number, 2000 if number.endswith("_bytes") else 2e9)
    value = 1e-6 if number.endswith("_s") and not number.endswith("_per_s") else value
    value = 1.5 if number.endswith(("_w", "_per_h")) else value
    point = {f"device.{key}": one for key, one in NEEDED.get(number, {}).items()}
    at = setup_at(setup, {**point, f"device.{number}": value})
    assert [getattr(one, number) for one in at.cluster.devices] == [value] * 4
    assert f"device.{number}" in keys_of(setup)


@pytest.mark.parametrize("number", HOST_NUMBERS)
def test_every_number_of_the_host_can_vary(setup, number):
    at = setup_at(setup, {f"host.{number}": 1e-6})
    assert getattr(at.cluster.host, number) == 1e-6
    assert not at.cluster.is_host_free


def test_a_schedule_by_name_keeps_the_options_of_one_that_is_there(setup):
    at = setup_at(setup, {"schedule": "amp", "max_active_keys": 2})
    assert at.schedules == (ampsim.Amp(max_active_keys=2),)
    assert setup_at(setup, {"schedule": "amp"}).schedules == (setup.schedules[0],)
    assert setup_at(setup, {"schedule": "gpipe"}).schedules == (ampsim.GPipe(),)


def test_a_cluster_by_name_takes_the_other_keys_of_the_point(setup):
    at = setup_at(setup, {"cluster": "p100", "workers": 3, "latency_s": 2e-6})
    assert at.cluster.name == "3 x p100"
    assert at.cluster.link.latency_s == 2e-6


def test_a_device_named_as_a_cluster_has_the_workers_and_links_that_there_are(setup, tmp_path):
    linked = setup._replace(cluster=ampsim.load_cluster("tflops-1", workers=3, latency_s=1e-6))
    at = setup_at(linked, {"cluster": "p100"}).cluster
    assert at == ampsim.load_cluster("p100", workers=3, latency_s=1e-6)
    at = setup_at(linked, {"cluster": "p100:2,k40:3"}).cluster
    assert (at.name, at.link.latency_s) == ("2 x p100, 3 x k40", 1e-6)
    file = tmp_path / "mine.toml"
    file.write_text('[[device]]\nname = "p100"\ncount = 2\n', "utf-8")
    at = setup_at(linked, {"cluster": str(file)}).cluster
    assert at == ampsim.load_cluster(file)


def test_a_device_by_name_is_every_workers_and_links_stay(setup):
    point = {"device": "p100", "latency_s": 2e-6, "device.flop_per_s": 3e12}
    at = setup_at(setup, point).cluster
    assert {one.name for one in at.devices} == {"p100"}
    assert {one.flop_per_s for one in at.devices} == {3e12}
    assert at.workers == setup.cluster.workers
    assert (at.link.latency_s, at.name) == (2e-6, f"{at.workers} x p100")
    assert [axis.values for axis in axes_over({"device": "p100,k40"}, setup)] == [("p100", "k40")]


def test_a_cluster_with_other_workers_is_the_one_that_is_loaded_so(setup):
    at = setup_at(setup, {"workers": 6, "latency_s": 1e-6})
    assert at.cluster == ampsim.load_cluster("ampnet-core", workers=6, latency_s=1e-6)


def test_values_that_fit_together_alone_are_axes_together(setup):
    sizes = {"device.cache_bytes": [1000], "device.cache_bandwidth_bytes_per_s": [1e10, 2e10]}
    slower = setup_at(setup, {"device.memory_bandwidth_bytes_per_s": 1e9})
    assert [len(axis.values) for axis in axes_over(sizes, slower)] == [1, 2]
    both = {"schedule": "gpipe,pipedream", "vertical_sync": "true,false"}
    assert [len(axis.values) for axis in axes_over(both, setup)] == [2, 2]
    with pytest.raises(AmpsimError, match="vertical_sync has no effect on amp, sequential"):
        axes_over({**both, "schedule": "gpipe"}, setup)


WRONG = {
    "latency_s": "an axis must be KEY=A,B,... or KEY=A..B[:log], such as",
    "latency=1": "nothing named 'latency' can vary; did you mean 'latency_s'? there are schedule",
    "own_option=1": "options of shipped schedules; give one of your own once for each value of its",
    "model.hiden=1": "did you mean 'model.hidden'?",
    "device.efficiency=1": "nothing named 'device.efficiency' can vary",
    "latency_s=3..1": "latency_s must be a range A..B from a number to a larger one",
    "latency_s=0..1:log": "latency_s must begin above 0 to be even in the logarithm, got 0",
    "latency_s=-1": "latency_s must be >= 0, got -1",
    "latency_s=1e-7...1e-5": "latency_s must be a range A..B from a number to a larger one",
    "latency_s=nan": "latency_s must be numbers with commas between, or a range A..B, got 'nan'",
    "workers=2.5": "workers must be whole numbers",
    "workers=1..2.5": "workers must be whole numbers, got '1..2.5'",
    "workers=2,2": "workers must have values that differ",
    "workers=0,1": "workers must be 1 to 1000000, got 0",
    "workers=1,1000000000": "workers must be 1 to 1000000, got 1000000000",
    "flop_per_s=-1,2": "flop_per_s must be > 0, got -1",
    "schedule=amp,foo": "no schedule named 'foo'",
    "cluster=nope": "no device named 'nope'",
    "topology=,": "topology must be values with single commas between, got an empty one",
    "model.dtype=flaot": "field 'dtype': input should be 'float32' or 'float64', got 'flaot'",
    "vertical_sync=true": "vertical_sync has no effect on amp, sequential; leave it out",
    "overlap=maybe": "overlap must be true or false, got 'maybe'",
    "device=d\udcff.toml,h100": "device must be UTF-8 text, got 'd\\udcff.toml'; rename the file",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_axis_is_told_in_one_line(setup, text):
    with pytest.raises(AmpsimError, match=re.escape(WRONG[text])) as caught:
        axes_of([text], setup)
    assert "\n" not in str(caught.value)


def test_a_key_may_come_once(setup):
    for texts in (["workers=1", "workers=2"], ["flop_per_s=1e9", "device.flop_per_s=2e9"]):
        with pytest.raises(AmpsimError, match=r"axes must differ, got .* twice"):
            axes_of(texts, setup)


def test_workers_of_several_kinds_of_devices_cannot_vary(setup):
    mixed = setup._replace(cluster=ampsim.load_cluster("p100:2,cpu-core:1"))
    with pytest.raises(AmpsimError, match="workers cannot vary on 2 x p100, 1 x cpu-core, which"):
        axes_of(["workers=1,2"], mixed)


def test_options_of_a_model_made_in_python_cannot_vary(setup):
    for changed in (
        setup.model.set_parameters(setup.model.parameters()),
        dataclasses.replace(setup.model, optimizer=ampsim.optim.sgd(0.5)),
    ):
        with pytest.raises(AmpsimError, match="options of a model can vary where load_model gave"):
            axes_of(["model.hidden=8"], setup._replace(model=changed))


def test_options_of_another_file_s_model_that_a_file_hands_on_cannot_vary(setup, tmp_path):
    """That file alone would make the points."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass, replace\nimport ampsim\n\n@dataclass(frozen=True)\n"
        "class Config:\n    hidden: int = 4\n\ndef build(config):\n"
        "    return replace(ampsim.load_model('rnn', hidden=config.hidden), name='mine')\n"
    )
    with pytest.raises(AmpsimError, match=r"not those of mine, .* or has another file's config;"):
        axes_of(["model.hidden=8"], setup._replace(model=ampsim.load_model(path)))


def test_points_of_a_model_file_that_has_changed_are_refused(setup, tmp_path):
    """Else points of two models would stand side by side."""
    path = tmp_path / "mine.py"
    shutil.copyfile(locate("models", "rnn"), path)
    changing = setup._replace(model=ampsim.load_model(path))
    assert setup_at(changing, {"model.hidden": 8}).model.origin == changing.model.origin
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(
            FileFormatError, match=f"^{re.escape(str(path))} has changed since rnn was read; begin"
        ):
            setup_at(changing, {"model.hidden": 8})


def test_values_that_only_three_keys_together_allow_are_axes(setup):
    """A cache has a size and a bandwidth, and needs the memory's."""
    over = {
        "device.cache_bytes": [1000], "device.cache_bandwidth_bytes_per_s": [1e10],
        "device.memory_bandwidth_bytes_per_s": [1e9],
    }  # fmt: skip
    assert [len(axis.values) for axis in axes_over(over, setup)] == [1, 1, 1]
    with pytest.raises(AmpsimError, match="cache_bandwidth_bytes_per_s"):
        axes_over({key: over[key] for key in list(over)[:2]}, setup)


@pytest.mark.parametrize("schedules", ["amp:4,gpipe", ["gpipe", "amp:4"]])
@pytest.mark.parametrize("ask", ["explore", "solve", "search"])
def test_a_schedule_says_in_python_too_what_varies_or_for_does(setup, ask, schedules):
    given: dict[str, dict[str, Any]] = {
        "explore": {"over": {"max_active_keys": [1, 2]}, "target": 0.1},
        "solve": {"over": {"max_active_keys": "1..2"}, "until": "epoch_s <= 1"},
        "search": {"over": {"max_active_keys": [1, 2]}, "minimise": "epoch_s"},
    }
    if ask == "search":
        pytest.importorskip("optuna", reason="optuna is not installed")
    with pytest.raises(OptionError, match=r"amp:4 says max_active_keys itself, got 1 besides"):
        getattr(ampsim, ask)(setup.model, setup.cluster, schedules, instances=100, **given[ask])


@pytest.mark.parametrize("is_named", [False, True])
def test_a_schedule_of_a_users_own_is_searched_beside_others(setup, is_named):
    pytest.importorskip("optuna", reason="optuna is not installed")

    class Mine(ampsim.Amp):
        name = "mine"

    fronts: list[Any] = []
    for own in (Mine(2), ampsim.Amp(2)):
        over = {"latency_s": [1e-7, 1e-5]} | ({"schedule": [own.name]} if is_named else {})
        schedules = (ampsim.Sequential(), own)
        asked: dict[str, Any] = {"minimise": "epoch_s", "trials": 6, "sampler": "random"}
        asked |= {"over": over, "instances": 100, "seed": 2}
        fronts.append(ampsim.search(setup.model, setup.cluster, schedules, **asked).front)
    assert fronts[0]["epoch_s"].tolist() == fronts[1]["epoch_s"].tolist()
    assert "mine" in fronts[0]["schedule"].tolist()
