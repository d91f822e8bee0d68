"""Molecules: messages over four types of bond, a GRU at the atoms, a gated sum; Adam, 1e-4."""

from __future__ import annotations

import numpy as np

from ampsim.constant import constant
from plain_loops.parts import Adam, Layer, sigmoid

RATE = 1e-4
STEPS = 4
NAMES = (
    *("bond-1", "bond-2", "bond-3", "bond-4", "gru-input", "gru-state"),
    *("readout-gate", "readout-value"),
)


def sums(indices: np.ndarray, size: int, dtype) -> np.ndarray:
    """The matrix whose product with rows sums those of equal index."""
    matrix = np.zeros((size, len(indices)), dtype)
    matrix[indices, np.arange(len(indices))] = 1
    return matrix


class Network:
    """Layers of the network, and a step of each instance."""

    def __init__(self, parameters):
        made = [Layer(parameters, name, Adam, RATE) for name in NAMES]
        self.bonds, (self.of_input, self.of_state, self.to_gate, self.to_value) = (
            made[:4],
            made[4:],
        )
        self.layers = made
        self.known = {}
        weight = self.bonds[0].weight
        self.units, self.dtype = len(weight), weight.dtype

    def update_atoms(self, received, h):
        gates, recurrent = self.of_input.forward(received), self.of_state.forward(h)
        both = sigmoid(gates[:, : 2 * self.units] + recurrent[:, : 2 * self.units])
        r, z = both[:, : self.units], both[:, self.units :]
        candidate = np.tanh(gates[:, 2 * self.units :] + r * recurrent[:, 2 * self.units :])
        change = h - candidate
        return candidate + z * change, (received, h, both, recurrent, candidate, change)

    def update_atoms_back(self, kept, d_h, is_first):
        received, h, both, recurrent, candidate, change = kept
        r, z = both[:, : self.units], both[:, self.units :]
        d_kept = d_h * z
        d_n = d_h - d_kept
        d_n *= constant(1.0, self.dtype) - candidate * candidate
        d_gates = np.empty_like(recurrent)
        np.multiply(d_n, recurrent[:, 2 * self.units :], out=d_gates[:, : self.units])
        np.multiply(d_h, change, out=d_gates[:, self.units : 2 * self.units])
        d_gates[:, : 2 * self.units] *= both - both * both
        d_gates[:, 2 * self.units :] = d_n
        d_recurrent = d_gates.copy()
        d_recurrent[:, 2 * self.units :] *= r
        d_received = self.of_input.backward(received, d_gates)
        if is_first:
            self.of_state.keep(h, d_recurrent)
            return d_received, None
        d_kept += self.of_state.backward(h, d_recurrent)
        return d_received, d_kept

    def bonds_of(self, molecule):
        """Where its bonds start and end, once a molecule: the device is not charged for it."""
        if id(molecule) not in self.known:
            source = np.concatenate([one.source for one in molecule.edges])
            target = np.concatenate([one.target for one in molecule.edges])
            borders = np.cumsum([0, *(len(one.source) for one in molecule.edges)]).tolist()
            cuts = [slice(*borders[kind : kind + 2]) for kind in range(4)]
            ends = [sums(one, len(molecule.atoms), self.dtype) for one in (source, target)]
            self.known[id(molecule)] = molecule, (source, target, cuts, *ends)
        return self.known[id(molecule)][1]

    def train(self, molecule):
        source, target, cuts, at_source, at_target = self.bonds_of(molecule)
        atoms = len(molecule.atoms)
        h = np.zeros((atoms, self.units), self.dtype)
        h[:, : molecule.atoms.shape[1]] = molecule.atoms
        steps = []
        for _ in range(STEPS):
            rows = h.take(source, axis=0)
            sent = [layer.forward(rows[cut]) for layer, cut in zip(self.bonds, cuts, strict=True)]
            h, kept = self.update_atoms(at_target @ np.concatenate(sent), h)
            steps.append((rows, kept))
        joined = np.concatenate([h, molecule.atoms], axis=1)
        gate, value = sigmoid(self.to_gate.forward(joined)), self.to_value.forward(joined)
        gated = gate * value
        d_gated = 2 * (gated.sum() - self.dtype.type(molecule.dipole))
        d_value = d_gated * gate
        d_joined = self.to_value.backward(joined, d_value)
        d_joined += self.to_gate.backward(joined, d_value * (value - gated))
        d_h = d_joined[:, : self.units]
        for place in range(STEPS - 1, -1, -1):
            rows, kept = steps[place]
            d_received, d_h = self.update_atoms_back(kept, d_h, not place)
            d_sent = d_received.take(target, axis=0)
            if not place:
                for layer, cut in zip(self.bonds, cuts, strict=True):
                    layer.keep(rows[cut], d_sent[cut])
                break
            d_rows = [
                layer.backward(rows[cut], d_sent[cut])
                for layer, cut in zip(self.bonds, cuts, strict=True)
            ]
            d_h = d_h + at_source @ np.concatenate(d_rows)
        for layer in self.layers:
            layer.update()


def loop(parameters):
    """What trains on one instance."""
    return Network(parameters).train
