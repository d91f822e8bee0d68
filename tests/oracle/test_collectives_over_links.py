"""Rounds of solvers that meet in a collective: when each rank goes on, over links of their own.

The recursions know the published algorithms, and that a link takes one message after the other;
they share no code with the engine. Where all links are alike the engine has no messages but one
event, which must let every rank go on at the same moments.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from plain_solvers import drawn
from test_servers_over_links import SHAPES, SIZES, UPDATES, cluster_of

import ampsim
from ampsim.data_parallel import COLLECTIVES, SOLVERS

Ways = dict[tuple[int, int], tuple[float, float]]


class Wires:
    """Links that take one message after the other, and what each has carried."""

    def __init__(self, ways: Ways) -> None:
        self.ways, self.free_s = ways, dict.fromkeys(ways, 0.0)
        self.bytes = dict.fromkeys(ways, 0)
        self.ranks = max(1, *map(max, ways)) + 1 if ways else 1

    def send(self, source: int, target: int, size_bytes: int, now_s: float) -> float:
        """When it arrives."""
        pair, (byte_s, latency_s) = (source, target), self.ways[source, target]
        self.bytes[pair] += size_bytes
        self.free_s[pair] = max(now_s, self.free_s[pair]) + size_bytes * byte_s
        return self.free_s[pair] + latency_s


def ring(
    members: list[int], came_s: list[float], part: int, turns: int, wires: Wires
) -> list[float]:
    """Each sends on to the next what came from the one before it, with its own."""
    for _turn in range(turns):
        sent = [
            wires.send(one, other, part, now_s)
            for one, other, now_s in zip(members, members[1:] + members[:1], came_s, strict=True)
        ]
        came_s = [max(pair) for pair in zip(came_s, sent[-1:] + sent[:-1], strict=True)]
    return came_s


def up(members: list[int], start_s: float, size: int, wires: Wires) -> float:
    """When the first has the sum, which goes up a binomial tree."""

    def gathered(place: int, span: int) -> float:
        if span == 1:
            return start_s
        child, own_s = place + span // 2, gathered(place, span // 2)
        if child >= len(members):
            return own_s
        sent_s = gathered(child, span // 2)
        return max(own_s, wires.send(members[child], members[place], size, sent_s))

    return gathered(0, 1 << (len(members) - 1).bit_length())


def down(members: list[int], start_s: float, size: int, wires: Wires) -> list[float]:
    """When each has what the first one has."""
    came_s = {0: start_s}
    for place in range(1, len(members)):
        parent = place - (place & -place)
        came_s[place] = wires.send(members[parent], members[place], size, came_s[parent])
    return list(came_s.values())


def reduced(name: str, group: int, start_s: float, items: int, wires: Wires) -> list[float]:
    """When each rank has the sum of all ranks' numbers of 8 bytes."""
    ranks, every, size = wires.ranks, list(range(wires.ranks)), 8 * items
    if name == "ring":
        return ring(every, [start_s] * ranks, 8 * -(-items // ranks), 2 * (ranks - 1), wires)
    if name == "tree":
        return down(every, up(every, start_s, size, wires), size, wires)
    if name == "star":
        came = [wires.send(one, 0, size, start_s) for one in every[1:]]
        sum_s = max(came, default=start_s)
        return [sum_s, *(wires.send(0, one, size, sum_s) for one in every[1:])]
    if name == "hierarchical":
        groups = [every[first : first + group] for first in range(0, ranks, group)]
        part = 8 * -(-items // len(groups))
        size = part * len(groups)  # the last part is padded
        firsts, sums_s = (
            [one[0] for one in groups],
            [up(one, start_s, size, wires) for one in groups],
        )
        sums_s = ring(firsts, sums_s, part, 2 * (len(groups) - 1), wires)
        ends = [down(one, at_s, size, wires) for one, at_s in zip(groups, sums_s, strict=True)]
        return list(itertools.chain(*ends))
    assert name == "halving-doubling"
    steps = [(1 << turn, ranks >> turn + 1) for turn in range(ranks.bit_length() - 1)]
    came_s, part = [start_s] * ranks, 8 * -(-items // ranks)
    for distance, parts in [*steps, *reversed(steps)]:
        came_s = [
            max(came_s[one], wires.send(one ^ distance, one, parts * part, came_s[one ^ distance]))
            for one in every
        ]
    return came_s


def rounds_of(
    solver: str, period: int, epochs: list[list[int]], speeds: list[float],
    exchange: Callable[[float], list[float]],
) -> tuple[list[tuple[float, float, float]], float]:  # fmt: skip
    """Of each exchange when the rank was ready, when all were, and when it had the result; the end.

    `epochs` have the items that a rank takes at once; a step lasts what Appendix C says.
    """
    ranks, size = len(speeds), sum(SIZES)
    products = [2 * one * other for one, other in SHAPES]
    forward_backward, step = 3 * sum(products) - products[0], sum(UPDATES)
    after = {"sync-sgd": step, "sync-easgd": 6 * size, "diloco": step + size}.get(solver, 0)
    free_s, found, count, end_s = [0.0] * ranks, [], 0, 0.0
    for rows in epochs:
        for first in range(0, len(rows), ranks):
            batches = rows[first : first + ranks] + [0] * ranks
            count += 1
            is_due = count % period == 0
            for rank, speed in enumerate(speeds):
                flop = batches[rank] * forward_backward
                if batches[rank] and not (
                    solver == "sync-sgd" or (solver == "sync-easgd" and is_due)
                ):
                    flop += step
                free_s[rank] += flop / speed
            if is_due:
                ends_s = exchange(max(free_s))
                found += [(one, max(free_s), end) for one, end in zip(free_s, ends_s, strict=True)]
                free_s = list(ends_s)
                for rank, speed in enumerate(speeds):
                    own = step if solver == "sync-easgd" and batches[rank] else 0
                    free_s[rank] += (after + own) / speed
            end_s = max(end_s, *(one for one, has in zip(free_s, batches, strict=False) if has))
    return found, end_s


def drawn_machine(draw: random.Random, ranks: int, are_alike: bool) -> tuple[list[float], Ways]:
    """Speeds of workers, and the links between every two."""
    scale_s, pairs = 10 ** draw.uniform(-8, -5), itertools.permutations(range(ranks), 2)
    costs = [(scale_s * draw.random() / 64, scale_s * draw.random()) for _ in range(ranks**2)]
    ways = {pair: costs[0 if are_alike else n] for n, pair in enumerate(pairs)}
    return [10 ** draw.uniform(7, 9) for _ in range(ranks)], ways


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("are_alike", [False, True], ids=["messages", "event"])
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("solver", [one for one, kind in SOLVERS.items() if kind.meets == "all"])
def test_every_rank_goes_on_when_the_recursion_says(solver, name, are_alike, seed):
    """Any number of ranks, also more than there are numbers; batches that do not fill a round, one
    or several in a gradient."""
    draw = random.Random(f"{solver} {name} {seed}")
    group = draw.randint(1, 5) if name == "hierarchical" else None
    ranks = group * draw.randint(1, 4) if group else draw.choice([1, 3, 5, 6, 7, 11, 13, 37])
    ranks = draw.choice([2, 4, 8]) if name == "halving-doubling" else ranks
    speeds, ways = drawn_machine(draw, ranks, are_alike)
    together, rounds, epochs = draw.choice([1, 1, 3]), draw.randint(1, 3), draw.randint(1, 2)
    period = draw.randint(1, 3) if solver != "sync-sgd" else 1
    bucket_bytes, buckets = draw.choice([(None, [32]), (0, [8, 12, 12]), (100, [20, 12])])
    wires = Wires(ways)

    def exchange(now_s: float) -> list[float]:
        came_s = [now_s] * ranks
        for items in buckets:
            ends_s = reduced(name, group or 1, now_s, items, wires)
            came_s, now_s = [max(one) for one in zip(came_s, ends_s, strict=True)], max(ends_s)
        return came_s

    rows = [2] * (draw.randint(1, rounds * together * ranks) - 1) + [1]
    taken = [sum(rows[first : first + together]) for first in range(0, len(rows), together)]
    expected, end_s = rounds_of(solver, period, [taken] * epochs, speeds, exchange)
    options = {"collective": name, "ranks_per_group": group, "bucket_bytes": bucket_bytes}
    options |= {} if solver == "sync-sgd" else {"period": period}
    options |= {} if together == 1 else {"inner": ampsim.Pipeline(together)}
    rounds = len(expected) // ranks
    result = ampsim.simulate(
        drawn(seed, sum(rows), 2, layers=3), cluster_of(speeds, ways),
        SOLVERS[solver](ranks=ranks, **options), epochs=epochs, mode="sleep",
    )  # fmt: skip
    assert result.makespan_s == pytest.approx(end_s, rel=1e-9)
    found, expected = (
        np.array(sorted(tuple(row) for row in rows if max(row) < end_s * (1 - 1e-9))).reshape(-1, 3)
        for rows in (result.exchanges[["ready_s", "start_s", "end_s"]].to_numpy(), expected)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if not are_alike and len(found) == rounds * ranks:
        sent = result.transfers[result.transfers["sent_s"] < found.max(initial=0.0)]
        carried = sent.groupby(["source_worker", "target_worker"])["bytes"].sum()
        assert carried.to_dict() == {pair: size for pair, size in wires.bytes.items() if size}


class Among(Wires):
    """The links among some of the workers, who have numbers of their own there."""

    def __init__(self, wires: Wires, members: Sequence[int]) -> None:
        self._wires, self._members, self.ranks = wires, members, len(members)

    def send(self, source: int, target: int, size_bytes: int, now_s: float) -> float:
        """When it arrives."""
        pair = self._members[source], self._members[target]
        return self._wires.send(*pair, size_bytes, now_s)


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("are_alike", [False, True], ids=["messages", "event"])
def test_groups_reduce_within_then_between_and_hand_down(are_alike, seed):
    """First ranks meet when all of a group have its sum; it goes on when all have the answer."""
    draw = random.Random(seed)
    groups, each, rounds = draw.randint(1, 4), draw.randint(1, 5), 3
    inside, between = (draw.choice(["ring", "tree", "star"]) for _ in range(2))
    ranks = groups * each
    speeds, ways = drawn_machine(draw, ranks, are_alike)
    wires = Wires(ways)
    members = [range(first, first + each) for first in range(0, ranks, each)]
    firsts = Among(wires, [one[0] for one in members])
    products = [2 * one * other for one, other in SHAPES]
    step, flop = sum(UPDATES), 2 * (3 * sum(products) - products[0])
    free_s, expected = [0.0] * ranks, list[tuple[float, float, float]]()
    for _round in range(rounds):
        free_s = [now_s + flop / speed for now_s, speed in zip(free_s, speeds, strict=True)]
        ready_s = list[float]()
        for group in members:
            start_s = max(free_s[one] for one in group)
            ends_s = reduced(inside, 1, start_s, 32, Among(wires, group))
            ready_s.append(max(ends_s))
            for one, end_s in zip(group, ends_s if each > 1 else (), strict=each > 1):
                expected.append((free_s[one], start_s, end_s))
        sums_s = reduced(between, 1, max(ready_s), 32, firsts)
        for group, ready, sum_s in zip(members, ready_s, sums_s, strict=True):
            answer_s = sum_s
            if groups > 1:
                answer_s = max(down([*range(each)], sum_s, 8 * 32, Among(wires, group)))
            expected.append((ready, max(ready_s), answer_s))
            for one in group:  # which takes batches together, when the last of it has stepped
                free_s[one] = answer_s + step / min(speeds[group[0] : group[-1] + 1])
    result = ampsim.simulate(
        drawn(seed, 2 * ranks * rounds, 2, layers=3), cluster_of(speeds, ways),
        ampsim.SyncSGD(groups, collective=between, inner=ampsim.SyncSGD(each, collective=inside)),
        mode="sleep",
    )  # fmt: skip
    assert result.makespan_s == pytest.approx(max(free_s), rel=1e-9)
    found = result.exchanges.groupby(["rank", "server"]).head(rounds)
    found = found[["ready_s", "start_s", "end_s"]].to_numpy()  # and not of the next epoch
    np.testing.assert_allclose(sorted(map(tuple, found)), sorted(expected), rtol=1e-9)
