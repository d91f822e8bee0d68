"""What every data set keeps, and each of the paper's by small files and by what it draws."""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampsim.data import (
    DATASETS,
    Dataset,
    ListReduction,
    Mnist,
    Qm9Dipoles,
    SentimentTrees,
    Split,
    Vocabulary,
    WikiNer,
)
from ampsim.data.wikiner import ENDINGS
from ampsim.errors import FileFormatError, OptionError

SYNTHETIC: dict[str, Callable[..., Dataset[Any]]] = {
    "list_reduction": ListReduction.generate,
    "mnist": Mnist.synthetic,
    "sst": SentimentTrees.synthetic,
    "qm9": Qm9Dipoles.synthetic,
    "wikiner": WikiNer.synthetic,
}
SPLITS: tuple[Split, ...] = ("train", "valid")


def numbers(item: Any) -> Any:
    """All that a batch holds, as something that can be compared."""
    if isinstance(item, np.ndarray):
        return item.tolist()
    if isinstance(item, tuple):
        return [numbers(one) for one in item]
    if hasattr(item, "__slots__"):
        return [numbers(getattr(item, name)) for name in item.__slots__]
    return item


def batches(data: Dataset[Any], split: Split, epoch: int = 0, seed: int = 0) -> list[Any]:
    return [numbers(one) for one in data.batches(split, epoch=epoch, seed=seed)]


@pytest.fixture(params=SYNTHETIC, scope="module")
def made(request: pytest.FixtureRequest) -> tuple[str, Callable[..., Dataset[Any]]]:
    return request.param, SYNTHETIC[request.param]


def test_the_counts_are_those_of_what_is_handed_out(made: Any) -> None:
    name, make = made
    data = make(0, train_count=130, valid_count=70)
    assert data.name == name
    assert data.description == DATASETS[name].description
    assert (data.count("train"), data.count("valid")) == (130, 70)
    for split in SPLITS:
        handed = list(data.batches(split, epoch=0, seed=0))
        assert sum(one.rows for one in handed) == data.count(split)
        assert len(handed) == data.batch_count(split)


def test_training_is_shuffled_by_epoch_and_seed_and_validation_never(made: Any) -> None:
    data = made[1](0, train_count=130, valid_count=70)
    orders = [batches(data, "train", epoch, seed) for epoch, seed in ((0, 0), (1, 0), (0, 1))]
    assert all(orders[a] != orders[b] for a, b in ((0, 1), (0, 2), (1, 2)))
    assert orders[0] == batches(data, "train", 0, 0)
    if made[0] not in ("mnist", "list_reduction"):  # their batches have other members each time
        assert len({str(sorted(map(str, one))) for one in orders}) == 1
    assert batches(data, "valid", 0, 0) == batches(data, "valid", 1, 1)


def test_the_same_seed_draws_the_same_and_another_draws_another(made: Any) -> None:
    first, again, other = (made[1](seed, train_count=20, valid_count=9) for seed in (3, 3, 4))
    for split in SPLITS:
        assert batches(first, split) == batches(again, split)
        assert batches(first, split) != batches(other, split)


def test_a_smaller_set_holds_the_first_of_a_larger_one(made: Any) -> None:
    few = made[1](0, train_count=9, valid_count=9)
    many = made[1](0, train_count=20, valid_count=20)
    if made[0] == "list_reduction":  # comes by length
        assert few.valid.tokens.tolist() == many.valid.tokens[:9].tolist()
    elif made[0] == "mnist":
        (first,), (whole,) = batches(few, "valid"), batches(many, "valid")
        assert first == [one[:9] for one in whole]
        assert few.train.images.tolist() == many.train.images[:9].tolist()
    else:
        assert batches(few, "valid") == batches(many, "valid")[:9]
        shuffled = {str(one) for one in batches(few, "train")}
        assert shuffled < {str(one) for one in batches(many, "train")}


def arrays(item: Any) -> list[np.ndarray]:
    """All arrays that a batch holds."""
    if isinstance(item, np.ndarray):
        return [item]
    names = () if isinstance(item, tuple) else getattr(item, "__slots__", ())
    parts = item if isinstance(item, tuple) else [getattr(item, name) for name in names]
    return [array for part in parts for array in arrays(part)]


def test_nothing_handed_out_can_be_written_to(made: Any) -> None:
    for split in SPLITS:
        for one in made[1](0, train_count=5, valid_count=5).batches(split, epoch=0, seed=0):
            found = arrays(one)
            assert found
            assert not any(array.flags.writeable for array in found)


