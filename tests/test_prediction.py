"""A prediction's numbers fit together, and the ways from uncertain outputs to it are the formulas they say."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Beta, Dirichlet, MultivariateNormal, Normal

from dense import assert_close
from infoform.likelihoods import (
    LIKELIHOODS,
    LINKS,
    Classification,
    GaussianOutputs,
    Likelihood,
    MultiLabel,
    Regression,
)
from infoform.prediction import Novelty, Prediction, join_predictions, select_examples
from likelihood_cases import WITH_THREE_OUTPUTS

NOISE = {"regression": 0.7}
# the bridge reads a logit's share from its variance, and equal variances of 3 or more logits as evenly shared
SMOOTHED = ("classification", "bridge")
CLASSIFIERS = ["classification", "multilabel"]


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gaussian(
    examples: int, outputs: int, *, scale: float = 1.0, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return means (N, C) and full covariances (N, C, C)."""
    root = spread * normal(examples, outputs, outputs, seed=seed + 1)
    return scale * normal(examples, outputs, seed=seed), root @ root.mT


def from_gaussian(
    likelihood: Likelihood, mean: Tensor, covariance: Tensor, *, link: str = "probit", samples: int = 40, seed: int = 0
) -> Prediction:
    outputs = GaussianOutputs(mean, covariance, samples=samples, seed=seed)
    return likelihood.from_gaussian(outputs, noise=NOISE.get(likelihood.name), link=link)


def from_samples(likelihood: Likelihood, samples: Tensor) -> Prediction:
    return likelihood.from_samples(samples, samples.mean(0), noise=NOISE.get(likelihood.name))


def every_way(likelihood: Likelihood, mean: Tensor, covariance: Tensor, *, samples: int = 40) -> list[Prediction]:
    """Return the prediction of these Gaussian outputs by every link, and of networks that draw from them."""
    drawn = mean + normal(samples, *mean.shape) @ torch.eye(mean.shape[1], dtype=torch.float64)
    return [
        *(from_gaussian(likelihood, mean, covariance, link=link, samples=samples) for link in LINKS),
        from_samples(likelihood, drawn),
    ]


gaussians = st.builds(
    gaussian,
    examples=st.integers(1, 4),
    outputs=st.integers(2, 5),
    scale=st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    spread=st.sampled_from([0.0, 1e-6, 0.3, 3.0, 30.0]),
    seed=st.integers(0, 1000),
)


