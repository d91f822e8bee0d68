"""The errors of ampsim; each message is one line.

A user's mistake raises a subclass of `AmpsimError`; the command line prints its text and exits with
code 2. A programmer's mistake is an `assert` or the exception it is, and keeps its traceback.
A message has four parts: what was expected, the value that came, where, and what to try.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from typing import Any, Final


class AmpsimError(Exception):
    """Base of every error that a user can cause and can repair."""


class OptionError(AmpsimError):
    """An option or argument has a value that it cannot have."""


class UnknownNameError(AmpsimError):
    """A model, device, schedule or field of that name does not exist."""


class FileFormatError(AmpsimError):
    """A file that a user wrote or fetched does not say what it must say."""


class GraphError(AmpsimError):
    """A graph breaks a rule of the intermediate representation."""


class OutputError(AmpsimError):
    """A result could not be written where the user wanted it."""


class SimulationError(AmpsimError):
    """A run could not go on; the message names node, state and virtual time.

    Attributes:
        partial: the `ampsim.Result` of what was finished, where there is one.
    """

    partial: Any = None


class Failure(str):
    """Why a run could not go on, in one line: text, so that it can be kept and sent.

    Attributes:
        traceback: how it came about, in many lines.
    """

    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException, more: str = "") -> Failure:
        """Make one of an exception that was caught, with more words behind it."""
        failure = cls(f"{error}{more}")
        failure.traceback = "".join(traceback.format_exception(error))
        return failure


class ExecutorError(AmpsimError):
    """The executor of runs elsewhere is gone; what came back of it before is whole."""


LOWER_RATE: Final = "try a lower learning rate"
"""How errors of runs that diverge end, but for those whose data are not finite."""

FEWER_IN_FLIGHT: Final = "try fewer instances in flight"
"""What errors of runs say first that ran out of memory under a schedule."""

OVERDUE: Final = "took longer than the limit of"
"""What is said of a run that was ended for its `run_limit_s`."""


class DivergenceError(SimulationError):
    """A loss or a weight stopped being a finite number."""


class StuckError(SimulationError):
    """Nothing is left to do, yet something is still waited for."""


class OutOfMemoryError(SimulationError):
    """A device's memory has no room for what has to lie there."""


class PlacementWarning(UserWarning):
    """The default placement is slower than another one on this cluster."""


def one_of(kind: str, name: object, known: Iterable[str], *, label: str = "known") -> str:
    """Sentence for an unknown name: what was asked for, the nearest known name, and all of them.

    Args:
        kind: what the name is a name of, such as "model".
        name: what came instead of a known name.
        known: the names that exist.
        label: what the known names are called in the sentence.

    >>> one_of("model", "treelstm", ["rnn", "tree_lstm"])
    "no model named 'treelstm'; did you mean 'tree_lstm'? known: rnn, tree_lstm"
    >>> one_of("device", "v100", ["p100", "v100-sxm2"])
    "no device named 'v100'; did you mean 'v100-sxm2'? known: p100, v100-sxm2"
    """
    names = sorted(known)
    asked = str(name)
    longer = [other for other in names if asked and other.startswith(asked)]
    near = sorted(longer, key=len) or difflib.get_close_matches(asked, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"no {kind} named {asked!r}{hint} {label}: {', '.join(names) or 'none'}"
