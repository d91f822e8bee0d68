"""The real files, where they are: counts as the notes that come with them have them."""

from __future__ import annotations

import os
import time
from collections import Counter

import numpy as np
import pytest

from ampsim.data import Mnist, Qm9Dipoles, SentimentTrees, WikiNer, find_file, survey
from ampsim.data.molecules import read_qm9
from ampsim.data.sentiment_trees import read_trees

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("AMPSIM_DATA"), reason="AMPSIM_DATA names no data folder"
    ),
]


def elapsed_s(load: object) -> float:
    """Seconds of the processor, so that other programs do not count."""
    assert callable(load)
    start = time.process_time()
    load()
    return time.process_time() - start


def test_every_file_is_known_to_the_last_bit() -> None:
    assert [row.file for row in survey() if not row.is_known] == []


def test_mnist_is_whole() -> None:
    assert elapsed_s(Mnist.load) < 1.5
    data = Mnist.load()
    assert (data.count("train"), data.count("valid")) == (60_000, 10_000)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.train.labels).tolist() == train
    valid = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(data.valid.labels).tolist() == valid
    values, counts = np.arange(256) / 255, np.bincount(data.train.images.ravel(), minlength=256)
    mean = np.average(values, weights=counts)
    std = np.sqrt(np.average((values - mean) ** 2, weights=counts))
    assert (mean, std) == pytest.approx((0.1307, 0.3081), abs=5e-5)


def test_the_sentiment_treebank_is_whole() -> None:
    assert elapsed_s(SentimentTrees.load) < 3
    data = SentimentTrees.load()
    assert (data.count("train"), data.count("valid")) == (8_544, 1_101)
    for trees, nodes, longest, roots in (
        (data.train, 318_582, 52, [1092, 2218, 1624, 2322, 1288]),
        (data.valid, 41_447, 49, [139, 289, 229, 279, 165]),
    ):
        assert sum(tree.nodes for tree in trees) == nodes
        assert sum(tree.leaves for tree in trees) == (nodes + len(trees)) / 2
        assert max(tree.leaves for tree in trees) == longest
        assert np.bincount([tree.labels[-1] for tree in trees]).tolist() == roots


def test_three_words_of_the_treebank_hold_a_no_break_space_and_its_trees_are_binary() -> None:
    """Who splits at that space counts 163,560 leaves, 18,278 words and 3 nodes not binary."""
    trees = read_trees(find_file("sst", "train"))
    words = Counter(word for tree in trees for word in tree.words)
    assert sum(words.values()) == 163_563
    assert len(words) == 18_280
    assert sum(count for word, count in words.items() if "\u00a0" in word) == 3
    assert SentimentTrees.load().vocabulary.words[0] == "<unk>"
    assert len(SentimentTrees.load().vocabulary) == 18_281


def test_the_test_trees_are_whole() -> None:
    trees = read_trees(find_file("sst", "test"))
    assert len(trees) == 2_210
    assert sum(len(tree.labels) for tree in trees) == 82_600
    assert sum(len(tree.words) for tree in trees) == 42_405


def test_qm9_has_the_molecules_and_labels_that_it_should() -> None:
    assert elapsed_s(lambda: Qm9Dipoles.load(throughput=True)) < 5
    arrays = read_qm9(find_file("qm9", "molecules"))
    assert (arrays.count, len(arrays.z), len(arrays.bonds)) == (128_818, 2_331_706, 2_418_116)
    known = arrays.mu[~np.isnan(arrays.mu)]
    assert len(known) == 16_845
    assert (known.mean(dtype=float), known.std(dtype=float)) == pytest.approx(
        (2.6633, 1.4891), abs=5e-5
    )
    labelled, whole = Qm9Dipoles.load(), Qm9Dipoles.load(throughput=True)
    assert (labelled.count("train"), labelled.count("valid")) == (15_161, 1_684)
    assert (whole.count("train"), whole.count("valid")) == (115_937, 12_881)


def test_the_first_atoms_of_qm9_are_methane() -> None:
    data = Qm9Dipoles.load(throughput=True)
    methane = data.train.cut(0, data.mean_debye, data.std_debye)
    assert (methane.index, methane.atom_count, methane.dipole_debye) == (1, 5, 0)
    assert methane.atoms[0, -1] == 1
    assert methane.edges[0].source.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]


def test_wikiner_has_the_sentences_and_tags_that_it_should() -> None:
    assert elapsed_s(WikiNer.load) < 3
    data = WikiNer.load()
    tags = Counter(data.tags[tag] for sentence in data.train for tag in sentence.tags)
    assert (data.count("train"), sum(tags.values())) == (10_000, 248_038)
    assert tags["O"] == 213_949
    assert tags["I-PER"] == 11_318
    assert tags["I-LOC"] == 9_485
    assert tags["I-MISC"] == 8_854
    assert tags["I-ORG"] == 4_385
    assert sum(count for tag, count in tags.items() if tag.startswith("B-")) == 47
    valid = Counter(data.tags[tag] for sentence in data.valid for tag in sentence.tags)
    assert (data.count("valid"), sum(valid.values())) == (1_696, 39_007)
    assert [valid[tag] for tag in ("O", "I-ORG", "I-PER", "I-LOC", "I-MISC")] == [
        32_576,
        1_958,
        1_634,
        1_447,
        1_392,
    ]


def test_the_words_with_rows_of_their_own_occur_more_than_five_times() -> None:
    data = WikiNer.load()
    counts = Counter(number for sentence in data.train for number in sentence.words.tolist())
    assert len(data.vocabulary) == 4_652
    assert min(count for number, count in counts.items() if number) == 6
    frequent = sum(int(sentence.frequent.sum()) for sentence in data.train)
    assert frequent / 248_038 == pytest.approx(0.8546, abs=5e-5)