@settings(max_examples=60, deadline=None)
@given(outputs=gaussians, name=st.sampled_from(CLASSIFIERS), samples=st.sampled_from([1, 2, 40]))
def test_parts_of_a_class_prediction_fit_together(outputs: tuple[Tensor, Tensor], name: str, samples: int) -> None:
    for prediction in every_way(LIKELIHOODS[name](), *outputs, samples=samples):
        probs = prediction.probs
        assert probs is not None
        assert prediction.mean is None
        assert prediction.value is probs
        assert ((probs >= 0) & (probs <= 1)).all()
        if name == "classification":
            assert_close(probs.sum(1), torch.ones(len(probs), dtype=torch.float64))
        # the variance of an indicator, whatever part of it is which
        torch.testing.assert_close(prediction.variance, probs * (1 - probs), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(prediction.std, prediction.variance.sqrt(), rtol=1e-9, atol=0)
        assert (prediction.epistemic >= 0).all()
        assert (prediction.aleatoric >= 0).all()
        assert (prediction.entropy >= 0).all()
        assert (prediction.mutual_information >= -1e-12).all()
        assert (prediction.mutual_information <= prediction.entropy + 1e-9).all()
        assert (prediction.normalised_entropy >= 0).all()
        assert (prediction.normalised_entropy <= 1 + 1e-12).all()
        assert_close(prediction.confidence, probs.max(1).values)
        assert torch.equal(prediction.labels, probs.argmax(1))
        assert len(prediction) == len(probs)


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_classification_from_samples_is_the_naive_computation(samples: int) -> None:
    outputs = 2 * normal(samples, 4, 3)
    found = from_samples(Classification(), outputs)
    for n in range(4):
        single = [torch.softmax(outputs[m, n], 0) for m in range(samples)]
        probs = sum(single, torch.zeros(3, dtype=torch.float64)) / samples
        entropy = -sum(float(p) * math.log(p) for p in probs)
        within = -sum(float(p) * math.log(p) for one in single for p in one) / samples
        assert found.probs is not None
        assert_close(found.probs[n], probs)
        assert_close(found.epistemic[n], sum(((one - probs) ** 2 for one in single), torch.zeros(3)) / samples)
        aleatoric = sum((one * (1 - one) for one in single), torch.zeros(3)) / samples
        assert_close(found.aleatoric[n], aleatoric)
        assert float(found.entropy[n]) == pytest.approx(entropy, rel=1e-9)
        assert float(found.mutual_information[n]) == pytest.approx(entropy - within, rel=1e-9, abs=1e-12)
        assert float(found.normalised_entropy[n]) == pytest.approx(entropy / math.log(3), rel=1e-9)
    assert_close(found.samples, outputs.softmax(2))


@pytest.mark.parametrize("samples", [1, 2, 7])
@pytest.mark.parametrize("labels", [1, 3])
def test_multilabel_from_samples_is_the_naive_computation(labels: int, samples: int) -> None:
    def entropy_of(yes: float) -> float:
        return -yes * math.log(yes) - (1 - yes) * math.log(1 - yes)

    outputs = 2 * normal(samples, 4, labels)
    found = from_samples(MultiLabel(), outputs)
    assert found.probs is not None
    for n in range(4):
        entropy, information = 0.0, 0.0
        for index in range(labels):
            single = [1 / (1 + math.exp(-outputs[m, n, index])) for m in range(samples)]
            yes = sum(single) / samples
            assert float(found.probs[n, index]) == pytest.approx(yes, rel=1e-9)
            variance = sum((one - yes) ** 2 for one in single) / samples
            assert float(found.epistemic[n, index]) == pytest.approx(variance, rel=1e-9, abs=1e-15)
            assert float(found.aleatoric[n, index]) == pytest.approx(yes * (1 - yes) - variance, rel=1e-9)
            entropy += entropy_of(yes)
            information += entropy_of(yes) - sum(map(entropy_of, single)) / samples
        assert float(found.entropy[n]) == pytest.approx(entropy, rel=1e-9)
        assert float(found.mutual_information[n]) == pytest.approx(information, rel=1e-9, abs=1e-12)
        assert float(found.normalised_entropy[n]) == pytest.approx(entropy / (labels * math.log(2)), rel=1e-9)
    assert_close(found.samples, outputs.sigmoid())


@pytest.mark.parametrize("outputs", [2, 3, 10])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_normalised_entropy_is_1_for_uniform_and_0_for_certain_answers(name: str, outputs: int) -> None:
    uniform, certain = torch.zeros(2, outputs).double(), torch.full((2, outputs), -1000.0).double()
    certain[:, 0] = 1000.0
    none = torch.zeros(2, outputs, outputs).double()
    one, zero = torch.ones(2).double(), torch.zeros(2).double()
    for link in LINKS:
        assert_close(from_gaussian(LIKELIHOODS[name](), uniform, none, link=link).normalised_entropy, one)
        found = from_gaussian(LIKELIHOODS[name](), certain, none, link=link).normalised_entropy
        torch.testing.assert_close(found, zero, rtol=0, atol=1e-12)
    assert_close(from_samples(LIKELIHOODS[name](), uniform.expand(3, -1, -1)).normalised_entropy, one)


@pytest.mark.parametrize(
    ("name", "link"), [(name, link) for name in CLASSIFIERS for link in LINKS if (name, link) != SMOOTHED]
)
def test_without_uncertainty_the_probabilities_are_the_plain_ones(name: str, link: str) -> None:
    mean = normal(5, 3)
    found = from_gaussian(LIKELIHOODS[name](), mean, torch.zeros(5, 3, 3).double(), link=link)
    expected = mean.softmax(1) if name == "classification" else mean.sigmoid()
    assert_close(found.probs, expected)
    torch.testing.assert_close(found.epistemic, torch.zeros_like(mean), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.mutual_information, torch.zeros(5).double(), rtol=0, atol=1e-9)
    assert torch.equal(found.plain, mean)


def test_the_probit_is_its_formula() -> None:
    mean, covariance = gaussian(6, 4, scale=2.0)
    variance = torch.stack([one.diag() for one in covariance])
    squashed = mean / (1 + math.pi / 8 * variance).sqrt()
    assert_close(from_gaussian(Classification(), mean, covariance).probs, squashed.softmax(1))
    assert_close(from_gaussian(MultiLabel(), mean, covariance).probs, squashed.sigmoid())


def test_the_probit_is_close_to_many_draws_for_yes_no_questions() -> None:
    mean, covariance = gaussian(40, 3, scale=2.0)
    squashed = from_gaussian(MultiLabel(), mean, covariance).value
    drawn = from_gaussian(MultiLabel(), mean, covariance, link="mc", samples=20_000).value
    # MacKay's approximation is within 0.02 everywhere; 20,000 draws are within 5 · 0.5 / √20,000
    torch.testing.assert_close(squashed, drawn, rtol=0, atol=0.02 + 5 * 0.5 / math.sqrt(20_000))


def test_draws_have_the_mean_and_covariance_of_the_logits() -> None:
    mean, covariance = gaussian(3, 4)
    count = 200_000
    found = from_gaussian(Classification(), mean, covariance, link="mc", samples=count)
    reference = MultivariateNormal(mean, covariance + 1e-12 * torch.eye(4, dtype=torch.float64))
    torch.manual_seed(0)
    probs = reference.sample((count,)).softmax(2)
    # a probability of one draw deviates by at most 1/2: five standard errors of the difference of two means
    torch.testing.assert_close(found.value, probs.mean(0), rtol=0, atol=5 * 0.5 * math.sqrt(2 / count))
    torch.testing.assert_close(found.epistemic, probs.var(0), rtol=0, atol=5 * 0.25 * math.sqrt(2 / count))


@pytest.mark.parametrize("link", ["probit", "mc"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_examples_with_equal_outputs_have_equal_predictions(name: str, link: str) -> None:
    mean, covariance = gaussian(2, 3)
    again = torch.tensor([0, 1, 0, 0])
    found = from_gaussian(LIKELIHOODS[name](), mean[again], covariance[again], link=link)
    alone = from_gaussian(LIKELIHOODS[name](), mean[:1], covariance[:1], link=link)
    for n in (0, 2, 3):
        assert_close(found.epistemic[n], alone.epistemic[0])
        assert_close(found.mutual_information[n], alone.mutual_information[0])
        assert_close(found.value[n], alone.value[0])


alphas = st.lists(st.floats(0.05, 500.0), min_size=2, max_size=6)


def logits_of(alpha: Tensor) -> tuple[Tensor, Tensor]:  # (C,) -> (C,), (C, C)
    """Return the Gaussian that Laplace's approximation makes of a Dirichlet in the softmax basis (MacKay 1998)."""
    count, inverse = len(alpha), 1 / alpha
    mean = alpha.log() - alpha.log().mean()
    cross = (inverse[:, None] + inverse) / count
    return mean, inverse.diag() - cross + inverse.sum() / count**2


@settings(max_examples=200, deadline=None)
@given(alphas)
def test_the_bridge_finds_the_dirichlet_that_a_gaussian_comes_from(values: list[float]) -> None:
    alpha = torch.tensor(values, dtype=torch.float64)
    mean, covariance = logits_of(alpha)
    found = from_gaussian(Classification(), mean.unsqueeze(0), covariance.unsqueeze(0), link="bridge")
    check_dirichlet(found, alpha)


@settings(max_examples=50, deadline=None)
@given(alphas, st.floats(-3, 3), st.floats(0.01, 10))
def test_the_bridge_does_not_see_a_constant_added_to_all_logits(
    values: list[float], shift: float, variance: float
) -> None:
    alpha = torch.tensor(values, dtype=torch.float64)
    mean, covariance = logits_of(alpha)
    found = from_gaussian(
        Classification(), mean.unsqueeze(0) + shift, covariance.unsqueeze(0) + variance, link="bridge"
    )
    check_dirichlet(found, alpha)


def test_the_bridge_is_not_spoiled_by_the_rounding_of_logits_that_sum_to_0() -> None:
    alpha = torch.randint(1, 20, (20_000, 5), generator=torch.Generator().manual_seed(0)).double()
    mean, covariance = (part.float() for part in torch.vmap(logits_of)(alpha))
    found = from_gaussian(Classification(), mean, covariance, link="bridge").value
    torch.testing.assert_close(found.double(), alpha / alpha.sum(1, keepdim=True), rtol=1e-4, atol=0)


def check_dirichlet(found: Prediction, alpha: Tensor) -> None:
    """Compare with the moments of torch's Dirichlet and the textbook entropy of a draw from it."""
    dirichlet = Dirichlet(alpha)
    probs, total = alpha / alpha.sum(), alpha.sum()
    assert_close(found.value[0], probs, rtol=1e-7)
    assert_close(found.value[0], dirichlet.mean, rtol=1e-7)
    assert_close(found.epistemic[0], dirichlet.variance, rtol=1e-7)
    entropy = -(probs * probs.log()).sum()
    within = -(probs * (torch.digamma(alpha + 1) - torch.digamma(total + 1))).sum()
    assert float(found.entropy[0]) == pytest.approx(float(entropy), rel=1e-7)
    assert float(found.mutual_information[0]) == pytest.approx(float(entropy - within), rel=1e-6, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 500.0), st.floats(0.05, 500.0)), min_size=1, max_size=4))
