"""Set aside inputs that are like nothing in the training data, with a threshold that is chosen on known data alone.

    python examples/unknown_inputs.py

The network knows the digits 0 to 6. It has never seen 7, 8 and 9. It prints how many of each kind are set aside.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import infoform
from infoform.metrics import ood

torch.manual_seed(0)
pixels, classes = load_digits(return_X_y=True)
images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(classes)
known, unknown = images[labels < 7], images[labels >= 7]
known_labels = labels[labels < 7]
train, val, test = slice(0, 150), slice(150, 550), slice(550, None)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 7))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(known[train]), known_labels[train]).backward()
    optimizer.step()

# neither the fit nor the tuning needs unknown data
laplace = infoform.Laplace(model, "classification").fit([(known[train], known_labels[train])], progress=False)
laplace.tune([(known[val], known_labels[val])], trials=11, progress=False)

threshold = laplace.predict(known[val]).mutual_information.quantile(0.95)
kept, strange = laplace.predict(known[test]), laplace.predict(unknown)
print(f"sets aside {(kept.mutual_information > threshold).float().mean():.0%} of the known inputs")
print(f"       and {(strange.mutual_information > threshold).float().mean():.0%} of the unknown ones")
for name in ("entropy", "mutual_information"):
    scores = ood(getattr(kept, name), getattr(strange, name))
    print(f"AUROC of the {name.replace('_', ' ')}: {scores['auroc']:.3f}")
