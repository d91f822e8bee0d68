"""The dependency engine: programs written in order, run as what they read and mutate allows."""

from ampsim.dependency.engine import DependencyEngine
from ampsim.dependency.operation import Variable
from ampsim.dependency.policies import POLICIES, Naive, PerDevice, Policy, Pooled
from ampsim.dependency.records import EngineResult

__all__ = [
    "POLICIES", "DependencyEngine", "EngineResult", "Naive", "PerDevice", "Policy", "Pooled",
    "Variable",
]  # fmt: skip
