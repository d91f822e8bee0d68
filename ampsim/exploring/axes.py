"""Axes: what `--for KEY=...` varies, and the model, cluster and schedules at a point of it.

A key is one of

    schedule, topology                          names, as on the command line
    cluster                                     likewise; a cluster's file has workers and links of
                                                its own, between devices these stay
    device                                      a name, of every device; links stay
    workers, latency_s, bandwidth_bytes_per_s   of the cluster and its links, likewise
    device.NUMBER                               of every device; a number alone means this
    host.NUMBER, ports.NUMBER                   of the host's device, and of the workers' ports
    model.OPTION                                of the model file's `Config`
    an option of a schedule                     such as max_active_keys; others stay as they are

Everything else of a point is as in the `Setup` that it starts from.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from ampsim.errors import AmpsimError, OptionError
from ampsim.hardware import Cluster, Device, Ports, load_cluster, load_device
from ampsim.hardware.device import HOST_NUMBERS, NUMBERS
from ampsim.hardware.efficiency import CURVES, SURFACES
from ampsim.hardware.load import load_between, relinked, replaced
from ampsim.hardware.record import UNSOURCED
from ampsim.hardware.topology import WORKERS_MAX
from ampsim.model_parallel import Schedule
from ampsim.report.plot.grid import cluster_words
from ampsim.report.words import plain
from ampsim.study.loading import with_options
from ampsim.study.model import Model, options_of
from ampsim.study.schedule_names import option_types, schedules_of
from ampsim.study.simulation import ClusterLike, ModelLike, SchedulesLike, cluster_of, model_of
from ampsim.study.simulation import schedules_of as schedules_like
from ampsim.text import short
from ampsim.units import format_as, unit_of

Value: TypeAlias = float | int | str  # of an axis

Point: TypeAlias = Mapping[str, Value]  # a value of each axis, by key
Over: TypeAlias = Mapping[str, str | Sequence[Value]]  # lists, or texts as on the command line


class Setup(NamedTuple):
    """A model, a cluster and schedules: the fixed part of a question, or one of its points."""

    model: Model
    cluster: Cluster
    schedules: tuple[Schedule, ...]


def setup_of(model: ModelLike, cluster: ClusterLike, schedules: SchedulesLike) -> Setup:
    """A setup of what a question was given: objects, or names of them."""
    return Setup(model_of(model), cluster_of(cluster), tuple(schedules_like(schedules)))


@dataclass(frozen=True, slots=True)
class Axis:
    """A key that varies, and its values: those that are named, in that order, or a range."""

    key: str
    values: tuple[Value, ...] = ()  # empty of a range
    low: float = 0.0  # ends of a range; 0 where values are named, for NaN would equal no other
    high: float = 0.0
    is_log: bool = False  # whether points of the range lie evenly in its logarithm
    is_whole: bool = False  # whether only whole numbers are values

    @property
    def is_range(self) -> bool:
        """Tell whether it has two ends, and not values by name."""
        return not self.values

    def __contains__(self, value: Any) -> bool:
        if not self.is_range:
            return value in self.values
        return isinstance(value, int | float) and self.low <= value <= self.high

    def points(self, count: int) -> tuple[Value, ...]:
        """Its values, or so many points of its range from end to end, each once.

        >>> Axis("latency_s", low=1e-6, high=1e-4, is_log=True).points(3)
        (1e-06, 1e-05, 0.0001)
        >>> Axis("workers", low=1, high=4, is_whole=True).points(9)
        (1, 2, 3, 4)
        """
        if self.values:
            return self.values
        even = np.geomspace if self.is_log else np.linspace
        # in 15 digits, so that 1e-5 is in the middle of 1e-6 and 1e-4
        between = [float(f"{one:.15g}") for one in even(self.low, self.high, count)[1:-1]]
        found = [self.low, *between, self.high]
        return tuple(dict.fromkeys(map(round, found) if self.is_whole else found))


NAMES: Final = ("schedule", "cluster", "device", "topology")  # keys whose values are names
LINKS: Final = ("latency_s", "bandwidth_bytes_per_s")
PORTS: Final = ("egress_bytes_per_s", "ingress_bytes_per_s")
# Keys of a device that are one number each.
DEVICE_NUMBERS: Final = tuple(key for key in NUMBERS if key not in (*CURVES, *SURFACES))

_PLAIN: Final = ("workers", "latency_s", "device.flop_per_s")  # of which the unit says enough


def point_words(point: Mapping[str, Any], over: Mapping[str, Sequence[Any]]) -> str:
    """A point in words, numbers with their units; names are told apart from those `over` its keys.

    >>> point_words({"workers": 4, "cluster": "./a.toml", "device.memory_bytes": 2**20}, {})
    '4 workers, a, memory 1.05 MB'
    """
    return ", ".join(named_words(key, value, over.get(key, ())) for key, value in point.items())


def named_words(key: str, value: Any, among: Sequence[Any]) -> str:
    """A value of a key, with the key's name where that is needed."""
    said = value_words(key, value, among)
    if key in _PLAIN or isinstance(value, str):
        return said
    name = key.rpartition(".")[2].removesuffix(f"_{unit_of(key).replace('/', '_per_')}".lower())
    return f"{name.replace('_', ' ')} {said}"


