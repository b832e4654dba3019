"""A posterior for a small device: fit on a large machine, shrink to a budget of bytes, save, and load on the device.

    python examples/on_board.py

It prints the bytes, the scores on the device, and the effect of data that the device has collected.
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import infoform
from infoform.metrics import evaluate

torch.manual_seed(0)
pixels, classes = load_digits(return_X_y=True)
images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(classes)
images += 0.2 * torch.randn_like(images)
train, val, test = slice(0, 300), slice(300, 600), slice(1200, None)
folder = Path(tempfile.mkdtemp())

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images[train]), labels[train]).backward()
    optimizer.step()

# on the large machine
laplace = infoform.Laplace(model, "classification", structure=infoform.Inf(storage="bfloat16"))
laplace.fit([(images[train], labels[train])], progress=False)
plan = laplace.shrink("45kB")
laplace.tune([(images[val], labels[val])], trials=9, progress=False)  # another rank has another best τ
laplace.save(folder / "posterior.safetensors")
print(f"{plan.total_bytes:,} bytes, {plan.kept:.0%} of the energy kept, ranks {plan.ranks}")

# on the device: the network and one file
there = infoform.load(folder / "posterior.safetensors", model)
prediction = there.predict(images[test])
print("on the device:", {name: round(value, 3) for name, value in evaluate(prediction, labels[test]).items()})

# later: add the data that the device has collected; the old data are not needed
laplace.fit([(images[600:1200], labels[600:1200])], update=True, progress=False)
before, after = prediction.mutual_information.mean(), laplace.predict(images[test]).mutual_information.mean()
print(f"{laplace.num_data:.0f} examples; uncertainty for lack of data: {before:.4f} -> {after:.4f} nats")
