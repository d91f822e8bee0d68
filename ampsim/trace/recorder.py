"""A recorder keeps what a run does: spans, transfers, admissions, updates, ...; no statistics."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import pandas as pd

from ampsim.trace.kinds import COMPUTE_LANE, LANES, START, Kinds
from ampsim.trace.records import LOG_SCHEMAS, CausalRecords, Collectives, Log, log_of
from ampsim.trace.summary import DIRECTIONS, Summary
from ampsim.trace.table import (
    Columns,
    Field,
    KeptRows,
    RecordTable,
    Schema,
    Sink,
    plain_fields,
    schema,
)

TABLE_SCHEMAS: Final[dict[str, Schema]] = {
    "spans": schema(
        "worker node direction instance start_s end_s flop bytes staleness state lane operations "
        "cause",
        staleness=np.int32,
    ),
    "transfers": schema(
        "source target bytes start_s end_s sent_s held_s source_worker target_worker cause"
    ),
    "admissions": LOG_SCHEMAS["admissions"],
    "updates": schema("node time_s gradient_count staleness staleness_max", staleness=np.float64),
    "stashes": schema("node time_s bytes"),
    "epochs": schema(
        "epoch time_s loss accuracy instances train_accuracy valid_loss valid_instances train_s "
        "valid_s error train_error"
    ),
    "exchanges": schema(
        "rank server sends ready_s start_s merge_start_s merge_end_s end_s stalled_s waits_for "
        "bytes staleness distance is_mixed"
    ),
    "collectives": schema("ranks bytes first_s start_s end_s formula_s is_event"),
}
"""Columns of each table, with their types."""

MEMORY_CATEGORIES: Final = (
    "weights", "gradients", "optimizer", "stashes", "activations", "messages",
)  # fmt: skip
"""What bytes in a worker's memory are counted as."""

MEMORY_SCHEMA: Final = schema(f"worker {' '.join(MEMORY_CATEGORIES)} time_s")
SENDS: Final = ("gradient", "weights")
"""Names of the codes of what an exchange sends."""

WAITS: Final = ("nothing", "all", "turn", "lock", "reply", "bound")
"""Names of the codes of what an exchange makes a rank wait for."""

VALIDATION_COLUMNS: Final = (
    "epochs", "time_s", "instances", "valid_loss", "accuracy", "error", "valid_s",
)  # fmt: skip
NO_INSTANCE: Final = -1
NO_STALENESS: Final = -1
"""Of the span of what is no gradient."""


OnRows: TypeAlias = Callable[[str, pd.DataFrame], None]
"""Takes the name of a table and rows of it, in order."""


class LatestStep(NamedTuple):
    """A span, as far as a live view shows it."""

    worker: int
    direction: str
    start_s: float
    end_s: float


NODE_COLUMNS: Final = ("node", "source", "target")
_CODES: Final = {"direction": DIRECTIONS, "sends": SENDS, "waits_for": WAITS, "lane": LANES}
"""Columns of codes, with what these stand for."""