def test_the_multilabel_bridge_finds_the_beta_that_a_gaussian_comes_from(values: list[tuple[float, float]]) -> None:
    no, yes = torch.tensor(values, dtype=torch.float64).T
    # the logit of a Beta: mode log(a / b), variance 1/a + 1/b there
    mean, variance = (yes / no).log(), 1 / yes + 1 / no
    found = from_gaussian(MultiLabel(), mean.unsqueeze(0), variance.diag().unsqueeze(0), link="bridge")
    beta = Beta(yes, no)
    assert_close(found.value[0], beta.mean, rtol=1e-7)
    assert_close(found.epistemic[0], beta.variance, rtol=1e-7)


def test_the_bridge_is_close_to_many_draws_where_a_dirichlet_fits() -> None:
    alpha = torch.tensor([[20.0, 30.0, 50.0], [100.0, 10.0, 200.0], [40.0, 40.0, 40.0]], dtype=torch.float64)
    mean, covariance = (torch.stack(part) for part in zip(*map(logits_of, alpha), strict=True))
    joined = from_gaussian(Classification(), mean, covariance, link="bridge")
    drawn = from_gaussian(Classification(), mean, covariance, link="mc", samples=20_000)
    torch.testing.assert_close(joined.value, drawn.value, rtol=0, atol=0.01)
    torch.testing.assert_close(joined.epistemic, drawn.epistemic, rtol=0.2, atol=0)