def value_words(key: str, value: Any, among: Sequence[Any] = ()) -> str:
    """A value of a key, with its unit; names are told apart from others `among` its values."""
    if isinstance(value, str):
        every = [*among, value]
        return cluster_words(every)[value] if key in ("cluster", "device") else plain(value, 32)
    if key == "workers":
        return f"{value} worker{'s' * (value != 1)}"
    return format_as(unit_of(key), value)


def keys_of(setup: Setup) -> list[str]:
    """Every key that can vary around a setup."""
    return [
        *NAMES, "workers", *LINKS,
        *(f"device.{key}" for key in DEVICE_NUMBERS),
        *(f"host.{key}" for key in HOST_NUMBERS),
        *(f"ports.{key}" for key in PORTS),
        *(f"model.{one.name}" for one in options_of(setup.model.config)),
        *option_types(),
    ]  # fmt: skip


def place_words(cluster: str, over: Mapping[str, Sequence[Value]]) -> str:
    """Name the hardware of a question in which some keys vary.

    >>> place_words("8 x a100", {"workers": (2, 4)}), place_words("", {"cluster": ("./x.toml",)})
    ('a100', 'x')
    """
    names = over.get("cluster") or over.get("device")
    if names:
        return ", ".join(cluster_words(map(str, names)).values())
    return re.sub(r"^[0-9]+ x ", "", cluster) if "workers" in over else cluster


def texts_over(texts: Iterable[str]) -> dict[str, str]:
    """Keys and values of texts such as "workers=2,4,8"; an OptionError of what is no axis."""
    given: dict[str, str] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not key or not values:
            raise OptionError(
                f"an axis must be KEY=A,B,... or KEY=A..B[:log], such as "
                f"latency_s=1e-7..1e-4:log, got {short(text)}"
            )
        _require_new(key, given)
        given[key] = values
    return given


def axes_over(given: Over, setup: Setup) -> tuple[Axis, ...]:
    """The axes of keys and values, each a text as above, or a list of values.

    Raises:
        OptionError: a key comes twice or varies nothing here, or a value is none that it can have.
        UnknownNameError: a value names nothing that there is.
    """
    found: dict[str, Axis] = {}
    for given_key, values in given.items():
        key = f"device.{given_key}" if given_key in DEVICE_NUMBERS else given_key
        if key not in keys_of(setup):
            raise OptionError(_unknown(key, keys_of(setup)))
        _require_new(key, found)
        found[key] = _axis(key, values, _kind(key, setup))
    for axis in found.values():
        for value in axis.points(2):
            _require_fit(axis.key, value, found, setup)
    return tuple(found.values())


_TRIED_MAX: Final = 1000  # sets of values of others that one is tried with (chosen: a second)


def require_open(given: Any, axes: Sequence[Axis]) -> None:
    """Refuse a schedule's name that says what varies, such as "amp:8" beside max_active_keys."""
    if isinstance(given, str):
        schedules_of(given, **{o.key: o.points(2)[0] for o in axes if o.key in option_types()})
    elif isinstance(given, list | tuple):
        for name in cast("Sequence[Any]", given):
            require_open(name, axes)


def _require_fit(key: str, value: Value, axes: Mapping[str, Axis], setup: Setup) -> None:
    """Try a value alone, then with those of other keys: some have an effect together only."""
    others = [(one.key, of) for one in axes.values() if one.key != key for of in one.points(2)]
    together = (itertools.combinations(others, count) for count in range(1, len(axes)))
    try:
        setup_at(setup, {key: value})
    except OptionError:
        for beside in itertools.islice(itertools.chain(*together), _TRIED_MAX):
            with contextlib.suppress(AmpsimError):
                setup_at(setup, dict([*beside, (key, value)]))
                return
        raise


