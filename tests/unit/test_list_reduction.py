"""List reduction: the labels by hand, the counts of the paper, the order of batches."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ampsim.data import Dataset, ListBatch, ListOperation, ListReduction, reduce_list
from ampsim.errors import OptionError

GOLDEN = "1a29d1dffbecab5dde8aba10c19eedd23fbe07eb4c7d0154caaabe81192faf06"


@pytest.fixture(scope="module")
def paper() -> ListReduction:
    """The data set of Appendix B.2, whole."""
    return ListReduction.generate(seed=0)


@pytest.mark.parametrize(
    ("operation", "digits", "label"),
    [
        (ListOperation.MEAN, [7], 7),
        (ListOperation.MEAN, [2, 3], 2),  # 2.5, to even
        (ListOperation.MEAN, [3, 4], 4),  # 3.5, to even
        (ListOperation.MEAN, [9, 9, 8], 9),
        (ListOperation.ALTERNATING, [4], 4),  # nothing at odd places counts as 0
        (ListOperation.ALTERNATING, [1, 4], 7),  # -3
        (ListOperation.ALTERNATING, [0, 1, 1], 0),  # 1/2 - 1, to even
        (ListOperation.ALTERNATING, [0, 2, 1], 8),  # 1/2 - 2 = -3/2, to even is -2
        (ListOperation.ALTERNATING, [1, 2, 1, 1, 1], 0),  # 1 - 3/2
        (ListOperation.RANGE, [5], 0),
        (ListOperation.RANGE, [0, 9, 3], 9),
        (ListOperation.LENGTH, [0], 1),
        (ListOperation.LENGTH, [0] * 9, 9),
    ],
)
def test_labels_by_hand(operation: ListOperation, digits: list[int], label: int) -> None:
    assert reduce_list(operation, digits) == label


def test_an_operation_is_one_of_four() -> None:
    with pytest.raises(ValueError, match="9 is not a valid ListOperation"):
        reduce_list(9, [1])


def test_the_paper_has_100_000_and_10_000_lists(paper: ListReduction) -> None:
    assert (paper.count("train"), paper.count("valid")) == (100_000, 10_000)
    assert paper.batch == 100


def test_it_is_a_dataset(paper: ListReduction) -> None:
    dataset: Dataset[ListBatch] = paper
    assert dataset.name == "list_reduction"
    assert "modulo 10" in dataset.description


def test_lengths_operations_and_digits_are_uniform(paper: ListReduction) -> None:
    """Each count within five standard deviations of a uniform one."""
    tokens = paper.train.tokens
    counts = [
        np.bincount(paper.train.length, minlength=11)[2:],
        np.bincount(tokens[:, 0], minlength=14)[10:],
        np.bincount(tokens[:, 1:][tokens[:, 1:] >= 0], minlength=10),
    ]
    for count in counts:
        expected = count.sum() / len(count)
        assert np.abs(count - expected).max() < 5 * np.sqrt(expected)


def test_every_label_occurs(paper: ListReduction) -> None:
    assert np.bincount(paper.train.label, minlength=10).min() > 1000


def test_the_data_of_a_seed_are_what_they_always_were(paper: ListReduction) -> None:
    assert _digest(paper) == GOLDEN


def _digest(data: ListReduction) -> str:
    parts = [data.train.tokens, data.train.label, data.valid.tokens, data.valid.label]
    parts += [part for batch in data.batches("train", epoch=1, seed=0) for part in batch]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_another_process_under_another_hash_seed_has_the_same_data(hash_seed: str) -> None:
    code = (
        "import hashlib; from ampsim.data import ListReduction;"
        "data = ListReduction.generate(seed=0);"
        "parts = [data.train.tokens, data.train.label, data.valid.tokens, data.valid.label];"
        "parts += [part for batch in data.batches('train', epoch=1, seed=0) for part in batch];"
        "print(hashlib.sha256(b''.join(part.tobytes() for part in parts)).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == GOLDEN


def test_another_seed_gives_other_lists() -> None:
    one, other = (ListReduction.generate(seed, 100, 100) for seed in (0, 1))
    assert not np.array_equal(one.train.tokens, other.train.tokens)
    assert not np.array_equal(one.train.tokens, one.valid.tokens)


def test_a_smaller_data_set_holds_the_first_lists_of_a_larger_one(paper: ListReduction) -> None:
    small = ListReduction.generate(seed=0, train_count=1234, valid_count=17)
    np.testing.assert_array_equal(small.train.tokens, paper.train.tokens[:1234])
    np.testing.assert_array_equal(small.valid.label, paper.valid.label[:17])


def test_training_is_shuffled_anew_each_epoch_and_for_each_seed(paper: ListReduction) -> None:
    runs = [_lengths(paper, epoch, seed) for epoch, seed in ((0, 0), (1, 0), (0, 1))]
    assert runs[0] == _lengths(paper, 0, 0)
    assert runs[0] != runs[1]
    assert runs[0] != runs[2]


def _lengths(data: ListReduction, epoch: int, seed: int) -> list[int]:
    return [batch.steps for batch in data.batches("train", epoch=epoch, seed=seed)]


def test_lists_change_partners_from_epoch_to_epoch(paper: ListReduction) -> None:
    first, second = (
        {batch.tokens.tobytes() for batch in paper.batches("train", epoch=epoch, seed=0)}
        for epoch in (0, 1)
    )
    assert not first & second


def test_validation_has_one_order_by_length(paper: ListReduction) -> None:
    runs = [list(paper.batches("valid", epoch=e, seed=s)) for e, s in ((0, 0), (5, 9))]
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
        np.testing.assert_array_equal(one.labels, other.labels)
    assert all(one.steps <= other.steps for one, other in pairwise(runs[0]))


def test_arrays_are_read_only(paper: ListReduction) -> None:
    batch = next(paper.batches("train", epoch=0, seed=0))
    for array in (*batch, paper.train.tokens, paper.train.length, paper.valid.label):
        assert not array.flags.writeable


@pytest.mark.parametrize("option", ["train_count", "valid_count", "batch"])
@pytest.mark.parametrize("value", [0, -5, 1.5, "10", None, True])
def test_counts_are_whole_numbers_from_one(option: str, value: object) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(OptionError, match=rf"{option} must be a whole number >= 1, got "):
        ListReduction.generate(0, **options)


def test_a_seed_is_a_whole_number_from_zero() -> None:
    with pytest.raises(OptionError, match="seed must be a whole number >= 0, got -1"):
        ListReduction.generate(-1)


def test_a_split_is_train_or_valid() -> None:
    data = ListReduction.generate(0, 10, 10)
    with pytest.raises(AssertionError, match="a split is 'train' or 'valid', got 'test'"):
        data.count("test")  # pyright: ignore[reportArgumentType] -- the wrong name is the test