def regression(examples: int = 4, outputs: int = 3, *, likelihood: Regression | None = None) -> Prediction:
    return from_gaussian(likelihood or Regression(), *gaussian(examples, outputs))


def test_the_variance_of_a_regression_is_that_of_output_and_noise() -> None:
    mean, covariance = gaussian(4, 3)
    found = regression()
    assert found.mean is not None
    assert found.probs is None
    assert torch.equal(found.value, mean)
    assert torch.equal(found.plain, mean)
    assert_close(found.epistemic, covariance.diagonal(dim1=1, dim2=2))
    assert_close(found.aleatoric, torch.full((4, 3), 0.49, dtype=torch.float64))
    assert_close(found.variance, covariance.diagonal(dim1=1, dim2=2) + 0.49)
    assert_close(found.std, found.variance.sqrt())


def test_a_noise_for_each_output_is_its_own_aleatoric_part() -> None:
    found = regression(likelihood=Regression(noise=[0.5, 2.0, 1.5]))
    expected = (NOISE["regression"] * torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64)) ** 2
    assert_close(found.aleatoric, expected.expand(4, 3))


@pytest.mark.parametrize("scales", [None, [0.5, 2.0, 1.5]])
def test_entropies_of_a_regression_are_those_of_gaussians(scales: list[float] | None) -> None:
    mean, covariance = gaussian(4, 3)
    noise = (NOISE["regression"] * torch.tensor(scales or [1.0] * 3, dtype=torch.float64)).square().diag()
    found = from_gaussian(Regression(noise=scales), mean, covariance)
    known = MultivariateNormal(mean, noise).entropy()
    entropy = MultivariateNormal(mean, covariance + noise).entropy()
    assert_close(found.entropy, entropy)
    assert_close(found.mutual_information, entropy - known)


