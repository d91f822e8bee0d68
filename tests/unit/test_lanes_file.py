"""The host, lanes and a remedy for memory in files: what is read, and what is refused in a line."""

from __future__ import annotations

import pytest

from ampsim import Amp, SyncSGD, load_model, simulate
from ampsim.cli.devices import load as load_shown
from ampsim.cli.devices import text_of
from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware import Cluster, Device, MemoryRemedy, implausible, load_cluster
from ampsim.study.provenance import costs

SOURCE = '{ kind = "assumed", text = "for tests" }'
DEVICES = """
[[device]]
file = "copies.toml"
count = 3
"""


def device_text(**numbers: float) -> str:
    numbers = {"flop_per_s": 1e12, **numbers}
    lines = [f"{key} = {value!r}" for key, value in numbers.items()]
    return "\n".join([*lines, "[sources]", *(f"{key} = {SOURCE}" for key in numbers)])


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The cluster of a file with the given content, beside two devices."""
    monkeypatch.chdir(tmp_path)
    copies = device_text(copy_bandwidth_bytes_per_s=1e10, copy_latency_s=1e-6)
    (tmp_path / "copies.toml").write_text(copies)
    (tmp_path / "host.toml").write_text(device_text(message_overhead_s=2e-6, step_overhead_s=1e-6))
    (tmp_path / "both.toml").write_text(device_text(dispatch_s=1e-6, operation_overhead_s=1e-6))
    (tmp_path / "late.toml").write_text(device_text(copy_latency_s=1e-6))

    def write_and_load(content: str) -> Cluster:
        (tmp_path / "box.toml").write_text(content)
        return load_cluster("box.toml")

    return write_and_load


def test_a_cluster_file_names_the_device_of_the_host_and_a_remedy(load):
    own = '[host]\ndevice = "host.toml"\n[memory]\nremedy = "offload"\nabove_bytes = 500\n'
    cluster = load(DEVICES + own)
    assert cluster.host is not None
    assert (cluster.host.name, cluster.host.message_overhead_s) == ("host", 2e-6)
    assert cluster.memory == MemoryRemedy(remedy="offload", above_bytes=500)
    assert not cluster.is_host_free
    told = text_of(load_shown("box.toml"))
    assert "host, 1.00 µs a step and 2.00 µs a message" in told
    assert "offload where more than 500 B lie in memory" in told
    assert "message_overhead_s = 2e-06" in told
    rows = {(row["of"], row["what"]): row["text"] for row in costs(cluster)}
    assert rows["host", "controller"] == "host: 1.00 µs a step and 2.00 µs a message"
    assert "copy lanes" in rows["memory", "remedy offload"]
    other = cluster.model_copy(update={"memory": MemoryRemedy(remedy="recompute")})
    (told,) = (row["text"] for row in costs(other) if row["of"] == "memory")
    assert told == "LSTM and GRU cells keep their inputs alone, and compute the rest again"


def test_a_shipped_device_is_named_as_workers_are_and_one_without_overhead_is_noted(load):
    cluster = load(DEVICES + '[host]\ndevice = "cpu-core"\n')
    assert cluster.host is not None
    assert cluster.host.name == "cpu-core"
    assert cluster.is_host_free
    assert any(
        one.startswith("host: cpu-core names neither message") for one in implausible(cluster)
    )


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ('[host]\n', "missing key 'host.device'; add it to host"),
        ('[host]\ndevice = "k50"\n', "host: no device named 'k50'; did you mean 'k40'?"),
        ('[host]\ndevice = "gone.toml"\n', "host: no device file 'gone.toml'"),
        ('[host]\ndevice = 3\n', "host.device must be text in quotes, got 3"),
        ('[host]\ndevice = "box.toml"\n', "host: box.toml: expected a device file, got a cluster"),
        ('[memory]\nremedy = "swap"\n', "memory.remedy must be 'offload' or 'recompute'"),
        ("[memory]\nabove_bytes = 3\n", "missing key 'memory.remedy'; add it to memory"),
        ('[memory]\nremedy = "offload"\nabove_bytes = -1\n', "memory.above_bytes must be >= 0"),
        (
            '[memory]\nremedy = "recompute"\nabove_bytes = 1\n',
            "memory: above_bytes has no effect on remedy 'recompute'; leave it out",
        ),
        (
            '[[device]]\nname = "tflops-1"\n[memory]\nremedy = "offload"\n',
            "memory.remedy 'offload' needs copy_bandwidth_bytes_per_s of every device, tflops-1 of "
            "worker 3 has none; add it to the device",
        ),
        (
            '[[device]]\nfile = "both.toml"\n',
            "device[1]: both.toml: dispatch_s of 1e-06 and operation_overhead_s of 1e-06 would "
            "both charge for issuing a step; keep dispatch_s where",
        ),
        (
            '[[device]]\nfile = "late.toml"\n',
            "device[1]: late.toml: copy_latency_s has no effect without copy_bandwidth",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(load, own, said):
    with pytest.raises(FileFormatError) as caught:
        load(DEVICES + own)
    assert str(caught.value).startswith(f"box.toml: {said}")
    assert len(str(caught.value).splitlines()) == 1


def test_keys_that_are_absent_leave_the_digest_of_a_cluster_as_it_was(load):
    plain = load(DEVICES)
    other = plain.model_copy(update={"memory": MemoryRemedy(remedy="recompute")})
    free = plain.model_copy(update={"host": plain.devices[0]})
    assert len({plain.digest, other.digest, free.digest}) == 3
    shipped = load_cluster("tflops-1", workers=4)
    known = "ccf487b3787cee04"  # of the version before there were hosts and remedies
    assert shipped.digest.startswith(known)


def test_merged_messages_are_refused_where_each_costs_by_itself():
    device = Device(name="d", flop_per_s=1e12, message_overhead_s=1e-7)
    cluster = Cluster(name="c", devices=(device,) * 2)
    said = r"^max_group = 4 merges messages, but d names message_overhead_s, .*; take max_group=1"
    with pytest.raises(OptionError, match=said):
        simulate("rnn", cluster, Amp(4, max_group=4), instances=10, mode="sleep")


@pytest.mark.parametrize(
    ("numbers", "parts", "named"),
    [
        ({"dispatch_s": 1e-8}, {}, "dispatch lanes"),
        ({"message_overhead_s": 1e-8}, {}, "message_overhead_s"),
        ({}, {"memory": MemoryRemedy(remedy="offload")}, "a remedy for memory"),
        ({}, {"memory": MemoryRemedy(remedy="recompute")}, "a remedy for memory"),
        ({}, {"host": Device(name="h", flop_per_s=1e9, step_overhead_s=1e-8)}, "a host that takes"),
    ],
)
def test_a_solver_names_what_it_does_not_charge_for(numbers, parts, named):
    """Activations that leave need lanes: those were named, and not what the file says."""
    device = Device(name="d", flop_per_s=1e12, copy_bandwidth_bytes_per_s=1e11, **numbers)
    cluster = Cluster(name="c", devices=(device,) * 2, **parts)
    model = load_model("mlp", data="synthetic", hidden=8, batch=10)
    with pytest.raises(OptionError, match=f"^sync-sgd: cluster c has {named}.*; leave it out, or"):
        simulate(model, cluster, SyncSGD(ranks=2), instances=20, mode="sleep")
