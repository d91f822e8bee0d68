"""GRUCell: the gated recurrent unit (Cho et al., 2014), in the form that PyTorch and cuDNN use."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.constant import constant
from ampsim.errors import GraphError
from ampsim.ir import Direction, Payload, Sends, Shape, State, standin
from ampsim.ir.shapes import known, require
from ampsim.nodes.linear import OPERATIONS_OF_SUM, MatrixNode, Pairs, Transposed


class GruStep(NamedTuple):
    """A forward step, kept for backward; gates lie one after the other, (3, rows, hidden)."""

    payloads: list[Payload]
    version: int
    gates: np.ndarray
    recurrent: np.ndarray


class GRUCell(MatrixNode):
    """One step of a GRU; the same function and parameters as PyTorch's GRUCell.

        [r z n] = x W + b, with h U + d added to r and z; r, z = σ(·); n = tanh(n + r (h U + d)ₙ);
        h' = (1 − z) n + z h

    Inputs: ``input`` x (rows, d_in) and ``state`` h (rows, hidden); output h'. W has d_in rows and
    U hidden rows, both 3·hidden columns: those of r, z and n.

    Source: Cho et al. (2014); as in PyTorch, r multiplies after the product, not before it.

    Raises:
        GraphError: a width is below 1.
    """

    inputs = ("input", "state")

    @checked
    def __init__(self, name: str, d_in: int, hidden: int) -> None:
        if d_in < 1 or hidden < 1:
            raise GraphError(f"{name}: widths must be >= 1, got d_in={d_in}, hidden={hidden}")
        columns = 3 * hidden
        shapes: dict[str, tuple[int, ...]] = {
            "weight_input": (d_in, columns),
            "bias_input": (columns,),
            "weight_state": (hidden, columns),
            "bias_state": (columns,),
        }
        super().__init__(name, shapes, (d_in, hidden), columns)
        self.hidden = hidden
        self._input_pairs, self._state_pairs = Pairs(), Pairs()
        self.operations = (15, 15, 2 * OPERATIONS_OF_SUM)

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw uniformly from ±1/√hidden, as PyTorch's GRUCell does."""
        bound = 1.0 / math.sqrt(self.hidden)
        return generator.uniform(-bound, bound, self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weights and biases to the new parameters."""
        super().adopt(theta)
        parts = self.parts(theta)
        self.weight_input, self.bias_input, self.weight_state, self.bias_state = parts
        self._transposed = Transposed(self.weight_input), Transposed(self.weight_state)
        w, b, u, d = self._gate_by_gate(parts)
        self._by_gate, self._biases = (w, u), (b[:, None], d[:, None])
        self._half, self._one = constant(0.5, theta.dtype), constant(1.0, theta.dtype)

    def _gate_by_gate(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """View weights (d_in, 3·hidden) as (3, d_in, hidden), and biases as (3, hidden).

        Gates that lie one after the other are contiguous, which the functions of their elements
        use: a forward step of 18 rows and 100 units takes 25 µs instead of 36.
        """
        w, b, u, d = parts
        hidden = self.hidden
        return [
            w.reshape(-1, 3, hidden).swapaxes(0, 1),
            b.reshape(3, hidden),
            u.reshape(-1, 3, hidden).swapaxes(0, 1),
            d.reshape(3, hidden),
        ]

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send h' once input and state are there; record what backward needs under the state."""
        payloads = self._arrived.put(port, state, payload)
        if payloads is None:
            return ()
        if self.is_abstract:
            if self.is_training:
                self._saved[state] = (payloads, self.version)
            h = payloads[1]
            return ((0, state, standin(h.shape, h.itemsize)),)
        output, kept = self.step(payloads)
        if self.is_training:
            self._saved[state] = kept
        return ((0, state, output),)

    def step(self, payloads: list[np.ndarray]) -> tuple[np.ndarray, GruStep]:
        """Compute h', and what is kept for backward, from payloads of equal rows."""
        x, h = payloads
        gates, recurrent = np.matmul(x, self._by_gate[0]), np.matmul(h, self._by_gate[1])
        gates += self._biases[0]
        recurrent += self._biases[1]
        sigmoids, r, z, n = gates[:2], *gates
        sigmoids += recurrent[:2]
        sigmoids *= self._half  # σ(z) = (1 + tanh(z / 2)) / 2
        np.tanh(sigmoids, out=sigmoids)
        sigmoids *= self._half
        sigmoids += self._half
        n += r * recurrent[2]
        np.tanh(n, out=n)
        output = h - n
        output *= z
        output += n
        return output, GruStep(payloads, self.version, gates, recurrent)

    def factors(self, kept: GruStep) -> np.ndarray:
        """Factors of the gradient in a backward step of these rows, (7, rows, hidden).

        That gives the gradients of x W + b, those of h U + d, and what goes to h past the gates.
        """
        gates, h = kept.gates, kept.payloads[1]
        whole = np.empty((7, *gates.shape[1:]), gates.dtype)
        r, z, n = whole[:3]
        np.multiply(gates, gates, out=whole[:3])
        np.subtract(gates[:2], whole[:2], out=whole[:2])
        np.subtract(self._one, n, out=n)
        n *= self._one - gates[1]
        z *= h - gates[2]
        r *= kept.recurrent[2]
        r *= n
        whole[3:5] = whole[:2]
        np.multiply(n, gates[0], out=whole[5])
        whole[6] = gates[1]
        return whole

    def back_by_factors(
        self, state: State, payloads: list[np.ndarray], factors: np.ndarray, gradient: np.ndarray
    ) -> np.ndarray:
        """Accumulate, for the first of many states; return the products with the factors."""
        slopes = factors * gradient
        self._input_pairs.add(state, payloads[0], slopes[:3])
        self._state_pairs.add(state, payloads[1], slopes[3:6])
        return slopes

    def backs_by_factors(self, slopes: np.ndarray) -> list[np.ndarray]:
        """The gradients of x and h."""
        to_state = _summed(slopes[3:6], self._by_gate[1])
        to_state += slopes[6]
        return [_summed(slopes[:3], self._by_gate[0]), to_state]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate, and send each input its gradient, with the weights of the moment."""
        kept = self._saved.pop(state)
        payloads, version = kept[:2]
        needed = self.input_needs_gradient
        if gradient is None:
            return ((0, state, None), (1, state, None))
        self.count_gradient(state, version)
        if self.is_abstract:
            return [(i, state, part if needed[i] else None) for i, part in enumerate(payloads)]
        r, z, _n = kept.gates
        slopes = self._to_gates(kept, gradient)
        recurrent_slopes = slopes.copy()
        recurrent_slopes[2] *= r
        self._input_pairs.add(state, payloads[0], slopes)
        self._state_pairs.add(state, payloads[1], recurrent_slopes)
        to_input = _back(slopes, self._transposed[0]) if needed[0] else None
        to_state = None
        if needed[1]:
            to_state = _back(recurrent_slopes, self._transposed[1])
            to_state += gradient * z
        return ((0, state, to_input), (1, state, to_state))

    def _to_gates(self, kept: GruStep, gradient: np.ndarray) -> np.ndarray:
        """The gradient of x W + b; the derivative of σ is σ − σ², that of tanh 1 − tanh²."""
        gates = kept.gates
        slopes = gates * gates
        r, z, n = slopes
        np.subtract(gates[:2], slopes[:2], out=slopes[:2])
        np.subtract(self._one, n, out=n)
        n *= gradient
        n *= self._one - gates[1]
        z *= kept.payloads[1] - gates[2]
        z *= gradient
        r *= kept.recurrent[2]
        r *= n
        return slopes

    def passed_elements(self, direction: Direction) -> tuple[int, int]:
        """Elements that all but the product reads and writes, operation by operation, for a row."""
        if direction is Direction.BACKWARD:
            return 58 * self.hidden + 2 * self.d_in, 0
        return 51 * self.hidden, 3 * self.hidden

    def sent_back(self) -> tuple[int, int]:
        """Sum the products with three gates; the state's gradient also comes past the gates."""
        to_input, to_state = self.input_needs_gradient
        elements = 6 * self.widths[0] * to_input + 12 * self.hidden * to_state
        return 3 * to_input + 5 * to_state, elements

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count both inputs, three gates, and what the state gives each of them."""
        column_bytes = taken_bytes // sum(self.widths)
        return taken_bytes + 6 * self.hidden * column_bytes

    def take_gradient(self) -> np.ndarray:
        """Form Xᵀ G and column sums of G for both products over all messages, flat."""
        flat = np.empty_like(self.theta)
        w, b, u, d = self._gate_by_gate(self.parts(flat))
        self._input_pairs.take(w, b)
        self._state_pairs.take(u, d)
        return flat

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, d_in) and (rows, hidden); return the latter."""
        x, h = known(shapes)
        fits = x == (*x[:1], self.widths[0]) and h == (*x[:1], self.hidden)
        require(fits, self, f"(rows, {self.widths[0]}) and (rows, {self.hidden})", x, h)
        return (h,)


def _back(slopes: np.ndarray, transposed: Transposed) -> np.ndarray:
    """The gradient of x, of (3, rows, hidden): Σ g Wᵀ over the gates."""
    _three, rows, hidden = slopes.shape
    matrix = transposed.matrix(rows)
    return _summed(slopes, matrix.reshape(3, hidden, -1).swapaxes(1, 2))


def _summed(slopes: np.ndarray, by_gate: np.ndarray) -> np.ndarray:
    """Σ g Wᵀ over the gates, for W of (3, d_in, hidden)."""
    r, z, n = np.matmul(slopes, by_gate.swapaxes(1, 2))
    r += z
    r += n
    return r
