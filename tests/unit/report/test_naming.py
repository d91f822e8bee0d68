"""Names of files made of users' names."""

from __future__ import annotations

import pytest

from ampsim.report.words import slug, slugs


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("amp", "amp"), ("1F1B", "1f1b"), ("../../x", "x"), ("..", "unnamed"), ("", "unnamed"),
        ("é à", "e-a"), ("日本", "unnamed"), ("a/b\\c:d", "a-b-c-d"), (".hidden", "hidden"),
    ],
)  # fmt: skip
def test_a_slug_is_safe_and_close_to_the_name(name, safe):
    assert slug(name) == safe


def test_slugs_are_short_and_all_different():
    found = slugs(["x" * 300, "x" * 301, "日", "本"])
    assert len(set(found.values())) == 4
    assert max(map(len, found.values())) <= 63
