"""Label the examples that teach most: train, ask for twenty labels, train again; compared with random choice.

    python examples/active_learning.py

It prints the accuracy after each round, first with labels chosen at random, then with labels chosen by infoform.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import infoform

torch.manual_seed(0)
pixels, classes = load_digits(return_X_y=True)
images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(classes)
order = torch.randperm(len(images))
pool, test = order[:1000], order[1000:]


def train(chosen: Tensor) -> nn.Module:
    """Return a network that is trained on these examples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    return model


def ask(model: nn.Module, known: Tensor, left: Tensor) -> Tensor:
    """Return the twenty unlabelled examples whose labels would tell most about the weights."""
    laplace = infoform.Laplace(model, "classification").fit([(images[known], labels[known])], progress=False)
    laplace.prior_precision = 5.0
    unlabelled = DataLoader(TensorDataset(images[left]), batch_size=500)
    return left[infoform.acquire(laplace, unlabelled, 20, by="mutual_information", progress=False)]


def ask_at_random(model: nn.Module, known: Tensor, left: Tensor) -> Tensor:
    """Return twenty unlabelled examples at random."""
    return left[torch.randperm(len(left))[:20]]


for way in (ask_at_random, ask):
    known = pool[:40]
    for _ in range(4):
        model = train(known)
        with torch.no_grad():
            right = (model(images[test]).argmax(1) == labels[test]).float().mean()
        print(f"{way.__name__:14} {len(known):4} labels: {right:.1%} right")
        known = torch.cat([known, way(model, known, pool[~torch.isin(pool, known)])])
