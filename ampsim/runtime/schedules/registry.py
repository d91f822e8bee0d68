"""Every schedule under its name; by being listed here it gets every shared test."""

from typing import Final

from ampsim.runtime.schedules.amp import Amp
from ampsim.runtime.schedules.amp_budget import AmpBudget
from ampsim.runtime.schedules.gpipe import GPipe
from ampsim.runtime.schedules.interleaved import InterleavedOneFOneB
from ampsim.runtime.schedules.one_forward_one_backward import OneFOneB
from ampsim.runtime.schedules.pipedream import PipeDream
from ampsim.runtime.schedules.pipedream_2bw import PipeDream2BW
from ampsim.runtime.schedules.pipeline import Pipeline
from ampsim.runtime.schedules.sequential import Sequential
from ampsim.runtime.schedules.zero_bubble import ZeroBubbleH1

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
