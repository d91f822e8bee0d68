"""Right calls where the surroundings are wrong: variables, home and cache folders, encodings."""

from __future__ import annotations

from mutation.case import Call, Command, Place
from mutation.command_line import BASES, QUICK, lay_out_all
from mutation.values import ESCAPE, PATHS

_VARIABLES: dict[str, tuple[str | None, ...]] = {
    "AMPSIM_DATA": (None, "", " ", "~", "~nobody-here", "x" * 300, ESCAPE, "\udcff", *PATHS),
    "COLUMNS": (None, "", "0", "-1", "1", "7", "x", "9" * 400, "1.5", "100000"),
    "LINES": ("", "0", "-1", "x"),
    "HOME": (None, "", "nowhere", "a-folder", "/dev/null", "x" * 300, "/proc"),
    "XDG_CACHE_HOME": (None, "", "/dev/null", "relative", "/proc", "x" * 300),
    "TMPDIR": ("nowhere", "/dev/null", ""),
    "TERM": (None, "", "dumb", "xterm-256color", "nonsense"),
    "NO_COLOR": ("1", ""),
}
_READ_AT_START: dict[str, tuple[str | None, ...]] = {
    "MPLBACKEND": ("inline", "module://matplotlib_inline.backend_inline", "x", "TkAgg", "", "pdf"),
    "MPLCONFIGDIR": ("/dev/null", "nowhere/deep", "", "a-fifo", "/proc"),
    "PYTHONIOENCODING": ("ascii", "latin-1", "ascii:strict", "utf-8:surrogateescape"),
    "LC_ALL": ("C", "POSIX", "nonsense", "de_DE.ISO-8859-1"),
    "PYTHONUTF8": ("0", "1"),
    "OPENBLAS_NUM_THREADS": ("0", "-1", "x", "1000"),
    "OMP_NUM_THREADS": ("0", "x"),
    "PYTHONOPTIMIZE": ("1", "2"),
    "PYTHONHASHSEED": ("0", "1"),
    "PYTHONUNBUFFERED": ("1",),
    "PYTHONDONTWRITEBYTECODE": ("1",),
}
"""Variables that Python or a library reads once, so that Python is started anew for them."""


def surroundings(place: Place) -> Call:
    """A right call with one or two odd variables of the environment."""
    random = place.random
    lay_out_all(place)
    is_real = random.random() < 0.25
    known = {**_VARIABLES, **_READ_AT_START} if is_real else _VARIABLES
    names = random.sample(list(known), random.choice((1, 1, 2)))
    if is_real and not set(names) & set(_READ_AT_START):
        names.append(random.choice(list(_READ_AT_START)))
    command = random.choice([*BASES, *QUICK, *QUICK])
    words = [command, *random.choice(BASES[command])]
    chosen = {name: random.choice(known[name]) for name in names}
    if command == "data" and "AMPSIM_DATA" in chosen:
        words = ["data"]
    return Command(words, environment=chosen, is_real=is_real)
