"""Small posteriors for tests of exports, and their data."""

import torch
from torch import Tensor, nn

import infoform


def batches(outputs: str, count: int = 3, size: int = 40) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(count):
        x = torch.randn(size, 6, generator=generator, dtype=torch.float64)
        score = x[:, :3] + 0.5 * torch.randn(size, 3, generator=generator, dtype=torch.float64)
        y = {"classification": score.argmax(1), "multilabel": (score > 0).double(), "regression": score}[outputs]
        found.append((x, y))
    return found


def network(outputs: int = 3, *, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, outputs)).to(dtype).eval()


def fitted(
    likelihood: str, *, layers: str | None = "last", structure: str = "inf", dtype: torch.dtype = torch.float64
) -> infoform.Laplace:
    """Return a posterior with a temperature, novelty and, of classes and numbers, a conformal calibration."""
    data = [(x.to(dtype), y.to(dtype) if y.is_floating_point() else y) for x, y in batches(likelihood)]
    laplace = infoform.Laplace(network(dtype=dtype), likelihood, layers=layers, structure=structure)
    laplace.fit(data[:2], progress=False)
    laplace.prior_precision = 3.0
    laplace.temperature = 1.0 if likelihood == "regression" else 1.3
    laplace.calibrate_novelty(data[2:], progress=False)
    return laplace if likelihood == "multilabel" else laplace.calibrate_conformal(data[2:], progress=False)
