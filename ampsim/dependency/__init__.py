"""The dependency engine: programs written in order, run as what they read and mutate allows."""

from ampsim.dependency.array import Array, Arrays, Expression, Named, summed
from ampsim.dependency.case_study import CaseStudy, fullc_backward, fullc_forward, loss_gradient
from ampsim.dependency.engine import DependencyEngine
from ampsim.dependency.operation import Variable
from ampsim.dependency.policies import POLICIES, Naive, PerDevice, Policy, Pooled
from ampsim.dependency.resources import Random, Workspace
from ampsim.dependency.result import EngineResult

__all__ = [
    "POLICIES", "Array", "Arrays", "CaseStudy", "DependencyEngine", "EngineResult", "Expression",
    "Naive", "Named", "PerDevice", "Policy", "Pooled", "Random", "Variable", "Workspace",
    "fullc_backward", "fullc_forward", "loss_gradient", "summed",
]  # fmt: skip
