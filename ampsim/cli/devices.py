"""`ampsim devices`: list the devices, or show one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ampsim
from ampsim import assets
from ampsim.cli.console import Code, answer, complain, in_columns, object_of
from ampsim.errors import OptionError, OutputError
from ampsim.files import prepared_file, write_text
from ampsim.units import format_bytes, format_flop, format_percent, format_seconds

if TYPE_CHECKING:
    from ampsim.hardware import Cluster, Device, HostPorts, Link
    from ampsim.hardware.topology import EdgeCost


WIDTH: Final = 1024
"""Rows and columns of the weight matrix; chosen: that of a large layer, 4 MiB in float32."""

ROWS: Final = tuple(2**power for power in range(13))
"""Rows of the payload that are shown: 1 to 4096."""

FLOAT32_BYTES: Final = 4
BAR_CHARACTERS: Final = 44
"""Length of a bar that reaches all of `flop_per_s`; chosen: the rows then fit 80 columns."""


def attainable_flop_per_s(device: Device, rows: int) -> float:
    """FLOP per second of one product of `rows` float32 rows with a 1024 x 1024 weight matrix.

    It is one operation of one step that reads its rows and its weights once and writes its result,
    on a worker that hosts no other weights.
    """
    from ampsim.hardware import occupancy_s

    weight_bytes = WIDTH * WIDTH * FLOAT32_BYTES
    work = ampsim.Work(
        flop=2 * rows * WIDTH * WIDTH,
        bytes=weight_bytes + 2 * rows * WIDTH * FLOAT32_BYTES,
        weight_bytes=weight_bytes,
    )
    seconds = occupancy_s(
        device,
        work,
        is_light=False,
        rows=rows,
        resident_bytes=weight_bytes,
        matrix_elements=WIDTH * WIDTH,
    )
    return work.flop / seconds


def attainable_text(device: Device) -> str:
    """A line for each count of rows: what is attained, and which part of `flop_per_s` that is."""
    lines = [f"attainable FLOP/s over rows, for a float32 matrix of {WIDTH} x {WIDTH}"]
    for rows in ROWS:
        rate = attainable_flop_per_s(device, rows)
        fraction = rate / device.flop_per_s
        bar = "#" * round(BAR_CHARACTERS * fraction)
        told = f"{format_flop(rate) + '/s':>14} {format_percent(fraction):>8}"
        lines.append(f"  {rows:>4}  {told}  {bar}".rstrip())
    return "\n".join(lines)


IMPORT: Final = "import"
"""In place of a device's name: a foreign file follows."""


def devices(
    name: str | None = None,
    file: str | None = None,
    *,
    out: Path | None = None,
    json: str | None = None,
) -> Code:
    """List the shipped devices, or show one device or cluster: its numbers, sources and costs.

    Of a device it also shows what it attains for products of 1 to 4096 rows. With the word import,
    it writes a device file from another simulator's. The object of --json: ampsim, devices (a list:
    kind, then the keys of its file).
    """
    _check_words(name, file, out)
    if name == IMPORT and file is not None:
        return _import(file, out or Path(), json)
    names = assets.names("devices") if name is None else [name]
    answer(
        json,
        lambda: object_of(devices=[_plain(load(each)) for each in names]),
        lambda: in_columns(map(_row, names)) if name is None else text_of(load(name)),
    )
    return Code.FINE


def _check_words(name: str | None, file: str | None, out: Path | None) -> None:
    if name == IMPORT and file is None:
        raise OptionError(
            "import needs a file: give a system file of Calculon or SimuMax, as in "
            "'ampsim devices import a100_80g.json'"
        )
    if name != IMPORT and file is not None:
        raise OptionError(f"one device is shown at a time, got {name!r} and {file!r}; give one")
    if name != IMPORT and out is not None:
        raise OptionError("--out belongs to import; leave it out, or give the word import")


def _import(file: str, out: Path, json: str | None) -> Code:
    from ampsim.hardware.foreign import device_toml, import_device

    imported = import_device(file)
    with prepared_file(out / f"{imported.device.name}.toml") as target:
        if os.path.lexists(target):
            raise OutputError(f"{target} exists; remove it, or choose another folder with --out")
        write_text(target, device_toml(imported.device))
    for sentence in imported.left_out:
        complain(f"note: {file}: not carried over: {sentence}")
    answer(
        json,
        lambda: object_of(devices=[_plain(imported.device)]),
        lambda: f"{target}: device {imported.device.name}, {summary(imported.device)}",
    )
    return Code.FINE


def _plain(loaded: Device | Cluster) -> dict[str, Any]:
    kind = "device" if isinstance(loaded, ampsim.Device) else "cluster"
    return {"kind": kind, **loaded.model_dump(mode="json")}


def load(name: str) -> Device | Cluster:
    """The device or the cluster of a shipped name or of a file, whichever it is."""
    from ampsim.hardware import load_device
    from ampsim.hardware.load import is_cluster
    from ampsim.hardware.record import HARDWARE
    from ampsim.toml_file import read_table

    table = read_table(assets.locate("devices", name), name, HARDWARE)
    return ampsim.load_cluster(name) if is_cluster(table) else load_device(name)


