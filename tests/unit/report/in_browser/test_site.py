"""A page of the documentation's site in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # selenium's sockets
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Sphinx and its extensions
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGE = f"""# {"a.long.name." * 6}

Words, and `{"a.long.name." * 6}`.

| {" | ".join(f"a-long-heading-{place}" for place in range(9))} |
|{"---|" * 9}
|{" `a_long_name_in_code` |" * 9}

```python
print("text", 1)  # a comment
```
"""


def test_a_page_of_the_site_fits_a_phone_and_its_code_can_be_read(open_page, tmp_path):
    application = pytest.importorskip("sphinx.application").Sphinx
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "index.md").write_text(PAGE, "utf-8")
    site = tmp_path / "site"
    application(tmp_path / "source", DOCS, site, tmp_path / "kept", "html", status=None).build()
    page = open_page(site / "index.html")
    with page.shown(375):
        assert page.overflow() == 0
        contrasts = page.contrasts()
    assert {
        words: ratio for words, ratio in contrasts.items() if ratio < 4.5 and words != "¶"
    } == {}
