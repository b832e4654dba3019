"""Conformal sets on a public network: sizes by score, and what it does to choose τ and T on the calibration data.

    python -m benchmarks.guarantee --cifar cifar10.npz      # writes benchmarks/results/guarantee.json

ResNet-20 with its public CIFAR-10 weights, from the folder `INFOFORM_DATA`, and a posterior of its last layer. The test
images are split at random, 500 times, into n for the calibration and the others, of which the share is counted whose
set holds the right class. Of a fixed pool and fixed scores the mean of this share over all splits is exactly
⌈(n + 1) level⌉ / (n + 1). With `chosen on the same data`, τ and T have the least NLL on the n calibration images.
"""

import math
from pathlib import Path

import torch
from benchmarks.common import command_line, rounded, versions, write_results
from benchmarks.speed.cifar_resnet import cifar_images, load_resnet20
from torch import Tensor

import infoform
from infoform.conformal import SET_SCORES, Conformal, adaptive_scores
from infoform.data import cifar10
from infoform.experiments.networks import cifar_resnets
from infoform.likelihoods import GaussianOutputs

IMAGES, CURVATURE, BATCH = 6000, 2000, 250
PRECISIONS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e6)
TEMPERATURES = tuple(0.8 + 0.1 * step for step in range(15))
COUNTS, LEVELS, SPLITS = (100, 300, 1000), (0.5, 0.8, 0.9, 0.99), 500


def candidates(images: Tensor) -> Tensor:  # (N, 3, 32, 32) -> (K, N, C)
    """Return the probabilities of a last layer at every τ and T of the lists."""
    model, train = load_resnet20(), cifar10.load("train")[:CURVATURE]
    loader = list(zip(cifar_resnets.scaled(train.pixels).split(BATCH), train.labels.split(BATCH), strict=True))
    laplace = infoform.Laplace(model, "classification", layers="last").fit(loader, progress=False)
    posteriors = [laplace.posterior(prior_precision=tau) for tau in PRECISIONS]
    (layer,) = laplace.layers
    seen: list[Tensor] = []
    with model.get_submodule(layer).register_forward_pre_hook(lambda _, args: seen.append(args[0])), torch.no_grad():
        outputs = torch.cat([model(part) for part in images.split(BATCH)])
    inputs = torch.cat(seen)
    inputs = torch.cat([inputs, torch.ones(len(inputs), 1)], 1)
    found = []
    for posterior in posteriors:
        covariance = posterior.layers[layer].output_covariance(inputs).dense()
        gaussian = GaussianOutputs(outputs, covariance, samples=1, seed=0)
        for temperature in TEMPERATURES:
            at = gaussian.at_temperature(temperature)
            found.append(laplace.likelihood.answers_from_gaussian(at, link="probit"))
    return torch.stack(found)


def shares(scores: Tensor, losses: Tensor, count: int, *, reuse: bool) -> dict[str, dict[str, float]]:  # (K, N), (K, N)
    """Return the mean share of right classes held, by level, with candidates chosen on calibration or other images."""
    held: dict[float, list[float]] = {level: [] for level in LEVELS}
    generator = torch.Generator().manual_seed(0)
    for _ in range(SPLITS):
        order = torch.randperm(scores.shape[1], generator=generator)
        other, known, fresh = order[:count], order[count : 2 * count], order[2 * count :]
        chosen = losses[:, known if reuse else other].mean(1).argmin()
        ranked = scores[chosen, known].sort().values
        for level in LEVELS:
            place = math.ceil((count + 1) * level - 1e-9) - 1
            held[level].append(float((scores[chosen, fresh] <= ranked[place]).double().mean()))
    return {
        f"{level:g}": {
            "promised": math.ceil((count + 1) * level - 1e-9) / (count + 1),
            "held": float(torch.tensor(found).mean()),
            "error": float(torch.tensor(found).std()) / math.sqrt(SPLITS),
        }
        for level, found in held.items()
    }


def sizes(probs: Tensor, labels: Tensor, count: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean size and share held of sets that are never empty, by score and level; APS without random numbers."""
    table = {**SET_SCORES, "APS": lambda one: adaptive_scores(one) + 2 * one.double()}
    found: dict[str, dict[str, dict[str, float]]] = {}
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(labels), generator=generator) for _ in range(50)]
    unsure = probs.amax(1) < 0.6
    for name, score in table.items():
        scores, found[name] = score(probs), {}
        right = scores.gather(1, labels[:, None]).squeeze(1)
        for level in (0.9, 0.95, 0.99):
            rows = []
            for order in orders:
                known, fresh = order[:count], order[count:]
                limit = right[known].sort().values[math.ceil((count + 1) * level - 1e-9) - 1]
                sets = scores[fresh] <= limit
                sets.scatter_(1, probs[fresh].argmax(1, keepdim=True), True)
                inside = sets.gather(1, labels[fresh, None]).squeeze(1).double()
                hard = unsure[fresh]
                rows.append([float(sets.sum(1).double().mean()), float(inside.mean()), float(inside[hard].mean())])
            size, held, held_unsure = torch.tensor(rows).mean(0).tolist()
            found[name][f"{level:g}"] = {"classes": size, "held": held, "held_where_unsure": held_unsure}
    return found


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cifar", type=Path, required=True)
    arguments = parser.parse_args()
    images, labels = cifar_images(IMAGES, arguments.cifar)
    probs = candidates(images).double()
    right = labels.expand(len(probs), -1).unsqueeze(2)
    losses = -probs.clamp_min(1e-30).gather(2, right).squeeze(2).log()
    scores = torch.stack([adaptive_scores(one) for one in probs]).gather(2, right).squeeze(2)
    best = int(losses.mean(1).argmin())
    assert Conformal.of_classes(probs[best], labels).count == IMAGES
    write_results(
        "guarantee",
        {
            "accuracy": float((probs[best].argmax(1) == labels).double().mean()),
            "candidates": len(probs),
            "chosen on the same data": {f"{n}": rounded(shares(scores, losses, n, reuse=True)) for n in COUNTS},
            "chosen on other data": {f"{n}": rounded(shares(scores, losses, n, reuse=False)) for n in COUNTS},
            "sets": rounded(sizes(probs[best], labels, 1000)),
            "settings": {"images": IMAGES, "curvature": CURVATURE, "splits": SPLITS},
            "versions": versions(),
        },
    )


if __name__ == "__main__":
    main()
