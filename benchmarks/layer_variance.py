"""Which layers' weights make known and unknown images' answers uncertain, on the first network of an experiment.

    after `infoform reproduce cifar10`:
    python -m benchmarks.layer_variance cifar10      # writes benchmarks/results/layer_variance.json
    python -m benchmarks.layer_variance --page       # writes docs/layer-variance.md from it, runs nothing

The covariance of the logits under `linear` is a sum over layers. Each layer's share is computed once, at the default
prior and the run's τ; then the shares of one layer alone, or of all together, are scaled by the factor that has the
least NLL of held-out images, and the same factor answers test images and unknown ones.
"""

from pathlib import Path
from typing import Any

import torch
from benchmarks.common import STUDIES, look_at_experiments, read_results, run_fold, template, write_page
from torch import Tensor

import infoform
from infoform.experiments import get_experiment
from infoform.experiments.classification.experiment import Classification, Run, batches
from infoform.experiments.classification.measures import measures
from infoform.experiments.classification.methods import WIDE
from infoform.experiments.method import Method
from infoform.likelihoods import GaussianOutputs
from infoform.metrics import nll
from infoform.network.batches import read_inputs
from infoform.pages.markdown import table
from infoform.pages.numbers import span
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.predictor import Predictor
from infoform.prediction import Prediction
from infoform.records.study_result import Result

SIZES = {"held_out": 1000, "known": 3000, "unknown": 1000}
DRAWS = 1000  # of logits
FACTORS = [10 ** (exponent / 4) for exponent in range(-8, 13)]  # 0.01 to 1000
HEADS = ("variance of", "known", "unknown", "factor", "held-out NLL")
SHOWN = {  # head of a column -> measure
    "accuracy": "accuracy",
    "NLL": "nll",
    "ECE": "ece",
    "AUROC": "auroc",
    "by MI": "auroc_mutual_information",
}
Shares = dict[str, Tensor]  # by layer: (N, C, C)


def shares(laplace: infoform.Laplace, posterior: Posterior, images: Tensor) -> tuple[Tensor, Shares]:
    """Return the logits and every layer's share of their covariance."""
    found, mean = {}, torch.empty(0)
    for name, layer in posterior.layers.items():
        predictor = Predictor(laplace.model, laplace.layers, laplace.likelihood, Posterior({name: layer}))
        parts = [predictor.linear(read_inputs(batch, batch.device)) for batch in batches(images)]
        mean, found[name] = (torch.cat(values) for values in zip(*parts, strict=True))
    return mean, found


def look(name: str, cache: Path) -> dict[str, Any]:
    """Return each layer's variances, and what its share alone would answer."""
    experiment = get_experiment(name)
    assert isinstance(experiment, Classification)
    settings = experiment.settings()
    run = Run(experiment, settings, cache, 0)
    wide = Result.load(STUDIES / f"{name}.json").pieces[Method.parse(WIDE).on(0).key]
    laplace, tau = run.laplace(), wide["prior_precision"]
    posterior = laplace.posterior(prior_precision=tau, num_data=float(settings.train), prior_rank=8)
    held_x, held_y = (one[: SIZES["held_out"]] for one in run.parts.validation)
    test_x, test_y = (one[: SIZES["known"]] for one in run.parts.test)
    images = {"held_out": held_x, "known": test_x, "unknown": run.parts.unknown[: SIZES["unknown"]]}
    seen = {part: shares(laplace, posterior, x) for part, x in images.items()}

    def predict(part: str, layers: list[str], factor: float) -> Prediction:
        mean, by_layer = seen[part]
        covariance = factor * torch.stack([by_layer[layer] for layer in layers]).sum(0)
        outputs = GaussianOutputs(mean, covariance, samples=DRAWS, seed=0)
        return laplace.likelihood.from_gaussian(outputs, noise=None, link="mc")

    def row(layers: list[str], factors: list[float] = FACTORS) -> dict[str, Any]:
        scores = {factor: nll(_probs(predict("held_out", layers, factor)), held_y) for factor in factors}
        factor = min(scores, key=lambda one: scores[one])
        known, unknown = (predict(part, layers, factor) for part in ("known", "unknown"))
        found = measures(known, test_y, unknown)
        return {
            "factor": factor,
            "held_out_nll": scores[factor],
            **{measure: found[measure] for measure in SHOWN.values()},
        }

    every = list(posterior.layers)
    variances = {
        layer: {part: float(seen[part][1][layer].diagonal(dim1=1, dim2=2).mean()) for part in ("known", "unknown")}
        for layer in every
    }
    rows = {"none": row(every, [0.0])} | {layer: row([layer]) for layer in every} | {"all": row(every)}
    return {"prior_precision": tau, "sizes": SIZES, "draws": DRAWS, "variances": variances, "rows": rows}


def _probs(prediction: Prediction) -> Tensor:
    assert prediction.probs is not None
    return prediction.probs


def page() -> str:
    """Return docs/layer-variance.md."""
    text, results = template("layer_variance"), read_results("layer_variance")
    settings = {
        name: {key: found[key] for key in ("prior_precision", "sizes", "draws")} for name, found in results.items()
    }
    return text.fill(
        experiments="\n\n".join(
            text.part("experiment").fill(**_values(name, found)) for name, found in results.items()
        ),
        run=run_fold(settings, {}),
    )


def _values(name: str, found: dict[str, Any]) -> dict[str, object]:
    rows = found["rows"]
    single = {layer: row for layer, row in rows.items() if layer in found["variances"]}
    best = max(single, key=lambda layer: single[layer]["auroc"])
    cells = []
    for layer, row in rows.items():
        variance = found["variances"].get(layer)
        means = ["–", "–"] if variance is None else [f"{variance[part]:.3f}" for part in ("known", "unknown")]
        numbers = [f"{row[measure]:.4f}" for measure in SHOWN.values()]
        cells.append([layer, *means, f"{row['factor']:.3g}", f"{row['held_out_nll']:.4f}", *numbers])
    return {
        "name": name,
        "best": best,
        "best_auroc": f"{rows[best]['auroc']:.4f}",
        "all_auroc": f"{rows['all']['auroc']:.4f}",
        "none_auroc": f"{rows['none']['auroc']:.4f}",
        "nll_span": span([row["held_out_nll"] for row in single.values()], ".4f"),
        "table": table([*HEADS, *SHOWN], cells),
    }


if __name__ == "__main__":
    if look_at_experiments("layer_variance", __doc__, look):
        write_page("layer-variance", page())
