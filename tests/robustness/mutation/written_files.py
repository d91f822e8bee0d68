"""Files that a user writes: devices, clusters, placements and recipes."""

from __future__ import annotations

import random
from typing import Any

from mutation import bases
from mutation.case import Call, Command, Function, Place
from mutation.text import bent, damaged, to_toml


def _text_of(table: dict[str, Any], random: random.Random) -> bytes:
    """A wrong file: a table that says something wrong, or wrong bytes."""
    if random.random() < 0.6:
        return to_toml(bent(table, random)).encode("utf-8", "surrogateescape")
    return damaged(to_toml(table).encode(), random)


def hardware(place: Place) -> Call:
    """A device file, a cluster file, or the device file that a cluster names."""
    import ampsim

    random = place.random
    device, cluster = to_toml(bases.DEVICE), to_toml(bases.CLUSTER)
    target = random.choice(("device.toml", "cluster.toml", "device.toml of the cluster"))
    place.write("model.py", bases.MODEL)
    place.write("device.toml", device)
    place.write("cluster.toml", cluster)
    base = bases.CLUSTER if target == "cluster.toml" else bases.DEVICE
    place.write(target.partition(" ")[0], _text_of(base, random))
    file = "cluster.toml" if "cluster" in target else "device.toml"
    run = ["--device", file, "--schedule", "amp", "--instances", "4", "--out", "chart.json"]
    return random.choice(
        (
            Command(["check", file]),
            Command(["devices", file]),
            Command(["gantt", "model.py", *run]),
            Command(["gantt", "model.py", *run, "--workers", str(random.choice((1, 2, 9)))]),
            Function("load_cluster", lambda: ampsim.load_cluster(file, workers=3), file),
        )
    )


def placement(place: Place) -> Call:
    """A placement file."""
    random = place.random
    place.write("model.py", bases.MODEL)
    file = place.write("placement.toml", _text_of(bases.PLACEMENT, random))
    run = ["model.py", "--workers", "3", "--instances", "4", "--placement", file]
    return random.choice(
        (
            Command(["gantt", *run, "--schedule", "amp", "--out", "chart.json"]),
            Command(["gantt", *run, "--schedule", "1f1b", "--mode", "sleep", "--out", "c.html"]),
            Command(["check", file]),
        )
    )


def calibration(place: Place) -> Call:
    """A table of published throughputs."""
    from ampsim.calibration import read_table_file

    place.write("model.py", bases.MODEL)
    file = place.write("table.toml", _text_of(bases.CALIBRATION, place.random))
    if place.random.random() < 0.8:
        return Function("read_table_file", lambda: read_table_file(file), file)
    return Command(["calibrate", "table", file, "--quiet", "--out", "made"])


def recipe(place: Place) -> Call:
    """A recipe, or one of the files that it names."""
    random = place.random
    place.write("reports/toy/model.py", bases.MODEL)
    place.write("reports/toy/device.toml", to_toml(bases.DEVICE))
    place.write("reports/toy/cluster.toml", to_toml(bases.CLUSTER))
    place.write("reports/toy/recipe.toml", _text_of(bases.RECIPE, random))
    if random.random() < 0.1:
        place.write("reports/toy/cluster.toml", _text_of(bases.CLUSTER, random))
    words = (
        *(["check", "reports/toy/recipe.toml"],) * 10,
        *(["report", "--check", "toy"],) * 4,
        *(["report", "--list"], ["report", "--check", "reports/toy"]),
        ["report", "--quiet", "--jobs", "1", "toy"],
    )
    return Command(random.choice(words))
