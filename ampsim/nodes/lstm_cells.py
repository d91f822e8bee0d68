"""LSTM cells: the usual one, and the two halves of the binary Tree-LSTM.

On leaves of a Tree-LSTM hidden states are zero, and on branches the input is. So AMPNet (Appendix
B.3) splits the cell in two, "the two cells do not share weights except for the bias parameters,
which are learned independently". Like those of Tai et al. (2015), both are without peepholes. Their
options are those of TensorFlow Fold's cell (Looks et al., 2017): dropout of the candidate alone,
and forget gates whose bias starts 1 higher.
"""

from __future__ import annotations

from ampsim.arguments import checked
from ampsim.nodes.lstm import LSTMStep
from ampsim.options import Seed


class LSTMCell(LSTMStep):
    """One step of an LSTM; the same function as PyTorch's LSTMCell, whose two biases are one here.

    Inputs: ``input`` (rows, d_in) and ``state`` (rows, 2·hidden), which is [h | c]; one product of
    d_in + hidden by 4·hidden.

    With `has_two_biases` there are ``bias`` and ``bias_state``, which are added. Both have the same
    gradient, so that their sum moves twice as far in a step of gradient descent, as in PyTorch.
    """

    inputs = ("input", "state")

    @checked
    def __init__(
        self,
        name: str,
        d_in: int,
        hidden: int,
        *,
        forget_bias: float = 0.0,
        has_two_biases: bool = False,
    ) -> None:
        super().__init__(name, hidden, (d_in, hidden), (1,), has_two_biases=has_two_biases)
        self.forget_bias = forget_bias


class LeafLSTM(LSTMStep):
    """The Tree-LSTM cell on a leaf, whose children's states are zero: no forget gate.

    Input: x (rows, d_in); output [h | c] (rows, 2·hidden); one product of d_in by 3·hidden.
    """

    @checked
    def __init__(
        self, name: str, d_in: int, hidden: int, *, dropout: float = 0.0, seed: Seed = 0
    ) -> None:
        super().__init__(name, hidden, (d_in,), ())
        self.drop_candidates(dropout, seed)


class BranchLSTM(LSTMStep):
    """The Tree-LSTM cell on a branch, whose input is zero: a forget gate for each of two children.

    Inputs: ``left`` and ``right``, both [h | c] (rows, 2·hidden), as is the output; one product of
    2·hidden by 5·hidden.
    """

    inputs = ("left", "right")

    @checked
    def __init__(
        self,
        name: str,
        hidden: int,
        *,
        forget_bias: float = 1.0,
        dropout: float = 0.0,
        seed: Seed = 0,
    ) -> None:
        super().__init__(name, hidden, (hidden, hidden), (0, 1))
        self.forget_bias = forget_bias
        self.drop_candidates(dropout, seed)
