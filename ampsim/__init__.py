"""Simulate how a network trains, and what it learns, on hardware that need not exist."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ampsim.errors import AmpsimError
    from ampsim.hardware import Cluster, Device, Link, load_cluster
    from ampsim.report import figures
    from ampsim.runtime import (
        Amp,
        AmpBudget,
        GPipe,
        InterleavedOneFOneB,
        OneFOneB,
        PipeDream,
        PipeDream2BW,
        Pipeline,
        Sequential,
        ZeroBubbleH1,
    )
    from ampsim.study import Forecast, Model, Result, forecast, load_model, simulate, try_out

try:
    __version__ = version("ampsim")
except PackageNotFoundError:
    __version__ = "0.0.0+unknown"

_HOMES: Final = {
    "AmpsimError": "errors",
    "Amp": "runtime",
    "AmpBudget": "runtime",
    "Cluster": "hardware",
    "Device": "hardware",
    "Forecast": "study",
    "GPipe": "runtime",
    "InterleavedOneFOneB": "runtime",
    "Link": "hardware",
    "Model": "study",
    "OneFOneB": "runtime",
    "PipeDream": "runtime",
    "PipeDream2BW": "runtime",
    "Pipeline": "runtime",
    "Result": "study",
    "Sequential": "runtime",
    "ZeroBubbleH1": "runtime",
    "figures": "report.figures",
    "forecast": "study",
    "load_cluster": "hardware",
    "load_model": "study",
    "simulate": "study",
    "try_out": "study",
}

__all__ = [
    "Amp",
    "AmpBudget",
    "AmpsimError",
    "Cluster",
    "Device",
    "Forecast",
    "GPipe",
    "InterleavedOneFOneB",
    "Link",
    "Model",
    "OneFOneB",
    "PipeDream",
    "PipeDream2BW",
    "Pipeline",
    "Result",
    "Sequential",
    "ZeroBubbleH1",
    "figures",
    "forecast",
    "load_cluster",
    "load_model",
    "simulate",
    "try_out",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that the command line starts at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ampsim' has no attribute {name!r}")
    home = import_module(f"ampsim.{_HOMES[name]}")
    return home if home.__name__.endswith(f".{name}") else getattr(home, name)
