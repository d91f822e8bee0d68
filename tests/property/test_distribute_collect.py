"""Distribute and Collect against one row after the other: any indices, repeated, or none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim.ir import Partition, Standin
from ampsim.nodes import Collect, Distribute, Group, Replicate, Ungroup, distribute

WIDTH = 3


class State(NamedTuple):
    instance: int
    step: int = 0


NOW = State(4)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    size = draw(st.integers(1, 6))
    part = st.lists(st.integers(0, size - 1), max_size=5)
    return size, draw(st.lists(part, min_size=1, max_size=4))


def numbers(rows: int, seed: int) -> np.ndarray:
    """Whole numbers, so that sums are exact in every order."""
    return np.random.default_rng(seed).integers(-9, 9, (rows, WIDTH)).astype(float)


def summed(size: int, parts: list[list[int]], values: list[np.ndarray]) -> np.ndarray:
    total = np.zeros((size, WIDTH))
    for part, value in zip(parts, values, strict=True):
        for row, one in zip(part, value, strict=True):
            total[row] += one
    return total


def distributed(size: int, parts: list[list[int]]) -> tuple[Any, list[Any]]:
    node, whole = Distribute("distribute", len(parts)), numbers(size, 1)
    assert node.forward(1, NOW, Partition(parts, size)) == ()
    return node, [payload for _port, _state, payload in node.forward(0, NOW, whole)]


@pytest.fixture(params=[0, distribute.SMALL_SUM], ids=["runs", "one-hot"], scope="module")
def way(request: pytest.FixtureRequest) -> Any:
    """Sums by runs of equal indices, or by a product with a one-hot matrix."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribute, "SMALL_SUM", request.param)
        yield


@given(partitions())
def test_distribute_sends_each_part_the_rows_of_its_indices(case):
    size, parts = case
    _node, sent = distributed(size, parts)
    whole = numbers(size, 1)
    for part, payload in zip(parts, sent, strict=True):
        assert payload.tolist() == [whole[row].tolist() for row in part]
        assert payload.shape == (len(part), WIDTH)


@given(partitions(), st.booleans())
def test_distribute_sends_integers_that_stay_real_in_sleep_mode(case, is_abstract):
    size, parts = case
    node, names = Distribute("distribute", len(parts)), np.arange(size) * 10
    node.is_abstract, node.input_needs_gradient = is_abstract, (False, False)
    node.forward(1, NOW, Partition(parts, size))
    sent = [payload for _port, _state, payload in node.forward(0, NOW, names)]
    assert [payload.tolist() for payload in sent] == [[10 * row for row in p] for p in parts]
    for place in range(len(parts)):
        returned = node.backward(place, NOW, None)
    assert returned == ((0, NOW, None), (1, NOW, None))


@given(partitions())
def test_distribute_sums_gradients_of_one_index(way, case):
    size, parts = case
    node, _sent = distributed(size, parts)
    gradients = [numbers(len(part), 10 + i) for i, part in enumerate(parts)]
    for place in reversed(range(len(parts))):
        returned = node.backward(place, NOW, gradients[place])
    (port, state, gradient), control = returned
    assert ((port, state), control) == ((0, NOW), (1, NOW, None))
    assert gradient.tolist() == summed(size, parts, gradients).tolist()


@given(partitions())
def test_collect_sums_rows_of_one_index_and_sends_gradients_to_each(way, case):
    size, parts = case
    node, values = Collect("collect", len(parts)), [numbers(len(p), 5) for p in parts]
    for place, value in enumerate(values):
        assert node.forward(place, NOW, value) == ()
    ((_port, _state, whole),) = node.forward(len(parts), NOW, Partition(parts, size))
    assert whole.tolist() == summed(size, parts, values).tolist()
    back = numbers(size, 2)
    *returned, control = node.backward(0, NOW, back)
    assert control == (len(parts), NOW, None)
    for part, (_port, _state, gradient) in zip(parts, returned, strict=True):
        assert gradient.tolist() == [back[row].tolist() for row in part]


@given(partitions())
def test_collect_undoes_distribute_where_each_row_is_in_one_part(case):
    size, parts = case
    part_of = np.random.default_rng(len(parts)).integers(0, len(parts), size)
    exact = [np.flatnonzero(part_of == place).tolist() for place in range(len(parts))]
    _node, sent = distributed(size, exact)
    collect = Collect("collect", len(parts))
    for place, payload in enumerate(sent):
        collect.forward(place, NOW, payload)
    ((_port, _state, whole),) = collect.forward(len(parts), NOW, Partition(exact, size))
    assert (whole == numbers(size, 1)).all()


def at_step(state: State, step: int) -> State:
    return state._replace(step=step)


@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_group_undoes_ungroup_in_any_order(count, random):
    payload = numbers(count, 3)
    ungroup = Ungroup("ungroup", at_step, keep_axis=True)
    group = Group("group", lambda state: (NOW, state.step, count))
    sends = list(ungroup.forward(0, NOW, payload))
    random.shuffle(sends)
    grouped = [send for message in sends for send in group.forward(*message)]
    assert [(port, state) for port, state, _payload in grouped] == [(0, NOW)]
    assert (grouped[0][2] == payload).all()
    returned = list(group.backward(0, NOW, 2 * payload))
    random.shuffle(returned)
    back = [send for message in returned for send in ungroup.backward(*message)]
    assert (back[0][2] == 2 * payload).all()
    assert [*ungroup.pending(), *group.pending()] == []


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_payload_of_no_rows_passes_ungroup_and_group_as_one_slice(is_abstract):
    empty: Any = Standin((0, WIDTH), 8) if is_abstract else np.zeros((0, WIDTH))
    ungroup = Ungroup("ungroup", at_step, keep_axis=True)
    group = Group("group", lambda state: (NOW, state.step, 1))
    ungroup.is_abstract = group.is_abstract = is_abstract
    (slice_of_none,) = ungroup.forward(0, NOW, empty)
    ((_port, state, grouped),) = group.forward(*slice_of_none)
    (part,) = group.backward(0, state, grouped)
    ((_port, state, back),) = ungroup.backward(*part)
    assert (slice_of_none[1], state) == (at_step(NOW, 0), NOW)
    assert slice_of_none[2].shape == grouped.shape == part[2].shape == back.shape == (0, WIDTH)


@settings(max_examples=20)
@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_replicate_sums_over_its_counter_in_any_order(count, random):
    replicate = Replicate("replicate", at_step, lambda _state: count)
    sends = list(replicate.forward(0, NOW, np.ones((1, WIDTH))))
    random.shuffle(sends)
    gradients = [(p, s, np.random.default_rng(s.step).standard_normal((1, 3))) for p, s, _ in sends]
    ((_port, state, total),) = [out for one in gradients for out in replicate.backward(*one)]
    ordered = sorted(gradients, key=lambda one: one[1])
    assert state == NOW
    assert (total == sum(gradient for _port, _state, gradient in ordered)).all()
