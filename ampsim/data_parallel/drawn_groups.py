"""Which copies of a model make a group: those beside each other, or copies drawn from the seed.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Section 3.1: "The grouping method can be
predetermined or random." Groups are drawn once, before time passes, and stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from ampsim.errors import OptionError, one_of
from ampsim.rng import stream
from ampsim.shown import shown

FIXED: Final = "fixed"
RANDOM: Final = "random"

GROUPS: Final = (FIXED, RANDOM)
"""How it may be decided which copies make a group."""

Levels: TypeAlias = Sequence[tuple[int, str]]
"""Ranks of a solver, and how their copies are found; of the one inside that, and so on."""


def require_groups(solver: str, groups: str, alone: str | None) -> None:
    """Check how groups are found.

    Args:
        solver: its name.
        groups: as chosen.
        alone: the schedule inside each rank, where that is no group.

    Raises:
        OptionError: there is no such way, or there are no groups.
    """
    if groups not in GROUPS:
        raise OptionError(one_of("groups", groups, GROUPS))
    if groups != FIXED and alone is not None:
        raise OptionError(
            f"{solver}: groups={shown(groups)} needs ranks that are groups, got {alone} inside "
            "each; take inner='sync-sgd:4'"
        )


def blocks_of(levels: Levels, copies: int, seed: int) -> list[int]:
    """For each copy, group by group, the block of workers that it lies on.

    Args:
        levels: of all solvers whose ranks are groups.
        copies: in all ranks.
        seed: of the run.

    >>> blocks_of([(2, "fixed")], 6, seed=0)
    [0, 1, 2, 3, 4, 5]
    >>> blocks_of([(2, "random")], 6, seed=1)
    [2, 3, 4, 1, 0, 5]
    """
    random = stream(seed, "groups")

    def within(blocks: list[int], levels: Levels) -> list[int]:
        if not levels:
            return blocks
        (ranks, how), *inner = levels
        if how == RANDOM:
            blocks = [blocks[place] for place in random.permutation(len(blocks))]
        each = len(blocks) // ranks
        parts = (blocks[each * rank : each * (rank + 1)] for rank in range(ranks))
        return [block for part in parts for block in within(part, inner)]

    return within(list(range(copies)), levels)
