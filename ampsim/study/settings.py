"""Options of a model as users write them: KEY=VALUE."""

from __future__ import annotations

from collections.abc import Iterable

from ampsim.errors import OptionError


def settings_of(texts: Iterable[str]) -> dict[str, str]:
    """Split each KEY=VALUE at its first "="; `load_model` reads the values by type.

    Raises:
        OptionError: one has no "=" or no key, or two have the same key.

    >>> settings_of(["hidden=64", "dtype=float64"])
    {'hidden': '64', 'dtype': 'float64'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not key:
            raise OptionError(f"a setting must be KEY=VALUE, got {text!r}; for example hidden=64")
        if key in settings:
            raise OptionError(f"settings must differ, got {key} twice")
        settings[key] = value
    return settings
