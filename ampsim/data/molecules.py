"""Molecules of QM9: read from `qm9.npz` as flat arrays, and cut from them as graphs.

In the file must be, for N molecules of A atoms and B bonds in all:

* `index` (N): number in QM9, for a person to find the molecule by.
* `atom_offset` (N+1): molecule m has the atoms `atom_offset[m]` to before `atom_offset[m + 1]`.
* `z` (A): atomic numbers, of H, C, N, O or F.
* `bond_offset` (N+1), `bonds` (B, 3): two atoms, counted from 0 within the molecule, and a type: 1
  single, 2 double, 3 triple, 4 aromatic. Each bond stands once.
* `mu` (N): norm of the dipole moment in debye; NaN where it is not known.
* `bond_status` (N): 0, 1, 2 types from a SMILES, 3 types perceived from the geometry, 4 types
  unknown and all given as single.

Other arrays, such as the geometry, are not looked at.

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

import io
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ampsim.data.content import REMEDY, read_bytes
from ampsim.data.vocabulary import frozen
from ampsim.errors import FileFormatError
from ampsim.options import require_dtype

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Integer


ELEMENTS: Final = (1, 6, 7, 8, 9)
"""Atomic numbers that occur in QM9."""

BOND_TYPES: Final = 4

_DAMAGED: Final = (
    ValueError,
    EOFError,
    MemoryError,  # a wrong number in a header asks for more than there is
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_NAMES: Final = ("index", "atom_offset", "z", "bond_offset", "bonds", "mu", "bond_status")


@dataclass(frozen=True, slots=True, eq=False)
class Qm9Arrays:
    """Molecules as flat arrays, as the module describes them; all are read-only."""

    index: Integer[np.ndarray, " molecules"]
    atom_offset: Integer[np.ndarray, " molecules+1"]
    z: Integer[np.ndarray, " atoms"]
    bond_offset: Integer[np.ndarray, " molecules+1"]
    bonds: Integer[np.ndarray, "bonds 3"]
    mu: Float[np.ndarray, " molecules"]
    bond_status: Integer[np.ndarray, " molecules"]

    @property
    def count(self) -> int:
        """Count of molecules."""
        return len(self.index)

    def select(self, chosen: Int[np.ndarray, " chosen"]) -> Qm9Arrays:
        """Some of the molecules, in the order of `chosen`."""
        atoms, atom_offset = ragged(self.atom_offset, chosen)
        bonds, bond_offset = ragged(self.bond_offset, chosen)
        return Qm9Arrays(
            index=frozen(self.index[chosen]),
            atom_offset=frozen(atom_offset),
            z=frozen(self.z[atoms]),
            bond_offset=frozen(bond_offset),
            bonds=frozen(self.bonds[bonds]),
            mu=frozen(self.mu[chosen]),
            bond_status=frozen(self.bond_status[chosen]),
        )


def ragged(
    offset: Integer[np.ndarray, " parts+1"], chosen: Int[np.ndarray, " chosen"]
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " chosen+1"]]:
    """Rows of the chosen parts of a flat array, and where each part begins among them.

    >>> ragged(np.array([0, 2, 3, 6]), np.array([2, 0]))
    (array([3, 4, 5, 0, 1]), array([0, 3, 5]))
    """
    begin = offset[chosen].astype(np.intp)
    length = offset[chosen + 1] - begin
    starts = np.concatenate(([0], np.cumsum(length))).astype(np.intp)
    rows = np.arange(int(starts[-1]), dtype=np.intp) + np.repeat(begin - starts[:-1], length)
    return rows, starts


def read_qm9(path: str | os.PathLike[str]) -> Qm9Arrays:
    """The molecules of a file, checked.

    Raises:
        FileFormatError: the file cannot be read or is damaged, an array is missing or has a wrong
            form, a number is outside its range, a bond's atom does not exist, or a bond is there
            twice; the line names the array and the place in it.
    """
    arrays = Qm9Arrays(**_read(path))
    check(arrays, str(path))
    return arrays


def check(arrays: Qm9Arrays, where: str) -> None:
    """Check that offsets, values and bonds of molecules fit each other.

    Raises:
        FileFormatError: see `read_qm9`; the line begins with `where`.
    """
    count = arrays.count
    if not count:
        raise FileFormatError(f"{where}: index: is empty; expected a molecule or more")
    shapes = {"atom_offset": (count + 1,), "bond_offset": (count + 1,), "mu": (count,)}
    shapes |= {"bond_status": (count,), "z": (len(arrays.z),), "bonds": (len(arrays.bonds), 3)}
    for name, shape in shapes.items():
        if (got := getattr(arrays, name).shape) != shape:
            raise FileFormatError(f"{where}: {name}: expected the shape {shape}, got {got}")
    _check_offset("atom_offset", arrays.atom_offset, len(arrays.z), where)
    _check_offset("bond_offset", arrays.bond_offset, len(arrays.bonds), where)
    _check_values(arrays, where)
    _check_bonds(arrays, where)


def _read(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """The arrays by name; nothing in a file is ever executed."""
    content = read_bytes(path)
    if content[:2] != b"PK":
        raise FileFormatError(
            f"{path}: byte 0: expected a .npz file, which begins with 0x504b, got"
            f" 0x{content[:2].hex()}; {REMEDY}"
        )
    found: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    name = "file"
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for name in _NAMES:
                if name not in arrays.files:
                    known = ", ".join(arrays.files)
                    raise FileFormatError(f"{path}: {name}: is missing; it has {known}")
                member: Any = arrays[name]  # its bytes, if they are no array
                if not hasattr(member, "dtype"):
                    raise ValueError(f"{len(member)} bytes that are no array")
                found[name] = frozen(member)
    except _DAMAGED as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise FileFormatError(
            f"{path}: {name}: expected NumPy arrays in a whole .npz file, got: {reason}; {REMEDY}"
        ) from error
    for name, array in found.items():
        if array.dtype.kind not in ("f" if name == "mu" else "iu"):
            kind = "floating-point" if name == "mu" else "whole"
            raise FileFormatError(f"{path}: {name}: expected {kind} numbers, got {array.dtype}")
        if array.ndim != (axes := 2 if name == "bonds" else 1):
            raise FileFormatError(
                f"{path}: {name}: expected {axes} {'axis' if axes == 1 else 'axes'}, got the shape "
                f"{array.shape}"
            )
        if name.endswith("_offset"):  # differences of unsigned numbers are no counts for NumPy
            found[name] = frozen(array.astype(np.int64))
    return found


def _check_offset(name: str, offset: np.ndarray, end: int, where: str) -> None:
    if offset[0] != 0 or offset[-1] != end:
        raise FileFormatError(
            f"{where}: {name}: expected to begin with 0 and end with {end}, got {offset[0]} and"
            f" {offset[-1]}"
        )
    least = 1 if name == "atom_offset" else 0
    steps: np.ndarray = np.diff(offset)
    place = _first(np.asarray(steps < least))
    if place is not None:
        raise FileFormatError(
            f"{where}: {name}[{place + 1}]: expected at least {offset[place] + least}, got"
            f" {offset[place + 1]}"
        )


def _check_values(arrays: Qm9Arrays, where: str) -> None:
    lowest = np.where(np.isnan(arrays.mu), 0, arrays.mu)
    rules = (
        ("z", ~np.isin(arrays.z, ELEMENTS), f"one of {', '.join(map(str, ELEMENTS))}"),
        ("mu", (lowest < 0) | np.isinf(lowest), "a dipole moment >= 0 or NaN"),
        ("bond_status", (arrays.bond_status < 0) | (arrays.bond_status > 4), "0 to 4"),
    )
    for name, wrong, expected in rules:
        place = _first(wrong)
        if place is not None:
            got = getattr(arrays, name)[place]
            raise FileFormatError(f"{where}: {name}[{place}]: expected {expected}, got {got}")


def _check_bonds(arrays: Qm9Arrays, where: str) -> None:
    atoms = np.repeat(np.diff(arrays.atom_offset), np.diff(arrays.bond_offset))
    ends, kind = arrays.bonds[:, :2], arrays.bonds[:, 2]
    outside = (ends < 0) | (ends >= atoms[:, None])
    place = _first(outside[:, 0] | outside[:, 1])
    if place is not None:
        atom = next(int(one) for one in ends[place] if not 0 <= one < atoms[place])
        raise FileFormatError(
            f"{where}: bonds[{place}]: atom {atom} does not exist; molecule"
            f" {_molecule(arrays, place)} has the atoms 0 to {atoms[place] - 1}"
        )
    if (place := _first(ends[:, 0] == ends[:, 1])) is not None:
        raise FileFormatError(
            f"{where}: bonds[{place}]: expected two atoms, got {ends[place, 0]} twice, in molecule"
            f" {_molecule(arrays, place)}"
        )
    if (place := _first((kind < 1) | (kind > BOND_TYPES))) is not None:
        raise FileFormatError(
            f"{where}: bonds[{place}]: expected a type 1 to {BOND_TYPES}, got {kind[place]}, in"
            f" molecule {_molecule(arrays, place)}"
        )
    near, far = np.sort(ends.astype(np.int64), axis=1).T
    first = np.repeat(arrays.atom_offset[:-1], np.diff(arrays.bond_offset))
    bonded = (first + near) * len(arrays.z) + first + far
    order = np.argsort(bonded, kind="stable")
    again = order[1:][np.diff(bonded[order]) == 0]
    if len(again):
        place = int(again.min())
        raise FileFormatError(
            f"{where}: bonds[{place}]: expected each bond once, got {ends[place, 0]} and"
            f" {ends[place, 1]} again, in molecule {_molecule(arrays, place)}"
        )


def _molecule(arrays: Qm9Arrays, bond: int) -> str:
    place = int(np.searchsorted(arrays.bond_offset, bond, "right")) - 1
    return f"{place} (QM9 number {arrays.index[place]})"


def _first(wrong: np.ndarray) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


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

    rows = 1  # items that an instance counts for
    atoms: Float[np.ndarray, "atoms 11"]
    edges: tuple[Edges, ...]
    dipole: float
    dipole_debye: float
    index: int

    @property
    def atom_count(self) -> int:
        """Count of atoms, hydrogens included."""
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
        """Count the bonds of those wanted that each atom has."""
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
