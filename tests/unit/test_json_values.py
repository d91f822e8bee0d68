"""What is no number in JSON becomes null, however deep it lies."""

import math

from ampsim.text import finite


def test_what_json_does_not_know_becomes_none_at_any_depth():
    given = {"a": math.nan, 2: [math.inf, (1.5, -math.inf)], "c": {"d": True, "e": "nan"}}
    assert finite(given) == {"a": None, "2": [None, [1.5, None]], "c": {"d": True, "e": "nan"}}