@pytest.mark.parametrize("option", ["train_count", "valid_count"])
def test_a_count_is_at_least_one(made: Any, option: str) -> None:
    with pytest.raises(OptionError, match=f"{option} must be a whole number >= 1, got 0"):
        made[1](0, **{option: 0})


def write_mnist(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    (folder / "mnist").mkdir(exist_ok=True)
    for part in ("train", "t10k"):
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            kind, dtype = (13, ">f4") if array.dtype.kind == "f" else (8, "u1")
            header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            content = gzip.compress(header + array.astype(dtype).tobytes())
            (folder / "mnist" / f"{part}-{name}-ubyte.gz").write_bytes(content)


IMAGES = np.arange(5 * 784).reshape(5, 28, 28) % 256
LABELS = np.array([3, 1, 4, 1, 5])


def test_images_are_rows_from_0_to_1(tmp_path: Path) -> None:
    write_mnist(tmp_path, IMAGES, LABELS)
    data = Mnist.load(tmp_path, batch=3)
    scaled = IMAGES.reshape(5, 784).astype(np.float32) / 255
    first, second = data.batches("valid", epoch=0, seed=0)
    assert (first.images.dtype, first.images.shape, second.rows) == (np.float32, (3, 784), 2)
    np.testing.assert_array_equal(first.images, scaled[:3])
    assert (*first.labels, *second.labels) == tuple(LABELS)
    shown = [row for one in data.batches("train", epoch=0, seed=0) for row in one.images]
    assert sorted(row.tolist() for row in shown) == sorted(scaled.tolist())
    wide = next(Mnist.load(tmp_path, dtype="float64").batches("valid", epoch=0, seed=0))
    assert wide.images.dtype == np.float64


def test_the_first_images_of_a_file_can_be_had_alone(tmp_path: Path) -> None:
    write_mnist(tmp_path, IMAGES, LABELS)
    data = Mnist.load(tmp_path, train_count=2, valid_count=1)
    assert data.train.labels.tolist() == [3, 1]
    assert (data.count("valid"), data.batch_count("valid")) == (1, 1)
    with pytest.raises(OptionError, match="valid_count must be at most 5, all that there are"):
        Mnist.load(tmp_path, valid_count=6)


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (IMAGES[:, :, :27], LABELS, "images-idx3-ubyte.gz: expected images of 28 x 28 bytes, got"),
        (IMAGES, LABELS[:4], "labels-idx1-ubyte.gz: expected 5 labels, .* got 4"),
        (IMAGES, LABELS + 0.5, "labels-idx1-ubyte.gz: expected whole numbers, got float32"),
        (IMAGES, LABELS * np.nan, "labels-idx1-ubyte.gz: expected whole numbers, got float32"),
        (IMAGES, np.array([3, 1, 10, 1, 5]), "ubyte.gz: label 2: expected 0 to 9, got 10"),
        (IMAGES[:0], LABELS[:0], "images-idx3-ubyte.gz: has no images; remove it"),
    ],
)
def test_images_and_labels_that_do_not_fit_are_refused(
    tmp_path: Path, images: np.ndarray, labels: np.ndarray, said: str
) -> None:
    write_mnist(tmp_path, images, labels)
    with pytest.raises(FileFormatError, match=said):
        Mnist.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"batch": 0}, "batch must be"), ({"dtype": "int8"}, "dtype must be float32 or float64")],
)
def test_options_of_images_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Mnist.synthetic(0, train_count=1, valid_count=1, **options)


def write_text(folder: Path, name: str, train: str, valid: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "train.txt").write_text(train, encoding="utf-8")
    (folder / name / "dev.txt").write_text(valid, encoding="utf-8")
    return folder


def test_words_of_trees_are_those_of_all_training_trees(tmp_path: Path) -> None:
    train = "(2 (2 a) (3 b))\n(2 (2 b) (3 c))\n"
    data = SentimentTrees.load(
        write_text(tmp_path, "sst", train, "(1 (2 c) (0 new))\n"), train_count=1
    )
    assert data.vocabulary.words == ("<unk>", "b", "a", "c")
    (tree,) = data.batches("valid", epoch=0, seed=0)
    assert (tree.words.tolist(), tree.labels.tolist()) == ([3, 0], [2, 0, 1])
    assert (tree.left.tolist(), tree.right.tolist(), tree.parent.tolist()) == ([0], [1], [2, 2, -1])
    assert (tree.leaves, tree.nodes, data.count("train")) == (2, 3, 1)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    folder = write_text(tmp_path, "sst", "(2 a)\n", "(1 a)\n")
    assert SentimentTrees.load(folder).count("train") == 1
    (folder / "sst" / "train.txt").write_text("(2 a)\n(2 a)\n")
    assert SentimentTrees.load(folder).count("train") == 2


