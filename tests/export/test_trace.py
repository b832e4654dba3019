from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import infoform

X, Y = torch.randn(30, 4), torch.arange(30) % 3


class Branching(nn.Module):
    """A model whose way depends on the values of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if float(x.sum()) > 1e9:
            x = x * 2
        found: Tensor = self.last(x)
        return found


class Unknown(nn.Module):
    """A model with an operator that ONNX does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(torch.special.bessel_j1(x))
        return found


def test_a_branch_on_values_is_told_with_its_line_and_leaves_nothing(tmp_path: Path) -> None:
    laplace = infoform.Laplace(Branching(), "classification", layers="last").fit([(X, Y)], progress=False)
    with pytest.raises(ValueError, match=r"cannot be exported: .* fails at .*; replace that part of the model") as told:
        laplace.export(tmp_path / "model.onnx", example=X)
    assert "depends on the values of a tensor" in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_an_operator_that_a_format_does_not_have_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    laplace = infoform.Laplace(Unknown(), "classification", layers="last").fit([(X, Y)], progress=False)
    with pytest.raises(ValueError, match=r"torch.onnx fails at the operator \w+\.\w*bessel_j1"):
        laplace.export(tmp_path / "model.onnx", example=X)
    assert list(tmp_path.iterdir()) == []
