"""An outside check: laplace-torch's KFAC on the very network, images and measures of an experiment's run.

    in an environment with the extras `peers` and `metrics`, after `infoform reproduce mnist`:
    python benchmarks/laplace_torch_check.py mnist --cache out/cache     # writes benchmarks/results/laplace_torch.json
    python benchmarks/laplace_torch_check.py --page                      # writes docs/laplace-torch.md, runs nothing

Same images for the curvature, the same N (by laplace-torch's temperature, examples / N), τ by the NLL of the same
held-out images on the same grid, the same number of sampled networks. What differs: laplace-torch's KFAC has no
factored damping by default, P = N G ⊗ A + τ 1, and its Fisher is exact here as by its default. Batch norm is held
fixed, as in ours.
"""

import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from command_line import look_at_experiments
from torch import Tensor

from infoform.experiments import get_experiment
from infoform.experiments.classification.experiment import Classification, Run, batches
from infoform.experiments.classification.measures import measures
from infoform.experiments.method import Method
from infoform.experiments.search.line_search import find_least_nll
from infoform.likelihoods import get_likelihood
from infoform.metrics import nll
from infoform.pages.markdown import table
from infoform.prediction import Prediction
from infoform.records.study_result import Result

RESULTS = Path(__file__).parent / "results" / "laplace_torch.json"
PAGE = Path(__file__).parent.parent / "docs" / "laplace-torch.md"
SHOWN = {"accuracy": 4, "nll": 4, "ece": 4, "entropy": 3, "entropy_unknown": 3, "auroc": 4, "fpr95": 3}
BESIDE = (
    "plain",
    "kfac isotropic mc validation",
    "inf isotropic mc validation",
    "inf activation:16x30 mc validation",
    "inf activation:16x30 linear validation",
)


def check(name: str, cache: Path, folder: Path) -> dict[str, Any]:
    """Fit, tune and measure laplace-torch on the first network of a run."""
    for needed in ("laplace", "torchmetrics", "sklearn"):  # before minutes of work
        import_module(needed)
    experiment = get_experiment(name)
    assert isinstance(experiment, Classification)
    settings = experiment.settings()
    run = Run(experiment, settings, cache, 0)
    network, parts = run.trained(0).network, run.parts
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # it takes no other
    for module in network.modules():  # as in ours, and as its default backend wants it
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.requires_grad_(False)
    begun = time.perf_counter()
    fitted = import_module("laplace").Laplace(
        network,
        "classification",
        subset_of_weights="all",
        hessian_structure="kron",
        temperature=settings.curvature / settings.train,
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*parts.curvature), batch_size=100)
    fitted.fit(loader)
    fit_seconds = time.perf_counter() - begun
    print(f"fitted in {fit_seconds:.0f} s", flush=True)

    def score(tau: float) -> float:
        fitted.prior_precision = tau
        probs = sampled(fitted, network, parts.validation[0], settings.tuning_samples).probs
        assert probs is not None
        found = nll(probs, parts.validation[1]) if bool(probs.isfinite().all()) else float("inf")
        print(f"τ = {tau:.3g}: NLL {found:.4f}", flush=True)
        return found

    tau, tried = find_least_nll(score)
    fitted.prior_precision = tau
    predict = partial(sampled, fitted, network, samples=settings.samples)
    known, unknown = predict(parts.test[0]), predict(parts.unknown)
    facts = {"prior_precision": tau, "tried": tried, "fit_seconds": fit_seconds, "laplace-torch": "0.3"}
    return {**measures(known, parts.test[1], unknown), **facts, "torch": torch.__version__}


def sampled(fitted: Any, network: torch.nn.Module, images: Tensor, samples: int) -> Prediction:
    """Return the mean over networks with laplace-torch's sampled weights, the same for all images."""
    mean, parameters = fitted.mean.clone(), [one for one in network.parameters() if one.requires_grad]
    drawn = fitted.sample(samples, generator=torch.Generator().manual_seed(0))  # (M, weights)
    outputs = []
    with torch.no_grad():
        for weights in drawn:
            torch.nn.utils.vector_to_parameters(weights, parameters)
            outputs.append(torch.cat([network(batch) for batch in batches(images)]))
        torch.nn.utils.vector_to_parameters(mean, parameters)
        plain = torch.cat([network(batch) for batch in batches(images)])
    return get_likelihood("classification").from_samples(torch.stack(outputs), plain, noise=None)


def write_page(results: dict[str, Any], folder: Path) -> None:
    """Write the table of laplace-torch beside ours, from the JSON of both."""
    parts = [
        "# laplace-torch's KFAC beside ours",
        "Generated by `python benchmarks/laplace_torch_check.py --page` from `benchmarks/results/laplace_torch.json` "
        "and the runs' own JSON; do not edit.",
        (__doc__ or "").split("\n\n")[-1].strip(),
    ]
    for name, found in results.items():
        pieces = Result.load(folder / f"{name}.json").pieces
        rows = {"laplace-torch, `kron`": found}
        methods = {key: Method.parse(key) for key in BESIDE}
        rows |= {
            f"`{key}`" if method.is_laplace else key: pieces[replace(method, network=0).key]
            for key, method in methods.items()
        }
        cells = [
            [
                title,
                *(f"{row[measure]:.{digits}f}" for measure, digits in SHOWN.items()),
                f"{row['prior_precision']:.3g}" if "prior_precision" in row else "–",
            ]
            for title, row in rows.items()
        ]
        parts += [f"## {name}", table(["first network", *SHOWN, "τ"], cells)]
    PAGE.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    look_at_experiments(__doc__, RESULTS, check, write_page)
