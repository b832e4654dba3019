"""The search for the largest evidence is Brent's, point by point, and finds the top that a fine grid finds."""

import math
from collections.abc import Callable

import pytest

from infoform.tuning.evidence import maximise

TOLERANCE = 1e-2
HILLS: dict[str, Callable[[float], float]] = {
    "parabola": lambda x: -((x - 0.3) ** 2),
    "ridge": lambda x: -abs(x - 0.7),
    "cusp": lambda x: -math.sqrt(abs(x + 1.1)),
    "plateau": lambda x: -((x - 0.2) ** 6),
    "steep on one side": lambda x: x - math.exp(2 * x),
    "long tail": lambda x: 1 / (1 + 30 * (x - 1.3) ** 2),
    "waves": lambda x: -(x**2) + 0.3 * math.sin(9 * x),
    # parabolas through three points of these have vertices outside of the bracket, to the left and to the right
    "roof": lambda x: x - 2.98 if x < 2.98 else 0.1 * (2.98 - x),
    "cusp and wall": lambda x: -((1.63 - x) ** 0.5) if x < 1.63 else -100 * (x - 1.63) ** 3,
    "at the end": lambda x: x,
    "flat": lambda x: 0.0,
    "evidence of one weight": lambda x: 0.5 * (x - math.log(40 + math.exp(x)) - 0.04 * math.exp(x)),
}


def _vertex(points: list[tuple[float, float]]) -> float | None:
    """Return where the parabola through three points is level; None where it is a line."""
    (x0, y0), (x1, y1), (x2, y2) = points
    if len({x0, x1, x2}) < 3:
        return None
    first, second = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = (second - first) / (x2 - x0)
    return None if bend == 0 else (x0 + x1) / 2 - first / (2 * bend)


def _brent(function: Callable[[float], float], low: float, high: float, grid: int) -> list[float]:
    """Return the points that Brent's method (1973, chapter 5) looks at.

    A move to the vertex of the parabola through the best point, the second best and the second best before is made if
    it stays within the bracket and is shorter than half the move before the last; else the larger side is cut in the
    golden ratio.
    """
    seen = [(x, function(x)) for x in (low + (high - low) * i / (grid - 1) for i in range(grid))]
    place = max(range(grid), key=lambda i: seen[i][1])
    left, right = seen[max(0, place - 1)][0], seen[min(grid - 1, place + 1)][0]
    best = second = third = seen[place]
    last = before_last = right - left
    while max(best[0] - left, right - best[0]) > TOLERANCE:
        vertex = _vertex([best, second, third])
        wider_right = best[0] < (left + right) / 2
        if vertex is not None and left < vertex < right and abs(vertex - best[0]) < abs(before_last) / 2:
            before_last, last = last, vertex - best[0]
        else:
            before_last = (right if wider_right else left) - best[0]
            last = (3 - math.sqrt(5)) / 2 * before_last
        if abs(last) < TOLERANCE / 3:
            last = math.copysign(TOLERANCE / 3, 1 if wider_right else -1)
        x = min(max(best[0] + last, left), right)
        new = (x, function(x))
        seen.append(new)
        if new[1] >= best[1]:
            left, right = (best[0], right) if x >= best[0] else (left, best[0])
            third, second, best = second, best, new
            continue
        left, right = (x, right) if x < best[0] else (left, x)
        if new[1] >= second[1] or second[0] == best[0]:
            third, second = second, new
        elif new[1] >= third[1] or third[0] in (best[0], second[0]):
            third = new
    return [x for x, _ in seen]


@pytest.mark.parametrize("grid", [3, 7])
@pytest.mark.parametrize("hill", HILLS)
def test_the_points_are_those_of_brents_method(hill: str, grid: int) -> None:
    points: list[float] = []

    def watched(x: float) -> float:
        points.append(x)
        return HILLS[hill](x)

    maximise(watched, -3.0, 4.0, grid=grid)
    expected = _brent(HILLS[hill], -3.0, 4.0, grid)
    assert len(points) == len(expected)
    assert points == pytest.approx(expected, abs=2e-5)  # GOLDEN has six digits


@pytest.mark.parametrize("hill", [name for name in HILLS if name not in ("flat", "waves")])  # which have one top
def test_the_top_is_that_of_a_fine_grid(hill: str) -> None:
    x, value = maximise(HILLS[hill], -3.0, 4.0, grid=15)
    fine = [-3 + 7 * i / 70_000 for i in range(70_001)]
    top = max(fine, key=HILLS[hill])
    assert value == HILLS[hill](x)
    assert abs(x - top) <= TOLERANCE
