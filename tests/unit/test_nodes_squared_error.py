"""SquaredError: what it reports of a step; its gradient is the conformance tests'."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from ampsim.nodes import SquaredError


class One(NamedTuple):
    instance: int


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_squared_error_reports_the_means_of_rows(shape):
    prediction, target = np.random.default_rng(1).standard_normal((2, *shape))
    loss = SquaredError("l")
    loss.forward(1, One(0), target)
    evaluated = loss.evaluate(0, One(0), prediction)
    difference = (prediction - target).reshape(4, -1)
    assert evaluated is not None and evaluated.report is not None
    report = evaluated.report
    assert report.loss_sum == pytest.approx((difference**2).mean(axis=1).sum())
    assert report.absolute_error == pytest.approx(np.abs(difference).mean(axis=1).sum())
    assert (report.correct, report.rows) == (None, 4)
