"""Networks in bfloat16 and float16 are fitted, tuned and predicted like others, within what their dtype can tell."""

import pytest
import torch
from torch import nn

from infoform import Laplace
from infoform.likelihoods import (
    LIKELIHOODS,
    DenseCovariance,
    DiagonalCovariance,
    OutputCovariance,
    SharedVectorsCovariance,
)
from infoform.posteriors import STRUCTURES


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_regression_is_predicted_as_in_float64(structure: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3).to(dtype)
    y = (x.sum(1, keepdim=True) + torch.randn(40, 2)).to(dtype)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)
    laplace = Laplace(model, "regression", structure=structure).fit([(x, y)], progress=False)
    found = laplace.predict(x, kind="linear")
    wide = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    wide.load_state_dict(model.state_dict())
    exact = Laplace(wide, "regression", structure=structure).fit([(x.double(), y.double())], progress=False)
    expected = exact.predict(x.double(), kind="linear")
    for name in ("mean", "std", "entropy", "mutual_information"):
        torch.testing.assert_close(getattr(found, name).double(), getattr(expected, name), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_ratio_of_determinants_is_that_of_dense_matrices(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    noise = torch.tensor([0.5, 2.0, 0.1], dtype=dtype)
    root = torch.randn(4, 3, 3)
    taken = 0.4 * torch.randn(4, 3, 2)
    forms: list[OutputCovariance] = [
        DenseCovariance((root @ root.mT).to(dtype)),
        DiagonalCovariance((1 + torch.rand(4, 3)).to(dtype), taken.to(dtype)),
        DiagonalCovariance((1e-3 * torch.rand(4, 3)).to(dtype)),
        SharedVectorsCovariance(torch.linalg.qr(torch.randn(3, 3)).Q.to(dtype), torch.rand(4, 3).to(dtype)),
    ]
    for form in forms:
        dense = form.dense().double()
        expected = torch.logdet(dense + noise.double().diag()) - noise.double().log().sum()
        found = form.log_det_ratio(noise)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=8 * torch.finfo(dtype).eps, atol=1e-9)


def test_the_strangeness_of_an_answer_loses_no_digit_of_the_outputs() -> None:
    outputs = torch.randn(5, 70, generator=torch.Generator().manual_seed(0))
    for name in ("classification", "multilabel"):
        likelihood = LIKELIHOODS[name]()
        expected = likelihood.example_strangeness(outputs.double())
        torch.testing.assert_close(likelihood.example_strangeness(outputs), expected, rtol=1e-12, atol=0)
