"""The step of an LSTM, which all its cells share (`ampsim.nodes.lstm_cells`).

    [o i f₁…fₙ g] = x W + b,   c = σ(i) tanh(g) + Σⱼ σ(fⱼ) cⱼ,   h = σ(o) tanh(c)

x is what the inputs contribute, side by side: plain columns, or the h of a state. A state is a
payload [h | c] of (rows, 2·hidden). The columns of W and b are those of o, i, each f in the order
of the states, and g.

Source: Hochreiter and Schmidhuber (1997) with forget gates (Gers et al., 2000), one for each state
(Tai et al., 2015, equations 9 to 14). Options: dropout of the candidate tanh(g) alone (Semeniuta et
al., 2016), and a constant added to the initial bias of the forget gates (Jozefowicz et al., 2015).
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ampsim.constant import constant
from ampsim.errors import GraphError
from ampsim.ir import Direction, Payload, Sends, Shape, State, Work, standin
from ampsim.ir.shapes import known, require
from ampsim.nodes.elementwise import Masks, masked_work
from ampsim.nodes.linear import OPERATIONS_OF_SUM, MatrixNode, Pairs, Transposed


class LstmStep(NamedTuple):
    """A forward step, kept for the backward step."""

    payloads: list[Payload]
    version: int
    joined: np.ndarray
    gates: np.ndarray
    candidate: np.ndarray
    mask: np.ndarray | None
    bent: np.ndarray


class LSTMStep(MatrixNode):
    """The step above; the ports in `reads` bring a state, others plain columns.

    Raises:
        GraphError: a width is below 1, or a rate of dropout is not from 0 to below 1.
        OptionError: a seed is negative or no whole number.

    Attributes:
        hidden: width of h and of c.
        reads: the input ports that bring a state.
        forget_bias: added to the initial bias of the forget gates.
    """

    def __init__(
        self,
        name: str,
        hidden: int,
        widths: tuple[int, ...],
        reads: tuple[int, ...],
        *,
        has_two_biases: bool = False,
    ) -> None:
        if min(hidden, *widths) < 1:
            raise GraphError(
                f"{name}: widths must be >= 1, got hidden={hidden}, inputs of {widths}"
            )
        columns = (3 + len(reads)) * hidden
        shapes: dict[str, tuple[int, ...]] = {"weight": (sum(widths), columns), "bias": (columns,)}
        if has_two_biases:
            shapes["bias_state"] = (columns,)
        super().__init__(name, shapes, widths, columns)
        self.hidden = hidden
        self.reads = reads
        self._pairs = Pairs()
        self.forget_bias = 0.0
        self.dropout: tuple[float, int] | None = None
        self._masks: Masks | None = None
        self._cut(widths, reads)
        states = len(reads)
        joins = len(widths) if len(widths) > 1 else 0
        of_sum = OPERATIONS_OF_SUM + 2 * has_two_biases
        self.operations = (9 + joins + 2 * states, 15 + 2 * states, of_sum)

    def _cut(self, widths: tuple[int, ...], reads: tuple[int, ...]) -> None:
        """Cut gates, states and inputs; slices made once are cheaper than made each time."""
        hidden, columns = self.hidden, self.d_out
        self._o, self._i, *forgets, self._g = [
            np.s_[:, start : start + hidden] for start in range(0, columns, hidden)
        ]
        self._sigmoids = np.s_[:, : columns - hidden]
        self._h, self._c = np.s_[:, :hidden], np.s_[:, hidden:]
        self._forget_of = dict(zip(reads, forgets, strict=True))
        self._taken = sum(  # columns of all payloads
            2 * hidden if port in reads else width for port, width in enumerate(widths)
        )
        edges = accumulate(widths, initial=0)
        self._ports = [
            (port, np.s_[:, start:stop], np.s_[:, :width])
            for port, ((start, stop), width) in enumerate(zip(pairwise(edges), widths, strict=True))
        ]

    def drop_candidates(self, rate: float, seed: int) -> None:
        """Drop elements of tanh(g) with probability `rate` in training."""
        masks = Masks(self.name, rate, seed)
        self._masks = masks if rate else None
        self.dropout = (rate, seed) if rate else None

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw uniformly from ±1/√hidden, as PyTorch's cells do; shift the forget gates' bias."""
        bound = 1.0 / math.sqrt(self.hidden)
        theta = generator.uniform(-bound, bound, self.parameter_count)
        self.views(theta)["bias"][2 * self.hidden : -self.hidden] += self.forget_bias
        return theta

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        self.weight, *biases = self.parts(theta)
        self.bias = biases[0] if len(biases) == 1 else biases[0] + biases[1]
        self._transposed = Transposed(self.weight)
        self._half, self._one = constant(0.5, theta.dtype), constant(1.0, theta.dtype)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send [h | c] once all inputs are there; record what backward needs under the state."""
        payloads = self._arrived.put(port, state, payload)
        if payloads is None:
            return ()
        if self.is_abstract:
            if self.is_training:
                self._saved[state] = (payloads, self.version)
            return ((0, state, standin((payload.shape[0], 2 * self.hidden), payload.itemsize)),)
        mask = None
        if self._masks is not None and self.is_training:
            mask = self.mask(state, len(payloads[0]))
        joined = self.joined(payloads)
        output, kept = self.step(payloads, joined, joined @ self.weight, mask)
        if self.is_training:
            self._saved[state] = kept
        return ((0, state, output),)

    def mask(self, state: State, rows: int) -> np.ndarray | None:
        """The dropout of a state's candidates in training; None where nothing is dropped."""
        if self._masks is None:
            return None
        return self._masks.of(state, (rows, self.hidden), self.theta.dtype)

    def step(
        self,
        payloads: list[np.ndarray],
        joined: np.ndarray,
        gates: np.ndarray,
        mask: np.ndarray | None,
    ) -> tuple[np.ndarray, LstmStep]:
        """Compute [h | c], and what is kept for backward, from x W; that is written over."""
        gates += self.bias
        sigmoids = gates[self._sigmoids]
        sigmoids *= self._half
        np.tanh(gates, out=gates)  # σ(z) = (1 + tanh(z / 2)) / 2
        sigmoids *= self._half
        sigmoids += self._half
        candidate = gates[self._g] if mask is None else gates[self._g] * mask
        output = np.empty((len(gates), 2 * self.hidden), gates.dtype)
        cell = output[self._c]
        np.multiply(gates[self._i], candidate, out=cell)
        for reader, forget in self._forget_of.items():
            cell += gates[forget] * payloads[reader][self._c]
        bent = np.tanh(cell)
        np.multiply(gates[self._o], bent, out=output[self._h])
        return output, LstmStep(payloads, self.version, joined, gates, candidate, mask, bent)

    def factors(self, kept: LstmStep) -> np.ndarray:
        """Factors of a backward step of these rows: [∂gates | ∂c of h | forget gates | x].

        Once it is formed, a backward step of any of the rows takes a few operations.
        """
        gates, hidden, end = kept.gates, self.hidden, self.d_out
        columns = end + (1 + len(self.reads)) * hidden
        whole = np.empty((len(gates), columns + self.d_in), gates.dtype)
        slopes, through = whole[:, :end], whole[:, end : end + hidden]
        np.multiply(gates, gates, out=slopes)
        sigmoids, candidate = slopes[self._sigmoids], slopes[self._g]
        np.subtract(gates[self._sigmoids], sigmoids, out=sigmoids)
        np.subtract(self._one, candidate, out=candidate)
        candidate *= gates[self._i]
        if kept.mask is not None:
            candidate *= kept.mask
        slopes[self._o] *= kept.bent
        slopes[self._i] *= kept.candidate
        for reader, forget in self._forget_of.items():
            slopes[forget] *= kept.payloads[reader][self._c]
        np.multiply(kept.bent, kept.bent, out=through)
        np.subtract(self._one, through, out=through)
        through *= gates[self._o]
        whole[:, end + hidden : columns] = gates[:, 2 * hidden : end - hidden]
        whole[:, columns:] = kept.joined
        return whole

    def back_by_factors(
        self, state: State, factors: np.ndarray, gradient: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Accumulate, for the first of many states; return the gradients of gates and of c."""
        hidden, end = self.hidden, self.d_out
        through = factors[:, end : end + hidden] * gradient[self._h]
        through += gradient[self._c]
        slopes = np.empty((len(factors), end), factors.dtype)
        np.multiply(factors[:, :hidden], gradient[self._h], out=slopes[:, :hidden])
        shape = (len(factors), end // hidden, hidden)
        by_gate = factors[:, :end].reshape(shape)
        np.multiply(by_gate[:, 1:], through[:, None], out=slopes.reshape(shape)[:, 1:])
        self._pairs.add(state, factors[:, -self.d_in :].copy(), slopes)
        return slopes, through

    def backs_by_factors(
        self, factors: np.ndarray, slopes: np.ndarray, through: np.ndarray
    ) -> list[np.ndarray]:
        """The gradients of all inputs."""
        every = self._transposed.after_few(slopes)
        hidden, forget = self.hidden, self.d_out + self.hidden
        backs: list[np.ndarray] = []
        for port, columns, _part in self._ports:
            back = every[columns]
            if port in self._forget_of:
                whole = np.empty((len(back), 2 * hidden), back.dtype)
                whole[self._h] = back
                np.multiply(through, factors[:, forget : forget + hidden], out=whole[self._c])
                forget += hidden
                back = whole
            backs.append(back)
        return backs

    def joined(self, payloads: list[Payload]) -> np.ndarray:
        """Put what the product multiplies side by side: inputs, and h of states."""
        if len(payloads) == 1:
            return payloads[0]
        first = payloads[0]
        joined = np.empty((len(first), self.d_in), first.dtype)
        for (_port, columns, part), payload in zip(self._ports, payloads, strict=True):
            joined[columns] = payload[part]
        return joined

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate, and send each input its gradient, with the weights of the moment."""
        kept = self._saved.pop(state)
        payloads, version = kept[:2]
        needed = self.input_needs_gradient
        if gradient is None:
            return [(place, state, None) for place in range(len(needed))]
        self.count_gradient(state, version)
        if self.is_abstract:
            return [
                (place, state, payload if needed[place] else None)
                for place, payload in enumerate(payloads)
            ]
        through = self._to_cell(kept, gradient)
        slopes = self._to_gates(kept, gradient, through)
        self._pairs.add(state, kept.joined, slopes)
        return self._sent_back(state, kept.gates, slopes, through)

    def _to_cell(self, kept: LstmStep, gradient: np.ndarray) -> np.ndarray:
        """The gradient of c: its own, and that of h through tanh."""
        through = kept.bent * kept.bent
        np.subtract(self._one, through, out=through)
        through *= kept.gates[self._o]
        through *= gradient[self._h]
        through += gradient[self._c]
        return through

    def _to_gates(self, kept: LstmStep, gradient: np.ndarray, through: np.ndarray) -> np.ndarray:
        """The gradient of x W + b; the derivative of σ is σ − σ², that of tanh 1 − tanh²."""
        gates = kept.gates
        slopes = gates * gates
        sigmoids, candidate = slopes[self._sigmoids], slopes[self._g]
        np.subtract(gates[self._sigmoids], sigmoids, out=sigmoids)
        np.subtract(self._one, candidate, out=candidate)
        candidate *= gates[self._i]
        candidate *= through
        if kept.mask is not None:
            candidate *= kept.mask
        output = slopes[self._o]
        output *= kept.bent
        output *= gradient[self._h]
        entry = slopes[self._i]
        entry *= kept.candidate
        entry *= through
        for reader, cut in self._forget_of.items():
            forget = slopes[cut]
            forget *= kept.payloads[reader][self._c]
            forget *= through
        return slopes

    def _sent_back(
        self, state: State, gates: np.ndarray, slopes: np.ndarray, through: np.ndarray
    ) -> Sends:
        needed = self.input_needs_gradient
        every = self._transposed.after(slopes) if all(needed) else None
        sends: list[tuple[int, State, Payload]] = []
        for port, columns, _part in self._ports:
            back = None
            if needed[port]:
                back = slopes @ self.weight.T[columns] if every is None else every[columns]
                forget = self._forget_of.get(port)
                if forget is not None:
                    whole = np.empty((len(back), 2 * self.hidden), back.dtype)
                    whole[self._h] = back
                    np.multiply(through, gates[forget], out=whole[self._c])
                    back = whole
            sends.append((port, state, back))
        return sends

    def passed_elements(self, direction: Direction) -> tuple[int, int]:
        """Elements that all but the product reads and writes, operation by operation, for a row."""
        hidden, states, columns = self.hidden, len(self.reads), self.d_out
        if direction is Direction.BACKWARD:
            return (30 + 4 * states) * hidden + 7 * columns + 2 * self.d_in, 0
        joined = 2 * self.d_in if len(self.widths) > 1 else 0
        return joined + 10 * columns + (2 + 6 * states) * hidden, columns + hidden

    def sent_back(self) -> tuple[int, int]:
        """A product for all inputs or for each; of a state h is copied beside c's gradient."""
        needed = self.input_needs_gradient
        states = sum(needed[port] for port in self.reads)
        return (1 if all(needed) else sum(needed)) + 2 * states, 5 * self.hidden * states

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count the step's products, and in training the dropout of candidates."""
        work = super().work(direction, shape)
        if self._masks is None or shape is None or not self.is_training:
            return work
        return work + masked_work(shape[0] * self.hidden, self.theta.itemsize, direction)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count all inputs, side by side too if there are several, the gates, and tanh of c.

        With dropout also the mask, and the candidate that it was put on.
        """
        kept = self.d_out + self.hidden
        if len(self.widths) > 1:
            kept += self.d_in
        if self._masks is not None:
            kept += 2 * self.hidden
        return taken_bytes + taken_bytes // self._taken * kept

    def take_gradient(self) -> np.ndarray:
        """Form (Xᵀ G, column sums of G) over all accumulated messages, flat."""
        flat = np.empty_like(self.theta)
        weight, bias, *more = self.parts(flat)
        self._pairs.take(weight, bias)
        for other in more:
            other[:] = bias
        return flat

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, width) of inputs and (rows, 2·hidden) of states; return the latter."""
        parts = known(shapes)
        extents = [
            2 * self.hidden if port in self._forget_of else width
            for port, width in enumerate(self.widths)
        ]
        rows = parts[0][:1]
        fits = all(p == (*rows, extent) for p, extent in zip(parts, extents, strict=True))
        wanted = " and ".join(f"(rows, {extent})" for extent in extents)
        require(fits, self, wanted, *parts)
        return ((*rows, 2 * self.hidden),)
