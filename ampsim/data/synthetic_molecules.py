"""Small random molecules of the form of QM9, with a target that follows from the graph.

Heavy atoms C, N, O, F are bound into a random tree as far as their valences go, hydrogens take up
what is left. Chosen, and no chemistry: a bond of type 4 takes up two valences, as a double bond
does, and there are no rings. The target is half the sum, over all bonds, of the bond's order times
the difference of its atoms' electronegativities (Pauling's), which has the size of a dipole moment.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ampsim.data.qm9 import Qm9Arrays
from ampsim.data.vocabulary import frozen
from ampsim.rng import stream

HEAVY_MAX: Final = 6

_VALENCE: Final = {6: 4, 7: 3, 8: 2, 9: 1}
_CHOICE: Final = (6, 6, 6, 6, 7, 8, 8, 9)
_TAKEN: Final = {1: 1, 2: 2, 3: 3, 4: 2}
_ORDER: Final = {1: 1.0, 2: 2.0, 3: 3.0, 4: 1.5}
_NEGATIVITY: Final = {1: 2.20, 6: 2.55, 7: 3.04, 8: 3.44, 9: 3.98}

Bond = tuple[int, int, int]


def draw_molecules(seed: int, purpose: str, count: int) -> Qm9Arrays:
    """So many molecules; fewer are the first of more."""
    random = stream(seed, f"qm9.{purpose}")
    drawn = [_draw(random) for _ in range(count)]
    atom_counts = [len(z) for z, _ in drawn]
    bond_counts = [len(bonds) for _, bonds in drawn]
    return Qm9Arrays(
        index=frozen(np.arange(1, count + 1)),
        atom_offset=frozen(np.concatenate(([0], np.cumsum(atom_counts)))),
        z=frozen(np.concatenate([z for z, _ in drawn])),
        bond_offset=frozen(np.concatenate(([0], np.cumsum(bond_counts)))),
        bonds=frozen(np.array([bond for _, bonds in drawn for bond in bonds])),
        mu=frozen(np.array([_target(z, bonds) for z, bonds in drawn])),
        bond_status=frozen(np.zeros(count, np.uint8)),
    )


def _draw(random: np.random.Generator) -> tuple[list[int], list[Bond]]:
    """Atomic numbers and bonds of one molecule."""
    choices: list[int] = random.integers(
        len(_CHOICE), size=random.integers(1, HEAVY_MAX + 1)
    ).tolist()
    z = [_CHOICE[one] for one in choices]
    free = [_VALENCE[z[0]]]
    bonds: list[Bond] = []
    for atom, element in enumerate(z[1:], 1):
        open_atoms = [other for other, valence in enumerate(free) if valence]
        if not open_atoms:
            break
        other = open_atoms[random.integers(len(open_atoms))]
        most = min(free[other], _VALENCE[element])
        kinds = [1, 1, 1, *(kind for kind, taken in _TAKEN.items() if taken <= most)]
        kind = kinds[random.integers(len(kinds))]
        bonds.append((other, atom, kind))
        free[other] -= _TAKEN[kind]
        free.append(_VALENCE[element] - _TAKEN[kind])
    z = z[: len(free)]
    for atom, valence in enumerate(free):
        bonds += [(atom, len(z) + one, 1) for one in range(valence)]
        z += [1] * valence
    return z, bonds


def _target(z: list[int], bonds: list[Bond]) -> float:
    """Norm of a dipole moment, so to speak, in debye."""
    parts = (_ORDER[kind] * abs(_NEGATIVITY[z[a]] - _NEGATIVITY[z[b]]) for a, b, kind in bonds)
    return 0.5 * sum(parts)
