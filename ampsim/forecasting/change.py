"""Changes that would turn a forecast's answer, from short runs in time alone.

A short run of each row in mode "sleep" at another latency, FLOP rate or number of workers, over the
same at the numbers themselves, scales its time to the target, as the ends of intervals do
(`ampsim.forecasting.intervals`). Where another row becomes first is found by bisection.

The epochs that each row needed are held. Where the learning digests of its two short runs are equal
it learns the same there, as far as its leading instances tell, and needs as many; so does a
program, whose order is always one. Where they differ, and of solvers, which have none, nobody
knows: it is said apart, and a row is ahead if it is so by more than what is a tie.

The number that the answer hangs on most is that of which a change by a tenth moves the ratio of the
two leading rows most with their work in the same order, by their shares: runs of a tenth more
differ by their orders, too. What another optimizer would change is read off the trials.

What each number buys: how much of a row's time hangs on it is read off the path through its short
run (`ampsim.study.elasticity`); what twice as fast would do, another short run tells.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, TypeAlias

import pandas as pd

from ampsim.dataflow import OfProgram
from ampsim.errors import AmpsimError
from ampsim.forecasting.intervals import Items, items_of
from ampsim.forecasting.making import rated, short_task
from ampsim.hardware import Cluster
from ampsim.hardware.device import NUMBERS, sign_of
from ampsim.hardware.load import relinked, with_links
from ampsim.model_parallel import PLACEMENTS
from ampsim.report.words import listed
from ampsim.runs.ranking import SAME
from ampsim.runs.rows import fair_rows, row_of, times_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row, Task
from ampsim.study.elasticity import elasticities
from ampsim.study.result import Result
from ampsim.units import format_seconds

LATENCIES_S: Final = tuple(10.0**power for power in range(-9, 1))  # chosen: from a wire of a foot
FACTORS: Final = (0.01, 0.1, 10.0, 100.0)  # times the FLOP rate, likewise
DIGITS: Final = 1.1  # up to which factor a place is found (chosen: epochs held are no more exact)
STEP: Final = 1.1  # times a number, to see what hangs on it
STILL: Final = 0.005  # of the ratio: below it rows that learn the same are as soon, nothing hangs

OF_LINK: Final = {
    "latency_s": ("latency_s",),
    "bandwidth_bytes_per_s": ("bandwidth_bytes_per_s", "egress_bytes_per_s", "ingress_bytes_per_s"),
}  # fmt: skip
"""Numbers of links on which an answer may hang, and what each is called of links and ports."""

PARTS_STAY: Final = (
    "shares are as if each message kept its part of a bandwidth that it shares: where messages of "
    "several workers meet, a small change may do something else"
)
"""What is to be known of shares where messages have fair shares of a bandwidth."""

SEEDS_DIFFER: Final = (
    "short runs have one seed for each row: others take other times, so that shares differ, and "
    "another row may be ahead elsewhere"
)

_WHOSE: Final = {
    "worker": "", "link": " of links", "host": " of the host", "schedule": " of the schedule",
    "waits": "set times",
}  # fmt: skip
"""What is said behind a time constant of such a place; that of waits has no name."""


class Contender:
    """A row that reached the target, with its median time to it, and its short run."""

    def __init__(self, label: str, time_s: float, items: Items, short: Task) -> None:
        """Make the short run at the numbers themselves.

        Raises:
            AmpsimError: the row's control flow reads values.
        """
        self.label, self.time_s, self._items = label, time_s, items
        self._short = short.having(spans_kept=1 << 60)  # shares are of all that it does
        self._result = self._run_on(short.plan.cluster)
        self.base = rated(self._result, None)[0]

    def at(self, cluster: Cluster) -> tuple[float, bool]:
        """The time to the target on another cluster, its epochs held, and whether it needs as many.

        Raises:
            AmpsimError: the row does not fit the cluster.
        """
        made, digest = self._run_on(cluster), self._result.learning_digest
        ratio = rated(made, None)[0].time_s(*self._items) / self.base.time_s(*self._items)
        is_known = digest is not None or isinstance(self._short.schedule, OfProgram)
        return self.time_s * ratio, is_known and made.learning_digest == digest

    @cached_property
    def differs(self) -> bool:
        """Whether another seed's short run takes another time."""
        with contextlib.suppress(AmpsimError):  # as where it has no data
            made = rated(replace(self._short, seed=self._short.seed + 1).run(None)[0], None)[0]
            ratio = made.time_s(*self._items) / self.base.time_s(*self._items)
            return abs(ratio - 1) > STILL
        return False

    @cached_property
    def _shares(self) -> Mapping[tuple[str, str], float]:
        """How much of the time hangs on each number of each kind of place."""
        shares = defaultdict[tuple[str, str], float](float)
        found = elasticities(self._result, self._short.plan.cluster, self._items)
        for (place, key), share in found.by_constant.items():
            shares[place[0], key] += share
        return shares

    def longer(self, key: str, factor: float) -> float:
        """Return times as long as it takes, in the same order, where a number is that larger."""
        share = sum(self._shares.get((kind, key), 0.0) for kind in ("worker", "link"))
        return 1 + share * (factor ** -sign_of(key) - 1)

    def bought(self) -> Iterator[tuple[str, float, float]]:
        """List what the time hangs on: name, share, and the change where it is twice as fast.

        The largest share is first; the change is NaN where no number of devices or links says it.
        """
        cluster = self._short.plan.cluster
        told = {of: share for of, share in self._shares.items() if share >= STILL}
        for (kind, key), share in sorted(told.items(), key=lambda one: -one[1]):
            change = math.nan
            if kind in ("worker", "link"):
                with contextlib.suppress(AmpsimError):
                    there = _scaled(cluster, key, 2.0 if sign_of(key) > 0 else 0.5)
                    change = self.at(there)[0] / self.time_s - 1
            yield f"{key}{_WHOSE[kind]}", share, change

    def _run_on(self, cluster: Cluster) -> Result:
        plan = self._short.plan
        if cluster.workers != plan.cluster.workers:
            origin = plan.options.placed.origin
            own = {key: value for key, value in origin.items() if key == "hops"}
            plan = plan.having(placement=PLACEMENTS[origin["name"]](**own))
        return replace(self._short, plan=replace(plan, cluster=cluster)).run(None)[0]


