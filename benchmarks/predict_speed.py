"""How long predictions take, in plain forward passes over the same 1,000 inputs; interleaved, medians, one process.

    OMP_WAIT_POLICY=PASSIVE python -m benchmarks.predict_speed      # writes benchmarks/results/predict_speed.json
    python -m benchmarks.predict_speed --page      # writes docs/predict-speed.md from it, runs nothing

The MLP 784-1024-1024-10 and the paper's LeNet, both trained briefly on made-up clusters of MNIST's shape.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
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
from benchmarks.speed.networks import FULL, Network

from infoform.pages.markdown import table
from infoform.pages.numbers import span

REPEATS = 5
TRAINED, INPUTS = 3000, 1000
DEFAULT = "activation (default)"
PRIORS: dict[str, dict[str, Any]] = {
    "isotropic": {"prior": "isotropic"},  # the paper's
    "activation, `prior_rank=0`": {"prior": "activation", "prior_rank": 0},
    DEFAULT: {},
}
PRIOR_RANK = 8  # of the library
NETWORKS = {"mlp": "MLP 784-1024-1024-10", "lenet": "the paper's LeNet"}
CELLS = {"linear": "{:.0f}", "mc": "{:.0f}", "sample": "{:.2f}"}
TARGETS = {"linear": 40, "mc": 130}
MC_SAMPLES = 100


def measure(network: Network, options: dict[str, Any]) -> dict[str, float]:
    model, batches = replace(network, examples=TRAINED + INPUTS).build()
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    laplace = laplace_of(model, "classification", **options)
    laplace.fit([(images[:1024], labels[:1024])], progress=False)
    laplace.prior_precision = 1000.0
    posterior, inputs = laplace.posterior(), images[TRAINED:]
    ways: dict[str, Callable[[], object]] = {
        "forward": lambda: model(inputs),
        "linear": lambda: laplace.predict(inputs, posterior=posterior),
        "mc": lambda: laplace.predict(inputs, kind="mc", samples=MC_SAMPLES, posterior=posterior),
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
    return {"forward_seconds": medians["forward"]} | {
        name: round(medians[name] / medians["forward"], 2) for name in ("linear", "mc", "sample")
    }


def page() -> str:
    """Return docs/predict-speed.md."""
    results, hand = read_results("predict_speed"), read_results("by_hand")["predict_speed"]
    settings, forwards = results["settings"], results["forwards"]
    default = [rows[DEFAULT] for rows in forwards.values()]
    rows = [
        [
            NETWORKS[name],
            prior,
            f"{1e3 * row['forward_seconds']:.0f}",
            *(form.format(row[key]) for key, form in CELLS.items()),
        ]
        for name, priors in forwards.items()
        for prior, row in priors.items()
    ]
    over = missed(forwards)
    peer = hand["laplace-torch"]
    return template("predict_speed").fill(
        linear_span=span([row["linear"] for row in default], ".0f"),
        mc_span=span([row["mc"] for row in default], ".0f"),
        mc_samples=settings["mc_samples"],
        table=table(["network", "prior", "forward, ms", "`linear`", "`mc`", "sample"], rows, words=2),
        inputs=f"{settings['inputs']:,}",
        prior_rank=PRIOR_RANK,
        digits_with=hand["auroc_on_digits"]["default prior"],
        digits_without=hand["auroc_on_digits"]["prior_rank=0"],
        linear_target=TARGETS["linear"],
        mc_target=TARGETS["mc"],
        missed=", ".join(over) or "none",
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
        f"`{kind}` on the {NETWORKS[name].split()[0]} by {priors[DEFAULT][kind] / most - 1:.0%}"
        for name, priors in forwards.items()
        for kind, most in TARGETS.items()
        if priors[DEFAULT][kind] > most
    ]


def main() -> None:
    if not command_line(__doc__).parse_args().page:
        found = {name: {prior: measure(FULL[name], options) for prior, options in PRIORS.items()} for name in NETWORKS}
        sizes = {"inputs": INPUTS, "repeats": REPEATS, "rank": 100, "mc_samples": MC_SAMPLES}
        settings = {**sizes, "threads": torch.get_num_threads()}
        write_results("predict_speed", {"settings": settings, "versions": versions(), "forwards": found})
        print(json.dumps(found, indent=1))
    write_page("predict-speed", page())


if __name__ == "__main__":
    main()
