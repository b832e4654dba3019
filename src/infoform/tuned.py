"""The body of `Laplace.tune`: a fit and what the user asks for in, the hyperparameters to take out."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

from torch import Tensor

from infoform.common import files
from infoform.common.checks import check_choice, check_whole
from infoform.fitted import Fitted
from infoform.likelihoods import Likelihood
from infoform.network.layer import Layer
from infoform.options import Settings
from infoform.posteriors import LayerPosterior
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.priors import Prior
from infoform.tuning.by_evidence import PRECISION_RANGE, check_one_count, maximise_evidence
from infoform.tuning.by_validation import ValidationSearch
from infoform.tuning.choice import check_standard_errors
from infoform.tuning.losses import Answers
from infoform.tuning.scorer import Scorer
from infoform.tuning.search import PRECISION_RANGE as SEARCHED_RANGE
from infoform.tuning.search import Search, Trial, as_range, check_range
from infoform.tuning.spread import Spread, free_number
from infoform.tuning.validation_data import ValidationData

Range = tuple[float, float]


@dataclass(frozen=True)
class TuneTarget:
    """What is tuned: a fit in a structure with a prior, and the hyperparameters that it has now."""

    fitted: Fitted
    layers: Mapping[str, Layer]
    likelihood: Likelihood
    settings: Settings  # with the structure that is tuned
    prior: Prior
    noise: float | None
    temperature: float

    @property
    def examples(self) -> float:
        """Return the number of fitted examples."""
        return float(self.fitted.fit.summary.num_examples)

    def information_count(self, num_data: float, noise: float | None) -> float:
        """Return N times the factor from the information at σ = 1 to that at a noise."""
        return num_data * self.likelihood.information_scale(noise, self.settings.fit.fisher)


@dataclass(frozen=True)
class Tuned:
    """The hyperparameters to take, and how they were found."""

    prior: Prior
    num_data: float
    noise: float | None
    temperature: float
    trials: list[Trial] = field(default_factory=list)
    plain_trial: Trial | None = None
    note: str = ""
    data: ValidationData | None = None  # that they were found on
    answers: Answers | None = None  # of these data at what was chosen, where the search has them
    targets: Tensor | None = None
    examples: Tensor | None = None  # of every row of these, where rows are positions


@dataclass(frozen=True)
class ValidationRequest:
    """How τ is searched on validation data; `Laplace.tune` says what each field means."""

    options: PredictOptions
    objective: str | None
    noise: str | None
    temperature: bool | None
    standard_errors: float
    method: str
    trials: int
    exact_trials: int | None
    prior_precision: Range | None
    num_data: float | Range | None
    path: str | PathLike[str] | None


def tune_by_evidence(
    target: TuneTarget,
    *,
    objective: str | None,
    per_layer: bool,
    noise: str | None,
    temperature: bool | None,
    prior_precision: Range | None,
    num_data: float | Range | None,
) -> Tuned:
    """Return the τ, and the noise if asked for, of the largest evidence of the fitted data."""
    check_choice("noise", noise or "residuals", ("residuals", "evidence"))
    check_choice("objective (without val_loader)", objective, (None, "evidence"))
    check_choice("temperature (without val_loader)", temperature or False, (False,))
    span = PRECISION_RANGE if prior_precision is None else check_range("prior_precision", prior_precision)
    count = check_one_count(target.examples if num_data is None else num_data)
    likelihood, summary = target.likelihood, target.fitted.fit.summary
    layers, prior = target.fitted.layers(target.settings.structure), target.prior.tuned(by_evidence=True)

    def build(name: str, precision: float, noise: float | None) -> LayerPosterior:
        information = target.information_count(count, noise)
        layer_prior = target.fitted.prior(prior.with_precision(precision), name, num_data=information)
        return layers[name].with_prior(layer_prior, information)

    found = maximise_evidence(
        build,
        {name: target.layers[name] for name in layers},
        per_layer=per_layer,
        noise=target.noise,
        log_likelihood=lambda noise: count / summary.num_examples * likelihood.log_likelihood(summary, noise),
        free_noise=noise == "evidence" and likelihood.free_noise,
        precision_range=span,
    )
    return Tuned(prior.with_precision(found.prior_precision), count, found.noise, target.temperature)


def tune_on_validation_data(
    target: TuneTarget, predictor: Predictor, loader: Iterable[Any], request: ValidationRequest, *, progress: bool
) -> Tuned:
    """Return the τ, and the temperature or the noise, that predict validation data best, or as well as the best.

    Args:
        target: what is tuned.
        predictor: of the same network; its posterior, temperature and novelty are not used.
        loader: gives validation data.
        request: how to search.
        progress: whether a bar is shown.
    """
    check_choice("noise (with val_loader)", request.noise or "validation", ("residuals", "validation"))
    if request.exact_trials is not None:
        check_whole("exact_trials", request.exact_trials)
    likelihood, prior = target.likelihood, target.prior.tuned(by_evidence=False)
    data = ValidationData.read(loader, seed=request.options.seed)
    free = free_number(likelihood, temperature=request.temperature, noise=request.noise)
    sigma = likelihood.fitted_noise(target.fitted.fit.summary) if free == "noise" else target.noise
    search = Search(
        objective=request.objective or "nll",
        method=request.method,
        trials=request.trials,
        num_data=as_range(target.examples if request.num_data is None else request.num_data),
        prior_precision=SEARCHED_RANGE if request.prior_precision is None else request.prior_precision,
        seed=request.options.seed,
        path=request.path,
        settings=_identity(target, request, predictor, prior, data=data, free=free, sigma=sigma),
    )

    def build(count: float, tau: float) -> Posterior:
        information = target.information_count(count, sigma)
        own = prior.with_precision(tau)
        return target.fitted.posterior(target.settings.structure, own, num_data=information)

    with replace(predictor, temperature=1.0, novelty=None).private() as private:
        fisher = target.settings.fit.fisher
        spread = Spread(private, request.options, sigma, fisher, free, target.temperature)
        found = ValidationSearch(
            data,
            private,
            build,
            Scorer(spread, search.objective),
            search,
            request.standard_errors,
            request.exact_trials,
            widens=request.method == "grid" and request.prior_precision is None,
        ).run(progress=progress)
    best = found.best
    return Tuned(
        prior.with_precision(best.prior_precision),
        best.num_data,
        target.noise if best.noise is None else best.noise,
        best.temperature if free == "temperature" else target.temperature,
        found.trials,
        found.plain,
        found.note,
        data,
        found.answers,
        found.targets,
        found.examples,
    )


def _identity(
    target: TuneTarget,
    request: ValidationRequest,
    predictor: Predictor,
    prior: Prior,
    *,
    data: ValidationData,
    free: str,
    sigma: float | None,
) -> dict[str, Any]:
    """Return all that the scores of a search depend on, so that a file of another one is not gone on from."""
    fixed = {"temperature": target.temperature} if free == "nothing" and target.temperature != 1 else {}
    exact = {} if request.exact_trials is None else {"exact_trials": request.exact_trials}
    return {
        "posterior": target.settings.flat(),
        "prior": {"name": prior.name, **prior.with_precision(1.0).settings()},
        "model": files.fingerprint(predictor.model),
        "examples": target.examples,
        "validation": data.checksum,
        "free": free,
        **fixed,
        "noise": sigma,
        "standard_errors": check_standard_errors(request.standard_errors),
        **exact,
        **asdict(request.options),
    }
