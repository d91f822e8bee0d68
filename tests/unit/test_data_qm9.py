"""Reader of molecules, their features and edges by hand, and the split of the learning set."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampsim.data import Qm9Dipoles
from ampsim.data.molecules import Molecules, Qm9Arrays, read_qm9
from ampsim.errors import FileFormatError, OptionError

# Water, hydrogen cyanide, and carbon dioxide.
ARRAYS: dict[str, Any] = {
    "index": np.array([3, 5, 9], np.int32),
    "atom_offset": np.array([0, 3, 6, 9], np.int32),
    "z": np.array([8, 1, 1, 6, 7, 1, 6, 8, 8], np.uint8),
    "bond_offset": np.array([0, 2, 4, 6], np.int32),
    "bonds": np.array([[0, 1, 1], [0, 2, 1], [0, 1, 3], [0, 2, 1], [0, 1, 2], [0, 2, 2]], np.uint8),
    "mu": np.array([1.85, 2.98, np.nan], np.float32),
    "bond_status": np.array([0, 1, 4], np.uint8),
}


def write(folder: Path, **changes: Any) -> Path:
    (folder / "qm9").mkdir(exist_ok=True)
    path = folder / "qm9" / "qm9.npz"
    arrays = {name: array for name, array in (ARRAYS | changes).items() if array is not None}
    np.savez_compressed(path, **arrays)
    return path


def put(name: str, place: Any, value: Any) -> dict[str, np.ndarray]:
    array = ARRAYS[name].astype(ARRAYS[name].dtype if name == "mu" else np.int64)
    array[place] = value
    return {name: array}


def test_molecules_are_read_as_they_stand(tmp_path: Path) -> None:
    arrays = read_qm9(write(tmp_path))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(getattr(arrays, name), array)
        assert not getattr(arrays, name).flags.writeable


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint64])
def test_whole_numbers_of_any_width_are_read(tmp_path: Path, dtype: Any) -> None:
    whole = {name: one.astype(dtype) for name, one in ARRAYS.items() if name != "mu"}
    arrays = read_qm9(write(tmp_path, **whole))
    found, known = (Molecules.of(one) for one in (arrays, Qm9Arrays(**ARRAYS)))
    for name in ("atoms", "atom_offset", "source", "target", "edge_offset", "index"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
    assert arrays.select(np.array([2, 0])).z.tolist() == [6, 8, 8, 8, 1, 1]


def test_edges_go_both_ways_by_type() -> None:
    water, cyanide, _ = (Molecules.of(Qm9Arrays(**ARRAYS)).cut(one, 1, 2) for one in range(3))
    assert [edge.tolist() for edge in water.edges[0]] == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert [len(edges.source) for edges in cyanide.edges] == [2, 0, 2, 0]
    assert [edge.tolist() for edge in cyanide.edges[2]] == [[0, 1], [1, 0]]
    assert all(edge.dtype == np.intp for edges in cyanide.edges for edge in edges)


def test_features_by_hand() -> None:
    molecules = Molecules.of(Qm9Arrays(**ARRAYS), "float64")
    water, cyanide, dioxide = (molecules.cut(one, 0, 1).atoms for one in range(3))
    oxygen = [0, 0, 0, 1, 0, 8 / 9, 0, 0, 0, 1, 2 / 4]
    hydrogen = [1, 0, 0, 0, 0, 1 / 9, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(water, [oxygen, hydrogen, hydrogen], rtol=1e-6)
    carbon = [0, 1, 0, 0, 0, 6 / 9, 0, 1, 0, 0, 1 / 4]
    nitrogen = [0, 0, 1, 0, 0, 7 / 9, 0, 1, 0, 0, 0]
    np.testing.assert_allclose(cyanide, [carbon, nitrogen, hydrogen], rtol=1e-6)
    np.testing.assert_allclose(dioxide[0], [0, 1, 0, 0, 0, 6 / 9, 0, 1, 0, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(dioxide[1], [0, 0, 0, 1, 0, 8 / 9, 0, 0, 1, 0, 0], rtol=1e-6)


def test_an_aromatic_bond_is_a_feature_of_both_its_atoms() -> None:
    arrays = Qm9Arrays(**ARRAYS | put("bonds", (4, 2), 4))
    atoms = Molecules.of(arrays).cut(2, 0, 1).atoms
    assert atoms[:, 6].tolist() == [1, 1, 0]
    assert atoms[1, 8] == 1  # sp2


def test_an_atom_alone_and_no_bonds_at_all_are_fine() -> None:
    arrays = Qm9Arrays(
        index=np.array([1]),
        atom_offset=np.array([0, 1]),
        z=np.array([9]),
        bond_offset=np.array([0, 0]),
        bonds=np.zeros((0, 3), np.uint8),
        mu=np.array([0.0]),
        bond_status=np.array([0]),
    )
    alone = Molecules.of(arrays).cut(0, 0, 1)
    assert alone.atom_count == 1
    assert [len(edges.target) for edges in alone.edges] == [0, 0, 0, 0]


def test_molecules_can_be_selected_in_any_order() -> None:
    arrays = Qm9Arrays(**ARRAYS).select(np.array([2, 0]))
    assert arrays.index.tolist() == [9, 3]
    assert arrays.z.tolist() == [6, 8, 8, 8, 1, 1]
    assert arrays.bonds.tolist() == [[0, 1, 2], [0, 2, 2], [0, 1, 1], [0, 2, 1]]
    assert (arrays.atom_offset.tolist(), arrays.bond_offset.tolist()) == ([0, 3, 6], [0, 2, 4])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            put("bonds", (3, 1), 3),
            r"bonds\[3\]: atom 3 does not exist; molecule 1 \(QM9 number 5\)",
        ),
        (put("bonds", (3, 0), -1), r"bonds\[3\]: atom -1 does not exist; .* has the atoms 0 to 2"),
        (put("bonds", (2, 1), 0), r"bonds\[2\]: expected two atoms, got 0 twice, in molecule 1"),
        (put("bonds", 3, [1, 0, 2]), r"bonds\[3\]: expected each bond once, got 1 and 0 again, in"),
        (put("bonds", (5, 2), 5), r"bonds\[5\]: expected a type 1 to 4, got 5, in molecule 2"),
        (put("bonds", (5, 2), 0), r"bonds\[5\]: expected a type 1 to 4, got 0"),
        (put("z", 4, 35), r"z\[4\]: expected one of 1, 6, 7, 8, 9, got 35"),
        (put("mu", 1, -1), r"mu\[1\]: expected a dipole moment >= 0 or NaN, got -1"),
        (put("mu", 1, np.inf), r"mu\[1\]: expected a dipole moment >= 0 or NaN, got inf"),
        (put("bond_status", 0, 5), r"bond_status\[0\]: expected 0 to 4, got 5"),
        (
            put("atom_offset", 3, 8),
            "atom_offset: expected to begin with 0 and end with 9, got 0 and",
        ),
        (put("atom_offset", 1, 7), r"atom_offset\[2\]: expected at least 8, got 6"),
        (put("bond_offset", 1, 5), r"bond_offset\[2\]: expected at least 5, got 4"),
        ({"mu": ARRAYS["mu"][:2]}, r"mu: expected the shape \(3,\), got \(2,\)"),
        ({"bonds": ARRAYS["bonds"][:, :2]}, r"bonds: expected the shape \(6, 3\), got \(6, 2\)"),
        ({"z": ARRAYS["z"].astype(float)}, "z: expected whole numbers, got float64"),
        ({"mu": ARRAYS["z"][:3]}, "mu: expected floating-point numbers, got uint8"),
        ({"index": ARRAYS["index"][:0]}, "index: is empty"),
        ({"bonds": None}, "bonds: is missing; it has index, atom_offset, z, bond_offset, mu"),
        (
            {"mu": np.array([print, 1, 2], object)},
            "mu: expected NumPy arrays in a whole .npz file, got: Object arrays cannot be loaded",
        ),
    ],
)
def test_wrong_molecules_are_refused_by_array_and_place(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(FileFormatError, match=rf"qm9\.npz: {said}") as caught:
        read_qm9(write(tmp_path, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [100, 700, -1])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileFormatError, match=r"expected NumPy arrays in a whole \.npz file"):
        read_qm9(path)


def test_an_array_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = bytearray(path.read_bytes())
    content[60] ^= 255
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"index: expected NumPy arrays in a whole \.npz"):
        read_qm9(path)


@pytest.mark.parametrize("name", list(ARRAYS))
@pytest.mark.parametrize("kept", [0, 5, 8, 40, -1])
@pytest.mark.parametrize("suffix", [".npy", "", ".txt"])
def test_a_member_that_is_no_array_is_refused(
    tmp_path: Path, name: str, kept: int, suffix: str
) -> None:
    path = write(tmp_path)
    with zipfile.ZipFile(path) as before:
        held = {member: before.read(member) for member in before.namelist()}
    content = held.pop(f"{name}.npy")
    for wrong in (content[:kept], b"text"[:kept] * 20):
        with zipfile.ZipFile(path, "w") as after:
            for member, each in {**held, f"{name}{suffix}": wrong}.items():
                after.writestr(member, each)
        with pytest.raises(
            FileFormatError, match=rf"qm9\.npz: {name}: (expected|is missing)"
        ) as told:
            read_qm9(path)
        assert "\n" not in str(told.value)
        assert len(str(told.value)) < 400 + len(str(path))


@pytest.mark.parametrize("name", list(ARRAYS))
def test_an_array_of_too_many_or_too_few_axes_is_refused(tmp_path: Path, name: str) -> None:
    for wrong in (ARRAYS[name][None], ARRAYS[name].reshape(-1)[0], ARRAYS[name][..., None]):
        with pytest.raises(FileFormatError, match=f"{name}: expected . ax[ei]s, got the shape"):
            read_qm9(write(tmp_path, **{name: wrong}))


def test_a_single_array_or_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "qm9.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(FileFormatError, match=r"byte 0: expected a \.npz file, .* got 0x934e"):
        read_qm9(path)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="is empty"):
        read_qm9(path)


def repeated(count: int) -> dict[str, np.ndarray]:
    """Waters, every other one with a dipole moment."""
    return {
        "index": np.arange(count),
        "atom_offset": 3 * np.arange(count + 1),
        "z": np.tile(np.array([8, 1, 1]), count),
        "bond_offset": 2 * np.arange(count + 1),
        "bonds": np.tile(np.array([[0, 1, 1], [0, 2, 1]]), (count, 1)),
        "mu": np.where(np.arange(count) % 2, np.nan, np.arange(count)),
        "bond_status": np.zeros(count, int),
    }


def test_only_molecules_with_a_target_are_learned_from(tmp_path: Path) -> None:
    write(tmp_path, **repeated(100))
    data = Qm9Dipoles.load(tmp_path)
    assert (data.count("train"), data.count("valid")) == (45, 5)
    train = list(data.batches("train", epoch=0, seed=0))
    raw = np.array([one.dipole_debye for one in train])
    assert sorted({one.index for one in train}) == sorted(raw.astype(int).tolist())
    assert (data.mean_debye, data.std_debye) == pytest.approx((raw.mean(), raw.std()))
    target = np.array([one.dipole for one in train])
    assert (target.mean(), target.std()) == pytest.approx((0, 1))


def test_for_throughput_all_molecules_are_there(tmp_path: Path) -> None:
    write(tmp_path, **repeated(100))
    data = Qm9Dipoles.load(tmp_path, throughput=True)
    assert (data.count("train"), data.count("valid")) == (90, 10)
    molecules = [*data.batches("train", epoch=0, seed=0), *data.batches("valid", epoch=0, seed=0)]
    assert sum(np.isnan(one.dipole) for one in molecules) == 50
    assert {one.index for one in molecules} == set(range(100))


def test_the_split_follows_from_its_own_seed_and_the_targets_from_the_whole_of_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, **repeated(100))
    whole, again = Qm9Dipoles.load(tmp_path), Qm9Dipoles.load(tmp_path)
    other, few = Qm9Dipoles.load(tmp_path, split_seed=1), Qm9Dipoles.load(tmp_path, train_count=7)
    assert whole.valid_places.tolist() == again.valid_places.tolist()
    assert whole.valid_places.tolist() != other.valid_places.tolist()
    assert few.train_places.tolist() == whole.train_places[:7].tolist()
    assert (few.mean_debye, few.std_debye) == (whole.mean_debye, whole.std_debye)


def test_more_than_there_is_cannot_be_asked_for(tmp_path: Path) -> None:
    write(tmp_path, **repeated(100))
    with pytest.raises(OptionError, match="instances must be at most 45, all that there are"):
        Qm9Dipoles.load(tmp_path, train_count=46)


def test_two_targets_are_the_least(tmp_path: Path) -> None:
    write(tmp_path, **repeated(2))
    with pytest.raises(FileFormatError, match="mu: expected 2 dipole moments or more, got 1"):
        Qm9Dipoles.load(tmp_path)
