"""Linear and Embedding: caches, accumulation, costs and refusals; gradients are oracle tests'."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.errors import GraphError, OptionError
from ampsim.ir import Direction, Standin, Work
from ampsim.ir.work import Calls
from ampsim.nodes import Conv2d, Embedding, Linear
from ampsim.nodes.linear import (
    FEW_WEIGHTS,
    LARGE_ROWS,
    ROWS_JOINED,
    SMALL_WEIGHT,
    Transposed,
    by_state,
    product_of_few,
)


class One(NamedTuple):
    instance: int


def ready(node, seed=0):
    node.adopt(node.initialise(np.random.default_rng(seed)))
    return node


def test_linear_starts_within_its_bound_with_weight_and_bias_as_views():
    linear = ready(Linear("l", 16, 5))
    assert np.abs(linear.theta).max() <= 1 / 4
    assert linear.theta.shape == (16 * 5 + 5,)
    assert np.shares_memory(linear.weight, linear.theta)
    assert np.shares_memory(linear.bias, linear.theta)


@pytest.mark.parametrize("rows", [2, 3])
def test_linear_starts_from_what_is_drawn_with_a_bias_of_zeros_unless_that_is_drawn_too(rows):
    drawn = np.arange(1.0, 1 + 3 * rows).reshape(rows, 3)
    linear = ready(Linear("l", 2, 3, start=lambda _generator: drawn))
    assert (linear.weight == drawn[:2]).all()
    assert linear.bias is not None
    assert linear.bias.tolist() == ([0, 0, 0] if rows == 2 else [7, 8, 9])


def test_linear_forgets_a_state_once_its_gradient_has_come():
    linear = ready(Linear("l", 2, 3))
    linear.forward(0, One(0), np.ones((4, 2)))
    linear.forward(0, One(1), np.ones((4, 2)))
    linear.backward(0, One(1), np.ones((4, 3)))
    assert list(linear.pending()) == [One(0)]


def test_linear_remembers_nothing_of_a_validation_pass():
    linear = ready(Linear("l", 2, 3))
    linear.is_training = False
    linear.forward(0, One(0), np.ones((4, 2)))
    assert list(linear.pending()) == []


def test_linear_sends_no_gradient_where_none_is_needed():
    linear = ready(Linear("l", 2, 3))
    linear.input_needs_gradient = (False,)
    linear.forward(0, One(0), np.ones((4, 2)))
    assert linear.backward(0, One(0), np.ones((4, 3))) == ((0, One(0), None),)


def accumulated(*rows_of_each):
    """Gradient of messages of so many rows, and the same by hand."""
    random = np.random.default_rng(1)
    linear, by_hand = ready(Linear("l", 2, 3)), np.zeros(9)
    for instance, rows in enumerate(rows_of_each):
        x, g = random.standard_normal((rows, 2)), random.standard_normal((rows, 3))
        linear.forward(0, One(instance), x)
        linear.backward(0, One(instance), g)
        by_hand += np.concatenate([(x.T @ g).ravel(), g.sum(axis=0)])
    assert linear.gradient_count == len(rows_of_each)
    return linear, by_hand


FEW, MANY = LARGE_ROWS - 1, LARGE_ROWS


@pytest.mark.parametrize(
    "rows",
    [
        *[(rows,) * 3 for rows in (1, 5, ROWS_JOINED // 2, ROWS_JOINED)],
        *[(MANY,), (FEW, MANY), (MANY, FEW), (MANY, MANY), (MANY, FEW, MANY, FEW)],
        *[(FEW,) * 300, (MANY, *(FEW,) * 300)],
    ],
    ids=lambda rows: f"{len(rows)} from {rows[0]} to {rows[-1]}",
)
def test_linear_sums_its_gradients_however_many_rows_wait(rows):
    linear, by_hand = accumulated(*rows)
    assert linear.take_gradient() == pytest.approx(by_hand, rel=1e-9, abs=1e-9)
    assert not linear.take_gradient().any()


def learners_and_rows():
    """A node that learns with what it takes and what comes back, for so many rows."""
    random = np.random.default_rng(3)

    def floats(*shape):
        return random.standard_normal(shape).astype(np.float32)

    return {
        "few rows": (Linear("l", 4, 3), lambda _i: (floats(5, 4), floats(5, 3))),
        "many rows": (Linear("l", 4, 3), lambda _i: (floats(MANY, 4), floats(MANY, 3))),
        "few and many": (
            Linear("l", 4, 3),
            lambda i: (floats(5 + MANY * (i % 2), 4), floats(5 + MANY * (i % 2), 3)),
        ),
        "small table": (
            Embedding("e", 7, 3),
            lambda _i: (random.integers(0, 7, 9), floats(9, 3)),
        ),
        "large table": (
            Embedding("e", 300, 3),
            lambda _i: (random.integers(0, 300, 150), floats(150, 3)),
        ),
        "images": (Conv2d("c", 2, 3, 3), lambda _i: (floats(4, 2, 6, 6), floats(4, 3, 4, 4))),
    }


@pytest.mark.parametrize("case", learners_and_rows())
def test_the_sum_of_gradients_does_not_depend_on_which_came_first(case):
    node, drawn = learners_and_rows()[case]
    ready(node)
    node.adopt(node.theta.astype(np.float32))
    messages = [(One(i), *drawn(i)) for i in range(40)]
    sums = set[bytes]()
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(len(messages)) if seed else range(40)
        for place in order:
            state, taken, gradient = messages[place]
            node.forward(0, state, taken)
            node.backward(0, state, gradient)
        sums.add(node.take_gradient().tobytes())
    assert len(sums) == 1


def test_states_that_cannot_be_compared_are_ordered_by_what_they_read_as():
    kept = [((1, None), "b"), ((1, 0), "a"), ((0, None), "c")]
    assert [text for _state, text in by_state(kept)] == ["c", "a", "b"]
    assert by_state(kept[::-1]) == by_state(kept)


def test_staleness_counts_the_updates_since_the_forward_step():
    linear = ready(Linear("l", 2, 3))
    linear.min_update_interval = 2
    for instance in (0, 1):
        linear.forward(0, One(instance), np.ones((1, 2)))
    linear.backward(0, One(0), np.ones((1, 3)))
    assert not linear.asks_update()
    linear.updated()
    linear.backward(0, One(1), np.ones((1, 3)))
    assert (linear.version, linear.staleness_sum, linear.staleness_max) == (1, 1, 1)
    assert linear.instances == {1}


def test_an_update_is_asked_for_once_until_it_is_made():
    linear = ready(Linear("l", 2, 3))
    linear.min_update_interval = 2
    for asked in [(False, True, False), (False, True, False)]:
        for instance, asks in enumerate(asked):
            linear.forward(0, One(instance), np.ones((1, 2)))
            linear.backward(0, One(instance), np.ones((1, 3)))
            assert linear.asks_update() is asks
        linear.updated()


@pytest.mark.parametrize(("d_in", "d_out"), [(0, 3), (3, 0), (-1, 2)])
def test_linear_of_no_width_is_refused(d_in, d_out):
    text = f"l: widths must be >= 1, got d_in={d_in}, d_out={d_out}"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        Linear("l", d_in, d_out)


def test_a_shape_alone_passes_through_linear_and_back():
    linear = ready(Linear("l", 2, 3))
    linear.is_abstract = True
    ((_, _, out),) = linear.forward(0, One(0), Standin((7, 2), 8))
    assert (out.shape, out.itemsize) == ((7, 3), 8)
    ((_, _, back),) = linear.backward(0, One(0), out)
    assert (back.shape, back.itemsize) == ((7, 2), 8)


@pytest.mark.parametrize("vocabulary", [3, 64, 65, 500])
def test_embedding_sums_gradients_by_row_for_tables_of_any_size(vocabulary):
    random = np.random.default_rng(2)
    embedding = ready(Embedding("e", vocabulary, 4))
    by_hand = np.zeros((vocabulary, 4))
    for instance in range(3):
        indices = random.integers(0, vocabulary, (5, 6))
        gradient = random.standard_normal((5, 6, 4))
        ((_, _, rows),) = embedding.forward(0, One(instance), indices)
        assert (rows == embedding.weight[indices]).all()
        assert embedding.backward(0, One(instance), gradient) == ((0, One(instance), None),)
        np.add.at(by_hand, indices, gradient)
    assert embedding.take_gradient() == pytest.approx(by_hand.ravel(), abs=1e-12)
    assert not embedding.take_gradient().any()
    assert list(embedding.pending()) == []


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("vocabulary", [3, 500])
def test_an_embeddings_factor_multiplies_its_gradients(vocabulary, is_sparse):
    found = []
    choices: list[dict[str, Any]] = [{}, {"gradient_factor": 0.1}]
    for options in choices:
        embedding = ready(Embedding("e", vocabulary, 2, is_sparse=is_sparse, **options))
        embedding.forward(0, One(0), np.array([0, 2, 2]))
        embedding.backward(0, One(0), np.arange(1.0, 7.0).reshape(3, 2))
        rows = embedding.take_rows()
        found.append(embedding.take_gradient() if rows is None else rows[1])
    assert found[0].any()
    assert found[1] == pytest.approx(0.1 * found[0], rel=1e-15)


@pytest.mark.parametrize("factor", [0, -1.0])
def test_an_embeddings_factor_is_above_zero(factor):
    text = f"e: gradient_factor must be finite and > 0, got {factor}"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        Embedding("e", 3, 2, gradient_factor=factor)


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_an_embeddings_factor_is_finite(factor):
    with pytest.raises(
        OptionError, match=f"^gradient_factor must be a finite number, got {factor}$"
    ):
        Embedding("e", 3, 2, gradient_factor=factor)


@pytest.mark.parametrize(("vocabulary", "width"), [(0, 3), (3, 0)])
def test_embedding_of_no_extent_is_refused(vocabulary, width):
    text = f"e: extents must be >= 1, got vocabulary={vocabulary}, width={width}"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        Embedding("e", vocabulary, width)


def test_embedding_counts_bytes_moved_and_flop_only_for_the_update():
    embedding = ready(Embedding("e", 10, 4))
    looked_up = 30 * 4 * 8
    assert embedding.work(Direction.FORWARD, (5, 6)) == Work(0, 2 * looked_up, 2, looked_up)
    summed = 5 * looked_up  # copied twice, and read once more
    back = Work(0, 2 * looked_up, pass_bytes=summed)
    assert embedding.work(Direction.BACKWARD, (5, 6, 4)) == back
    assert embedding.work(Direction.UPDATE, None) == Work(40, 3 * 40 * 8, 13, 0, 6 * 40 * 8)
    embedding.step_by(2, Calls(10, 24, 1))
    assert embedding.work(Direction.UPDATE, None) == Work(
        40, 7 * 40 * 8, 21, pass_bytes=25 * 40 * 8, functions=40
    )
    sparse = ready(Embedding("e", 10, 4, is_sparse=True))
    assert sparse.work(Direction.FORWARD, (5, 6)) == Work(0, 2 * looked_up, 2)
    gathered = (5 + 4) * 12 * 8  # an update's passes, and a gather and a scatter of the rows
    assert sparse.work(Direction.UPDATE, (3,)) == Work(12, 3 * 12 * 8, 13, pass_bytes=gathered)


@pytest.mark.parametrize("rows", [*range(1, 10), LARGE_ROWS, LARGE_ROWS + 1])
@pytest.mark.parametrize("shape", [(40, 64), (200, 170), (520, 512), (521, 1000)])
def test_products_are_the_same_whichever_way_rows_and_weights_are_cut(shape, rows):
    """A weight below the least that is cut at all, one that is copied, and two in pieces."""
    assert 40 * 64 < FEW_WEIGHTS < 200 * 170 < SMALL_WEIGHT < 520 * 512
    random = np.random.default_rng(rows)
    weight, x = random.normal(size=shape) / shape[0], random.normal(size=(rows, shape[0]))
    gradient = random.normal(size=(rows, shape[1]))
    forward, back = np.einsum("ri,io->ro", x, weight), np.einsum("ro,io->ri", gradient, weight)
    transposed = Transposed(weight)
    for found, expected in (
        (product_of_few(x, weight), forward),
        (product_of_few(gradient, weight, transposed=True), back),
        (transposed.after(gradient), back),
        (transposed.after_few(gradient), back),
    ):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_a_matrix_charges_its_gradient_to_the_update_and_its_weights_to_each_step():
    linear = ready(Linear("l", 3, 2))
    payloads, weights = 5 * (3 + 2) * 8, (3 * 2 + 2) * 8
    flop = 2 * 5 * 3 * 2
    biased, paired = 2 * 5 * 2 * 8, 2 * payloads
    forward = Work(flop, payloads + weights, 2, weights, biased)
    assert linear.work(Direction.FORWARD, (5, 3)) == forward
    back = Work(2 * flop, 2 * payloads + weights, 2, weights, paired)
    assert linear.work(Direction.BACKWARD, (5, 2)) == back
    assert linear.work(Direction.UPDATE, None) == Work(6, 4 * weights, 6, 0, 5 * weights)
    linear.step_by(2, Calls(10, 24, 1))
    assert linear.work(Direction.UPDATE, None) == Work(6, 8 * weights, 14, 0, 24 * weights, 8)
    first, second = linear.work_of_halves((5, 2))
    assert first + second == back
    assert second == Work(flop, payloads, pass_bytes=paired)


def test_work_adds_up():
    assert Work(1, 2) + Work(10, 20) == Work(11, 22, 2)
    assert Work(1, 2, 3, 1) + Work(10, 20, 30, 10) == Work(11, 22, 33, 11)
