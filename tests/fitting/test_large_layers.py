"""Errors of layers whose exact matrix is never formed are those of the matrix formed."""

from typing import Any

import pytest
import torch
from benchmarks.large_layers import layer_errors
from torch import nn

from dense import make_reference, sampled_vectors
from flat import flat_laplace
from infoform.likelihoods import get_likelihood

OPTIONS: list[dict[str, Any]] = [
    {"rank": 7},
    {"rank": 9, "basis_size": 4},
    {"rank": 5, "core": "diagonal"},
    {"structure": "inf-paper", "rank": 6},
    {"structure": "efb"},
    {"structure": "efb-paper"},
    {"structure": "kfac", "damping": "exact"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_errors_are_those_of_dense_matrices(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = torch.randn(30, 5, dtype=torch.float64)
    batches = [(part, torch.zeros(len(part), dtype=torch.long)) for part in x.split(8)]
    found, _ = layer_errors(model, batches, options)
    laplace = flat_laplace(model, "classification", prior="isotropic", **options).fit(batches, progress=False)
    posterior = laplace.posterior(num_data=1.0, prior_precision=1e-12).layers
    vectors = sampled_vectors(get_likelihood("classification"), model(x).detach(), samples=1, seed=0)
    assert list(found) == ["0", "2"]
    for name, error in found.items():
        exact = make_reference(model, name, x, vectors).block
        off = ~torch.eye(len(exact), dtype=torch.bool)
        expected = (posterior[name].dense() - exact)[off].norm() / exact[off].norm()
        assert error == pytest.approx(float(expected), rel=1e-6)
        assert 0 < error < 2
