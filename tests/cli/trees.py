"""The data that a user of the command has, in these tests."""

import json
from pathlib import Path
from typing import Any

MODEL = """
from torch import nn


def classifier(width=5):
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 3))


def regressor():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def pictures():
    return nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))


def broken():
    return undefined_name


def no_network():
    return 3


not_callable = 7
"""
NAMES = ("ash", "birch", "cedar")
NETWORK = ("--model", "model.py:classifier", "--weights", "classifier.pt")
TREES = ("--data", "trees.csv", "--target", "tree", "--ignore", "id,class,height")
HEIGHTS = ("--data", "trees.csv", "--target", "height", "--ignore", "id,class,tree", "--likelihood", "regression")


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())
