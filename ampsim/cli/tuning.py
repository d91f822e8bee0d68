"""The options of schedules, as commands take them, and the schedules that they make."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Final

from ampsim.cli import completion
from ampsim.cli.console import complain
from ampsim.cli.options import optional
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.model_parallel import Schedule

COUNTS: Final = ("max_active_keys", "min_update_interval")
"""Options that may be several whole numbers."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The options that some schedule takes; None of what was not given.

    They are the fields of the schedules' classes, which a test compares: those classes import
    NumPy, and help is to be there at once.

    Raises:
        OptionError: one of `COUNTS` is no count.
    """

    max_active_keys: Annotated[
        str | None,
        optional(
            "N,...",
            "Instances in flight at most; for schedules that drain, those of a group. "
            "sequential always has 1. Several, such as 2,4,8, make a row of each.  [default: 8]",
        ),
    ] = None
    min_update_interval: Annotated[
        str | None,
        optional(
            "N,...",
            "Gradients between updates of a node, under amp, amp-budget and pipedream-2bw. "
            "Several make a row of each.  [default: as the model prefers; pipedream-2bw: 8]",
        ),
    ] = None
    staleness_budget: Annotated[
        float | None,
        optional(
            "X",
            "Updates that a gradient may be old for another instance to be admitted, under "
            "amp-budget.  [default: 4]",
        ),
    ] = None
    remedy: Annotated[
        str | None,
        optional(
            "NAME",
            "What amp and amp-budget do about delayed gradients: none, or weight-prediction.  "
            "[default: none]",
            autocompletion=completion.one_of(*completion.REMEDIES),
        ),
    ] = None
    max_group: Annotated[
        int | None,
        optional(
            "N",
            "Messages for one node that a worker may merge into one step, under amp and "
            "amp-budget.  [default: 1]",
        ),
    ] = None
    group_wait_s: Annotated[
        float | None,
        optional(
            "SECONDS",
            "How long a worker waits, once, before it starts a smaller group.  [default: 0]",
        ),
    ] = None
    vertical_sync: Annotated[
        bool | None,
        optional(
            None, "One version of the weights for an instance at all stages, under pipedream."
        ),
    ] = None
    ranks: Annotated[
        int | None,
        optional(
            "N",
            "Copies of the model, or groups of copies, of a solver.  "
            "[default: as many as there is room for]",
        ),
    ] = None
    workers_per_rank: Annotated[
        int | None, optional("N", "Workers of each copy, of a solver.  [default: 1]")
    ] = None
    inner: Annotated[
        str | None,
        optional(
            "NAME[:N]",
            "The schedule inside each copy, of a solver, and its --max-active-keys: such as "
            "pipeline:4, or, where weights are exchanged, amp:8. Or a solver and its ranks, such "
            "as sync-sgd:4: each rank is a group of so many, whose copies may have a schedule, as "
            "in sync-sgd:4/pipeline:2.  [default: sequential]",
        ),
    ] = None
    groups: Annotated[
        str | None,
        optional(
            "HOW",
            "Which copies make a group, where each rank is one: fixed, copies beside each other, "
            "or random, drawn from the seed.  [default: fixed]",
            autocompletion=completion.one_of(*completion.GROUPS),
        ),
    ] = None
    collective: Annotated[
        str | None,
        optional(
            "NAME",
            "How ranks add up what they have, under sync-sgd, sync-easgd, local-sgd and diloco: "
            "ring, tree, halving-doubling, hierarchical or star.  [default: ring]",
            autocompletion=completion.one_of(*completion.COLLECTIVES),
        ),
    ] = None
    ranks_per_group: Annotated[
        int | None, optional("N", "Ranks in a group of the hierarchical collective.")
    ] = None
    bucket_bytes: Annotated[
        int | None,
        optional(
            "N",
            "Layers share a message of a collective, from the last one on, until it has so many "
            "bytes; 0 for a message of each layer.  [default: one message of all]",
        ),
    ] = None
    overlap: Annotated[
        bool | None,
        optional(
            None,
            "Under sync-sgd, add up a bucket beside the rest of the backward pass.",
        ),
    ] = None
    backup_ranks: Annotated[
        int | None,
        optional(
            "N",
            "Ranks that a step of sync-sgd does not wait for: it has the first gradients of the "
            "others.  [default: 0]",
        ),
    ] = None
    compression: Annotated[
        float | None,
        optional(
            "X",
            "The share of each gradient that a rank sends, the entries of the largest magnitude, "
            "with an index each, under sync-sgd (a ring all-gather), async-sgd, hogwild and ssp; "
            "it adds the others to its next gradient.  [default: all entries, without indices]",
        ),
    ] = None
    servers: Annotated[
        int | None,
        optional(
            "N",
            "Workers that are servers, each with a part of the weights, under async-sgd, hogwild, "
            "ssp, easgd, async-easgd and ea-wild.  [default: 1]",
        ),
    ] = None
    momentum: Annotated[
        float | None,
        optional("X", "Of the server's steps under async-sgd.  [default: as the model says]"),
    ] = None
    staleness_rate: Annotated[
        bool | None,
        optional(
            None, "Under async-sgd, apply a gradient with the learning rate over its staleness."
        ),
    ] = None
    moving_rate: Annotated[
        float | None,
        optional(
            "X", "Alpha of elastic averaging, under easgd and its kin.  [default: 0.9 / ranks]"
        ),
    ] = None
    period: Annotated[
        int | None,
        optional(
            "N",
            "Steps of a rank from one exchange to the next, under easgd and its kin, local-sgd and "
            "diloco.  [default: 1; local-sgd: 8; diloco: 50]",
        ),
    ] = None
    elastic: Annotated[
        str | None,
        optional(
            "SIDE",
            "Who takes the difference of elastic averaging, under easgd, async-easgd and ea-wild: "
            "server or worker.  [default: server]",
            autocompletion=completion.one_of(*completion.SIDES),
        ),
    ] = None
    staleness_bound: Annotated[
        int | None,
        optional("N", "Batches that a rank may be ahead of the slowest, under ssp.  [default: 2]"),
    ] = None
    outer_rate: Annotated[
        float | None, optional("X", "Of the outer step of diloco.  [default: 0.7]")
    ] = None
    outer_momentum: Annotated[
        float | None, optional("X", "Of the outer step of diloco, Nesterov's.  [default: 0.9]")
    ] = None

    def __post_init__(self) -> None:
        """Read the counts, so that one that is none is told before any work."""
        self.given()

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
        every = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: counts_of(name, value) if name in COUNTS else value
            for name, value in every.items()
            if value is not None
        }

    def schedules(self, names: str) -> list[Schedule]:
        """The schedules of these names; says so where an option concerns none of them."""
        from ampsim.study.schedule_names import schedules_of, without_effect

        given = self.given()
        made = schedules_of(names, **given)
        for option in without_effect(made, list(given)):
            complain(f"note: --{option.replace('_', '-')} has no effect on {names}")
        return made


def counts_of(option: str, text: str) -> int | list[int]:
    """Read a whole number, or several with commas between.

    Raises:
        OptionError: it is neither, or a number is below 1 or comes twice.
    """
    from ampsim.options import require_count

    parts = text.split(",")
    if not all(re.fullmatch(r"\s*[+-]?[0-9]{1,100}\s*", part) for part in parts):
        raise OptionError(
            f"--{option.replace('_', '-')} must be a whole number, or several with single commas "
            f"between, such as 2,4,8, got {text!r}"
        )
    counts = [require_count(option, int(part)) for part in parts]
    if len(set(counts)) < len(counts):
        raise OptionError(
            f"--{option.replace('_', '-')} must be numbers that differ, got {text!r}; "
            "leave out what comes twice"
        )
    return counts[0] if len(counts) == 1 else counts
