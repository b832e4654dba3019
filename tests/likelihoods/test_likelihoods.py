"""Likelihoods: densities as torch.distributions has them, scores and Fisher matrices as autograd has them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev

import dense
import infoform
from dense import assert_close
from flat import flat_laplace
from infoform import Classification, Likelihood, MultiLabel, Regression
from infoform.likelihoods import FISHER_KINDS, LIKELIHOODS, DataSummary, get_likelihood
from likelihood_cases import outputs_of, targets_of

ALL: list[Likelihood] = [*(kind() for kind in LIKELIHOODS.values()), Regression(noise=[0.5, 2.0, 1.5])]
every_likelihood = pytest.mark.parametrize(
    "likelihood", ALL, ids=lambda likelihood: f"{likelihood.name} {likelihood.settings()}"
)


CONSTANT = ("classification", "multilabel", "regression", "poisson")  # whose Hessian does not depend on the target


def make_outputs(examples: int = 6, likelihood: Likelihood | None = None) -> Tensor:
    return outputs_of(Regression() if likelihood is None else likelihood, examples)


make_targets = targets_of


@every_likelihood
def test_the_density_is_that_of_torch_distributions(likelihood: Likelihood) -> None:
    outputs = make_outputs(likelihood=likelihood)
    targets = make_targets(likelihood, outputs)
    expected = [dense.log_prob(likelihood, one, target) for one, target in zip(outputs, targets, strict=True)]
    assert_close(likelihood.log_prob(outputs, targets), torch.stack(expected))


@every_likelihood
def test_the_score_is_the_gradient_of_the_density(likelihood: Likelihood) -> None:
    outputs = make_outputs(likelihood=likelihood).requires_grad_()
    targets = make_targets(likelihood, outputs.detach())
    (expected,) = torch.autograd.grad(likelihood.log_prob(outputs, targets).sum(), outputs)
    assert_close(likelihood.score(outputs.detach(), targets), expected)
    assert_close(
        likelihood.score(outputs.detach(), targets), dense.score_vectors(likelihood, outputs.detach(), targets)
    )


@pytest.mark.parametrize("likelihood", [one for one in ALL if one.name in CONSTANT], ids=lambda one: one.name)
def test_the_root_gives_the_expected_hessian(likelihood: Likelihood) -> None:
    outputs = make_outputs(likelihood=likelihood)
    targets = make_targets(likelihood, outputs)
    roots = torch.stack(list(likelihood.fisher_root(outputs)))  # (V, N, C)
    assert len(roots) == likelihood.num_vectors(3, "exact", 7)
    hessian = jacrev(jacrev(dense.log_prob, argnums=1), argnums=1)
    for n in range(len(outputs)):
        expected = -hessian(likelihood, outputs[n], targets[n])
        assert_close(torch.einsum("vc,vd->cd", roots[:, n], roots[:, n]), expected)


@every_likelihood
def test_the_fisher_matrix_is_the_mean_of_the_scores_squares(likelihood: Likelihood) -> None:
    outputs, draws = make_outputs(1, likelihood).expand(20_000, -1), 20_000
    scores = likelihood.score(outputs, make_targets(likelihood, outputs))
    roots = torch.stack([root[0] for root in likelihood.fisher_root(outputs[:1])])
    products = torch.einsum("nc,nd->ncd", scores, scores)
    error = (products.mean(0) - roots.T @ roots).abs()
    assert (error <= 5 * products.std(0) / math.sqrt(draws) + 1e-12).all()  # five standard errors, at a fixed seed


@every_likelihood
def test_the_score_of_sampled_targets_has_mean_zero(likelihood: Likelihood) -> None:
    outputs, draws = make_outputs(1, likelihood).expand(20_000, -1), 20_000
    scores = likelihood.score(outputs, make_targets(likelihood, outputs))
    assert (scores.mean(0).abs() <= 5 * scores.std(0) / math.sqrt(draws)).all()


@pytest.mark.parametrize("likelihood", [Classification(), MultiLabel()], ids=lambda one: one.name)
def test_sampled_labels_have_the_models_frequencies(likelihood: Likelihood) -> None:
    draws = 20_000
    outputs = make_outputs(1).expand(draws, 3)
    targets = make_targets(likelihood, outputs)
    if isinstance(likelihood, Classification):
        probs, seen = outputs[0].softmax(0), nn.functional.one_hot(targets, 3).double().mean(0)
    else:
        probs, seen = outputs[0].sigmoid(), targets.mean(0)
    assert ((seen - probs).abs() <= 5 * (probs * (1 - probs) / draws).sqrt()).all()


def test_sampled_regression_targets_have_the_noise_of_each_output() -> None:
    draws, scales = 20_000, torch.tensor([0.5, 2.0, 1.5]).double()
    outputs = make_outputs(1).expand(draws, 3)
    residual = (make_targets(Regression(noise=[0.5, 2.0, 1.5]), outputs) - outputs) / scales
    assert (residual.mean(0).abs() <= 5 / math.sqrt(draws)).all()
    assert ((residual.square().mean(0) - 1).abs() <= 5 * math.sqrt(2 / draws)).all()


@every_likelihood
@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_the_extremes_of_the_uniform_numbers_give_targets_that_are_allowed(
    likelihood: Likelihood, extreme: float
) -> None:
    outputs = make_outputs(likelihood=likelihood)
    uniforms = torch.full((len(outputs), likelihood.noise_width(outputs.shape[1])), extreme, dtype=torch.float64)
    targets = likelihood.sample_targets(outputs, uniforms)
    assert torch.equal(likelihood.check_targets(targets, outputs), targets)


def test_a_class_without_probability_is_never_drawn() -> None:
    outputs = torch.tensor([[-1e4, 0.0, -1e4]]).double()
    for uniform in (0.0, 0.5, 1 - 2**-53):
        drawn = Classification().sample_targets(outputs, torch.tensor([[uniform]], dtype=torch.float64))
        assert drawn.tolist() == [1]


@every_likelihood
@pytest.mark.parametrize("fisher", FISHER_KINDS)
def test_there_are_as_many_fisher_vectors_as_announced(likelihood: Likelihood, fisher: str) -> None:
    outputs = make_outputs(likelihood=likelihood)
    uniforms = torch.rand(6, 4, likelihood.noise_width(outputs.shape[1]), dtype=torch.float64)
    targets = make_targets(likelihood, outputs)
    vectors = list(likelihood.fisher_vectors(outputs, fisher, targets=targets, uniforms=uniforms))
    assert len(vectors) == likelihood.num_vectors(outputs.shape[1], fisher, 4)
    assert all(vector.shape == outputs.shape for vector in vectors)


@every_likelihood
def test_settings_make_the_same_likelihood_again(likelihood: Likelihood) -> None:
    again = type(likelihood)(**likelihood.settings())
    outputs = make_outputs(likelihood=likelihood)
    targets = make_targets(likelihood, outputs)
    assert torch.equal(again.log_prob(outputs, targets), likelihood.log_prob(outputs, targets))
    assert again.settings() == likelihood.settings()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_fitted_noise_is_the_root_mean_square_of_the_residuals(size: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 3)).to(dtype)
    x = torch.randn(50, 4, dtype=dtype)
    y = model(x).detach() + size * torch.randn(50, 3, dtype=dtype)
    laplace = infoform.Laplace(model, "regression", structure="diag").fit([(x, y)], progress=False)
    residual = y.double() - model(x).detach().double()
    assert laplace.noise == pytest.approx(float(residual.square().mean().sqrt()), rel=1e-9)


@pytest.mark.parametrize("given", [0.3, [0.5, 2.0, 1.5]])
def test_noise_that_is_given_is_not_fitted(given: float | list[float]) -> None:
    noise = Regression(given).fitted_noise(DataSummary(5, 3, -10.0))
    assert noise == (given if isinstance(given, float) else 1.0)


@pytest.mark.parametrize("rounding", [0.0, 1e-15])
def test_a_perfect_fit_has_no_noise_to_fit(rounding: float) -> None:
    log_likelihood = -3 * math.log(2 * math.pi) * (1 - rounding)
    with pytest.raises(ValueError, match="fits its targets exactly"):
        Regression().fitted_noise(DataSummary(6, 1, log_likelihood))


def test_noise_cannot_be_fitted_without_targets() -> None:
    with pytest.raises(ValueError, match="needs targets"):
        Regression().fitted_noise(DataSummary(6, 1, None))


@pytest.mark.parametrize("fisher", FISHER_KINDS)
@pytest.mark.parametrize("noise", [0.2, 3.0])
def test_the_information_scale_takes_the_fisher_matrix_from_unit_noise_to_its_own(noise: float, fisher: str) -> None:
    # the same targets, in units of the noise: σ ε + f; for given labels y itself
    likelihood, outputs = Regression(), make_outputs()
    uniforms = torch.rand(6, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = make_targets(likelihood, outputs)
    own = Regression(noise=[noise] * 3)  # σ inside the density itself
    unit = sum_of_squares(likelihood, outputs, fisher, targets=targets, uniforms=uniforms)
    expected = sum_of_squares(own, outputs, fisher, targets=targets, uniforms=uniforms)
    assert_close(unit * likelihood.information_scale(noise, fisher), expected)


@pytest.mark.parametrize("name", ["classification", "multilabel"])
def test_a_likelihood_without_noise_needs_no_scale(name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    assert likelihood.fitted_noise(DataSummary(5, 3, -10.0)) is None
    assert {likelihood.information_scale(None, fisher) for fisher in FISHER_KINDS} == {1.0}


@pytest.mark.parametrize("fisher", FISHER_KINDS)
def test_the_posterior_has_the_information_at_the_noise(fisher: str) -> None:
    torch.manual_seed(0)
    model, noise = nn.Linear(4, 3).double(), 0.3
    x, y = torch.randn(8, 4).double(), torch.randn(8, 3).double()
    options: dict[str, Any] = {"structure": "full", "fisher": fisher}
    scalar = flat_laplace(model, Regression(noise), **options).fit([(x, y)], progress=False)
    inside = flat_laplace(model, Regression([noise] * 3), **options).fit([(x, y)], progress=False)
    assert_close(scalar.posterior().layers[""].dense(), inside.posterior().layers[""].dense())


@pytest.mark.parametrize("noise", [0.0, -1.0, math.inf, math.nan, [], [1.0, 0.0]])
def test_noise_must_be_positive(noise: Any) -> None:
    with pytest.raises(ValueError, match="noise must be a positive standard deviation"):
        Regression(noise)


@pytest.mark.parametrize(
    ("name", "outputs", "message"),
    [
        ("classification", torch.ones(5, 1), "at least 2 logits"),
        ("classification", torch.ones(5, 2, 2), r"got \(5, 2, 2\)"),
        ("classification", torch.ones(5), r"got \(5,\)"),
        ("multilabel", torch.ones(5), r"got \(5,\)"),
        ("regression", torch.ones(5, 2, 2), r"got \(5, 2, 2\)"),
    ],
)
def test_outputs_of_another_shape_are_refused(name: str, outputs: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LIKELIHOODS[name]().check_outputs(outputs)


@pytest.mark.parametrize(
    ("name", "targets", "message"),
    [
        ("classification", torch.tensor([0, 1]), "one target for each of its 3 examples"),
        ("classification", torch.tensor(1), "one target for each of its 3 examples"),
        ("classification", torch.eye(3), "integer class indices"),
        ("classification", torch.tensor([True, False, True]), "integer class indices"),
        ("classification", torch.tensor([0, 1, 4]), "between 0 and 3 .* got 4"),
        ("classification", torch.tensor([0, -1, 3]), "between 0 and 3 .* got -1"),
        ("multilabel", torch.tensor([0, 1, 1]), "multilabel needs targets of the outputs' shape"),
        ("multilabel", torch.full((3, 4), 2.0), "between 0 and 1, got 2"),
        ("multilabel", torch.full((3, 4), torch.nan), "between 0 and 1, got nan"),
        ("regression", torch.ones(3), "regression needs targets of the outputs' shape"),
        ("regression", torch.full((3, 4), torch.nan), "must be finite"),
    ],
)
def test_targets_that_do_not_fit_are_refused(name: str, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LIKELIHOODS[name]().check_targets(targets, torch.zeros(3, 4))


@pytest.mark.parametrize("name", ["multilabel", "regression"])
def test_targets_of_one_output_need_no_axis(name: str) -> None:
    targets = LIKELIHOODS[name]().check_targets(torch.tensor([0, 1, 1]), torch.zeros(3, 1).double())
    assert torch.equal(targets, torch.tensor([[0.0], [1.0], [1.0]]).double())


def test_noise_must_match_the_outputs() -> None:
    with pytest.raises(ValueError, match="each of the model's 3 outputs, got 2"):
        Regression([1.0, 2.0]).check_outputs(torch.zeros(5, 3))


def test_a_likelihood_is_found_by_name_or_given_as_it_is() -> None:
    for name, kind in LIKELIHOODS.items():
        assert type(get_likelihood(name)) is kind
        assert kind.name == name
    mine = Regression(2.0)
    assert get_likelihood(mine) is mine
    with pytest.raises(ValueError, match=r"likelihood must be one of 'classification'.* got 'weibull'"):
        get_likelihood("weibull")


def sum_of_squares(
    likelihood: Likelihood, outputs: Tensor, fisher: str, *, targets: Tensor, uniforms: Tensor
) -> Tensor:
    vectors = torch.stack(list(likelihood.fisher_vectors(outputs, fisher, targets=targets, uniforms=uniforms)))
    return torch.einsum("vnc,vnd->ncd", vectors, vectors)