def test_regression_from_samples_has_their_mean_and_covariance() -> None:
    samples = normal(30, 4, 3)
    found = from_samples(Regression(), samples)
    assert_close(found.mean, samples.mean(0))
    assert_close(found.epistemic, samples.var(0))
    covariance = torch.stack([torch.cov(samples[:, n].T) for n in range(4)])
    noise = 0.49 * torch.eye(3, dtype=torch.float64)
    expected = MultivariateNormal(samples.mean(0), covariance + noise).entropy()
    assert_close(found.entropy, expected)
    assert found.samples is not None
    assert torch.equal(found.samples, samples)
    single = from_samples(Regression(), samples[:1])  # one network knows nothing of its uncertainty
    assert not single.epistemic.any()


@given(st.floats(0.001, 0.999))
def test_quantiles_are_those_of_a_gaussian(q: float) -> None:
    found = regression()
    assert found.mean is not None
    assert_close(found.quantile(q), Normal(found.mean, found.std).icdf(torch.tensor(q, dtype=torch.float64)))


@given(st.floats(0.01, 0.99))
def test_a_gaussian_interval_is_symmetric_and_holds_what_it_says(coverage: float) -> None:
    found = regression()
    low, high = found.gaussian_interval(coverage)
    assert found.mean is not None
    assert_close((low + high) / 2, found.mean)
    density = Normal(found.mean, found.std)
    assert_close(density.cdf(high) - density.cdf(low), torch.full((4, 3), coverage, dtype=torch.float64), rtol=1e-8)


def test_the_default_gaussian_interval_holds_95_percent() -> None:
    low, high = regression().gaussian_interval()
    assert_close(high - low, 2 * 1.959963984540054 * regression().std)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_quantiles_outside_0_and_1_are_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1, got"):
        regression().quantile(q)


def test_questions_of_the_other_kind_are_refused() -> None:
    classes = from_gaussian(Classification(), *gaussian(4, 3))
    with pytest.raises(ValueError, match="quantiles are of regression"):
        classes.quantile(0.5)
    with pytest.raises(ValueError, match="quantiles are of regression"):
        classes.gaussian_interval()
    for name in ("labels", "confidence", "normalised_entropy"):
        with pytest.raises(ValueError, match=r"regression prediction: it has \.mean"):
            getattr(regression(), name)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("name", WITH_THREE_OUTPUTS)