def text_of(loaded: Device | Cluster) -> str:
    """Describe a device or a cluster, with all that is known of it."""
    if isinstance(loaded, ampsim.Device):
        return f"{_device_text(loaded)}\n\n{attainable_text(loaded)}"
    return _cluster_text(loaded)


def summary(loaded: Device | Cluster) -> str:
    """Its most telling number."""
    if isinstance(loaded, ampsim.Device):
        of_what = f" in {loaded.flop_format}" if loaded.flop_format else ""
        return f"{format_flop(loaded.flop_per_s)}/s{of_what}"
    return f"{loaded.workers} worker{'' if loaded.workers == 1 else 's'}"


def _row(name: str) -> tuple[str, str, str]:
    loaded = load(name)
    return name, summary(loaded), loaded.description


def _device_text(device: Device) -> str:
    from ampsim.hardware import charges

    rows = [(charge.what, charge.kind, charge.text) for charge in charges(device)]
    return f"{_heading(device)}\n{in_columns(rows, indent='  ')}"


def _cluster_text(cluster: Cluster) -> str:
    from ampsim.hardware import place_name, variations

    whose = "" if cluster.network is None else " to and from the host"  # others have edges
    rows = [
        ("workers", f"{cluster.workers}: {cluster.device_text}"),
        (f"link{whose}", _link_text(cluster.link)),
    ]
    rows += [
        (f"link {place_name(route.source)} to {place_name(route.target)}", _link_text(route.link))
        for route in cluster.links
    ]
    rows += _network_rows(cluster)
    rows += _host_and_memory_rows(cluster)
    rows += [
        (of, f"{what} ({source.kind}: {source.text})") for of, what, source in variations(cluster)
    ]
    hosts = () if cluster.host is None else (cluster.host,)
    named = [one.model_copy(update={"name": name}) for one, name in cluster.kinds.items()]
    texts = [_device_text(device) for device in dict.fromkeys((*named, *hosts))]
    return "\n\n".join([f"{_heading(cluster)}\n{in_columns(rows, indent='  ')}", *texts])


def _host_and_memory_rows(cluster: Cluster) -> list[tuple[str, str]]:
    """Describe what the controller runs on, and what makes activations fit into memory."""
    from ampsim.hardware import host_text

    rows: list[tuple[str, str]] = []
    if cluster.host is not None:
        rows.append(("host", f"{cluster.host.name}, {host_text(cluster)}"))
    memory = cluster.memory
    if memory is not None:
        above = f" where more than {format_bytes(memory.above_bytes)} lie in memory"
        rows.append(("activations", f"{memory.remedy}{above if memory.above_bytes else ''}"))
    return rows


def _network_rows(cluster: Cluster) -> list[tuple[str, str]]:
    """Describe topology, edges and ports, and how their bandwidth is shared."""
    from ampsim.hardware import place_name

    if not cluster.has_shared_bandwidth:
        return []
    topology, ports = cluster.topology, cluster.ports
    rows: list[tuple[str, str]] = []
    if topology is not None and cluster.network is not None:
        numbers = " x ".join(map(str, topology.shape)) or topology.radix or ""
        what = f"{topology.kind} {numbers}".rstrip()
        rows.append(("topology", f"{what}, {len(cluster.network.edges)} edges"))
        if not topology.levels:
            rows.append(("each edge", _wire_text(topology)))
        for level in topology.levels:
            rows.append((f"level of {level.members} members", _wire_text(level)))
    for edge in cluster.edges:
        one, other = map(place_name, edge.between)
        rows.append((f"edge {one} to {other}", _wire_text(edge)))
    if ports is not None:
        if not ports.is_free:
            rows.append(("ports of each worker", _ports_text(ports)))
        if ports.host is not None:
            rows.append(("ports of the host", _ports_text(ports.host)))
    is_fair = cluster.sharing != "first-come"
    return [*rows, ("sharing", "max-min fair" if is_fair else "first come, first served")]


def _wire_text(wire: EdgeCost) -> str:
    half = ", both directions share it" if wire.duplex == "half" else ""
    return f"{_link_text(wire)}{half}"


def _ports_text(ports: HostPorts) -> str:
    rates = {"out": ports.egress_bytes_per_s, "in": ports.ingress_bytes_per_s}
    told = [f"{way} {format_bytes(rate)}/s" for way, rate in rates.items() if rate is not None]
    source = "" if ports.source is None else f" ({ports.source.kind}: {ports.source.text})"
    return f"{', '.join(told)}{source}"


def _heading(loaded: Device | Cluster) -> str:
    return f"{loaded.name}: {loaded.description}" if loaded.description else loaded.name


def _link_text(link: Link) -> str:
    if link.is_free:
        return "free"
    bandwidth = link.bandwidth_bytes_per_s
    rate = "infinite" if bandwidth is None else f"{format_bytes(bandwidth)}/s"
    source = "" if link.source is None else f" ({link.source.kind}: {link.source.text})"
    return f"latency {format_seconds(link.latency_s)}, bandwidth {rate}{source}"