def _require_new(key: str, known: Mapping[str, Any]) -> None:
    if key in known:
        raise OptionError(f"axes must differ, got {key} twice; name all its values at once")


def _unknown(key: str, known: Sequence[str]) -> str:
    tails = {one.rpartition(".")[2]: one for one in known}
    near = difflib.get_close_matches(key, [*known, *tails], n=1)
    hint = f"did you mean {tails.get(near[0], near[0])!r}? there are" if near else "there are"
    options = [one.removeprefix("model.") for one in known if one.startswith("model.")]
    return (
        f"nothing named {short(key)} can vary; {hint} schedule, cluster, device, topology, "
        f"workers, {', '.join(LINKS)}, device.NUMBER such as device.flop_per_s, host.NUMBER, "
        f"ports.NUMBER, model.OPTION ({', '.join(options) or 'the model has none'}), and options "
        "of shipped schedules; give one of your own once for each value of its options"
    )


def _kind(key: str, setup: Setup) -> type:
    """Return the type of a key's values: `str` of names, `int` of counts, `float`, `bool`.

    It is `object` of an option of the model that is no count: the model says itself what it takes.
    """
    room, _dot, name = key.rpartition(".")
    if key in NAMES:
        return str
    if room == "model":
        return int if type(getattr(setup.model.config, name)) is int else object
    if key == "workers" or (room in ("device", "host") and name.endswith("_bytes")):
        return int
    return float if room else option_types().get(name, float)


def _axis(key: str, values: str | Sequence[Value], kind: type) -> Axis:
    if isinstance(values, str):
        if ".." in values and key not in NAMES:
            return _range(key, values, is_whole=kind is int)
        values = [one.strip() for one in values.split(",")]
    read = tuple(_value(key, one, kind) for one in values)
    if not read or len(set(read)) < len(read):
        raise OptionError(f"{key} must have values that differ, got {short(values)}")
    return Axis(key, read, is_whole=kind is int)


def _range(key: str, text: str, *, is_whole: bool) -> Axis:
    """A range such as "1e-7..1e-4:log"."""
    ends, log, rest = text.replace(" ", "").partition(":log")
    low, high = (_number(one) for one in ends.partition("..")[::2])
    if rest or "..." in ends or not low < high:
        raise OptionError(
            f"{key} must be a range A..B from a number to a larger one, such as {key}=1..8 or "
            f"{key}=1..8:log, got {short(text)}"
        )
    if log and low <= 0:
        raise OptionError(f"{key} must begin above 0 to be even in the logarithm, got {low:g}")
    if is_whole and not (low.is_integer() and high.is_integer()):
        raise OptionError(f"{key} must be whole numbers, got {short(text)}")
    return Axis(key, low=low, high=high, is_log=bool(log), is_whole=is_whole)


def _number(text: str) -> float:
    """A finite number, or NaN."""
    with contextlib.suppress(ValueError):
        return value if math.isfinite(value := float(text)) else math.nan
    return math.nan


def _value(key: str, value: Any, kind: type) -> Value:
    if value == "" and kind in (str, object):
        raise OptionError(f"{key} must be values with single commas between, got an empty one")
    if kind is str or (kind is object and isinstance(value, str)):
        if re.search("[\ud800-\udfff]", str(value)):  # of a path that is not UTF-8
            raise OptionError(f"{key} must be UTF-8 text, got {short(value)}; rename the file")
        return str(value)
    if kind is bool:
        known = {"true": True, "false": False}
        if str(value).lower() not in known:
            raise OptionError(f"{key} must be true or false, got {short(value)}")
        return known[str(value).lower()]
    number = math.nan if isinstance(value, bool) else _number(str(value))
    if math.isnan(number) or (kind is int and not number.is_integer()):
        what = "whole numbers" if kind is int else "numbers"
        told = f"{key} must be {what} with commas between, or a range A..B"
        raise OptionError(f"{told}, got {short(value)}")
    return int(number) if kind is int else number


