"""What holds for list-reduction data of any seed and size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ampsim.data import ListOperation, ListReduction, Split, reduce_list

every_split = pytest.mark.parametrize("split", ["train", "valid"])
seeds = st.integers(0, 2**40)
counts = st.integers(1, 700)
batches = st.integers(1, 120)


@given(seed=seeds, count=counts)
@example(seed=0, count=20_000)  # every operation, length and kind of half many times
@settings(deadline=None)
def test_labels_of_all_lists_equal_those_of_one_list_at_a_time(seed: int, count: int) -> None:
    lists = ListReduction.generate(seed, train_count=count, valid_count=1).train
    rows = zip(lists.tokens.tolist(), lists.length.tolist(), strict=True)
    labels = [reduce_list(tokens[0], tokens[1:length]) for tokens, length in rows]
    assert lists.label.tolist() == labels


@given(digits=st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_a_label_is_what_the_paper_writes_in_python_unless_it_is_a_half(digits: list[int]) -> None:
    """In floating point, and the same at halves that it represents exactly."""
    odd = digits[1::2] or [0]
    results = {
        ListOperation.MEAN: float(np.mean(digits)),
        ListOperation.ALTERNATING: float(np.mean(digits[0::2]) - np.mean(odd)),
        ListOperation.RANGE: max(digits) - min(digits),
        ListOperation.LENGTH: len(digits),
    }
    for operation, result in results.items():
        near_half = abs(result % 1 - 0.5) < 1e-9 and result % 1 != 0.5
        assert near_half or reduce_list(operation, digits) == round(result) % 10


@given(seed=seeds, count=counts)
@settings(deadline=None)
def test_a_list_is_an_operation_then_digits_then_padding(seed: int, count: int) -> None:
    lists = ListReduction.generate(seed, train_count=1, valid_count=count).valid
    assert lists.tokens.shape == (count, 10)
    assert lists.tokens.dtype == np.int8
    place = np.arange(10)
    inside = (place >= 1) & (place < lists.length[:, None])
    assert np.isin(lists.tokens[:, 0], list(ListOperation)).all()
    assert ((lists.tokens[inside] >= 0) & (lists.tokens[inside] <= 9)).all()
    assert (lists.tokens[place >= lists.length[:, None]] == -1).all()
    assert ((lists.length >= 2) & (lists.length <= 10)).all()


@every_split
@given(seed=seeds, count=counts, batch=batches, epoch=st.integers(0, 50))
@settings(deadline=None)
def test_an_epoch_has_every_list_once_with_its_label(
    split: Split, seed: int, count: int, batch: int, epoch: int
) -> None:
    data = ListReduction.generate(seed, count, count, batch)
    lists = data.train if split == "train" else data.valid
    rows = zip(lists.tokens.tolist(), lists.length.tolist(), lists.label.tolist(), strict=True)
    expected = Counter((*tokens[:length], label) for tokens, length, label in rows)
    found: Counter[tuple[int, ...]] = Counter()
    for one in data.batches(split, epoch=epoch, seed=seed):
        found.update(
            (*tokens, label)
            for tokens, label in zip(one.tokens.T.tolist(), one.labels.tolist(), strict=True)
        )
    assert found == expected


@every_split
@given(seed=seeds, count=counts, batch=batches)
@settings(deadline=None)
def test_batches_are_full_but_for_the_last_of_each_length(
    split: Split, seed: int, count: int, batch: int
) -> None:
    data = ListReduction.generate(seed, count, count, batch)
    given_batches = list(data.batches(split, epoch=0, seed=seed))
    assert len(given_batches) == data.batch_count(split)
    for steps in range(2, 11):
        rows = [one.rows for one in given_batches if one.steps == steps]
        assert sum(size < batch for size in rows) <= 1
        assert all(1 <= size <= batch for size in rows)


@every_split
@given(seed=seeds, count=counts, batch=batches)
@settings(deadline=None)
def test_a_batch_is_step_major_contiguous_and_ready_to_index(
    split: Split, seed: int, count: int, batch: int
) -> None:
    data = ListReduction.generate(seed, count, count, batch)
    for one in data.batches(split, epoch=0, seed=seed):
        assert one.tokens.shape == (one.steps, one.rows)
        assert one.labels.shape == (one.rows,)
        assert one.tokens.flags.c_contiguous
        assert one.labels.flags.c_contiguous
        assert one.tokens.dtype == one.labels.dtype == np.intp
        assert (one.tokens[0] >= 10).all()
        assert (one.tokens[1:] <= 9).all()
