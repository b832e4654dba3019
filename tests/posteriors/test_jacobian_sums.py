"""Jacobians that come one after the other give what they do together, for every structure."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from curvatures import POSTERIORS, make_curvature, random_gradients
from infoform.posteriors import InfPosterior
from infoform.priors import LayerPrior

G, A = 4, 6


@pytest.mark.parametrize("posterior", POSTERIORS.values(), ids=POSTERIORS.keys())
def test_sums_are_covariances(posterior: Any) -> None:
    curvature = make_curvature(*random_gradients(examples=12, shape=(G, A), seed=0))
    options = {"rank": 5} if posterior is InfPosterior else {}
    built = posterior.from_curvature(curvature, prior=LayerPrior(2.0), num_data=40.0, **options)
    jacobians = torch.randn((3, 2, G, A), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sums = built.jacobian_sums()
    for one in jacobians:
        sums.add(one)
    flat = jacobians.flatten(2)
    expected = flat @ torch.linalg.solve(built.dense(), flat.mT)
    assert_close(sums.covariance(), expected, rtol=1e-8, atol=1e-12)
