"""How long predictions take, in plain forward passes over the same 1,000 inputs; interleaved, medians, one process.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/predict_speed.py      # writes benchmarks/results/predict_speed.json

The MLP 784-1024-1024-10 and the paper's LeNet, both trained briefly on made-up clusters of MNIST's shape.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform

RESULTS = Path(__file__).parent / "results" / "predict_speed.json"
REPEATS = 5
PRIORS = ("isotropic", "activation")  # the paper's, and the default of a classifier
MC_TIMED = 20  # sampled networks that are timed; the result is scaled to 100


def mlp() -> nn.Module:
    layers = (nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return nn.Sequential(nn.Flatten(), *layers)


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 10),
    )  # fmt: skip


def clusters(count: int) -> tuple[Tensor, Tensor]:
    """Return images around ten random prototypes, blurred so that neighbouring pixels agree as in real ones."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (count,), generator=generator)
    noise = torch.randn(count + 10, 1, 28, 28, generator=generator)
    smooth = functional.avg_pool2d(noise, 5, stride=1, padding=2)
    return 5 * (smooth[:10][labels] + smooth[10:]), labels


def measure(make: Callable[[], nn.Module], prior: str) -> dict[str, float]:
    torch.manual_seed(0)
    model = make()
    images, labels = clusters(4000)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for part in torch.arange(3000).repeat(2).split(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
    laplace = infoform.Laplace(model, "classification", prior=prior)
    laplace.fit([(images[:1024], labels[:1024])], progress=False)
    laplace.prior_precision = 1000.0
    posterior, inputs = laplace.posterior(), images[3000:]
    ways: dict[str, Callable[[], object]] = {
        "forward": lambda: model(inputs),
        "linear": lambda: laplace.predict(inputs, posterior=posterior),
        "mc": lambda: laplace.predict(inputs, kind="mc", samples=MC_TIMED, posterior=posterior),
        "sample": lambda: posterior.sample(1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for repeat in range(REPEATS + 1):
            for name, way in ways.items():
                for _ in range(5 if name == "forward" else 1):
                    begun = time.perf_counter()
                    way()
                    if repeat:  # the first round prepares what is computed once
                        seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    medians["mc"] *= 100 / MC_TIMED
    return {"forward_seconds": medians["forward"]} | {
        name: round(medians[name] / medians["forward"], 2) for name in ("linear", "mc", "sample")
    }


def main() -> None:
    found = {
        name: {prior: measure(make, prior) for prior in PRIORS} for name, make in {"mlp": mlp, "lenet": lenet}.items()
    }
    settings = {"inputs": 1000, "repeats": REPEATS, "rank": 100, "mc_samples": 100, "threads": torch.get_num_threads()}
    versions = {"infoform": infoform.__version__, "torch": torch.__version__, "machine": platform.machine()}
    RESULTS.write_text(json.dumps({"settings": settings, "versions": versions, "forwards": found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
