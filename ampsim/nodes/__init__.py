"""The operations: what a node computes, forward and backward, and what that costs."""

from ampsim.ir import Cond, Isu, Phi
from ampsim.nodes.concat import Concat
from ampsim.nodes.embedding import Embedding
from ampsim.nodes.linear import Linear
from ampsim.nodes.relu import ReLU
from ampsim.nodes.softmax_cross_entropy import SoftmaxCrossEntropy
from ampsim.nodes.ungroup import Ungroup

__all__ = [
    "Concat",
    "Cond",
    "Embedding",
    "Isu",
    "Linear",
    "Phi",
    "ReLU",
    "SoftmaxCrossEntropy",
    "Ungroup",
]
