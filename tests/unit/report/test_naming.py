"""Names of files made of users' names."""

from __future__ import annotations

import pytest

from ampsim.report.words import slug


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("amp", "amp"), ("1F1B", "1f1b"), ("../../x", "x"), ("..", "unnamed"), ("", "unnamed"),
        ("é à", "e-a"), ("日本", "unnamed"), ("a/b\\c:d", "a-b-c-d"), (".hidden", "hidden"),
    ],
)  # fmt: skip
def test_a_slug_is_safe_and_close_to_the_name(name, safe):
    assert slug(name) == safe


def test_a_slug_is_short():
    assert len(slug("x" * 300)) <= 60
