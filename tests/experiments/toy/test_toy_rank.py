from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from infoform.experiments import Result
from infoform.experiments.page import write_page
from infoform.experiments.toy.rank import EXPERIMENT, RankSettings, errors

SETTINGS = RankSettings(steps=500, restarts=2, learning_rate=0.02, networks=2)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    cache = tmp_path_factory.mktemp("cache")
    return {key: EXPERIMENT.run_piece(key, SETTINGS, cache=cache) for key in EXPERIMENT.pieces(SETTINGS)}


def test_errors_are_norms_of_the_diagonal_and_of_the_rest() -> None:
    exact = torch.tensor([[2.0, 1.0], [1.0, 4.0]])
    found = torch.tensor([[2.0, 0.5], [0.0, 7.0]])
    diagonal, off = errors(found, exact)
    assert diagonal == pytest.approx(3 / 20**0.5)
    assert off == pytest.approx((0.25 + 1) ** 0.5 / 2**0.5)


def test_diagonals_are_exact_where_they_should_be(pieces: dict[str, Any]) -> None:
    for piece in pieces.values():
        assert piece["fixed"]["Diag"] == pytest.approx([0, 1])
        for rank in range(14):
            assert piece["ranked"]["INF"][rank][0] < 1e-12
            assert piece["ranked"]["ours"][rank][0] < 1e-12
            assert piece["lowest"]["ours"][rank] > -1e-12
        assert piece["ranked"]["INF"][-1][1] == pytest.approx(piece["fixed"]["EFB"][1])  # all eigenvalues are kept


def test_the_page_and_its_picture_are_made_of_the_result_alone(pieces: dict[str, Any], tmp_path: Path) -> None:
    result = Result("toy-rank", asdict(SETTINGS), 0, len(pieces), pieces=pieces)
    text = write_page("toy-rank", result, tmp_path).read_text()
    assert "../images/toy-rank-errors.png" in text
    assert (tmp_path / "images" / "toy-rank-errors.png").stat().st_size < 200_000
    assert "| 14 |" in text


def test_the_default_has_more_networks_than_a_quick_run() -> None:
    assert len(EXPERIMENT.pieces(EXPERIMENT.settings())) > len(EXPERIMENT.pieces(EXPERIMENT.settings(quick=True)))
