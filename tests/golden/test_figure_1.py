"""Figure 1 of the paper: three equal layers on three devices, every box where it belongs.

A forward and a backward step take 2 units, an update 1; links are free. All starts are derived by
hand below. Read a row as one device, its boxes in the order of service: F forward, B backward, U
update, then the instance (none where the controller ordered the update), then the start.
"""

from __future__ import annotations

from typing import Any

import pytest

from ampsim import Amp, Pipeline, Sequential, simulate

FORWARD, BACKWARD, UPDATE = 2, 2, 1
LENGTH = {"F": FORWARD, "B": BACKWARD, "U": UPDATE}

# (a) One instance in flight. Instance 0 goes up in 0..6, comes back in 6..12; the controller then
# has all three layers updated at once, 12..13; instance 1 repeats this 13 units later.
SEQUENTIAL = """
F0:0  B0:10 U:12 F1:13 B1:23 U:25
F0:2  B0:8  U:12 F1:15 B1:21 U:25
F0:4  B0:6  U:12 F1:17 B1:19 U:25
"""

# (b) Four in flight, then a drain. Layer 3 works without gap from 4 on: F and B of one instance
# after the other, 4 units each, so that B of instance i starts there at 6 + 4i. One layer down it
# starts 2 later, 8 + 4i, two layers down 10 + 4i: no forward step is ever in its way, since
#   layer 1 has finished F0..F3 by 8, and
#   at layer 2, F3 and B0 come both at 8; backward goes first, F3 fills the gap 10..12.
# The last B ends at 24 = (4 + 3 - 1) * 4; all layers update at 24.
PIPELINE = """
F0:0 F1:2 F2:4 F3:6 B0:10 B1:14 B2:18 B3:22 U:24
F0:2 F1:4 F2:6 B0:8 F3:10 B1:12 B2:16 B3:20 U:24
F0:4 B0:6 F1:8 B1:10 F2:12 B2:14 F3:16 B3:18 U:24
"""

# (c) Four in flight, never a drain, each layer updates after each backward. Layer 3 has a period of
# 5 = F + B + U from 4 on. Layer 2 gets B of instance i at 8 + 5i and serves it at once: before B0
# it did F0..F2; F3 came at 8 too, waits for B0 (8..10) and U0 (10..11), starts at 11. Layer 1 gets
# B of instance i at 10 + 5i, ends it at 12 + 5i; that ends instance i, and instance i + 4 is
# admitted, which waits for the update: F at 13 + 5i. It comes to layer 2 at 15 + 5i, which updates
# until 16 + 5i, and to layer 3 at 18 + 5i, where it waits for its turn at 4 + 5(i + 4).
AMP = """
F0:0 F1:2 F2:4 F3:6 B0:10 U0:12 F4:13 B1:15 U1:17 F5:18 B2:20 U2:22 B3:25 U3:27 B4:30 U4:32 \
B5:35 U5:37
F0:2 F1:4 F2:6 B0:8 U0:10 F3:11 B1:13 U1:15 F4:16 B2:18 U2:20 F5:21 B3:23 U3:25 B4:28 U4:30 \
B5:33 U5:35
F0:4 B0:6 U0:8 F1:9 B1:11 U1:13 F2:14 B2:16 U2:18 F3:19 B3:21 U3:23 F4:24 B4:26 U4:28 F5:29 \
B5:31 U5:33
"""

# Updates of the layer between an instance's F and B, counted in (c). Layer 1 does F1..F3 before its
# first update, F4 after one, F5 after two; B of instance i comes after i updates. Layer 2 does F3
# after one update, F4 after two, F5 after three. At layer 3, B follows F at once.
STALENESS = {"stage-1": [0, 1, 2, 3, 3, 3], "stage-2": [0, 1, 2, 2, 2, 2], "stage-3": [0] * 6}


def boxes(table: str) -> list[list[tuple[str, int, int]]]:
    """(box, start, end) of each device."""
    rows = [
        [part.split(":") for part in line.split()] for line in table.strip().splitlines() if line
    ]
    return [[(box, int(at), int(at) + LENGTH[box[0]]) for box, at in row] for row in rows]


