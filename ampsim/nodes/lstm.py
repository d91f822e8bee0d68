"""LSTM cells: the usual one, and the two halves of the binary Tree-LSTM (Appendix B.3).

On leaves of a Tree-LSTM (Tai et al., 2015) hidden states are zero, and on branches the input is. So
AMPNet splits the cell in two, "the two cells do not share weights except for the bias parameters,
which are learned independently". Like Tai et al.'s, both are without peepholes. Their options are
those of TensorFlow Fold's cell (Looks et al., 2017): dropout of the candidate alone (Semeniuta et
al., 2016), and forget gates whose bias starts 1 higher.
"""

from __future__ import annotations

from ampsim.arguments import checked
from ampsim.nodes.lstm_step import LSTMStep
from ampsim.options import Seed


class LSTMCell(LSTMStep):
    """One step of an LSTM; the same function as PyTorch's LSTMCell, whose two biases are one here.

    Inputs: ``input`` (rows, d_in) and ``state`` (rows, 2·hidden), which is [h | c]; one product of
    d_in + hidden by 4·hidden.
    """

    inputs = ("input", "state")

    @checked
    def __init__(self, name: str, d_in: int, hidden: int, *, forget_bias: float = 0.0) -> None:
        """Read `d_in` columns into a state of `hidden`.

        Raises:
            GraphError: a width is below 1.
        """
        super().__init__(name, hidden, (d_in, hidden), (1,))
        self.forget_bias = forget_bias


class LeafLSTM(LSTMStep):
    """The Tree-LSTM cell on a leaf, whose children's states are zero: no forget gate.

    Input: x (rows, d_in); output [h | c] (rows, 2·hidden); one product of d_in by 3·hidden.
    """

    @checked
    def __init__(
        self, name: str, d_in: int, hidden: int, *, dropout: float = 0.0, seed: Seed = 0
    ) -> None:
        """Read `d_in` columns into a state of `hidden`; drop candidates at the rate `dropout`.

        Raises:
            GraphError: a width is below 1, or the rate is not from 0 to below 1.
            OptionError: the seed is negative or no whole number.
        """
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
        """Join two states of `hidden`; drop candidates at the rate `dropout`.

        Raises:
            GraphError: a width is below 1, or the rate is not from 0 to below 1.
            OptionError: the seed is negative or no whole number.
        """
        super().__init__(name, hidden, (hidden, hidden), (0, 1))
        self.forget_bias = forget_bias
        self.drop_candidates(dropout, seed)
