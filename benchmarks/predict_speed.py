"""How long predictions take, in plain forward passes over the same inputs; interleaved, medians, one process.

    INFOFORM_DATA=... OMP_WAIT_POLICY=PASSIVE python -m benchmarks.predict_speed [--cifar cifar10.npz]
    python -m benchmarks.predict_speed --page      # writes docs/predict-speed.md from the JSON, runs nothing

The MLP 784-1024-1024-10 and the paper's LeNet, both trained briefly on made-up clusters of MNIST's shape, with 1,000
inputs; the public CIFAR-10 ResNet-20 and ResNet-56 with 100 images, and with one. Speed does not depend on the images:
without a file they are random.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import (
    command_line,
    laplace_of,
    read_results,
    run_fold,
    template,
    versions,
    write_page,
    write_results,
)
from benchmarks.speed.cifar_resnet import cifar_images, cifar_resnet
from benchmarks.speed.networks import FULL, Network
from torch import Tensor, nn

from infoform.pages.markdown import table
from infoform.pages.numbers import span

REPEATS = 3
TRAINED, INPUTS = 3000, 1000
IMAGES, FITTED_IMAGES = 100, 256
DEFAULT = "activation (default)"
PRIORS: dict[str, dict[str, Any]] = {
    "isotropic": {"prior": "isotropic"},  # the paper's
    "activation, `prior_rank=0`": {"prior": "activation", "prior_rank": 0},
    DEFAULT: {},
}
PRIOR_RANK = 8  # of the library
NETWORKS = {"mlp": "MLP 784-1024-1024-10", "lenet": "the paper's LeNet"}
RESNETS = {"resnet20": "CIFAR ResNet-20", "resnet56": "CIFAR ResNet-56"}
CELLS = {"linear": "{:.0f}", "mc": "{:.0f}", "sample": "{:.2f}", "linear-mc": "{:.1f}"}
TARGETS = {"linear": {"mlp": 30, "lenet": 20, "resnet20": 30, "resnet56": 30}, "mc": {"mlp": 130, "lenet": 130}}
TARGETS |= {"linear-mc": {"resnet20": 3, "resnet56": 3}, "one": {"resnet20": 25}}
MC_SAMPLES, LINEAR_SAMPLES = 100, 20
SINGLE = 20  # single inputs a round
LONG = "mc"  # which needs no first round
MORE_THAN_ONE = {"forward": 5, "forward of one": SINGLE, "one": SINGLE}  # calls a round

Ways = dict[str, Callable[[], object]]


def measure(network: Network, options: dict[str, Any]) -> dict[str, float]:
    """Return the times of a small network's predictions."""
    model, batches = replace(network, examples=TRAINED + INPUTS).build()
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    ways = _ways(model, images[:1024], labels[:1024], images[TRAINED:], options)
    kinds = ("forward", "linear", "sample") if options else ("forward", "linear", "sample", "mc")
    medians = _medians({name: ways[name] for name in kinds})
    return _in_forwards(medians)


def measure_resnet(name: str, path: Path | None) -> dict[str, float]:
    """Return the times of a public network's predictions, of many images and of one."""
    images, labels = cifar_images(FITTED_IMAGES + IMAGES, path)
    ways = _ways(cifar_resnet(name), images[:FITTED_IMAGES], labels[:FITTED_IMAGES], images[FITTED_IMAGES:], {})
    medians = _medians({name: way for name, way in ways.items() if name != "mc"})
    single = medians["one"] / medians["forward of one"]
    return {**_in_forwards(medians), "one": round(single, 2), "forward_of_one_seconds": medians["forward of one"]}


def _ways(model: nn.Module, fitted: Tensor, labels: Tensor, inputs: Tensor, options: dict[str, Any]) -> Ways:
    laplace = laplace_of(model, "classification", **options)
    laplace.fit([(fitted, labels)], progress=False)
    laplace.prior_precision = 1000.0
    posterior, first = laplace.posterior(), inputs[:1]
    return {
        "forward": lambda: model(inputs),
        "linear": lambda: laplace.predict(inputs),
        "mc": lambda: laplace.predict(inputs, kind="mc", samples=MC_SAMPLES),
        "sample": lambda: posterior.sample(1),
        "linear-mc": lambda: laplace.predict(inputs, kind="linear-mc", samples=LINEAR_SAMPLES),
        "forward of one": lambda: model(first),
        "one": lambda: laplace.predict(first),
    }


