"""The networks that `predictives.py` asks, each with its data and the choices that are measured on it.

Digits, MNIST and UCI decide about defaults; the two public CIFAR-10 ResNets, which nobody chose anything on, check it.
UCI, MNIST, notMNIST, SVHN and the ResNets' weights are read from the folder INFOFORM_DATA, CIFAR-10 from an .npz file.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.demo.digits import DigitsSettings, load_digits_parts, train_classifier

STRUCTURES = ("inf", "diag", "kfac", "efb-paper", "inf-paper")
PRIORS = ("activation", "isotropic")
TUNED, BEST, TAU_ALONE, EVIDENCE = "validation", "validation, best", "validation, τ alone", "evidence"
NOISE_TOO = "evidence, noise too"  # of a regression
GAUSSIAN_SAMPLES = 100  # draws of `linear`, the default
TUNING = (TUNED, BEST, TAU_ALONE, EVIDENCE)
Data = tuple[Tensor, Tensor]


class Choice(NamedTuple):
    """A posterior and how it predicts."""

    structure: str
    prior: str
    kind: str
    link: str  # of `linear` on a classifier; "" where there is none to choose


def choices(
    structures: Sequence[str], kinds: Sequence[str], *, links: Sequence[str] = ("mc", "probit")
) -> list[Choice]:
    """Return all choices of these structures, both priors and these kinds, in that order."""
    return [
        Choice(structure, prior, kind, link)
        for structure, prior, kind in product(structures, PRIORS, kinds)
        for link in (links if kind == "linear" else ("",))
    ]


@dataclass(frozen=True)
class Task:
    """One trained network with its data."""

    name: str
    what: str
    seed: int
    networks: int  # of this task
    model: nn.Module
    likelihood: str
    train: Data  # for the curvature
    validation: Data
    test: Data
    unknown: Tensor | None
    choices: Sequence[Choice] = ()
    tunings: Sequence[str] = TUNING
    fewer: Sequence[Choice] = ()  # choices that are tuned in two ways only, to save time
    samples: int = 30  # sampled networks
    batch: int = 500
    statistics: str = "all"

    def tunings_of(self, choice: Choice) -> list[str]:
        """Return the ways in which a choice is tuned."""
        return [one for one in self.tunings if one in (TUNED, EVIDENCE) or choice not in self.fewer]

    @property
    def settings(self) -> dict[str, Any]:
        """Return what the page must know of the task."""
        sizes = [("curvature", self.train), ("validation", self.validation), ("test", self.test)]
        examples = {name: len(part[0]) for name, part in sizes}
        if self.unknown is not None:
            examples["unknown"] = len(self.unknown)
        expected = [[*choice, tuning] for choice in self.choices for tuning in self.tunings_of(choice)]
        return {"what": self.what, "networks": self.networks, "samples": self.samples, "examples": examples,
                "expected": expected}  # fmt: skip


def digits() -> Iterator[Task]:
    for seed in range(3):
        settings = DigitsSettings(seed=seed)
        train, validation, test = load_digits_parts(settings)
        model = train_classifier(train, settings)
        shuffled = test.images.flatten(1)[:, torch.randperm(64, generator=torch.Generator().manual_seed(seed))]
        known = [(part.images, part.labels) for part in (train, validation, test)]
        what = "the demo's CNN on 400 noisy digits; unknown: shuffled pixels"
        unknown = shuffled.reshape(test.images.shape)
        every = choices(STRUCTURES, ("linear", "mc", "linear-mc"))
        yield Task("digits", what, seed, 3, model, "classification", known[0], known[1], known[2], unknown, every)


def uci() -> Iterator[Task]:
    root = Path(os.environ["INFOFORM_DATA"]) / "uci"
    for name in ("bostonHousing", "concrete", "yacht"):
        for split in range(3):
            folder = root / name
            data = np.loadtxt(folder / "data.txt")
            features = np.loadtxt(folder / "index_features.txt").astype(int)
            target = int(np.loadtxt(folder / "index_target.txt"))
            rows = [np.loadtxt(folder / f"index_{part}_{split}.txt").astype(int) for part in ("train", "test")]
            mean, std = data[rows[0]].mean(0), data[rows[0]].std(0) + 1e-12
            table = torch.tensor((data - mean) / std)
            x, y = table[:, features], table[:, [target]]
            fit, validation = rows[0][len(rows[0]) // 5 :], rows[0][: len(rows[0]) // 5]
            torch.manual_seed(split)
            model = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Linear(50, 1)).double()
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
            for _ in range(400):
                optimizer.zero_grad()
                functional.mse_loss(model(x[fit]), y[fit]).backward()
                optimizer.step()
            train, held_out, test = ((x[part], y[part]) for part in (fit, validation, rows[1]))
            what = f"UCI {name}, one hidden layer of 50, splits 0 to 2"
            every = choices(STRUCTURES, ("linear", "mc", "linear-mc"), links=("",))
            tunings = (*TUNING, NOISE_TOO)
            data_of = (train, held_out, test)
            yield Task(
                f"uci-{name}", what, split, 3, model, "regression", *data_of, None, choices=every, tunings=tunings
            )


def mnist() -> Iterator[Task]:
    from infoform.data import mnist as images
    from infoform.data import notmnist
    from infoform.experiments.networks.classifiers import lenet

    train, test, letters = images.load("train"), images.load("test"), notmnist.load()
    letters = letters[torch.randperm(len(letters), generator=torch.Generator().manual_seed(0))[:500]]
    pixels, labels = train.scaled(images.MEAN, images.STD), train.labels
    torch.manual_seed(0)
    model = lenet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(10):  # long enough to be over-confident
        for part in torch.randperm(3000).split(100):
            optimizer.zero_grad()
            functional.cross_entropy(model(pixels[part]), labels[part]).backward()
            optimizer.step()
    model.eval()
    parts = [(pixels[part], labels[part]) for part in (slice(2000), slice(10_000, 10_500))]
    known = (test[:1000].scaled(images.MEAN, images.STD), test.labels[:1000])
    what = "the paper's LeNet, ten epochs on 3,000 images of MNIST; unknown: notMNIST"
    first = [*choices(["inf"], ("linear",)), *choices(["diag", "kfac"], ("linear",))]
    every = [*first, *choices(["inf"], ("mc", "linear-mc")), *choices(["efb-paper", "inf-paper"], ("linear",))]
    spared = [one for one in every if one.structure != "inf" or one.link == "probit"]
    unknown = letters.scaled(images.MEAN, images.STD)
    yield Task(
        "mnist", what, 0, 1, model, "classification", parts[0], parts[1], known, unknown, every,
        fewer=spared, samples=10, batch=250,
    )  # fmt: skip


def resnet(depth: int, sizes: tuple[int, int, int, int], every: Sequence[Choice], cifar: Path) -> Iterator[Task]:
    """Give a public ResNet with so many images for curvature, validation, test and unknown ones."""
    from benchmarks.answers.cases import read_cifar

    from infoform.data import svhn
    from infoform.experiments.networks import cifar_resnets

    curvature, validation, test, unknown = sizes

    def read(part: str, rows: slice) -> Data:
        pixels, labels = read_cifar(cifar, part, rows)
        return cifar_resnets.scaled(pixels), labels

    parts = (
        read("train", slice(curvature)),
        read("test", slice(validation)),
        read("test", slice(validation, validation + test)),
    )
    strange = cifar_resnets.scaled(svhn.load().pixels[:unknown])
    what = f"the public ResNet-{depth} for CIFAR-10; unknown: SVHN"
    spared = [one for one in every if one.structure != "inf" or one.kind != "linear" or one.link == "probit"]
    statistics = "needed" if {one.structure for one in every} == {"inf"} else "all"
    yield Task(
        f"resnet{depth}", what, 0, 1, cifar_resnets.load(depth), "classification", *parts, strange, every,
        fewer=spared, samples=10, batch=100, statistics=statistics,
    )  # fmt: skip


def tasks(cifar: Path | None) -> dict[str, Callable[[], Iterator[Task]]]:
    """Return what gives the networks of every group of tasks, by its name."""

    def resnet20() -> Iterator[Task]:
        every = [
            *choices(["inf"], ("linear",)),
            *choices(["diag"], ("linear",)),
            *choices(["inf"], ("mc", "linear-mc")),
            *choices(["inf-paper", "efb-paper", "kfac"], ("linear",)),
        ]
        return resnet(20, (2000, 1000, 2000, 1000), every, _given(cifar))

    def resnet56() -> Iterator[Task]:
        every = choices(["inf"], ("linear", "linear-mc"))
        return resnet(56, (1000, 500, 1000, 500), every, _given(cifar))

    return {"digits": digits, "uci": uci, "mnist": mnist, "resnet20": resnet20, "resnet56": resnet56}


def _given(cifar: Path | None) -> Path:
    if cifar is None:
        raise SystemExit("the ResNets need CIFAR-10; give --cifar PATH of cifar10.npz.")
    return cifar
