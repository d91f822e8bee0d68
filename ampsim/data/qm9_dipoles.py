"""QM9: dipole moments of molecules, read from its files or drawn.

Synthetic molecules: heavy atoms C, N, O, F are bound into a random tree as far as their valences
go, hydrogens take up what is left. Chosen, and no chemistry: a bond of type 4 takes up two
valences, as a double bond does, and there are no rings. The target is half the sum, over all bonds,
of the bond's order times the difference of its atoms' electronegativities (Pauling's), which has
the size of a dipole moment.

Source: Ramakrishnan et al. 2014; AMPNet, Appendix B.4; atoms begin as in Gilmer et al. 2017 as far
as the files allow (`ampsim.data.molecules`). An error is given in multiples of chemical accuracy,
0.1 debye. Chosen:

* What is learned from and measured on are the molecules whose dipole moment is known, 16,845 of
  128,818; with `throughput` all are handed out, the others with a target of NaN.
* A tenth of them, rounded down, is for validation, as in the paper (13 of 130 thousand), drawn by
  `split_seed` alone, so that runs of different seeds can be compared.
* The target is standardised by mean and standard deviation of the known ones of the training part,
  whatever `train_count` says.
* A molecule is one instance.

The synthetic set is drawn; it is standardised by a part of 500
molecules of its own, so that a smaller set holds the first molecules of a larger one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ampsim.arguments import checked
from ampsim.data.content import once
from ampsim.data.dataset import ItemDataset, Split, drawn, limit, order, pick
from ampsim.data.molecules import Molecule, Molecules, Qm9Arrays, read_qm9
from ampsim.data.registry import find_file
from ampsim.data.vocabulary import frozen
from ampsim.errors import FileFormatError
from ampsim.options import Count, Seed
from ampsim.rng import stream

if TYPE_CHECKING:
    from jaxtyping import Int


HEAVY_MAX: Final = 6

_VALENCE: Final = {6: 4, 7: 3, 8: 2, 9: 1}
_CHOICE: Final = (6, 6, 6, 6, 7, 8, 8, 9)
_TAKEN: Final = {1: 1, 2: 2, 3: 3, 4: 2}
_ORDER: Final = {1: 1.0, 2: 2.0, 3: 3.0, 4: 1.5}
_NEGATIVITY: Final = {1: 2.20, 6: 2.55, 7: 3.04, 8: 3.44, 9: 3.98}

Bond = tuple[int, int, int]


def draw_molecules(seed: int, purpose: str, count: int) -> Qm9Arrays:
    """Draw so many molecules; fewer are the first of more."""
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


CHEMICAL_ACCURACY_DEBYE: Final = 0.1
"""Error that counts as 1; source: Gilmer et al. 2017, Table 2's unit for the dipole moment."""

VALID_PART: Final = 10
"""One in so many molecules is for validation."""

REFERENCE_COUNT: Final = 500
"""Molecules that the synthetic set is standardised by; chosen: a mean to within a twentieth."""


@dataclass(frozen=True, slots=True, eq=False)
class Qm9Dipoles(ItemDataset[Any]):
    """The data set of the paper's graph network; see the module for what it holds.

    Args:
        train: molecules to learn from.
        valid: molecules to measure the error on.
        train_places: which of `train` are used.
        valid_places: which of `valid` are used.
        mean_debye: of the training part.
        std_debye: of the training part.

    >>> data = Qm9Dipoles.synthetic(seed=0, train_count=20, valid_count=5)
    >>> data.count("train"), sum(one.rows for one in data.batches("train", epoch=0, seed=0))
    (20, 20)
    """

    name = "qm9"
    train: Molecules
    valid: Molecules
    train_places: Int[np.ndarray, " train"]
    valid_places: Int[np.ndarray, " valid"]
    mean_debye: float
    std_debye: float

    @classmethod
    @checked
    def load(
        cls,
        folder: str | os.PathLike[str] | None = None,
        *,
        train_count: Count | None = None,
        valid_count: Count | None = None,
        throughput: bool = False,
        split_seed: Seed = 0,
        dtype: str = "float32",
    ) -> Qm9Dipoles:
        """The real data set.

        Args:
            folder: the data folder; see `data_folder`.
            train_count: how many molecules of the training part, the first drawn; None for all.
            valid_count: the same of the validation part.
            throughput: hand out molecules without a target too.
            split_seed: draws which molecules are for validation.
            dtype: of the atoms' features.

        Raises:
            MissingDataError: the file is not there.
            FileFormatError: the file does not hold what it must.
            OptionError: an option has a value that it cannot have.
        """
        path = find_file("qm9", "molecules", folder)
        molecules = _read(path, throughput, dtype)
        count = len(molecules.index)
        if count < 2:
            raise FileFormatError(f"{path}: mu: expected 2 dipole moments or more, got {count}")
        places = stream(split_seed, "qm9.split").permutation(count)
        valid, train = np.split(places, [max(1, count // VALID_PART)])
        mean_debye, std_debye = _spread(molecules.dipole_debye[train])
        return cls(
            molecules,
            molecules,
            frozen(train[: limit("instances", train_count, len(train))]),
            frozen(valid[: limit("valid_count", valid_count, len(valid))]),
            mean_debye,
            std_debye,
        )

    @classmethod
    @checked
    def synthetic(
        cls,
        seed: Seed,
        *,
        train_count: Count = 1_000,
        valid_count: Count = 200,
        dtype: str = "float32",
    ) -> Qm9Dipoles:
        """A data set of the same form, drawn; a smaller one holds the first of a larger one.

        Raises:
            OptionError: a count is no whole number >= 1.
        """
        train, valid = drawn(partial(draw_molecules, seed), train_count, valid_count, 1000)
        reference = draw_molecules(seed, "reference", REFERENCE_COUNT)
        return cls(
            Molecules.of(train, dtype),
            Molecules.of(valid, dtype),
            frozen(np.arange(train_count)),
            frozen(np.arange(valid_count)),
            *_spread(reference.mu),
        )

    def items(self, split: Split) -> list[int]:
        """The places of a split's molecules."""
        return pick(split, self.train_places, self.valid_places).tolist()

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Molecule]:
        """Every molecule of a split once; "train" shuffled anew in each epoch."""
        molecules, places = pick(split, self.train, self.valid), self.items(split)
        for one in order(split, len(places), epoch=epoch, seed=seed):
            yield molecules.cut(places[one], self.mean_debye, self.std_debye)


@once
def _read(path: Path, throughput: bool, dtype: str) -> Molecules:
    arrays = _read_arrays(path)
    if not throughput:
        arrays = arrays.select(np.flatnonzero(~np.isnan(arrays.mu)))
    return Molecules.of(arrays, dtype)


_read_arrays = once(read_qm9)


def _spread(dipole_debye: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of what is known; a deviation of 0 counts as 1."""
    known = dipole_debye[~np.isnan(dipole_debye)].astype(np.float64)
    if not len(known):
        return 0.0, 1.0
    return float(known.mean()), float(known.std()) or 1.0