def setup_at(setup: Setup, point: Point) -> Setup:
    """The model, cluster and schedules at a point; what it does not name stays.

    Raises:
        OptionError: a value is none that its key can have, or nothing has such a key.
        UnknownNameError: a value names nothing that there is.
    """
    options = _of("model", point)
    model = with_options(setup.model, options) if options else setup.model
    return Setup(model, _cluster_at(setup.cluster, point), _schedules_at(setup.schedules, point))


def digests_of(named: Iterable[tuple[str, Value]]) -> Iterator[tuple[str, str]]:
    """The clusters and devices that values of keys name, each with the digest of what it says."""
    for key, name in named:
        if key in ("cluster", "device"):
            yield str(name), load_cluster(str(name)).digest


def models_at(axes: Iterable[Axis], setup: Setup) -> Iterator[Model]:
    """The models at values that are texts, each with each: a text may say what is read."""
    own = [one for one in axes if one.key.startswith("model.")]
    texts = [[(one.key, of) for of in one.values if isinstance(of, str)] for one in own]
    for point in itertools.product(*filter(None, texts)):
        with contextlib.suppress(AmpsimError):  # they do not go together
            yield setup_at(setup, dict(point)).model


def _cluster_at(cluster: Cluster, point: Point) -> Cluster:
    if "cluster" in point:
        workers: Any = point.get("workers")
        cluster = load_between(str(point["cluster"]), cluster, workers)
    elif "workers" in point:
        cluster = _with_workers(cluster, int(point["workers"]))
    if "device" in point:
        load_device(str(point["device"]))  # and not a cluster, or groups
        cluster = load_between(str(point["device"]), cluster)
    links: dict[str, Any] = {key: point[key] for key in (*LINKS, "topology") if key in point}
    if links:
        cluster = relinked(cluster, **links)
    if numbers := _of("device", point):
        made = {one: _device_with(one, numbers) for one in dict.fromkeys(cluster.devices)}
        cluster = replaced(cluster, devices=tuple(made[one] for one in cluster.devices))
    if numbers := _of("host", point):
        host = cluster.host or Device(name="host", flop_per_s=1.0)
        cluster = replaced(cluster, host=_device_with(host, numbers))
    if numbers := _of("ports", point):
        ports = {**dict(cluster.ports or {}), **numbers, "source": UNSOURCED}
        cluster = replaced(cluster, ports=Ports(**ports))
    return cluster


def _of(room: str, point: Point) -> dict[str, Value]:
    """Return the part of a point that is about the model, devices, the host or ports."""
    start = f"{room}."
    return {key.removeprefix(start): one for key, one in point.items() if key.startswith(start)}


def _with_workers(cluster: Cluster, workers: int) -> Cluster:
    kinds = dict.fromkeys(cluster.devices)
    if len(kinds) > 1:
        raise OptionError(
            f"workers cannot vary on {cluster.name}, which has {len(kinds)} kinds of devices; vary "
            "cluster over groups such as p100:8,cpu-core:1"
        )
    if not 1 <= workers <= WORKERS_MAX:
        raise OptionError(f"workers must be 1 to {WORKERS_MAX}, got {workers}")
    name = re.sub(rf"^{cluster.workers} x ", f"{workers} x ", cluster.name)
    return replaced(cluster, name=name, devices=(cluster.devices[0],) * workers)


def _device_with(device: Device, numbers: Mapping[str, Any]) -> Device:
    """A device with other numbers, checked as one that is read; no file vouches for them."""
    sources = device.sources.model_copy(update=dict.fromkeys(numbers, UNSOURCED))
    return Device(**{**dict(device), **numbers, "sources": sources})


def _schedules_at(schedules: Sequence[Schedule], point: Point) -> tuple[Schedule, ...]:
    """Give schedules of the point's name, or all, with its options where they take them."""
    found: list[Any] = list(schedules)
    if "schedule" in point:
        name = str(point["schedule"])
        found = [one for one in schedules if one.name == name] or schedules_of(name)
    for option in (key for key in point if key in option_types()):
        if not any(takes(one, option) for one in found):
            names = ", ".join(dict.fromkeys(one.name for one in found))
            raise OptionError(f"{option} has no effect on {names}; leave it out")
        found = [replace(a, **{option: point[option]}) if takes(a, option) else a for a in found]
    return tuple(found)


def takes(schedule: Any, option: str) -> bool:
    """Tell whether a schedule has an option of that name."""
    return option in [one.name for one in fields(schedule)]
