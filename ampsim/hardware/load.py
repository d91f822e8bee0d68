"""Devices and clusters by name or path, as users type them."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ValidationError

from ampsim import assets
from ampsim.arguments import checked
from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware.cluster import Cluster
from ampsim.hardware.cluster_file import cluster_of, is_cluster
from ampsim.hardware.device import Device, device_of
from ampsim.hardware.notation import groups_of, is_groups, topology_of
from ampsim.hardware.record import HARDWARE, UNSOURCED
from ampsim.hardware.topology import WORKERS_MAX, Link
from ampsim.text import short
from ampsim.toml_file import explain, read_table

WORKERS_DEFAULT = 16
"""Workers of a cluster made from one device: the cores of AMPNet's machines (Appendix B)."""


@checked
def load_device(name_or_path: str | os.PathLike[str]) -> Device:
    """The device of a shipped name or of a device file.

    Raises:
        UnknownNameError: no such name or file.
        FileFormatError: the file does not describe a device.
    """
    path, label = assets.locate("devices", name_or_path), os.fspath(name_or_path)
    table = read_table(path, label, HARDWARE)
    if is_cluster(table):
        raise FileFormatError(f"{label}: expected a device file, got a cluster file")
    return device_of(table, path, label)


@checked
def load_cluster(
    name_or_path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    latency_s: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
    topology: str | None = None,
) -> Cluster:
    """The cluster of a cluster file, equal workers of one device, or groups of several.

    Args:
        name_or_path: a shipped name, the path of a device or cluster file, or groups of devices
            such as "p100:8,cpu-core:1".
        workers: count of workers; a device gives 16 unless told, a cluster has its own.
        latency_s: replaces the latency of the cluster's default link, and of each edge.
        bandwidth_bytes_per_s: replaces the bandwidth of the cluster's default link, and of each
            edge.
        topology: the edges between workers, each as the default link, such as "ring" or
            "torus:4x4"; None leaves it to the file, or each pair a link of its own.

    Raises:
        UnknownNameError: no such name or file.
        FileFormatError: the file describes neither a device nor a cluster.
        OptionError: a number is out of its range, or is not the cluster's count of workers.

    Example:
        >>> cluster = load_cluster("tflops-1", workers=4, latency_s=1e-6)
        >>> cluster.name, cluster.workers, cluster.link.latency_s
        ('4 x tflops-1', 4, 1e-06)
    """
    _check_workers(workers)
    cluster = _named(name_or_path, workers)
    given = {"latency_s": latency_s, "bandwidth_bytes_per_s": bandwidth_bytes_per_s}
    numbers = {key: value for key, value in given.items() if value is not None}
    cluster = _with_edges(_with_link(cluster, numbers), numbers, os.fspath(name_or_path))
    return cluster if topology is None else _with_topology(cluster, topology)


def _named(name_or_path: str | os.PathLike[str], workers: int | None) -> Cluster:
    """The cluster without options but the count of workers."""
    label = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and is_groups(name_or_path):
        cluster, what = _groups(name_or_path), label
    else:
        path = assets.locate("devices", name_or_path)
        table = read_table(path, label, HARDWARE)
        if not is_cluster(table):
            return _equal_workers(device_of(table, path, label), workers or WORKERS_DEFAULT)
        cluster, what = cluster_of(table, path, label), f"the cluster file {label}"
    if workers not in (None, cluster.workers):
        raise OptionError(
            f"workers must be {cluster.workers}, as in {what}, got {short(workers)}; leave it out "
            f"or edit the {'groups' if what == label else 'file'}"
        )
    return cluster


def _groups(text: str) -> Cluster:
    """A cluster of groups of equal devices, in the order in which they are named."""
    groups = [(load_device(group.device), group.workers) for group in groups_of(text)]
    if len(groups) == 1:
        return _equal_workers(*groups[0])
    if sum(count for _device, count in groups) > WORKERS_MAX:
        raise OptionError(f"devices must count 1 to {WORKERS_MAX} in all, got more in {text!r}")
    return Cluster(
        name=", ".join(f"{count} x {device.name}" for device, count in groups),
        devices=tuple(device for device, count in groups for _ in range(count)),
    )


def _equal_workers(device: Device, workers: int) -> Cluster:
    """A cluster of one device many times, with free links."""
    return Cluster(
        name=f"{workers} x {device.name}",
        description=device.description,
        devices=(device,) * workers,
    )


def _check_workers(workers: int | None) -> None:
    """The count of workers is a whole number in its range, or not given."""
    if workers is None:
        return
    # A caller without type checker may pass anything, and True is an int.
    if not isinstance(workers, int) or isinstance(workers, bool):  # pyright: ignore[reportUnnecessaryIsInstance] # unchecked callers
        raise OptionError(f"workers must be a whole number, got {workers!r}")
    if not 1 <= workers <= WORKERS_MAX:
        raise OptionError(f"workers must be 1 to {WORKERS_MAX}, got {short(workers)}")


def _with_topology(cluster: Cluster, text: str) -> Cluster:
    """The cluster with edges between its workers, each as its default link."""
    if cluster.network is not None:
        raise OptionError(
            f"topology {text} has no effect on {cluster.name}, whose file says what the edges are; "
            "leave it out or edit the file"
        )
    return _replaced(cluster, topology=topology_of(text, cluster.link))


def _with_edges(cluster: Cluster, numbers: dict[str, Any], label: str) -> Cluster:
    """The cluster with numbers of its topology's edges replaced by options."""
    if not numbers or cluster.network is None:
        return cluster
    if cluster.topology is None or cluster.topology.levels:
        raise OptionError(
            f"{next(iter(numbers))} has no effect on {label}, which says what each edge costs; "
            "leave it out or edit the file"
        )
    topology = cluster.topology.model_copy(update={**numbers, "source": UNSOURCED})
    return _replaced(cluster, topology=topology)


def _replaced(cluster: Cluster, **fields: Any) -> Cluster:
    """The cluster with other fields, checked as a new one is."""
    return Cluster(**{**{key: getattr(cluster, key) for key in Cluster.model_fields}, **fields})


def _with_link(cluster: Cluster, numbers: dict[str, Any]) -> Cluster:
    """The cluster with numbers of its default link replaced by options."""
    if not numbers:
        return cluster
    before = cluster.link.model_dump(exclude={"source"})
    try:
        link = Link.model_validate({**before, **numbers, "source": UNSOURCED})
    except ValidationError as error:
        raise OptionError(explain(error, Link)) from error
    return cluster.model_copy(update={"link": link})
