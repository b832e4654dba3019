"""Intervals for a regression: a 90 % interval should contain the target in 90 % of all cases.

    python examples/regression_intervals.py

It prints some intervals, and how many targets lie in theirs.
"""

import torch
from sklearn.datasets import load_diabetes
from torch import nn

import infoform
from infoform.metrics import evaluate, interval_coverage

torch.manual_seed(0)
inputs, targets = (torch.tensor(values, dtype=torch.float32) for values in load_diabetes(return_X_y=True))
order = torch.randperm(len(inputs))
train, val, test = order[:200], order[200:320], order[320:]
inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
center, scale = targets[train].mean(), targets[train].std()
targets = ((targets - center) / scale).unsqueeze(1)

model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[train]), targets[train]).backward()
    optimizer.step()

# the fit takes the noise from the residuals; tuning sets the prior and calibrates intervals, on data not seen before
laplace = infoform.Laplace(model, "regression").fit([(inputs[train], targets[train])], progress=False)
laplace.tune([(inputs[val], targets[val])], trials=13, progress=False)

prediction = laplace.predict(inputs[test])
low, high = prediction.interval(0.9)
for index in range(5):
    ends = (low[index, 0] * scale + center, high[index, 0] * scale + center)
    print(
        f"patient {index}: between {ends[0]:.0f} and {ends[1]:.0f}, was {targets[test][index, 0] * scale + center:.0f}"
    )
for level in (0.5, 0.9):
    low, high = prediction.interval(level)
    held = ((low <= targets[test]) & (targets[test] <= high)).float().mean()
    gaussian = interval_coverage(prediction.mean, prediction.variance, targets[test], level=level)
    print(f"{level:.0%} intervals contain {held:.0%} of the targets; those of a Gaussian {gaussian:.0%}")
print({name: round(value, 3) for name, value in evaluate(prediction, targets[test]).items()})
