"""Small trained networks and data that several parts use."""

import torch
from torch import Tensor, nn

import infoform

Batches = list[tuple[Tensor, Tensor]]


def trained_classifier(seed: int, *, convolution: bool = False) -> tuple[nn.Module, Batches]:
    """Return a network with three classes and its training data, in batches."""
    torch.manual_seed(seed)
    x = torch.randn(240, 1, 6, 6) if convolution else torch.randn(240, 6)
    labels = x.flatten(1)[:, :3].argmax(1)
    if convolution:
        model: nn.Module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    else:
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model.eval(), list(zip(x.split(40), labels.split(40), strict=True))


def fitted_classifier(seed: int, *, structure: str = "inf", convolution: bool = False) -> infoform.Laplace:
    model, batches = trained_classifier(seed, convolution=convolution)
    return infoform.Laplace(model, "classification", structure=structure, seed=seed).fit(batches, progress=False)
