"""Calibrate a classifier: about 90 % of the answers with 90 % confidence are then right.

    python examples/calibrate.py

It prints the scores without and with a posterior. Replace the digits by your own model and loaders.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infoform
from infoform.metrics import ece, nll, reliability

torch.manual_seed(0)
pixels, classes = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32) / 16
images += 0.2 * torch.randn_like(images)
parts = torch.randperm(len(images)).split([300, 400, 1097])
train, val, test = (TensorDataset(images[part], torch.tensor(classes)[part]) for part in parts)

# a network that is too sure of itself
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(100):
    for x, y in DataLoader(train, batch_size=100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

# fit the posterior on the training data, tune it on data that the network has not seen
laplace = infoform.Laplace(model, "classification").fit(DataLoader(train, batch_size=100), progress=False)
laplace.tune(DataLoader(val, batch_size=200), trials=11, progress=False)

prediction, targets = laplace.predict_loader(DataLoader(test, batch_size=200), progress=False)
alone = prediction.plain.softmax(1)
for name, probs in (("network alone", alone), ("with posterior", prediction.probs)):
    right = (probs.argmax(1) == targets).float().mean()
    print(f"{name:15} right {right:.1%}, says {probs.amax(1).mean():.1%}, ", end="")
    print(f"ECE {ece(probs, targets):.3f}, NLL {nll(probs, targets):.3f}")

print("\nconfidence  right  of")
diagram = reliability(prediction.probs, targets, bins=10)
for says, right, count in zip(diagram.confidence, diagram.accuracy, diagram.count, strict=True):
    if count >= 20:
        print(f"{says:10.0%} {right:6.0%} {int(count):4}")
