"""The operations: what a node computes, forward and backward, and what that costs."""

from ampsim.ir import Cond, Isu, Phi
from ampsim.nodes.arithmetic import Difference, Product, Sum
from ampsim.nodes.columns import Columns
from ampsim.nodes.composed import CellForm, cell_adder, compose
from ampsim.nodes.concat import Concat
from ampsim.nodes.conv2d import Conv2d
from ampsim.nodes.distribute import Collect, Distribute
from ampsim.nodes.dropout import Dropout
from ampsim.nodes.elementwise import ReLU, Sigmoid, Tanh
from ampsim.nodes.embedding import Embedding
from ampsim.nodes.flatten import Flatten
from ampsim.nodes.group import Group
from ampsim.nodes.gru import GRUCell
from ampsim.nodes.linear import Linear
from ampsim.nodes.lstm import BranchLSTM, LeafLSTM, LSTMCell
from ampsim.nodes.max_pool import MaxPool
from ampsim.nodes.replicate import Replicate
from ampsim.nodes.softmax_cross_entropy import SoftmaxCrossEntropy
from ampsim.nodes.split import Split
from ampsim.nodes.squared_error import SquaredError
from ampsim.nodes.ungroup import Ungroup

__all__ = [
    "BranchLSTM",
    "CellForm",
    "Collect",
    "Columns",
    "Concat",
    "Cond",
    "Conv2d",
    "Difference",
    "Distribute",
    "Dropout",
    "Embedding",
    "Flatten",
    "GRUCell",
    "Group",
    "Isu",
    "LSTMCell",
    "LeafLSTM",
    "Linear",
    "MaxPool",
    "Phi",
    "Product",
    "ReLU",
    "Replicate",
    "Sigmoid",
    "SoftmaxCrossEntropy",
    "Split",
    "SquaredError",
    "Sum",
    "Tanh",
    "Ungroup",
    "cell_adder",
    "compose",
]
