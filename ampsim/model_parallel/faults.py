"""Faults of a model in words: what a node sent wrongly, where a run got stuck, data with NaN."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np

from ampsim.constant import unmasked
from ampsim.errors import AmpsimError, OptionError, SimulationError
from ampsim.ir import Node, Sends, Standin, State
from ampsim.text import short
from ampsim.user_code import user_code

BatchesOf: TypeAlias = Callable[[Literal["train", "valid"]], Iterable[Any]]
"""The batches of an epoch, by split."""


def fault_of(sends: Any, ports: int | Sequence[str]) -> str | None:
    """Return a sentence for the first thing that is wrong, or None.

    Args:
        sends: what was returned.
        ports: how many ports there are to send to, or their names, where they may be named.
    """
    if not isinstance(sends, tuple | list):
        return f"expected a list of (port, state, payload), got {type(sends).__name__}"
    for send in cast("list[Any]", sends):
        if not isinstance(send, tuple) or len(cast("tuple[Any, ...]", send)) != 3:
            shown = repr(cast("object", send))[:80]
            return f"expected (port, state, payload) in the list, got {shown}"
        port, state, payload = cast("tuple[Any, Any, Any]", send)
        count = ports if isinstance(ports, int) else len(ports)
        if not isinstance(port, int | np.integer) or not 0 <= port < count:
            known = "" if isinstance(ports, int) else f" or one of {', '.join(ports)}"
            return f"expected a port below {count}{known}, got {short(port)}"
        if payload is not None and not hasattr(payload, "nbytes"):
            return f"expected an array or None at port {port}, got {type(payload).__name__}"
        if (fault := fault_of_state(state)) is not None:
            return fault
    return None


def misfit_of(sends: Sends, element_bytes: int) -> str | None:
    """Return a sentence for the first array of floats in another precision, or None.

    NumPy would compute with it, in the wider of the two precisions, and every message that
    follows from it would be charged so.

    Raises:
        OptionError: an array has masked numbers.
    """
    for port, _state, payload in sends:
        unmasked("a payload of the model's pump", payload)
        dtype = getattr(payload, "dtype", None)
        is_float = isinstance(dtype, np.dtype) and dtype.kind == "f"
        if not is_float and not isinstance(payload, Standin):
            continue
        if payload.itemsize != element_bytes:
            return (
                f"expected float{8 * element_bytes}, the model's dtype, at port {port}, "
                f"got float{8 * payload.itemsize}; cast it in the data, which ArrayDataset does to "
                "its dtype, or in the pump, or give the model this dtype"
            )
    return None


def fault_of_state(state: Any) -> str | None:
    """Return a sentence if `state` is none, or None.

    >>> fault_of_state((0,))
    >>> fault_of_state(7).partition(";")[0]
    'expected a state that is a NamedTuple, its first field the instance, got the int 7'
    """
    if isinstance(state, tuple) and state:
        return _fault_as_key(cast("tuple[Any, ...]", state))
    shown = repr(cast("object", state))[:40]
    return (
        f"expected a state that is a NamedTuple, its first field the instance, got the "
        f"{type(cast('object', state)).__name__} {shown}; declare one, as in "
        "class Token(NamedTuple): instance: int, and send Token(instance)"
    )


def _fault_as_key(state: tuple[Any, ...]) -> str | None:
    try:
        hash(state)
    except TypeError as error:
        return (
            f"expected a state of numbers, text and tuples, which can be a key, got one that "
            f"cannot: {error}; keep such a value in the payload"
        )
    return None


def uncounted(learner: Node, state: State) -> SimulationError:
    """Return the error of a backward step that brought a gradient, and did not count it."""
    return SimulationError(
        f"{learner.describe()} counted no gradient of {state}; its method backward must call "
        "self.count_gradient(state, version) for each gradient that is not None"
    )


def stray_of(error: Exception, states: list[State], in_flight: Collection[int]) -> str | None:
    """Return a sentence if `error` is that the instance of a state is not in flight, or None."""
    for state in states:
        if error.args == (state[0],) and isinstance(error, KeyError) and state[0] not in in_flight:
            return (
                f"no instance {state[0]!r} is in flight; "
                "a state's first field must stay the instance"
            )
    return None


PARTS_TOLD: Final = 8
"""Nodes and workers named in a message, at most; chosen."""

STATES_TOLD: Final = 3
"""States named of each node, at most; chosen."""

LENGTH_MAX: Final = 300
"""Characters of one part of a message, at most; chosen."""


def why_stuck(
    nodes: Iterable[Node], out_of_turn: Sequence[str], unfinished: list[int]
) -> str | None:
    """Say what is left although nothing happens any more: one line; None where nothing is left.

    First come workers whose messages wait out of turn, then nodes that wait for an input, then
    those that wait for a backward message, which is most often what the others hold up.

    Args:
        nodes: of the graph.
        out_of_turn: what the workers say that hold messages out of turn.
        unfinished: instances in flight.
    """
    waits = sorted((part for node in nodes for part in _waits_of(node)), key=itemgetter(0))
    parts = [*out_of_turn, *(text for _is_backward, text in waits)]
    if not parts and not unfinished:
        return None
    what = f"instances {unfinished[:5]} are unfinished" if unfinished else "caches remain"
    if not parts:
        return f"{what}; no node holds anything of them"
    more = [f"and {len(parts) - PARTS_TOLD} more"] if len(parts) > PARTS_TOLD else []
    told = "; ".join([*(_short(part) for part in parts[:PARTS_TOLD]), *more])
    turns = "the schedule's turns do not fit what comes, or " if out_of_turn else ""
    return f"{what}: {told}; {turns}a node swallowed a message or changed its state"


def _waits_of(node: Node) -> Iterator[tuple[bool, str]]:
    """Tell each thing that a node waits for: (whether it is a backward message, sentence)."""
    states: dict[str, list[str]] = {}
    with user_code(f"pending of {node.describe()}, which must return states, failed"):
        for state in node.pending():
            states.setdefault(node.awaits(state), []).append(str(state))
    for what, held in states.items():
        more = f" and {len(held) - STATES_TOLD} more" if len(held) > STATES_TOLD else ""
        text = f"{node.describe()} waits for {what} of {', '.join(held[:STATES_TOLD])}{more}"
        yield what == Node.awaits(node, None), text


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LENGTH_MAX else f"{line[: LENGTH_MAX - 3]}..."


BATCHES_COMPARED: Final = 8
"""Batches of training that are asked for twice; chosen."""

LOOKED_AT_BYTES_MAX: Final = 2e9
"""Of a split's arrays that are looked at before anything runs; chosen: a few seconds."""

