"""Figures of results and forecasts, for notebooks and scripts: `ampsim.figures.gantt(result)`.

Each gives a matplotlib Figure, which shows itself in a notebook after ``%matplotlib inline``, and
which `save` writes as PNG, SVG or PDF. `perfetto` writes a trace instead.
"""

from ampsim.report.figures import (
    convergence,
    gantt,
    of,
    perfetto,
    plane,
    queues,
    save,
    staleness,
    utilisation,
)

__all__ = [
    "convergence", "gantt", "of", "perfetto", "plane", "queues", "save", "staleness",
    "utilisation",
]  # fmt: skip
