"""Every likelihood of the table from the fit to the file, and its Fisher matrix and predictions by quadrature."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor, nn
from torch.func import jacrev

import infoform
from dense import assert_close
from infoform import Likelihood, metrics
from infoform.likelihoods import LIKELIHOODS, LINKS, GaussianOutputs
from infoform.posteriors import PRESETS, STRUCTURES
from infoform.predicting.kinds import KINDS
from likelihood_cases import outputs_of, targets_of, width_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:the best prior_precision"),  # of targets that the network itself has drawn
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
]
NEW = ("heteroscedastic", "poisson", "negative-binomial", "ordinal")
every_name = pytest.mark.parametrize("name", LIKELIHOODS)


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, width)).double()


@cache
def case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    model = network(width_of(name))
    x = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return model, x, targets_of(LIKELIHOODS[name](), model(x).detach())


def fitted(name: str, rows: slice = slice(None), **options: Any) -> infoform.Laplace:
    model, x, y = case(name)
    laplace = infoform.Laplace(model, LIKELIHOODS[name](), **options)
    return laplace.fit([(x[rows], y[rows])], progress=False)


def support(likelihood: Likelihood, outputs: Tensor) -> tuple[Tensor, Tensor]:  # (1, C) -> targets (Q, ...), weights
    """Return targets and weights of a quadrature over all targets of one example with independent outputs."""
    if likelihood.name == "heteroscedastic":
        nodes, weights = (torch.from_numpy(one) for one in hermegauss(40))
        mean, log_variance = outputs[0].chunk(2)
        grid = torch.cartesian_prod(nodes, nodes)
        whole = (torch.cartesian_prod(weights, weights) / (2 * math.pi)).prod(1) * (2 * math.pi)
        return mean + grid * (log_variance / 2).exp(), whole
    if likelihood.name == "ordinal":
        grades = torch.arange(3)
        return grades, likelihood.log_prob(outputs.expand(3, -1), grades).exp()
    counts = torch.arange(400, dtype=torch.float64).unsqueeze(1).expand(-1, outputs.shape[1])
    return counts, torch.ones(0)


def autograd_scores(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:
    leaf = outputs.clone().requires_grad_()
    return torch.autograd.grad(likelihood.log_prob(leaf, targets).sum(), leaf)[0]


@pytest.mark.parametrize("name", NEW)
def test_the_fisher_matrix_is_the_expectation_of_autograds_scores(name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    outputs = outputs_of(likelihood, 3, scale=0.7)
    for n in range(3):
        one = outputs[n : n + 1]
        targets, weights = support(likelihood, one)
        roots = torch.stack([root[0] for root in likelihood.fisher_root(one)])
        found = roots.T @ roots
        if name in ("poisson", "negative-binomial"):  # outputs are independent: each by itself
            for c in range(one.shape[1]):
                own = one[:, c : c + 1].expand(len(targets), 1)
                probs = likelihood.log_prob(own, targets[:, :1]).exp()
                score = autograd_scores(likelihood, own, targets[:, :1])[:, 0]
                assert_close(probs.sum(), torch.tensor(1.0).double())
                assert_close(found[c, c], (probs * score.square()).sum())
            assert_close(found, found.diagonal().diag())
            continue
        score = autograd_scores(likelihood, one.expand(len(targets), -1), targets)
        weights = weights / weights.sum()
        assert_close(found, torch.einsum("q,qc,qd->cd", weights, score, score), rtol=1e-8)


@pytest.mark.parametrize("name", NEW)
def test_the_moments_are_those_of_the_density(name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    if name == "ordinal":  # predictions are of probabilities
        return
    outputs = outputs_of(likelihood, 4, scale=0.7)
    mean, variance = likelihood.moments(outputs)
    drawn_mean, drawn_variance = Likelihood.moments(likelihood, outputs)
    torch.testing.assert_close(drawn_mean, mean, rtol=0.03, atol=0.03)
    torch.testing.assert_close(drawn_variance, variance, rtol=0.15, atol=0.03)
    if name != "heteroscedastic":
        counts = torch.arange(600, dtype=torch.float64).unsqueeze(1)
        for n in range(4):
            probs = likelihood.log_prob(outputs[n, :1].expand(600, 1), counts).exp().unsqueeze(1)
            expected = (probs * counts).sum()
            assert_close(mean[n, 0], expected)
            assert_close(variance[n, 0], (probs * (counts - expected).square()).sum())


@pytest.mark.parametrize("name", ["poisson", "heteroscedastic"])
def test_moments_under_gaussian_outputs_are_those_of_quadrature(name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    mean = outputs_of(likelihood, 5, scale=0.5)
    root = 0.4 * torch.randn(5, mean.shape[1], mean.shape[1], dtype=torch.float64)
    covariance = root @ root.mT
    found = likelihood.from_gaussian(GaussianOutputs(mean, covariance), noise=None, link="mc")
    nodes, weights = (torch.from_numpy(one) for one in hermegauss(60))
    weights = weights / weights.sum()
    at = mean + nodes[:, None, None] * covariance.diagonal(dim1=1, dim2=2).sqrt()  # (Q, N, C), output by output
    means, variances = (one.unflatten(0, at.shape[:2]) for one in likelihood.moments(at.flatten(0, 1)))
    expected = torch.einsum("q,qnc->nc", weights, means)
    assert_close(found.mean, expected)
    assert_close(found.epistemic, torch.einsum("q,qnc->nc", weights, (means - expected).square()), rtol=1e-7)
    assert_close(found.aleatoric, torch.einsum("q,qnc->nc", weights, variances))


@pytest.mark.parametrize("name", ["negative-binomial", "ordinal", "poisson"])
def test_probabilities_under_gaussian_outputs_are_those_of_quadrature(name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    mean, variance = torch.tensor([[0.3], [-0.5]]).double(), torch.tensor([[[0.4]], [[0.1]]]).double()
    prediction = likelihood.from_gaussian(GaussianOutputs(mean, variance, samples=20_000), noise=None, link="mc")
    nodes, weights = (torch.from_numpy(one) for one in hermegauss(60))
    targets = torch.tensor([1, 2]) if name == "ordinal" else torch.tensor([[1.0], [2.0]]).double()
    densities = torch.stack([
        likelihood.log_prob(mean + node * variance[:, :, 0].sqrt(), targets).exp() for node in nodes
    ])  # fmt: skip
    expected = (weights / weights.sum()) @ densities
    if name == "ordinal":
        found = prediction.value.gather(1, targets.unsqueeze(1)).squeeze(1)
    else:
        found = likelihood.log_density(prediction, targets).exp()
    torch.testing.assert_close(found, expected, rtol=5e-3, atol=0)


def test_entropy_and_information_are_those_of_very_many_targets() -> None:
    likelihood = LIKELIHOODS["poisson"]()
    drawn = torch.tensor([-0.5, 1.5], dtype=torch.float64).view(2, 1, 1).repeat(20, 1, 1)  # two kinds of networks
    prediction = likelihood.from_samples(drawn, drawn[0], noise=None)
    counts = torch.arange(60, dtype=torch.float64).unsqueeze(1)
    probs = torch.stack([likelihood.log_prob(one.expand(60, 1), counts).exp() for one in drawn[:2]])
    entropy = torch.special.entr(probs.mean(0)).sum()
    information = entropy - torch.special.entr(probs).sum(1).mean()
    assert float(prediction.entropy) == pytest.approx(float(entropy), rel=0.1)
    assert float(prediction.mutual_information) == pytest.approx(float(information), rel=0.25)
    alone = likelihood.plain_prediction(drawn[0], noise=None)
    assert float(alone.mutual_information) == 0


@every_name
@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
def test_every_structure_is_fitted_and_predicts(structure: str, name: str) -> None:
    laplace, x = fitted(name, structure=structure), case(name)[1]
    prediction = laplace.predict(x[:5], samples=10)
    assert bool((prediction.epistemic >= 0).all())
    assert bool(prediction.value.isfinite().all())


@every_name
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("link", LINKS)
def test_every_kind_predicts_and_is_scored(link: str, kind: str, name: str) -> None:
    if kind != "linear" and link != "mc":
        return
    model, x, y = case(name)
    laplace = fitted(name)
    laplace.prior_precision = 5.0
    prediction, targets = laplace.predict_loader(
        [(x[:40], y[:40]), (x[40:], y[40:])], kind=kind, link=link, samples=20, progress=False
    )
    assert targets is not None
    scores = laplace.likelihood.scores(prediction, targets)
    alone = laplace.likelihood.plain_prediction(prediction.plain, noise=laplace.noise)
    plain = laplace.likelihood.scores(alone, targets)
    assert math.isfinite(scores["nll"])
    assert scores["nll"] < plain["nll"] + 1.0
    assert_close(prediction.plain, model(x).detach())


@pytest.mark.parametrize("name", NEW)
def test_its_own_nll_is_that_of_the_trained_network_where_the_posterior_is_sharp(name: str) -> None:
    model, x, y = case(name)
    laplace = fitted(name)
    laplace.prior_precision = 1e12
    prediction, targets = laplace.predict_loader([(x, y)], kind="mc", samples=4, progress=False)
    assert targets is not None
    outputs = model(x).detach()
    expected = -float(laplace.likelihood.log_prob(outputs, targets).mean())
    assert laplace.likelihood.scores(prediction, targets)["nll"] == pytest.approx(expected, rel=1e-4)
    assert laplace.training_scores["nll"] == pytest.approx(expected, rel=1e-9)


@every_name
def test_it_is_tuned_saved_loaded_and_updated(name: str, tmp_path: Path) -> None:
    model, x, y = case(name)
    laplace = fitted(name, slice(0, 40)).tune([(x[40:], y[40:])], trials=9, samples=20, progress=False)
    likelihood = laplace.likelihood
    if likelihood.has_logits or likelihood.free_noise:
        assert laplace.plain_trial is not None
    else:
        assert laplace.temperature == 1
        with pytest.raises(ValueError, match="temperature divides logits"):
            laplace.temperature = 2.0
        with pytest.raises(ValueError, match="temperature=True is for logits"):
            laplace.tune([(x[40:], y[40:])], temperature=True, progress=False)
    assert all(math.isfinite(trial.scores["nll"]) for trial in laplace.trials)
    prediction = laplace.predict(x[:5], samples=20)
    if prediction.answer == "class":
        assert bool(prediction.set(0.5).any(1).all())
    elif prediction.answer == "numbers":
        low, high = prediction.interval(0.5)
        assert bool((low < high).all())
    else:
        with pytest.raises(ValueError, match="prediction sets are of one of C classes"):
            prediction.set(0.5)
    laplace.save(tmp_path / "a.infoform", curvature=True)
    loaded = infoform.load(tmp_path / "a.infoform", model)
    assert loaded.likelihood.settings() == likelihood.settings()
    assert_close(loaded.predict(x[:5], samples=20).value, prediction.value)
    loaded.fit([(x[40:], y[40:])], update=True, progress=False)
    assert loaded.num_data == 60
    assert math.isfinite(loaded.tune(progress=False).log_evidence())


@every_name
def test_inputs_are_acquired_and_novel(name: str) -> None:
    laplace, x = fitted(name), case(name)[1]
    assert len(infoform.acquire(laplace, [x], 3, samples=10, progress=False).unique()) == 3
    assert bool((laplace.novelty(x).novelty <= 1).all())


@pytest.mark.parametrize("name", ["heteroscedastic", "poisson", "negative-binomial"])
def test_a_comparison_says_that_it_has_no_such_scores(name: str) -> None:
    _, x, y = case(name)
    with pytest.raises(ValueError, match=r"compare .*likelihood\.scores"):
        infoform.compare(fitted(name), [(x, y)])


@pytest.mark.parametrize("name", ["heteroscedastic", "poisson", "negative-binomial"])
def test_an_export_says_that_it_has_no_such_graph(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"the {name} likelihood has a density of its own"):
        fitted(name).export(tmp_path / "a.pt2", kind="samples", example=case(name)[1][:4])


def test_grades_are_compared_as_classes() -> None:
    _, x, y = case("ordinal")
    result = infoform.compare(
        fitted("ordinal"), [(x[:30], y[:30])], val_loader=[(x[30:], y[30:])], samples=5, resamples=100, progress=False
    )
    assert {"plain", "all layers"} <= {one.name for one in result.methods}


def test_wrong_targets_and_outputs_are_refused() -> None:
    refused: list[tuple[str, Any, Any, str]] = [
        ("poisson", torch.zeros(2, 1), torch.tensor([[0.5], [1.0]]), r"whole numbers of at least 0, got 0\.5"),
        ("negative-binomial", torch.zeros(2, 1), torch.tensor([-1, 1]), "whole numbers of at least 0, got -1"),
        ("heteroscedastic", torch.zeros(2, 4), torch.zeros(2, 4), r"targets of shape \(2, 2\)"),
        ("ordinal", torch.zeros(2, 1), torch.tensor([0, 3]), "between 0 and 2"),
        ("ordinal", torch.zeros(2, 1), torch.tensor([0.0, 1.0]), "whole numbers of shape"),
    ]
    for name, outputs, targets, message in refused:
        with pytest.raises(ValueError, match=message):
            LIKELIHOODS[name]().check_targets(targets, outputs)
    for name, width, message in (("heteroscedastic", 3, "2 K outputs"), ("ordinal", 2, "one output for each")):
        with pytest.raises(ValueError, match=message):
            LIKELIHOODS[name]().check_outputs(torch.zeros(2, width))
    for thresholds in ([], [1.0, 0.0], [math.nan]):
        with pytest.raises(ValueError, match="rising finite numbers"):
            infoform.Ordinal(thresholds)
    with pytest.raises(ValueError, match="dispersion must be a positive"):
        infoform.NegativeBinomial(0.0)


def test_far_grades_keep_their_probabilities() -> None:
    likelihood, outputs = infoform.Ordinal([-1.0, 1.0]), torch.tensor([[60.0], [-60.0], [0.0]]).double()
    probs = torch.stack([likelihood.log_prob(outputs, torch.full((3,), k)) for k in range(3)], dim=1)
    assert bool(probs.isfinite().all())
    assert_close(probs.exp().sum(1), torch.ones(3).double())
    assert float(probs[0, 0]) == pytest.approx(-61)


def test_metrics_of_a_heteroscedastic_prediction_have_the_noise_of_each_input() -> None:
    model, x, y = case("heteroscedastic")
    prediction = fitted("heteroscedastic").predict(x, kind="linear", samples=50)
    assert prediction.mean is not None
    assert prediction.mean.shape == (60, 2)
    assert prediction.plain.shape == (60, 4)
    assert float(prediction.aleatoric.std(0).min()) > 0
    assert 0.5 < metrics.evaluate(prediction, y)["coverage_90"] <= 1
    jacobian = jacrev(lambda w: torch.func.functional_call(model, w, (x[:1],)))(dict(model.named_parameters()))
    assert jacobian["2.weight"].shape == (1, 4, 4, 4)
