from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import infoform
from flat import flat_laplace
from infoform.experiments import Result
from infoform.experiments.networks.shallow import ShallowStack
from infoform.experiments.uci.information import (
    EXPERIMENT,
    both_errors,
    information,
    lowest,
    ratios,
    unclipped,
)
from infoform.experiments.uci.structures import STRUCTURES


@pytest.fixture
def fitted() -> tuple[infoform.Laplace, Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = ShallowStack.drawn(1, 3, 6, generator=generator).network(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    laplace = flat_laplace(model, "regression", structure="full", statistics="all", fisher="exact")
    return laplace.fit([(x, x.sum(1, keepdim=True).sin())], progress=False), x


def gradients(laplace: infoform.Laplace, x: Tensor) -> list[Tensor]:
    """Each layer's gradients of the output by autograd, (N, G * A), the bias last."""
    found: dict[str, list[Tensor]] = {"0": [], "2": []}
    for one in x:
        for name, rows in found.items():
            layer = laplace.model.get_submodule(name)
            weight, bias = torch.autograd.grad(laplace.model(one).sum(), list(layer.parameters()))
            rows.append(torch.cat([weight, bias.unsqueeze(1)], 1).flatten())
    return [torch.stack(rows) for rows in found.values()]


def test_the_reference_is_the_mean_of_outer_products(fitted: tuple[infoform.Laplace, Tensor]) -> None:
    laplace, x = fitted
    exact = information(laplace.posterior(prior_precision=0.0, num_data=1.0))
    assert laplace.noise is not None
    for block, rows in zip(exact.values(), gradients(laplace, x), strict=True):
        assert_close(block * laplace.noise**2, rows.T @ rows / len(x), rtol=1e-9, atol=1e-12)


def test_errors_are_relative_frobenius_norms() -> None:
    generator = torch.Generator().manual_seed(0)
    reference = {name: torch.randn(size, size, generator=generator) for name, size in (("0", 5), ("2", 3))}
    found = {name: torch.randn_like(block) for name, block in reference.items()}
    joint, joint_found = torch.block_diag(*reference.values()), torch.block_diag(*found.values())
    expected = []
    for exact, other in ((reference["0"], found["0"]), (joint, joint_found)):
        expected.append((other - exact).diagonal().norm() / exact.diagonal().norm())
        off = ~torch.eye(len(exact), dtype=torch.bool)
        expected.append((other - exact)[off].norm() / exact[off].norm())
    assert_close(torch.tensor(both_errors(found, reference)), torch.stack(expected))


def test_the_printed_correction_has_an_exact_diagonal_and_ours_is_definite_too(
    fitted: tuple[infoform.Laplace, Tensor],
) -> None:
    laplace, _ = fitted
    reference = information(laplace.posterior(prior_precision=0.0, num_data=1.0))
    for label in ("inf 100%", "inf 5%", "ours 5%", "ours"):
        assert both_errors(information(unclipped(laplace, STRUCTURES[label])), reference)[0] < 1e-9
    assert lowest(unclipped(laplace, STRUCTURES["inf 100%"]), reference) < -1e-3
    assert lowest(unclipped(laplace, STRUCTURES["ours 5%"]), reference) > -1e-12


def test_variances_are_compared_at_equal_hyperparameters(fitted: tuple[infoform.Laplace, Tensor]) -> None:
    laplace, x = fitted
    found = ratios(laplace, x[:5], [2.0])
    assert laplace.noise is not None
    variance, exact = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    for rows in gradients(laplace, x):
        block = rows.T @ rows / laplace.noise**2 + 2 * torch.eye(rows.shape[1], dtype=torch.float64)
        variance += (rows[:5] ** 2 / block.diagonal()).sum(1)
        exact += (rows[:5] * torch.linalg.solve(block, rows[:5].T).T).sum(1)
    ratio = (variance / exact).log()
    assert found["diag"] == [[pytest.approx(float(ratio.abs().mean()), 1e-3), pytest.approx(float(ratio.mean()), 1e-3)]]


def test_a_piece_and_a_page(small_uci: Path) -> None:
    settings = replace(EXPERIMENT.settings(quick=True), sets=("yacht",), epochs=2, prior_precisions=(1.0,))
    result = Result("uci-information", asdict(settings), 0, 2)
    for key in EXPERIMENT.pieces(settings):
        piece = EXPERIMENT.run_piece(key, settings, cache=small_uci / "cache")
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    assert list(result.pieces) == ["yacht/0", "yacht/1"]
    errors = result.pieces["yacht/0"]["errors"]
    assert errors["diag"][1] == 1
    assert errors["ours 5%"][1] < errors["diag"][1]
    text = EXPERIMENT.page(result)
    assert "| yacht | 0.653 | 0.516 | 0.699 |" in text
    assert "of 1 sets" in text