def test_columns_have_one_row_for_each_example(name: str, outputs: int) -> None:
    if name == "classification":
        outputs += 1
    prediction = from_gaussian(LIKELIHOODS[name](), *gaussian(5, outputs))
    columns = prediction.columns()
    assert all(len(column) == 5 for column in columns.values())
    assert all(isinstance(value, float | int) for column in columns.values() for value in column)
    kind = "mean" if name == "regression" else "prob"
    for index in range(outputs):
        assert columns[f"{kind}_{index}"] == prediction.value[:, index].tolist()
        assert columns[f"epistemic_{index}"] == prediction.epistemic[:, index].tolist()
        assert columns[f"aleatoric_{index}"] == prediction.aleatoric[:, index].tolist()
    assert columns["entropy_nats"] == prediction.entropy.tolist()
    assert columns["mutual_information_nats"] == prediction.mutual_information.tolist()
    assert ("label" in columns) == ("confidence" in columns) == (name != "regression")
    if name != "regression":
        assert columns["label"] == prediction.labels.tolist()


@pytest.mark.parametrize("name", WITH_THREE_OUTPUTS)
@pytest.mark.parametrize("way", ["gaussian", "samples"])
def test_joined_predictions_are_the_prediction_of_all(way: str, name: str) -> None:
    likelihood = LIKELIHOODS[name]()
    mean, covariance = gaussian(7, 3)
    drawn = normal(6, 7, 3)

    def predict(part: slice) -> Prediction:
        if way == "gaussian":
            return from_gaussian(likelihood, mean[part], covariance[part], link="mc")
        return from_samples(likelihood, drawn[:, part])

    joined, whole = (
        join_predictions([predict(slice(0, 3)), predict(slice(3, 4)), predict(slice(4, 7))]),
        predict(slice(0, 7)),
    )
    held: dict[str, Any] = vars(whole)
    for field, value in held.items():
        if isinstance(value, Tensor):
            assert_close(getattr(joined, field), value)
    assert len(joined) == 7
    assert (joined.samples is None) == (whole.samples is None)
    if name != "regression":
        assert joined.max_entropy == whole.max_entropy


def test_novelty_as_columns_names_the_first_of_the_strangest_layers() -> None:
    by_layer = torch.tensor([[0.1, 0.9, 0.9], [1.0, 0.2, 1.0]])
    novelty = Novelty(torch.tensor([0.4, 0.96]), torch.rand(2, 1), by_layer, ("head",), ("a", "b", "c"))
    assert novelty.strangest_layers == ["b", "a"]
    assert novelty.columns() == {
        "novelty": novelty.novelty.tolist(),
        "novel": [False, True],
        "strangest_layer": ["b", "a"],
    }
    prediction = from_gaussian(Classification(), *gaussian(2, 3))
    found = replace(prediction, input_novelty=novelty).columns()
    assert found == prediction.columns() | novelty.columns()


def test_inputs_and_layers_beyond_all_known_ones_are_ordered_by_the_fitted_tail() -> None:
    ones = torch.ones(2, 1)
    log_p = torch.tensor([[-40.0, -30.0, -30.0, -90.0], [-50.0, -30.0, -80.0, -20.0]])
    novelty = Novelty(ones[:, 0], ones, ones.expand(-1, 2), ("head",), ("a", "b"), log_p, "some known inputs")
    assert novelty.strangeness.argmax() == 1
    assert novelty.strangest_layers == ["b", "a"]
    read = Novelty.of(novelty.tensors())
    assert (read.strangest_layers, read.source) == (["b", "a"], "some known inputs")
    assert select_examples(novelty, torch.tensor([1])).strangest_layers == ["a"]
    prediction = replace(from_gaussian(Classification(), *gaussian(2, 3)), input_novelty=novelty)
    assert Prediction.of(prediction.tensors()).novelty_source == "some known inputs"
