"""Least squares against the normal equations, quantiles against a printed table."""

from __future__ import annotations

import numpy as np
import pytest

from ampsim.calibration.least_squares import SingularFit, least_squares, student_quantile

FREE = [(-100.0, 100.0), (-100.0, 100.0)]


def test_a_line_is_fitted_as_by_the_normal_equations_with_its_standard_errors():
    x = np.array([0.0, 1.0, 2.0, 3.0, 5.0])
    y = np.array([1.1, 2.8, 5.3, 6.9, 11.2])
    found = least_squares(lambda at: at[0] + at[1] * x - y, [0.0, 0.0], FREE)
    design = np.column_stack([np.ones_like(x), x])
    expected, (rest,) = np.linalg.lstsq(design, y)[:2]
    errors = np.sqrt(rest / 3 * np.diag(np.linalg.inv(design.T @ design)))
    assert found.at == pytest.approx(expected, rel=1e-6)
    assert found.error == pytest.approx(errors, rel=1e-6)
    assert found.freedom == 3


def test_errors_of_points_that_matter_more_are_those_of_points_as_exact_as_the_others():
    """A weight says how much a point matters. Taken for exactness, 95 % were 80 %."""
    x, weights = np.arange(24.0), np.array([9.0, *[1.0] * 7] * 3)
    rng, roots = np.random.default_rng(0), np.sqrt(weights)
    design = np.column_stack([np.ones(24), x])
    moves = np.linalg.solve(design.T * weights @ design, design.T * weights)
    y = 1.0 + 0.5 * x + rng.standard_normal(24)
    found = least_squares(
        lambda at: roots * (at[0] + at[1] * x - y), [0.0, 0.0], FREE, weights=weights.tolist()
    )
    rest = np.eye(24) - design @ moves
    variance = ((rest @ y) ** 2).sum() / np.trace(rest @ rest.T)
    assert found.at == pytest.approx(moves @ y, rel=1e-6)
    assert found.error == pytest.approx(np.sqrt(variance * (moves**2).sum(axis=1)), rel=1e-6)


def test_a_curved_problem_is_solved_from_afar():
    times = np.array([0.5, 1.0, 2.0, 4.0])
    told = np.log(3.0 + 0.25 * times)

    def residuals(at):
        return np.log(np.exp(at[0]) + np.exp(at[1]) * times) - told

    found = least_squares(residuals, [4.0, -6.0], FREE)
    assert np.exp(found.at) == pytest.approx([3.0, 0.25], rel=1e-3)


def test_the_law_of_homogeneity_stands_for_a_derivative():
    """Each residual is homogeneous: its derivatives, with signs 1 and -1, add up to 1."""
    work, messages = np.array([1.0, 3.0, 5.0]), np.array([4.0, 1.0, 2.0])
    told = -np.log(work / 2.0 + messages * 0.7)
    asked = []

    def residuals(at):
        asked.append(at)
        return -np.log(work / np.exp(at[0]) + messages * np.exp(at[1])) - told

    plain = least_squares(residuals, [0.0, 0.0], FREE)
    without, asked = len(asked), []
    ruled = least_squares(residuals, [0.0, 0.0], FREE, law=[1, -1])
    assert len(asked) < without
    assert np.exp(ruled.at) == pytest.approx([2.0, 0.7], rel=1e-3)
    assert ruled.at == pytest.approx(plain.at, abs=1e-3)


def test_a_first_parameter_that_no_point_depends_on_is_named_under_the_law_too():
    """What differences of several others are off by is no derivative by it."""
    parts = np.array([[1.0, 4.0, 2.0], [3.0, 1.0, 5.0], [5.0, 2.0, 1.0], [2.0, 3.0, 9.0]])
    told = -np.log(parts.sum(axis=1))

    def residuals(at):
        _none, rate, *durations = at
        return -np.log(parts @ np.exp([-rate, *durations])) - told

    with pytest.raises(SingularFit) as one:
        least_squares(residuals, [0.0, 1.0, 0.5, -0.5], [(-9.0, 9.0)] * 4, law=[1, 1, -1, -1])
    assert one.value.place == 0


def test_a_bound_holds_a_parameter_and_the_other_gives_way():
    x = np.array([0.0, 1.0, 2.0])
    found = least_squares(
        lambda at: at[0] + at[1] * x - (1.0 + 2.0 * x), [0.0, 0.0], [(-9.0, 9.0), (-9.0, 1.0)]
    )
    assert found.at == pytest.approx([2.0, 1.0], abs=1e-3)  # the best line of slope 1


def test_what_no_point_decides_is_said():
    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(SingularFit) as one:
        least_squares(lambda at: at[0] - x, [0.0, 0.0], FREE)
    assert one.value.place == 1
    with pytest.raises(SingularFit) as both:
        least_squares(lambda at: at[0] + at[1] - x, [0.0, 0.0], FREE)
    assert both.value.place is None


def test_as_many_points_as_parameters_leave_no_interval():
    found = least_squares(lambda at: [at[0] - 1.0, at[1] - 2.0], [0.0, 0.0], FREE)
    assert np.isnan(found.error).all() and found.freedom == 0


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (120, 1.980)]
)
def test_quantiles_are_those_of_students_table(freedom, quantile):
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=6e-4)
