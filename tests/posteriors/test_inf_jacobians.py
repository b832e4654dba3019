"""Output covariances of rank-one Jacobians, a few examples at a time, against dense algebra."""

import pytest
import torch
from torch.testing import assert_close

from curvatures import make_curvature, random_gradients
from infoform.posteriors import InfPosterior
from infoform.posteriors.inf import jacobians as outer
from infoform.priors import LayerPrior

G, A, C = 4, 6, 3


@pytest.mark.parametrize("scratch", [1, 150, 2**22], ids=["one by one", "some at a time", "all at once"])
@pytest.mark.parametrize("support", ["top", "grid"])
@pytest.mark.parametrize("prior_rank", [0, 2])
def test_covariances_do_not_depend_on_how_many_are_formed_at_a_time(
    scratch: int, support: str, prior_rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outer, "SCRATCH", scratch)
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    curvature = make_curvature(*random_gradients(examples=12, shape=(G, A), seed=0))
    vectors = torch.linalg.qr(normal(A, prior_rank)).Q if prior_rank else None
    values = normal(prior_rank).square() if prior_rank else None
    prior = LayerPrior(normal(A).square() + 0.1, vectors, values)
    posterior = InfPosterior.from_curvature(curvature, prior=prior, num_data=40.0, rank=5, support=support)
    inputs, outputs = normal(7, A), normal(7, C, G)
    jacobians = torch.einsum("ncg,na->ncga", outputs, inputs).flatten(2)
    expected = jacobians @ torch.linalg.solve(posterior.dense(), jacobians.mT)
    assert_close(posterior.outer_covariance(inputs, outputs), expected, rtol=1e-9, atol=1e-12)
