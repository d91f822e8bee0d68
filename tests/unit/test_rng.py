"""Seed streams: one per purpose, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from ampsim.errors import OptionError
from ampsim.rng import stream

GOLDEN = [529269, 207159, 590790, 298621]


def _numbers(seed: int, purpose: str, *indices: int) -> list[int]:
    return stream(seed, purpose, *indices).integers(0, 1_000_000, 4).tolist()


def test_numbers_of_a_stream_are_what_they_always_were() -> None:
    assert _numbers(0, "order", 1) == GOLDEN


def test_every_part_of_the_name_makes_another_stream() -> None:
    names: list[tuple[int, str, tuple[int, ...]]] = [
        (0, "order", ()),
        (0, "order", (0,)),
        (0, "order", (1,)),
        (0, "order", (0, 0)),
        (0, "order", (0, 1)),
        (0, "order", (2**32,)),
        (0, "order:0", ()),
        (0, "order:", (0,)),
        (0, "placement", (0,)),
        (1, "order", (0,)),
        (2**62, "order", (0,)),
    ]
    drawn = {tuple(_numbers(seed, purpose, *indices)) for seed, purpose, indices in names}
    assert len(drawn) == len(names)


def test_streams_of_one_run_are_uncorrelated() -> None:
    rows = [stream(0, "noise", index).standard_normal(10_000) for index in range(8)]
    correlation = np.corrcoef(rows) - np.eye(8)
    assert np.abs(correlation).max() < 0.05


def test_using_one_stream_leaves_another_as_it_is() -> None:
    stream(0, "placement").random(1000)
    assert _numbers(0, "order", 1) == GOLDEN


def test_numpy_integers_are_seeds_too() -> None:
    assert _numbers(np.int64(3), "order") == _numbers(3, "order")  # pyright: ignore[reportArgumentType] -- NumPy's integers are no int to a type checker


@pytest.mark.parametrize("seed", [-1, 1.0, "0", None, True])
def test_a_seed_is_a_whole_number_from_zero(seed: object) -> None:
    with pytest.raises(OptionError, match=r"seed must be a whole number >= 0, got .*; try seed=0"):
        stream(seed, "order")  # pyright: ignore[reportArgumentType] -- the wrong type is the test


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_another_process_under_another_hash_seed_draws_the_same(hash_seed: str) -> None:
    code = (
        "from ampsim.rng import stream;"
        "print(stream(0, 'order', 1).integers(0, 1_000_000, 4).tolist())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == str(GOLDEN)
