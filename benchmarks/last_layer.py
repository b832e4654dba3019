"""What a posterior of the last layer costs, in plain forward passes over the same inputs; interleaved, medians.

    OMP_WAIT_POLICY=PASSIVE python -m benchmarks.last_layer      # writes benchmarks/results/last_layer.json

ResNet-20 with its public CIFAR-10 weights and ResNet-50 with 1,000 classes, both from the folder `INFOFORM_DATA`. The
inputs are made up: the cost does not depend on them. Every figure is a median of ratios: a prediction or a fit over the
plain forward passes that were timed just before it.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch
from benchmarks.common import command_line, rounded, versions, write_results
from benchmarks.speed.cifar_resnet import load_resnet20
from torch import Tensor, nn

import infoform
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.likelihoods import LINKS

STRUCTURES = ("inf", "kfac")
TARGETS = {"batch": 1.3, "fit": 1.3, "single": 1.5, "single_milliseconds": 1.0}


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratios(plain: Callable[[], object], work: Callable[[], object], *, repeats: int) -> dict[str, float]:
    """Return the median cost of the work in plain passes, and both in milliseconds."""
    plain(), work()  # the first round prepares what is computed once
    pairs = [(seconds(plain), seconds(work)) for _ in range(repeats)]
    return {
        "forwards": statistics.median(own / alone for alone, own in pairs),
        "plain_milliseconds": 1e3 * statistics.median(alone for alone, _ in pairs),
        "milliseconds": 1e3 * statistics.median(own for _, own in pairs),
    }


def measure(model: nn.Module, images: Tensor, *, batch: int, repeats: int, structure: str) -> dict[str, object]:
    with torch.no_grad():
        labels = model(images[:1]).shape[1]
    targets = torch.randint(labels, (len(images),), generator=torch.Generator().manual_seed(0))
    loader = list(zip(images.split(batch), targets.split(batch), strict=True))

    def fit() -> infoform.Laplace:
        return infoform.Laplace(model, "classification", structure=structure, layers="last").fit(loader, progress=False)

    def plain(x: Tensor) -> None:
        with torch.no_grad():
            model(x)

    laplace = fit()
    found: dict[str, object] = {
        "fit": ratios(lambda: [plain(x) for x, _ in loader], fit, repeats=max(3, repeats // 4)),
    }
    for link in LINKS:
        for name, x in (("batch", images[:batch]), ("single", images[:1])):
            times = repeats if name == "batch" else 10 * repeats
            found[f"{name}, {link}"] = ratios(
                lambda x=x: plain(x), lambda x=x, link=link: laplace.predict(x, link=link), repeats=times
            )
    return found


def main() -> None:
    command_line(__doc__).parse_args()
    generator = torch.Generator().manual_seed(0)
    networks = {
        "resnet20": (load_resnet20(), torch.randn(1000, 3, 32, 32, generator=generator), 100, 12),
        "resnet50": (NETWORKS["resnet50"].load(), torch.randn(32, 3, 224, 224, generator=generator), 16, 4),
    }
    results = {
        name: {
            structure: measure(model, images, batch=batch, repeats=repeats, structure=structure)
            for structure in STRUCTURES
        }
        for name, (model, images, batch, repeats) in networks.items()
    }
    settings = {"threads": torch.get_num_threads(), "targets": TARGETS}
    found = rounded({"settings": settings, "versions": versions(), "networks": results}, 4)
    write_results("last_layer", found)
    print(json.dumps(found["networks"], indent=1))


if __name__ == "__main__":
    main()
