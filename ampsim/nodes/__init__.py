"""The operations: what a node computes, forward and backward, and what that costs."""

from ampsim.ir import Cond, Isu, Phi
from ampsim.nodes.arithmetic import Difference, MatrixProduct, Product, Sum, Where
from ampsim.nodes.attention import Attention
from ampsim.nodes.columns import Columns, Concat, Split
from ampsim.nodes.composed import CellForm, cell_adder, compose
from ampsim.nodes.distribute import Collect, Distribute
from ampsim.nodes.elementwise import Affine, Dropout, ReLU, Sigmoid, Softmax, Tanh
from ampsim.nodes.embedding import Embedding
from ampsim.nodes.group import Group, Replicate, Ungroup
from ampsim.nodes.gru import GRUCell
from ampsim.nodes.images import Conv2d, MaxPool
from ampsim.nodes.layer_norm import LayerNorm, RMSNorm
from ampsim.nodes.linear import Linear
from ampsim.nodes.losses import SoftmaxCrossEntropy, SquaredError
from ampsim.nodes.lstm_cells import BranchLSTM, LeafLSTM, LSTMCell
from ampsim.nodes.pointwise import COMPARISONS, FUNCTIONS, Compare, Pointwise
from ampsim.nodes.views import Flatten, Max, Mean, Permute, Pick, Reshape

__all__ = [
    "COMPARISONS", "FUNCTIONS", "Affine", "Attention", "BranchLSTM", "CellForm", "Collect",
    "Columns", "Compare", "Concat", "Cond", "Conv2d", "Difference", "Distribute", "Dropout",
    "Embedding", "Flatten", "GRUCell", "Group", "Isu", "LSTMCell", "LayerNorm", "LeafLSTM",
    "Linear", "MatrixProduct", "Max", "MaxPool", "Mean", "Permute", "Phi", "Pick", "Pointwise",
    "Product", "RMSNorm", "ReLU", "Replicate", "Reshape", "Sigmoid", "Softmax",
    "SoftmaxCrossEntropy", "Split", "SquaredError", "Sum", "Tanh", "Ungroup", "Where", "cell_adder",
    "compose",
]  # fmt: skip
