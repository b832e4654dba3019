"""An outside check: laplace-torch's KFAC on the very network, images and measures of an experiment's run.

    in an environment with the extras `peers` and `metrics`, after `infoform reproduce mnist`:
    python -m benchmarks.laplace_torch_check mnist --cache out/cache     # writes benchmarks/results/laplace_torch.json
    python -m benchmarks.laplace_torch_check --page                      # writes docs/laplace-torch.md, runs nothing

Same images for the curvature, the same N (by laplace-torch's temperature, examples / N), τ by the NLL of the same
held-out images on the same grid, the same number of sampled networks. What differs: laplace-torch's KFAC has no
factored damping by default, P = N G ⊗ A + τ 1, and its Fisher is exact here as by its default. Batch norm is held
fixed, as in ours.
"""

import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import STUDIES, look_at_experiments, read_results, run_fold, template, write_page
from benchmarks.line_search import find_least_nll
from torch import Tensor

from infoform.experiments import get_experiment
from infoform.experiments.classification.experiment import Classification, Run, batches
from infoform.experiments.classification.measures import measures
from infoform.experiments.method import Method
from infoform.likelihoods import get_likelihood
from infoform.metrics import nll
from infoform.pages.markdown import table
from infoform.prediction import Prediction
from infoform.records.study_result import Result

SHOWN = {"accuracy": 4, "nll": 4, "ece": 4, "entropy": 3, "entropy_unknown": 3, "auroc": 4, "fpr95": 3}
ISOTROPIC, ACTIVATION = "inf isotropic mc validation", "inf activation:16x30 mc validation"
BESIDE = (
    "plain",
    "kfac isotropic mc validation",
    ISOTROPIC,
    ACTIVATION,
    "inf activation:16x30 linear validation",
)


def check(name: str, cache: Path) -> dict[str, Any]:
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


def page() -> str:
    """Return docs/laplace-torch.md: laplace-torch beside ours, from the JSON of both."""
    text, results = template("laplace_torch"), read_results("laplace_torch")
    ours = {name: Result.load(STUDIES / f"{name}.json").pieces for name in results}

    def gaps(method: str, measure: str) -> list[float]:
        return [found[measure] - ours[name][Method.parse(method).on(0).key][measure] for name, found in results.items()]

    tables = [
        text.part("experiment").fill(name=name, table=_table(found, ours[name])) for name, found in results.items()
    ]
    settings = {f"fit_seconds of laplace-torch, {name}": found["fit_seconds"] for name, found in results.items()}
    used = next(iter(results.values()))
    return text.fill(
        nll_gap=f"{max(map(abs, gaps(ISOTROPIC, 'nll'))):.4f}",
        auroc_gap=f"{max(map(abs, gaps(ISOTROPIC, 'auroc'))):.4f}",
        changes="; ".join(
            f"NLL {-nll_gap:+.4f} and AUROC {-auroc_gap:+.4f} on {name}"
            for name, nll_gap, auroc_gap in zip(
                results, gaps(ACTIVATION, "nll"), gaps(ACTIVATION, "auroc"), strict=True
            )
        ),
        tables="\n\n".join(tables),
        run=run_fold(settings, {key: used[key] for key in ("laplace-torch", "torch")}),
    )


def _table(found: dict[str, Any], pieces: Mapping[str, dict[str, Any]]) -> str:
    rows = {"laplace-torch, `kron`": found}
    methods = map(Method.parse, BESIDE)
    rows |= {f"`{one.key}`" if one.is_laplace else one.key: pieces[one.on(0).key] for one in methods}
    cells = [
        [
            title,
            *(f"{row[measure]:.{digits}f}" for measure, digits in SHOWN.items()),
            f"{row['prior_precision']:.3g}" if "prior_precision" in row else "–",
        ]
        for title, row in rows.items()
    ]
    return table(["first network", *SHOWN, "τ"], cells)


if __name__ == "__main__":
    if look_at_experiments("laplace_torch", __doc__, check):
        write_page("laplace-torch", page())
