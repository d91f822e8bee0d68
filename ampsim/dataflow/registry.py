"""The list of schedules of programs: one that is here has its name and options everywhere.

It gets every shared test, too.
"""

from typing import Any, Final

from ampsim.dataflow.schedules import Dataflow, OutOfGraph, Unrolled

__all__ = [  # noqa: RUF022  # in the order of tables and figures
    "Dataflow",
    "Unrolled",
    "OutOfGraph",
]

PROGRAMS: Final[dict[str, Any]] = {globals()[kind].name: globals()[kind] for kind in __all__}
