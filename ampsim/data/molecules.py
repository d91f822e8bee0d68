"""Molecules as graphs: what a model of molecules needs of one, cut from flat arrays.

Features of an atom, after Gilmer et al. 2017, Table 1, as far as the files allow:

* element, one-hot: H, C, N, O, F;
* atomic number, divided by fluorine's 9;
* whether it has an aromatic bond;
* hybridization sp, sp2, sp3, one-hot, all 0 for hydrogen; from the bonds alone: sp with a triple or
  two double bonds, sp2 with a double or an aromatic one, else sp3. What a lone pair adds to its
  neighbours' is not seen;
* number of hydrogens bound, divided by carbon's 4.

Left out: whether an atom accepts or donates electrons, which takes a chemist's tables. Numbers are
divided so that every feature is within 0..1 (chosen: recurrent cells saturate otherwise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ampsim.data.qm9 import BOND_TYPES, ELEMENTS, Qm9Arrays
from ampsim.data.vocabulary import frozen
from ampsim.options import require_dtype

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Integer

FEATURES: Final = len(ELEMENTS) + 6
"""Width of an atom's features."""

_HYDROGEN: Final = 1


class Edges(NamedTuple):
    """Bonds of one type, each both ways: first all as in the file, then all turned round."""

    source: Int[np.ndarray, " edges"]
    target: Int[np.ndarray, " edges"]


@dataclass(frozen=True, slots=True, eq=False)
class Molecule:
    """A molecule; all arrays are read-only.

    Args:
        atoms: features of each atom.
        edges: for each bond type 1..4 the directed pairs of atoms, `intp`; there may be none.
        dipole: the target, less the mean and divided by the standard deviation of the training
            part; NaN where it is not known.
        dipole_debye: norm of the dipole moment.
        index: number in QM9.
    """

    atoms: Float[np.ndarray, "atoms 11"]
    edges: tuple[Edges, ...]
    dipole: float
    dipole_debye: float
    index: int

    @property
    def rows(self) -> int:
        """How many items an instance counts for: a molecule is one."""
        return 1

    @property
    def atom_count(self) -> int:
        """How many atoms, hydrogens included."""
        return len(self.atoms)


@dataclass(frozen=True, slots=True, eq=False)
class Molecules:
    """Molecules as flat arrays, from which one is cut when it is asked for.

    Args:
        atoms: features of all atoms.
        atom_offset: where a molecule's atoms begin.
        source: first atoms of all edges, by molecule, then by type.
        target: second atoms of the same.
        edge_offset: where the edges of a molecule m and a type t begin, at `4 m + t - 1`.
        dipole_debye: NaN where it is not known.
        index: numbers in QM9.
    """

    atoms: Float[np.ndarray, "atoms 11"]
    atom_offset: Integer[np.ndarray, " molecules+1"]
    source: Int[np.ndarray, " edges"]
    target: Int[np.ndarray, " edges"]
    edge_offset: Int[np.ndarray, " 4*molecules+1"]
    dipole_debye: Float[np.ndarray, " molecules"]
    index: Integer[np.ndarray, " molecules"]

    @classmethod
    def of(cls, arrays: Qm9Arrays, dtype: str = "float32") -> Molecules:
        """The graphs of molecules as they were read.

        Raises:
            OptionError: `dtype` is neither "float32" nor "float64".
        """
        require_dtype(dtype)
        molecule = np.repeat(np.arange(arrays.count), np.diff(arrays.bond_offset))
        ends, kind = arrays.bonds[:, :2].astype(np.intp), arrays.bonds[:, 2].astype(np.intp)
        group = BOND_TYPES * molecule + kind - 1
        count = 2 * np.bincount(group, minlength=BOND_TYPES * arrays.count)
        place = np.argsort(np.concatenate((group, group)), kind="stable")
        flat = arrays.atom_offset[molecule][:, None] + ends
        return cls(
            atoms=frozen(_features(arrays.z, flat, kind).astype(dtype)),
            atom_offset=arrays.atom_offset,
            source=frozen(np.concatenate((ends[:, 0], ends[:, 1]))[place]),
            target=frozen(np.concatenate((ends[:, 1], ends[:, 0]))[place]),
            edge_offset=frozen(np.concatenate(([0], np.cumsum(count)))),
            dipole_debye=frozen(arrays.mu.astype(np.float64)),
            index=arrays.index,
        )

    def cut(self, place: int, mean_debye: float, std_debye: float) -> Molecule:
        """One molecule, its target standardised."""
        begin, end = self.atom_offset[place : place + 2].tolist()
        first = BOND_TYPES * place
        offset = self.edge_offset[first : first + BOND_TYPES + 1].tolist()
        spans = [slice(offset[kind], offset[kind + 1]) for kind in range(BOND_TYPES)]
        dipole_debye = float(self.dipole_debye[place])
        return Molecule(
            atoms=self.atoms[begin:end],
            edges=tuple(Edges(self.source[span], self.target[span]) for span in spans),
            dipole=(dipole_debye - mean_debye) / std_debye,
            dipole_debye=dipole_debye,
            index=int(self.index[place]),
        )


def _features(
    z: Integer[np.ndarray, " atoms"],
    ends: Int[np.ndarray, "bonds 2"],
    kind: Int[np.ndarray, " bonds"],
) -> Float[np.ndarray, "atoms 11"]:
    """Features of all atoms; `ends` counts through the atoms of all molecules."""

    def bonds(wanted: np.ndarray) -> np.ndarray:
        """How many bonds of those wanted each atom has."""
        return np.bincount(ends[wanted].ravel(), minlength=len(z))

    is_hydrogen = z == _HYDROGEN
    double, triple, aromatic = (bonds(kind == one) for one in (2, 3, 4))
    is_sp = (triple > 0) | (double > 1)
    is_sp2 = ~is_sp & ((double > 0) | (aromatic > 0))
    hydrogens = sum(
        np.bincount(ends[is_hydrogen[ends[:, 1 - side]], side], minlength=len(z)) for side in (0, 1)
    )
    columns = [z == element for element in ELEMENTS]
    columns += [z / 9, aromatic > 0, is_sp & ~is_hydrogen, is_sp2 & ~is_hydrogen]
    columns += [~is_sp & ~is_sp2 & ~is_hydrogen, hydrogens / 4]
    return np.stack(columns, axis=1, dtype=np.float32, casting="unsafe")