class Recorder:
    """Eight tables that grow during a run, and a summary of the spans that needs none of them.

    A row of `spans` is (kind, start, end, staleness, state, cause): the number that `kinds` gives
    (worker, node, direction, FLOP, bytes, operations), seconds, updates, the message's state, and
    what brought the message (`ampsim.trace.kinds`). Whoever adds one takes its `span_number`,
    which costs less than the table's `count`.
    `admissions` has a row whenever the controller lets instances in.

    Attributes:
        span_number: gives the number of the span that was added just now; to be called for each.
        memory: (worker, its fullest moments as (time, bytes of each category)); none where nobody
            counts.
        validations: (epochs, time, items trained on, loss, accuracy, error, seconds) of every
            validation, `VALIDATION_COLUMNS`.
        losses: (worker, start of the stop, time of the checkpoint, updates lost) of every stop
            after which a device went back to a checkpoint.
        checkpoints: (worker, start, end) of every checkpoint that took time.
        closures: from when on instances were kept out that there were, or were not any more.
        stand_ins: which transfers stand for a collective.
        placed: the worker of each node of a program.
        messages: of spans whose messages take time, by number: how many the step took from other
            places, and sent there. Empty where not all spans stay in memory.
        sent: how many messages went between a program's workers, by what they were.

    Args:
        nodes: node names; records hold a node's place in them.
        spans_kept: how many spans stay in memory, from the first; None for all.
        on_rows: called with a table's name and each chunk of its rows, as of `frame`; what comes
            in chunks is never whole in memory unless it is kept.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        workers: int,
        spans_kept: int | None = None,
        *,
        on_rows: OnRows | None = None,
    ) -> None:
        self._on_rows = on_rows
        self.nodes = tuple(nodes)
        self.states = States()
        self.summary = Summary(len(self.nodes), workers)
        self._kept = {
            name: KeptRows(schema, None if name == "epochs" else spans_kept)
            for name, schema in TABLE_SCHEMAS.items()
        }
        self._logs: dict[str, Log] = {}
        if spans_kept is not None:  # else all is kept anyway
            self._logs = {name: Log(schema) for name, schema in LOG_SCHEMAS.items()}
        self.span_number: Callable[[], int] = iter(range(sys.maxsize)).__next__  # can be pickled
        self.memory: Sequence[tuple[int, Sequence[tuple[float, Sequence[float]]]]] = ()
        self.validations: list[tuple[float, ...]] = []
        self.losses: list[tuple[int, float, float, int]] = []
        self.checkpoints: list[tuple[int, float, float]] = []
        self.closures: list[tuple[float, bool]] = [(0.0, False)]
        self.stand_ins = Collectives()
        self.placed: dict[str, int] = {}
        self.messages: dict[int, int] = {}
        self._has_all_spans = spans_kept is None
        self.sent: dict[str, int] = {}
        self.kinds = Kinds()
        self._tables: list[RecordTable] = []
        spelt_out = self._span_fields(), self._spelt_out
        self.spans = self._table("spans", self.summary, spelt_out=spelt_out)
        self.transfers = self._table("transfers")
        self.updates = self._table("updates", self.summary.take_updates)
        self.stashes = self._table("stashes")
        self.epochs = self._table("epochs")
        self.admissions = self._table("admissions")
        self.exchanges = self._table("exchanges")
        self.collectives = self._table("collectives")

    def _table(self, name: str, *sinks: Sink, spelt_out: Any = None) -> RecordTable:
        logs = [self._logs[name]] if name in self._logs else []
        fields, spell_out = spelt_out or (plain_fields(TABLE_SCHEMAS[name]), None)
        all_sinks = (self._kept[name], *logs, *sinks, *self._told(name))
        self._tables.append(RecordTable(fields, all_sinks, spell_out))
        return self._tables[-1]

    def _told(self, name: str) -> list[Sink]:
        """Sinks that hand a table's chunks on, with names instead of codes."""
        on_rows = self._on_rows
        if on_rows is None:
            return []
        return [lambda columns: on_rows(name, to_frame(columns, self.nodes, self.states.texts))]

    def add_nodes(self, names: Sequence[str]) -> None:
        """Know more nodes, behind those that are known."""
        self.nodes = (*self.nodes, *names)
        self.summary.grow(len(self.nodes))

    def without_staleness(self) -> Recorder:
        """This recorder, for those whose gradients are applied elsewhere.

        Staleness is counted where that happens; the spans of their gradients say none.
        """
        recorder = copy.copy(self)
        recorder.spans = cast("RecordTable", _WithoutStaleness(self.spans))
        return recorder

    def latest_span(self) -> tuple[int, float]:
        """Return the number of the span that was added last and its end; `START` and 0 of none."""
        rows = self.spans.latest(1)
        end_s: float = rows[0][2] if rows else self.summary.end_s  # they are added as they end
        return (self.spans.count - 1, end_s) if self.spans.count else (START, 0.0)

    def latest_steps(self, count: int) -> list[LatestStep]:
        """Return what workers computed last and is no column yet, in the order of the ends."""
        kinds: list[tuple[int, ...]] = self.kinds.all
        steps: list[LatestStep] = []
        for number, start_s, end_s, *_rest in self.spans.latest(count):
            kind = kinds[int(number)]
            worker, direction, lane = kind[0], kind[2], kind[-1]
            if worker >= 0 and lane == COMPUTE_LANE:
                steps.append(LatestStep(worker, DIRECTIONS[direction], start_s, end_s))
        return steps

    def note_messages(self, span: int, count: int) -> None:
        """Note how many messages the step of a span took from other places, and sent there."""
        if self._has_all_spans:
            self.messages[span] = count

    def note_closure(self, time_s: float, is_closed: bool) -> None:
        """Note that from now on instances are kept out that there are, or are not any more."""
        self.closures.append((time_s, is_closed))

    def _span_fields(self) -> dict[str, Field]:
        """The fields of a span's row: (number of its kind, start, end, staleness, state, cause)."""
        kinds = TABLE_SCHEMAS["spans"]
        return {
            "kind": Field(0, np.int64),
            "start_s": Field(1, kinds["start_s"]),
            "end_s": Field(2, kinds["end_s"]),
            "staleness": Field(3, kinds["staleness"]),
            "instance": Field(4, kinds["instance"], partial(map, itemgetter(0)), _instances_if_any),
            "state": Field(4, kinds["state"], self.states.codes),
            "cause": Field(5, kinds["cause"]),
        }

    def _spelt_out(self, columns: Columns) -> Columns:
        known = {**columns, **self.kinds.columns(columns["kind"])}
        return {name: known[name] for name in TABLE_SCHEMAS["spans"]}

    def flush_if_full(self) -> None:
        """Turn waiting rows into columns where enough wait."""
        for table in self._tables:
            table.flush_if_full()

    def flush(self) -> None:
        """Turn all waiting rows into columns."""
        for table in self._tables:
            table.flush()

    def records(self) -> CausalRecords:
        """Return all spans, transfers and admissions of the run, whether they are kept or not."""
        self.flush()
        logs = self._logs or {
            name: log_of(self._kept[name].columns(), name) for name in LOG_SCHEMAS
        }
        own = (logs[name] for name in LOG_SCHEMAS)
        return CausalRecords(*own, closures=tuple(self.closures), collectives=self.stand_ins)

    def columns(self, table: str) -> Columns:
        """Return what is kept of a table; its name is that of the attribute."""
        self.flush()
        if table == "memory":
            rows = [(worker, *held, at_s) for worker, of in self.memory for at_s, held in of]
            values = zip(*rows, strict=True) if rows else [()] * len(MEMORY_SCHEMA)
            columns = zip(MEMORY_SCHEMA.items(), values, strict=True)
            return {name: np.array(values, kind) for (name, kind), values in columns}
        return self._kept[table].columns()

    def frame(self, table: str) -> pd.DataFrame:
        """Return the same as a DataFrame, with names instead of codes.

        A transfer's node is its target.
        """
        columns = dict(self.columns(table))
        if table == "transfers":
            columns["node"] = columns["target"]
        return to_frame(columns, self.nodes, self.states.texts)