_SPLITS: Final[dict[Literal["train", "valid"], str]] = {"train": "training", "valid": "validation"}

_Fed: TypeAlias = Callable[[Any], Iterable[Any]]
"""What a batch brings in: the payloads of its messages, or what a program is fed."""


def not_finite(
    pump: Callable[[int, Any], Any] | None,
    make_program: Callable[[], Any] | None,
    batches: BatchesOf,
) -> str | None:
    """Return the first batch with a number that is not finite, in words; None where there is none.

    Args:
        pump: of the model.
        make_program: of the model; it says what is fed where there is no pump.
        batches: those that are looked at.
    """
    with contextlib.suppress(AmpsimError):  # of the user's code, which a run tells by itself
        fed = _fed(pump, make_program)
        for split, words in _SPLITS.items():
            for place, batch in enumerate(batches(split)):
                where = f"batch {place} of the {words} data"
                if (fault := _wrong_in(where, _arrays(fed, batch, where))) is not None:
                    return fault
    return None


def require_sound(
    nodes: Iterable[Node],
    pump: Callable[[int, Any], Any] | None,
    make_program: Callable[[], Any] | None,
    data: Any,
) -> None:
    """Refuse data of an epoch with numbers that are not finite, or that are not what they say.

    Args:
        nodes: of the graph; where one has no numbers, the data need have none.
        pump: of the model.
        make_program: of the model; it says what is fed where there is no pump.
        data: the data set, as a run sees it; of a split with more than `LOOKED_AT_BYTES_MAX` the
            first part is looked at.

    Raises:
        OptionError: a number is not finite, counts are not those of the batches, or the same epoch
            of the same seed has other numbers when it is asked for again.
        SimulationError: a batch cannot be brought in.
    """
    if any(node.is_shape_only for node in nodes):
        return
    fed, batches = _fed(pump, make_program), partial(data.batches, epoch=0, seed=0)
    for split, words in _SPLITS.items():
        rows = count = size_bytes = 0
        for count, batch in enumerate(batches(split), 1):
            where = f"batch {count - 1} of the {words} data"
            arrays = _arrays(fed, batch, where)
            if (fault := _wrong_in(where, arrays)) is not None:
                raise OptionError(f"{fault}: mend the data")
            rows += batch.rows
            size_bytes += sum(array.nbytes for array in arrays)
            if size_bytes > LOOKED_AT_BYTES_MAX:
                break
        else:
            _require_counts(split, data, rows, count)
    if _first(fed, batches("train")) != _first(fed, batches("train")):
        raise OptionError(
            "the data must be the same whenever the same epoch of the same seed is asked for, got "
            "others; draw them from np.random.default_rng([seed, epoch])"
        )


def _require_counts(split: Literal["train", "valid"], data: Any, rows: int, count: int) -> None:
    said = data.epoch_batches(0) if split == "train" else data.batch_count(split)
    if (data.count(split), said) != (rows, count):
        raise OptionError(
            f"count({split!r}) and batch_count({split!r}) of the data must say how many items and "
            f"batches they give, {rows} and {count}, got {data.count(split)} and {said}"
        )


def _first(fed: _Fed, batches: Iterable[Any]) -> str:
    """A digest of the first batches."""
    hasher = hashlib.sha256()
    for batch in islice(batches, BATCHES_COMPARED):
        for one in _arrays(fed, batch, "a batch of the data"):
            hasher.update(np.ascontiguousarray(one).data)
    return hasher.hexdigest()


def _fed(pump: Callable[[int, Any], Any] | None, make_program: Callable[[], Any] | None) -> _Fed:
    if pump is not None:
        return partial(_payloads, pump)
    with user_code("the model's make_program failed"):
        feed = cast("Any", make_program)().feed
    return lambda batch: feed(batch).values()


def _payloads(pump: Callable[[int, Any], Any], batch: Any) -> list[Any]:
    sends = pump(0, batch)
    try:
        return [payload for _port, _state, payload in sends]
    except (TypeError, ValueError):  # no messages: the controller says so
        return []


def _arrays(fed: _Fed, batch: Any, where: str) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """The arrays of numbers that a batch brings in."""
    with user_code(f"the model fails to bring in {where}"):
        arrays = [cast("Any", one) for one in fed(batch) if isinstance(one, np.ndarray)]
    return [one for one in arrays if one.dtype.kind != "O"]


def _wrong_in(where: str, arrays: Iterable[np.ndarray[Any, np.dtype[Any]]]) -> str | None:
    """The first array with a number that is not finite, in words."""
    for one in arrays:
        wrong: Any = one[~np.isfinite(one)] if one.dtype.kind == "f" else one[:0]
        if wrong.size:
            return f"{where} has {wrong.flat[0]} in a {one.dtype} array of shape {one.shape}"
    return None
