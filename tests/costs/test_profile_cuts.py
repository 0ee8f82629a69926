"""What operators lose beside a cut, from conversions by themselves and a network in pieces."""

import numpy as np
import pytest

from placewright.costs.profile_cuts import LEAST_SCALE, MOST_SCALE, CutFigures, fit_cuts, sides_of
from placewright.graph import Operator, OperatorGraph, Tensor

CONVERSIONS = np.array([0.0, 2.0, 6.0, np.nan])


def test_an_operator_is_at_a_side_once_for_reading_and_once_for_being_read() -> None:
    """Two tensors of a cross one cut to b, c and d, b's stays inside: a is read once, and the others read once."""
    graph = OperatorGraph(
        [Operator(name) for name in "abcd"],
        [Tensor("x", 0, (1, 2), 8), Tensor("y", 0, (3,), 8), Tensor("z", 1, (2,), 8)],
    )
    assert sorted(sides_of(graph, [1])) == [0, 1, 2, 3]
    assert sorted(sides_of(graph, [1, 2])) == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("scale", [0.7, 1.0, 3.0])
def test_sides_sum_up_to_what_the_pieces_took_longer(scale: float) -> None:
    """When pieces are made to take what a scale says, the scale is found, and cut times sum up to the pieces."""
    sides = [0, 1, 1, 2]
    more = 4 * 0.5 + scale * (2.0 + 6.0 / 2)
    figures = fit_cuts(CONVERSIONS, 1.0, more, sides)
    assert figures.scale == pytest.approx(scale)
    assert figures.cut_s(CONVERSIONS)[sides].sum() == pytest.approx(more)


def test_an_operator_that_is_not_known_has_the_average_of_a_side() -> None:
    """It is left out of the fit with the average, so the sum still holds."""
    figures = fit_cuts(CONVERSIONS, 1.0, 12.0, [0, 1, 2, 3])
    assert figures.overhead_s == 3.0 and figures.cut_s(CONVERSIONS)[3] == 3.0
    assert figures.cut_s(CONVERSIONS).sum() == pytest.approx(12.0)


def test_nothing_is_below_half_a_call_and_no_scale_is_absurd() -> None:
    """Pieces faster than the network, or a hundred times slower than conversions say, are not believed."""
    for more, scale in ((0.0, LEAST_SCALE), (-5.0, LEAST_SCALE), (500.0, MOST_SCALE)):
        figures = fit_cuts(CONVERSIONS, 1.0, more, [0, 1, 2])
        assert figures.scale == scale and (figures.cut_s(CONVERSIONS) >= 0.5).all()


def test_without_conversions_every_operator_has_the_average() -> None:
    """2 s more at four sides: half a second each, and no less than half a call."""
    assert fit_cuts(np.zeros(3), 0.1, 2.0, [0, 1, 1, 2]) == CutFigures(0.1, 0.5, 0.0)
    assert fit_cuts(np.zeros(3), 2.0, 2.0, [0, 1, 1, 2]).cut_s(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