class _WithoutStaleness:
    """The table of spans, to which rows are added without their staleness."""

    def __init__(self, spans: RecordTable) -> None:
        self._append = spans.append
        self.flush_if_full = spans.flush_if_full

    def append(self, row: tuple[Any, ...]) -> None:
        """Add a row."""
        self._append((*row[:3], NO_STALENESS, *row[4:]))


def _instances_if_any(states: Iterable[Any]) -> Iterator[int]:
    """The instance of each state; −1 of what is no state, on which a run has failed."""
    for state in states:
        fields = cast("tuple[Any, ...]", state) if isinstance(state, tuple) else ()
        yield int(fields[0]) if fields and isinstance(fields[0], Integral) else NO_INSTANCE


def to_frame(columns: Columns, nodes: Sequence[str], states: Sequence[str] = ()) -> pd.DataFrame:
    """Make a DataFrame of coded columns: codes of nodes, directions and states become names."""
    names = {**dict.fromkeys(NODE_COLUMNS, nodes), **_CODES, "state": states}
    decoded = {
        name: _categories(column, names[name]) if name in names else column
        for name, column in columns.items()
    }
    return read_only(decoded)


def read_only(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make a DataFrame of columns as they are, uncopied, in which no value can be replaced."""
    for column in columns.values():
        stored = column._ndarray if isinstance(column, pd.Categorical) else column
        stored.setflags(write=False)
    return pd.DataFrame(dict(columns), copy=False)


class own_frame(property):
    """A table that is made once, or given; who reads it gets a frame of his own.

    No row is copied, and no column that a reader adds is another's.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Be called as the attribute is."""
        self._name = name

    def __get__(  # pyright: ignore[reportIncompatibleMethodOverride]  # typed as for readers
        self, of: object, owner: type | None = None
    ) -> pd.DataFrame:
        """Return the frame; of a class, this itself."""
        made: Any = self
        if of is not None:
            held, make = vars(of), made.fget
            if self._name not in held:
                held[self._name] = make(of)
            made = held[self._name].copy(deep=False)
        return made

    def __set__(self, of: object, frame: Any) -> None:
        """Take the table, as of a frozen dataclass whose field this is; by default it is made."""
        if frame is not self:
            vars(of)[self._name] = frame


def _categories(codes: np.ndarray, names: Sequence[str]) -> pd.Categorical[Any]:
    return pd.Categorical.from_codes(codes.copy(), dtype=pd.CategoricalDtype(list(names)))


STATES_MAX: Final = 1 << 16
"""Different states that are told apart (chosen: 10 MB of texts); the rest is called "..."."""

_Kind: TypeAlias = tuple[Callable[[Any], Any], dict[Any, int], str]
"""Of the states of one type: what takes their fields, the codes of these, and them in words."""

_PLAIN: Final = (int, float, str)


class States:
    """Numbers states, without their instance, in the order of their coming.

    Counters and names count, such as the step of a loop. Tuples do not: they describe an instance,
    and there may be as many of them as instances.

    Attributes:
        texts: for each code, the fields by name, such as "step 3, length 7"; the first is empty,
            for states of nothing but an instance.
    """

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self._codes: dict[str, int] = {"": 0}
        self._kinds: dict[type, _Kind] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all but the types, which a user's file may define."""
        return {"texts": self.texts, "_codes": self._codes, "_kinds": {}}

    def codes(self, states: Iterable[tuple[Any, ...]]) -> Iterator[int]:
        """Return the code of each state, a named tuple whose first field is its instance."""
        kinds, before, code = self._kinds, None, 0
        for state in states:  # a loop, for a call for each state takes longer than what it does
            if state is not before:  # most steps serve the state that the step before sent on
                kind = kinds.get(type(state)) or kinds.setdefault(type(state), _kind(state))
                values = kind[0](state)
                known = kind[1].get(values)
                before, code = state, self._add(kind, values) if known is None else known
            yield code

    def _add(self, kind: _Kind, values: Any) -> int:
        _get, codes, form = kind
        words = cast("tuple[Any, ...]", values) if isinstance(values, tuple) else (values,)
        code = self._code_of(form.format(*words))
        if len(codes) < STATES_MAX:
            codes[values] = code
        return code

    def _code_of(self, text: str) -> int:
        if text not in self._codes:
            text = text if len(self.texts) < STATES_MAX else "..."
            self._codes.setdefault(text, len(self.texts))
        if self._codes[text] == len(self.texts):
            self.texts.append(text)
        return self._codes[text]


def _kind(state: tuple[Any, ...]) -> _Kind:
    """Find the plain fields of states of one type, and the words for them."""
    names: tuple[str, ...] = getattr(state, "_fields", ())
    places = [place for place in range(1, len(names)) if isinstance(state[place], _PLAIN)]
    if not places:
        return _nothing, {}, ""
    return itemgetter(*places), {}, ", ".join(f"{names[place]} {{}}" for place in places)


def _nothing(state: tuple[Any, ...]) -> tuple[Any, ...]:
    return ()
