"""The list of schedules: one that is here has its name, options and public name everywhere.

It gets every shared test, too.
"""

from typing import Any, Final

from ampsim.model_parallel.schedules.amp import Amp, AmpBudget
from ampsim.model_parallel.schedules.gpipe import GPipe
from ampsim.model_parallel.schedules.interleaved import InterleavedOneFOneB
from ampsim.model_parallel.schedules.one_forward_one_backward import OneFOneB
from ampsim.model_parallel.schedules.pipedream import PipeDream
from ampsim.model_parallel.schedules.pipedream_2bw import PipeDream2BW
from ampsim.model_parallel.schedules.pipeline import Pipeline, Sequential
from ampsim.model_parallel.schedules.zero_bubble import ZeroBubbleH1

__all__ = [  # noqa: RUF022  # in the order of tables and figures
    "Sequential",
    "Pipeline",
    "GPipe",
    "OneFOneB",
    "InterleavedOneFOneB",
    "ZeroBubbleH1",
    "PipeDream",
    "PipeDream2BW",
    "Amp",
    "AmpBudget",
]

SCHEDULES: Final[dict[str, Any]] = {globals()[kind].name: globals()[kind] for kind in __all__}
