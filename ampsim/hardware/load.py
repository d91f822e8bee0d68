"""Devices and clusters by name or path, as users type them."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ValidationError

from ampsim import assets
from ampsim.arguments import checked
from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware.cluster import WORKERS_MAX, Cluster
from ampsim.hardware.cluster_file import cluster_of, is_cluster
from ampsim.hardware.device import Device
from ampsim.hardware.device_file import device_of
from ampsim.hardware.link import Link
from ampsim.hardware.record import HARDWARE, UNSOURCED
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
) -> Cluster:
    """The cluster of a cluster file, or equal workers of one device.

    Args:
        name_or_path: a shipped name, or the path of a device or cluster file.
        workers: count of workers; a device gives 16 unless told, a cluster has its own.
        latency_s: replaces the latency of the cluster's default link.
        bandwidth_bytes_per_s: replaces the bandwidth of the cluster's default link.

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
    path, label = assets.locate("devices", name_or_path), os.fspath(name_or_path)
    table = read_table(path, label, HARDWARE)
    if is_cluster(table):
        cluster = cluster_of(table, path, label)
        if workers not in (None, cluster.workers):
            raise OptionError(
                f"workers must be {cluster.workers}, as in the cluster file {label}, "
                f"got {workers}; leave it out or edit the file"
            )
    else:
        cluster = _equal_workers(device_of(table, path, label), workers or WORKERS_DEFAULT)
    given = {"latency_s": latency_s, "bandwidth_bytes_per_s": bandwidth_bytes_per_s}
    return _with_link(cluster, {key: value for key, value in given.items() if value is not None})


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
        raise OptionError(f"workers must be 1 to {WORKERS_MAX}, got {workers}")


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
