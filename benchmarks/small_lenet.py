"""A LeNet trained on a sixth of MNIST until it is over-confident, as a task of `predictives.py`'s kind."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from benchmarks.predictives_tasks import Task
from benchmarks.speed.networks import lenet
from torch import Tensor
from torch.nn import functional


def mnist() -> Iterator[Task]:
    root = Path(os.environ["INFOFORM_DATA"])

    def read(name: str, offset: int) -> Tensor:
        with gzip.open(root / "mnist" / "MNIST" / "raw" / name) as file:
            raw = file.read()
        return torch.tensor(np.frombuffer(raw, dtype=np.uint8, offset=offset).copy())

    def scaled(images: Tensor) -> Tensor:
        return (images.reshape(-1, 1, 28, 28).float() / 255 - 0.1307) / 0.3081

    train = scaled(read("train-images-idx3-ubyte.gz", 16)), read("train-labels-idx1-ubyte.gz", 8).long()
    test = scaled(read("t10k-images-idx3-ubyte.gz", 16)), read("t10k-labels-idx1-ubyte.gz", 8).long()
    letters = torch.tensor(np.load(root / "notmnist" / "notMNIST_small.npz")["images"])
    unknown = scaled(letters[torch.randperm(len(letters), generator=torch.Generator().manual_seed(0))[:500]])
    torch.manual_seed(0)
    model = lenet(32, 64, 1024)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(10):  # long enough to be over-confident
        for part in torch.randperm(10_000).split(100):
            optimizer.zero_grad()
            functional.cross_entropy(model(train[0][part]), train[1][part]).backward()
            optimizer.step()
    parts = ((train[0][start:stop], train[1][start:stop]) for start, stop in ((0, 2000), (10_000, 10_500)))
    known = (test[0][:500], test[1][:500])
    what = "a LeNet, ten epochs on 10,000 images of MNIST, validated and tested on 500 each; unknown: notMNIST"
    yield Task("mnist", what, 0, 1, model, "classification", *parts, known, unknown)
