"""What is written as TOML reads back as it was."""

import tomllib
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampsim.text import to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.one_of(TEXT, st.integers(), st.floats(allow_nan=False), st.booleans())
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_any_nested_document_reads_back_equal(document):
    assert tomllib.loads(to_toml(document)) == document


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ([None], 'x = [\n    "none",\n]\n'),
        (float("nan"), "x = nan\n"),
        (float("-inf"), "x = -inf\n"),
        (np.float64(0.1), "x = 0.1\n"),
        (np.int64(3), "x = 3\n"),
        ("\ud800", 'x = "?"\n'),
        (("amp", None), 'x = [\n    "amp",\n    "none",\n]\n'),
        ({"a": None, 1: {"b": None}}, "[x.1]\n"),
        (PurePosixPath("a"), 'x = "a"\n'),
    ],
)
def test_values_that_toml_lacks_or_writes_in_its_own_way(value, text):
    assert to_toml({"x": value}) == text
