"""Options of a model as users write them: KEY=VALUE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def with_data_folder(
    settings: Mapping[str, str], folder: str, model: str, options: Iterable[str]
) -> dict[str, str]:
    """Add the data folder, which is a model's option `folder`.

    Args:
        settings: those that were given.
        folder: the data folder.
        model: whose settings they are.
        options: names of the model's options.

    Raises:
        OptionError: the model reads no data from files, or `settings` name the folder too.
    """
    if "folder" not in options:
        raise OptionError(
            f"--data does not concern {model}, which reads no data from files "
            "(it has no option 'folder'); leave it out"
        )
    if "folder" in settings:
        raise OptionError(
            f"--data {folder} and --set folder={settings['folder']} say the same thing; "
            "leave one of them out"
        )
    return {**settings, "folder": folder}