def contenders(entries: Sequence[Row], runs: Mapping[str, Sequence[Run]]) -> list[Contender]:
    """Rows that reached the target, and may be compared, the soonest first.

    The short runs have the seed of the row's median run, as instances differ in size by seed; its
    data are read once. `entries` are the rows as they ran, `runs` are by their labels.

    Raises:
        AmpsimError: mode "sleep" cannot tell the time of one, as where its batches grow.
    """
    rows: list[Contender] = []
    kept = [(one, of) for one in entries if (of := runs.get(one.label))]
    rules = [one.plan.rate.rule for one, _of in kept]
    fair = fair_rows(entries[0].plan.goal, [of for _one, of in kept], rules)
    for one, of in itertools.compress(kept, fair):
        time_s = row_of(one.label, one.plan.goal, of)["time_to_target_s"]
        if time_s is None:
            continue
        times = times_of(one.plan.goal, of)
        middle = sorted(times, key=times.__getitem__)[(len(times) - 1) // 2]
        model = replace(one.plan.model, make_data=cache(one.plan.model.make_data))
        short = short_task(replace(one, plan=replace(one.plan, model=model)), middle)
        found = Contender(one.label, time_s, items_of(of), short)
        if 0 < found.base.train_per_s < math.inf:
            rows.append(found)
    return sorted(rows, key=lambda one: one.time_s)


def what_each_buys(rows: Sequence[Contender]) -> pd.DataFrame:
    """One row a number that a contender's time hangs on, the largest share of each first.

    `share` is how many percent longer it takes where that costs one percent more, unless outages
    come or messages have fair shares of a bandwidth: then it is whose time it is, and no more.
    `change` is that of its time where it is twice as fast everywhere, its epochs held, missing
    where no number says it.
    """
    found = [(row.label, *one) for row in rows for one in row.bought()]
    return pd.DataFrame(found, columns=["schedule", "what", "share", "change"])


def what_would_change(
    entries: Sequence[Row], rows: Sequence[Contender], trials: pd.DataFrame
) -> list[str]:
    """Sentences on what would make another of the `rows` first, the `entries` that reached it."""
    if len(rows) < 2:
        return []
    cluster = entries[0].plan.cluster
    can_move = all(one.plan.options.placed.origin["name"] in PLACEMENTS for one in entries)
    told = [
        (words, row, is_known)
        for axis in _axes(cluster, can_move=can_move)
        for words, row, is_known in axis.told(rows)  # but who is as soon here is so right beside
        if rows[1].time_s > (1 + (STILL if is_known else SAME)) * rows[0].time_s
    ]
    return [*_sentences(rows[0], told), *_hangs_on(rows), *_optimizers(trials)]


def _sentences(lead: Contender, told: Sequence[Told]) -> Iterator[str]:
    """Say what would change the answer: what is known, then what holds with as many epochs."""
    held = "not known, for a row may learn in another order there; with as many epochs as here"
    for is_known, start in ((True, "what would change it"), (False, held)):
        mine = [(words, row) for words, row, known in told if known == is_known]
        other = [f"{words}: {row.label}" for words, row in mine if row is not lead]
        same = [words for words, row in mine if row is lead]
        said = [f"another row is ahead or as soon {'; '.join(other)}"] if other else []
        said += [f"{lead.label} stays ahead {'; '.join(same)}"] if same else []
        if said:
            yield f"{start}: {'. '.join(said)}"


def _optimizers(trials: pd.DataFrame) -> Iterator[str]:
    """Say who is first with one optimizer for all, by the trials."""
    if "optimizer" not in trials:
        return
    keys = ["schedule", "learning_rate", "setting", "optimizer"]
    times: Any = trials.groupby(keys)["time_to_target_s"].agg(lambda of: of.median(skipna=False))
    best = times.fillna(math.inf).groupby(["optimizer", "schedule"], sort=False).min()
    words = [
        f"{name}: {of.idxmin()[1] if math.isfinite(of.min()) else 'no row arrives'}"
        for name, of in best.groupby("optimizer", sort=False)
    ]
    tried: Any = trials.groupby("schedule", sort=False)["optimizer"].unique()
    few = [f"; {row} tried with {of[0]} alone" for row, of in tried.items() if len(of) == 1]
    told = f"{', '.join(words)}{''.join(few)}"
    yield f"first with one optimizer for all, by trials of few seeds: {told}"


Told: TypeAlias = "tuple[str, Contender, bool]"
"""A few words that say where, who is ahead there, and whether that is known."""


def _first(rows: Sequence[Contender], cluster: Cluster) -> tuple[Contender | None, bool]:
    """Return who is ahead, or as soon as the first of `rows`, and whether that is known.

    Nobody is where a row cannot run.
    """
    try:
        times, alike = zip(*(one.at(cluster) for one in rows), strict=True)
    except AmpsimError:
        return None, False
    is_known, other_s = all(alike), min(times[1:])
    is_ahead = other_s > (1 + (STILL if is_known else SAME)) * times[0]
    return rows[0 if is_ahead else times.index(other_s, 1)], is_known


@dataclass(frozen=True, slots=True)
class _Axis:
    """A number of the hardware: now, values to try, and the cluster and the words of a value."""

    now: float
    values: Sequence[float]
    on: Callable[[float], Cluster]
    at: Callable[[float], str]
    everywhere: str

    def told(self, rows: Sequence[Contender]) -> Iterator[Told]:
        """Tell where another row is ahead, going up and down, or that none is anywhere."""
        up = [one for one in self.values if one > self.now]
        down = [one for one in reversed(self.values) if one < self.now]
        turns = [self.turn(rows, way) for way in (up, down)]
        for value, row, is_known in turns:
            if row is not None and row is not rows[0]:
                yield self.at(value), row, is_known
        if all(row is rows[0] for _value, row, _is_known in turns):
            yield self.everywhere, rows[0], all(is_known for *_, is_known in turns)

    def turn(
        self, rows: Sequence[Contender], values: Sequence[float]
    ) -> tuple[float, Contender | None, bool]:
        """The first of these values at which another row is ahead, or the last, and who is."""
        before, is_known = self.now, True
        for value in values:
            row, is_known_there = _first(rows, self.on(value))
            if row is not rows[0]:
                while row and max(value, before) / max(min(value, before), 1e-12) > DIGITS:
                    middle = math.sqrt(max(before, 1e-12) * value)
                    at, is_known_at = _first(rows, self.on(middle))
                    if at is None or at is rows[0]:
                        before = middle
                    else:
                        value, row, is_known_there = middle, at, is_known_at
                return value, row, is_known_there
            before, is_known = value, is_known and is_known_there
        return before, rows[0], is_known


def _axes(cluster: Cluster, *, can_move: bool) -> Iterator[_Axis]:
    """Latency, FLOP rate and workers, as far as one number says them of the whole cluster."""
    now, count = cluster.link.latency_s, cluster.workers
    is_even = not (cluster.topology or cluster.edges or cluster.links)  # one link stands for all
    if is_even:
        yield _Axis(
            now, LATENCIES_S, lambda value: relinked(cluster, latency_s=value),
            lambda value: (
                f"from a latency of {format_seconds(value)} {'on' if value > now else 'down'} "
                f"(now {format_seconds(now)})"
            ),
            f"at each latency tried, up to {format_seconds(LATENCIES_S[-1])}",
        )  # fmt: skip
    yield _Axis(
        1.0, FACTORS, lambda value: _scaled(cluster, "flop_per_s", value),
        lambda value: f"at {value:.2g} times the FLOP rate",
        f"at {listed([f'{one:g}' for one in FACTORS])} times the FLOP rate",
    )  # fmt: skip
    names_some = cluster.events or getattr(cluster.failures, "worker", "all") != "all"
    is_one = len(set(cluster.devices)) == 1 and not (names_some or cluster.ports)
    if is_even and is_one and can_move:
        counts = [*(1 << place for place in range((count - 1).bit_length())), 2 * count]
        yield _Axis(
            count, counts,
            lambda many: cluster.model_copy(update={"devices": cluster.devices[:1] * round(many)}),
            lambda value: f"with {round(value)} worker{'s' * (value >= 1.5)} (now {count})",
            f"with {listed([*map(str, counts)])} workers",
        )  # fmt: skip


def _scaled(cluster: Cluster, key: str, factor: float) -> Cluster:
    """The cluster with a number of links and ports, or of devices that say it, times a factor."""

    def changed(part: Any) -> Any:
        known = {one: of for one in OF_LINK.get(key, (key,)) if (of := getattr(part, one, None))}
        return part.model_copy(update={one: factor * of for one, of in known.items()})

    if key in OF_LINK:
        return with_links(cluster, changed)
    return cluster.model_copy(update={"devices": tuple(map(changed, cluster.devices))})


def _hangs_on(rows: Sequence[Contender]) -> Iterator[str]:
    """Name the number that moves the lead most."""
    lead = rows[1].time_s / rows[0].time_s
    keys = (*filter(sign_of, NUMBERS), *OF_LINK)
    moved = {key: lead * rows[1].longer(key, STEP) / rows[0].longer(key, STEP) for key in keys}
    most = max(moved, key=lambda key: abs(math.log(moved[key] / lead)))
    said = (
        f"over {rows[1].label} hangs most on {most}: with a tenth more, the work in the same order "
        f"and as many epochs, it is {moved[most]:.2f} times, in place of {lead:.2f}"
    )
    if abs(math.log(moved[most] / lead)) < STILL:
        said = "hangs on no number of devices or links: a tenth more, with the work in the same "
        said += "order, moves it by < 0.5 %"
    yield f"the lead {said}"
