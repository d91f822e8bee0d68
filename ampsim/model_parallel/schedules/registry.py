"""Every schedule under its name; by being listed here it gets every shared test."""

from typing import Final

from ampsim.model_parallel.schedules.amp import Amp
from ampsim.model_parallel.schedules.amp_budget import AmpBudget
from ampsim.model_parallel.schedules.gpipe import GPipe
from ampsim.model_parallel.schedules.interleaved import InterleavedOneFOneB
from ampsim.model_parallel.schedules.one_forward_one_backward import OneFOneB
from ampsim.model_parallel.schedules.pipedream import PipeDream
from ampsim.model_parallel.schedules.pipedream_2bw import PipeDream2BW
from ampsim.model_parallel.schedules.pipeline import Pipeline
from ampsim.model_parallel.schedules.sequential import Sequential
from ampsim.model_parallel.schedules.zero_bubble import ZeroBubbleH1

SCHEDULES: Final = {
    kind.name: kind
    for kind in (
        Sequential,
        Pipeline,
        GPipe,
        OneFOneB,
        InterleavedOneFOneB,
        ZeroBubbleH1,
        PipeDream,
        PipeDream2BW,
        Amp,
        AmpBudget,
    )
}