def _medians(ways: Ways) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.no_grad():
        for repeat in range(REPEATS + 1):
            for name, way in ways.items():
                if name == LONG and repeat in (0, REPEATS):
                    continue
                for _ in range(MORE_THAN_ONE.get(name, 1)):
                    begun = time.perf_counter()
                    way()
                    if repeat:  # the first round prepares what is computed once
                        seconds[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _in_forwards(medians: dict[str, float]) -> dict[str, float]:
    share = {"linear-mc": LINEAR_SAMPLES}
    found = {name: medians[name] / medians["forward"] / share.get(name, 1) for name in CELLS if name in medians}
    return {"forward_seconds": medians["forward"], **{name: round(value, 2) for name, value in found.items()}}


def page() -> str:
    """Return docs/predict-speed.md."""
    results, hand = read_results("predict_speed"), read_results("by_hand")["predict_speed"]
    settings, forwards = results["settings"], results["forwards"]
    resnets = {name: forwards[name][DEFAULT] for name in RESNETS}
    default = [forwards[name][DEFAULT] for name in NETWORKS]
    rows = [
        [
            (NETWORKS | RESNETS)[name],
            prior,
            f"{1e3 * row['forward_seconds']:.0f}",
            *(form.format(row[key]) if key in row else "" for key, form in CELLS.items()),
        ]
        for name, priors in forwards.items()
        for prior, row in priors.items()
    ]
    single = [
        [RESNETS[name], f"{1e3 * row['forward_of_one_seconds']:.1f}", f"{row['one']:.0f}"]
        for name, row in resnets.items()
    ]
    over = missed(forwards)
    peer, parts = hand["laplace-torch"], hand["linear_on_resnet20"]
    return template("predict_speed").fill(
        linear_span=span([row["linear"] for row in (*default, *resnets.values())], ".0f"),
        linear_mc_span=span([row["linear-mc"] for row in resnets.values()], ".1f"),
        mc_span=span([row["mc"] for row in default], ".0f"),
        mc_samples=settings["mc_samples"],
        table=table(["network", "prior", "forward, ms", "`linear`", "`mc`", "sample", "`linear-mc`"], rows, words=2),
        single=table(["network", "forward of one image, ms", "`linear`"], single),
        images=settings["images"],
        inputs=f"{settings['inputs']:,}",
        prior_rank=PRIOR_RANK,
        digits_with=hand["auroc_on_digits"]["default prior"],
        digits_without=hand["auroc_on_digits"]["prior_rank=0"],
        linear_target=TARGETS["linear"]["resnet20"],
        lenet_target=TARGETS["linear"]["lenet"],
        mc_target=TARGETS["mc"]["mlp"],
        linear_mc_target=TARGETS["linear-mc"]["resnet20"],
        one_target=TARGETS["one"]["resnet20"],
        missed=", ".join(over) or "none",
        part_forward=parts["forward"],
        part_backward=parts["backward"],
        part_jacobians=parts["jacobians"],
        part_products=parts["products"],
        part_before=parts["before"],
        at_once=parts["backward_at_once"],
        in_turns=parts["backward_in_turns"],
        forward_ns=hand["forward_nanoseconds_of_a_weight"] if over else None,
        left_ns=hand["left_nanoseconds_of_a_weight"],
        normal_ns=hand["normal_number_nanoseconds"],
        products_ns=hand["products_nanoseconds"],
        peer_batch=peer["out_of_memory_batch"],
        peer_inputs=peer["linear_inputs"],
        peer_linear=" and ".join(f"{seconds} s" for seconds in peer["linear_seconds"].values()),
        peer_mc=" and ".join(str(passes) for passes in peer["mc_forward_passes"].values()),
        rank=settings["rank"],
        repeats=settings["repeats"],
        threads=settings["threads"],
        run=run_fold(settings, results["versions"]),
    )


def missed(forwards: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Return by how much the defaults miss what was aimed at."""
    return [
        f"{'one image' if kind == 'one' else f'`{kind}`'} on {(NETWORKS | RESNETS)[name]} "
        f"by {forwards[name][DEFAULT][kind] / most - 1:.0%}"
        for kind, aims in TARGETS.items()
        for name, most in aims.items()
        if forwards[name][DEFAULT][kind] > most
    ]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cifar", type=Path, help="a file cifar10.npz with test_images; random images without it")
    options = parser.parse_args()
    if not options.page:
        found = {name: {DEFAULT: measure_resnet(name, options.cifar)} for name in RESNETS}
        found |= {name: {prior: measure(FULL[name], given) for prior, given in PRIORS.items()} for name in NETWORKS}
        sizes = {"inputs": INPUTS, "images": IMAGES, "repeats": REPEATS, "rank": 100, "mc_samples": MC_SAMPLES}
        sizes["linear_mc_samples"] = LINEAR_SAMPLES
        settings = {**sizes, "threads": torch.get_num_threads()}
        write_results("predict_speed", {"settings": settings, "versions": versions(), "forwards": found})
        print(json.dumps(found, indent=1))
    write_page("predict-speed", page())


if __name__ == "__main__":
    main()
