"""Families of nodes as the paper's Figure 2 colours them, and the family of each kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Look of a family: colour, and an outline that tells it apart without colour.

    Attributes:
        label: entry in the legend.
        fill: colour of the box.
        outline: "box", "round", "hexagon", "double" or "dashed".
        dot_shape: the nearest shape of Graphviz.
        line_pt: width of the outline in points.
    """

    label: str
    fill: str
    outline: str
    dot_shape: str
    line_pt: float


CONTROLLER = Family("controller", "#DDDDDD", "dashed", "octagon", 1.0)
PARAMETERIZED = Family("parameterized", "#F3B95F", "box", "box", 2.2)
PAYLOAD = Family("payload transform", "#CFE6F5", "box", "box", 0.8)
CONTROL_FLOW = Family("control flow", "#A9DCC6", "round", "ellipse", 0.8)
AGGREGATION = Family("aggregation", "#E6D3EC", "hexagon", "hexagon", 0.8)
LOSS = Family("loss", "#F4B5A2", "double", "doubleoctagon", 0.8)
FAMILIES = (CONTROLLER, PARAMETERIZED, PAYLOAD, CONTROL_FLOW, AGGREGATION, LOSS)

_KINDS: dict[str, Family] = {
    "controller": CONTROLLER,
    "linear": PARAMETERIZED, "embedding": PARAMETERIZED, "parameterized": PARAMETERIZED,
    "cond": CONTROL_FLOW, "phi": CONTROL_FLOW, "isu": CONTROL_FLOW, "controlflow": CONTROL_FLOW,
    "concat": AGGREGATION, "split": AGGREGATION, "bcast": AGGREGATION, "ungroup": AGGREGATION,
    "group": AGGREGATION, "replicate": AGGREGATION, "distribute": AGGREGATION,
    "collect": AGGREGATION,
}  # fmt: skip


def family_of(kind: str, *, is_heavy: bool) -> Family:
    """Family of a node: by its kind, else heavy ones are parameterized, others transform payloads.

    >>> family_of("Phi", is_heavy=False).label, family_of("MyCell", is_heavy=True).label
    ('control flow', 'parameterized')
    """
    name = kind.lower().replace("_", "").replace("-", "").replace(" ", "")
    if name in _KINDS:
        return _KINDS[name]
    if is_heavy:
        return PARAMETERIZED
    return LOSS if "loss" in name or "entropy" in name else PAYLOAD
