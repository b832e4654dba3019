import pytest

from infoform.experiments.search.halving import Round, halve, random_pairs


def test_pairs_are_log_uniform_between_their_bounds() -> None:
    pairs = random_pairs(2000, (1e2, 1e6), (1e-3, 1e1), seed=0)
    assert len(set(pairs)) == 2000
    assert all(1e2 <= count <= 1e6 and 1e-3 <= tau <= 1e1 for count, tau in pairs)
    assert sum(count < 1e4 for count, _ in pairs) == pytest.approx(1000, abs=100)
    assert pairs == random_pairs(2000, (1e2, 1e6), (1e-3, 1e1), seed=0)


def test_the_better_pairs_of_a_round_are_looked_at_again() -> None:
    seen: list[tuple[float, int]] = []

    def score(count: float, tau: float, one: Round) -> float:
        seen.append((tau, one.images))
        return abs(tau - 3.2) + (10.0 if one.images == 1 and tau == 3.0 else 0.0)

    pairs = [(1.0, float(tau)) for tau in range(8)]
    best, tried = halve(score, pairs, [Round(8, 1, 1), Round(3, 2, 1), Round(1, 4, 1)])
    assert best == (1.0, 4.0)  # 3 was dropped in the first round
    assert [tau for tau, images in seen if images == 2] == [4.0, 2.0, 5.0]
    assert [tau for tau, images in seen if images == 4] == [4.0]
    assert len(tried) == 12
    assert tried[-1] == [2.0, 1.0, 4.0, pytest.approx(0.8)]


def test_scores_that_are_not_finite_lose() -> None:
    best, tried = halve(
        lambda count, tau, _: float("nan") if tau < 2 else tau, [(1.0, 1.0), (1.0, 2.0)], [Round(2, 1, 1)]
    )
    assert best == (1.0, 2.0)
    assert tried[0][3] == 1e12


def test_a_search_without_enough_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        halve(lambda *_: 0.0, [(1.0, 1.0)], [Round(2, 1, 1)])