def simulated(result: Any) -> list[list[tuple[str, float, float]]]:
    spans = result.spans[result.spans["node"].str.startswith("stage")]
    rows: list[list[tuple[str, float, float]]] = [[], [], []]
    for span in spans.itertuples():
        instance = "" if span.instance < 0 else str(span.instance)
        box = span.direction[0].upper() + instance
        rows[span.worker].append((box, round(span.start_s, 9), round(span.end_s, 9)))
    return rows


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize(
    ("schedule", "instances", "table"),
    [
        (Sequential(), 2, SEQUENTIAL),
        (Pipeline(max_active_keys=4), 4, PIPELINE),
        (Amp(max_active_keys=4), 6, AMP),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_box_of_figure_1_is_where_it_belongs(
    chain, make_cluster, schedule, instances, table, *, mode
):
    model = chain(((FORWARD, BACKWARD, UPDATE),) * 3, instances=instances).model()
    result = simulate(model, make_cluster(3), schedule, mode=mode)
    assert simulated(result) == boxes(table)


def test_staleness_of_figure_1c_is_what_one_counts_in_it(chain, make_cluster):
    model = chain(((FORWARD, BACKWARD, UPDATE),) * 3, instances=6).model()
    spans = simulate(model, make_cluster(3), Amp(max_active_keys=4)).spans
    gradients = spans[spans["staleness"] >= 0].sort_values("instance")
    for node, expected in STALENESS.items():
        assert gradients[gradients["node"] == node]["staleness"].tolist() == expected, node


def test_second_group_of_a_pipeline_starts_after_the_update(chain, make_cluster):
    model = chain(((FORWARD, BACKWARD, UPDATE),) * 3, instances=6).model()
    result = simulate(model, make_cluster(3), Pipeline(max_active_keys=4))
    spans = result.spans[result.spans["node"] == "stage-1"]
    first = spans[spans["instance"] == 4]["start_s"].min()
    assert first == pytest.approx(25.0, rel=1e-12)
    # Two instances take (2 + 3 - 1) * 4 units, and an update one.
    assert result.makespan_s == pytest.approx(25.0 + 16.0 + 1.0, rel=1e-12)


# What the last step waited for, read off the tables above by hand. (a) Nothing waits: the second
# instance follows the updates, of which the one acknowledged last lets it in. (b) F3 waits for
# F0..F2 at layer 1 until 6, behind B0 at layer 2 until 10, behind B2 at layer 3 until 16. (c) F1
# waits for F0 and, at layer 3, for U0; as B1 ends, 17, instance 5 may come and waits for U1, at
# layer 2 for U2 until 21, and at layer 3 for B4 and U4 until 29. Read a part as in the tables, at
# layer 1, 2 or 3; Q is waiting for that layer, L the limit on those in flight.
PATHS = {
    "sequential": "F0@1:0 F0@2:2 F0@3:4 B0@3:6 B0@2:8 B0@1:10 U@:12 "
    "F1@1:13 F1@2:15 F1@3:17 B1@3:19 B1@2:21 B1@1:23 U@:25",
    "pipeline": "Q@1:0 F3@1:6 Q@2:8 F3@2:10 Q@3:12 F3@3:16 B3@3:18 B3@2:20 B3@1:22 U@:24",
    "amp": "Q@1:0 F1@1:2 F1@2:4 Q@3:6 F1@3:9 B1@3:11 B1@2:13 B1@1:15 L@:17 Q@1:17 F5@1:18 "
    "Q@2:20 F5@2:21 Q@3:23 F5@3:29 B5@3:31 B5@2:33 B5@1:35 U5@1:37",
}


@pytest.mark.parametrize(
    ("schedule", "instances"), [(Sequential(), 2), (Pipeline(4), 4), (Amp(4), 6)]
)
def test_the_critical_path_is_the_one_drawn_by_hand(chain, make_cluster, schedule, instances):
    model = chain(((FORWARD, BACKWARD, UPDATE),) * 3, instances=instances).model()
    path = simulate(model, make_cluster(3), schedule).critical_path
    found = []
    parts: Any = path[path["kind"] != "admission"].itertuples()
    for part in parts:
        is_shared = part.kind == "limit" or part.instance < 0  # of no layer, or of any
        letter = {"compute": str(part.direction)[:1].upper(), "limit": "L"}.get(part.kind, "Q")
        key = part.instance if part.kind == "compute" and part.instance >= 0 else ""
        layer = "" if is_shared else part.worker + 1
        found.append(f"{letter}{key}@{layer}:{part.start_s:.0f}")
    assert " ".join(found) == PATHS[schedule.name]