def test_frequent_words_have_ids_and_all_have_characters(tmp_path: Path) -> None:
    train = "ab|O " * 6 + "\n" + "c|I-PER " * 5 + "\n"
    folder = write_text(tmp_path, "wikiner", train, "ab|O c|B-LOC dab|O\n")
    data = WikiNer.load(folder, train_count=1)
    assert data.vocabulary.words == ("<unk>", "ab")
    assert data.characters.words == ("<unk>", "<w>", "a", "b", "c")
    assert data.tags == ("B-LOC", "I-PER", "O")
    (sentence,) = data.batches("valid", epoch=0, seed=0)
    assert (sentence.words.tolist(), sentence.frequent.tolist()) == (
        [1, 0, 0],
        [True, False, False],
    )
    assert [one.tolist() for one in sentence.characters] == [
        [1, 2, 3, 1],
        [1, 4, 1],
        [1, 0, 2, 3, 1],
    ]
    assert (sentence.tags.tolist(), sentence.length) == ([2, 0, 2], 3)


def test_equally_frequent_words_stand_in_the_order_of_the_text() -> None:
    vocabulary = Vocabulary.of(["b", "c", "a", "c", "<unk>"], reserved=("<w>", "a"))
    assert vocabulary.words == ("<unk>", "<w>", "a", "c", "b")
    assert len(vocabulary) == 5
    assert Vocabulary.of(["b", "c", "c"], min_count=2).words == ("<unk>", "c")


def test_synthetic_images_can_be_told_apart() -> None:
    data = Mnist.synthetic(0)
    centres = np.stack([data.train.images[data.train.labels == one].mean(0) for one in range(10)])
    distance = ((data.valid.images[:, None] - centres) ** 2).sum(-1)
    assert (distance.argmin(1) == data.valid.labels).mean() > 0.9


def test_synthetic_trees_follow_their_rule() -> None:
    data = SentimentTrees.synthetic(0)
    negation = data.vocabulary.ids["not"]
    trees = [*data.train, *data.valid]
    for tree in trees:
        value = tree.labels - 2
        for branch, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
            is_negated = left < tree.leaves and tree.words[left] == negation
            expected = -value[right] if is_negated else value[left] + value[right]
            assert value[tree.leaves + branch] == np.clip(expected, -2, 2)
    assert {1, 12} <= {tree.leaves for tree in trees}
    counts = np.bincount(np.concatenate([tree.labels for tree in trees]))
    assert counts.max() < 0.5 * counts.sum()
    assert min(tree.words.min() for tree in trees) > 0


def test_synthetic_molecules_follow_from_their_bonds() -> None:
    data = Qm9Dipoles.synthetic(0)
    molecules = list(data.batches("valid", epoch=0, seed=0))
    negativity = np.array([2.20, 2.55, 3.04, 3.44, 3.98])
    for one in molecules:
        own = negativity[one.atoms[:, :5].argmax(1)]
        sums = [np.abs(own[edges.source] - own[edges.target]).sum() for edges in one.edges]
        assert one.dipole_debye == pytest.approx(0.25 * np.dot(sums, [1, 2, 3, 1.5]))
    kinds = [sum(len(one.edges[kind].source) > 0 for one in molecules) for kind in range(4)]
    assert min(kinds) > 10
    target = np.array([one.dipole for one in data.batches("train", epoch=0, seed=0)])
    assert abs(target.mean()) < 0.15
    assert 0.8 < target.std() < 1.2


def test_synthetic_names_are_mostly_rare_and_end_as_their_tags_say() -> None:
    data = WikiNer.synthetic(0)
    other = data.tags.index("O")
    sentences = [*data.train, *data.valid]
    names: list[str] = []
    for one in sentences:
        np.testing.assert_array_equal(one.frequent, one.tags == other)
        for characters, tag in zip(one.characters, one.tags, strict=True):
            word = "".join(data.characters.words[number] for number in characters[1:-1])
            ends = ENDINGS.get(data.tags[tag].removeprefix("I-"), ())
            assert word.endswith(ends) == (tag != other)
            names += [word] if tag != other else []
    assert sum(count <= 5 for count in Counter(names).values()) > 0.9 * len(set(names))
    assert min(one.min() for sentence in sentences for one in sentence.characters) > 0
