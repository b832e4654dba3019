"""What every baseline of the table does alike is tested in the files of each; here, what the abstract classes do."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from infoform import Classification, Likelihood, MultiLabel, Regression
from infoform.baselines import BASELINES, Baseline, WeightBaseline
from infoform.baselines.baseline import Bar, log_density


class Shifted(WeightBaseline):
    """A network that is not trained, and whose bias is drawn: 0, 1, 2, ..."""

    name = "shifted"

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        network.train()  # as most trainings leave it

    def _draw(self, count: int, seed: int) -> dict[str, Tensor]:
        return {"0.bias": torch.arange(float(count)).reshape(count, 1).expand(count, 2).double() + seed}


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if bool(x.sum() > 0) else 2 * x


def model(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), *more).double()


X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.randn(6, 2, generator=torch.Generator().manual_seed(1)).double()


def test_the_table_holds_final_classes_by_their_names() -> None:
    for name, kind in BASELINES.items():
        assert kind.name == name
        assert not getattr(kind, "__abstractmethods__", None)
        assert not kind.__subclasses__()
        assert issubclass(kind, Baseline)


@pytest.mark.parametrize("more", [nn.Identity(), nn.Dropout(0.5), Branching()])
def test_predictions_are_those_of_the_drawn_networks(more: nn.Module) -> None:
    network = model(more)
    baseline = Shifted(network, Regression(0.5)).fit([(X, Y)], progress=False)
    prediction = baseline.predict(X, samples=4, seed=1)
    network.eval()
    outputs = []
    for shift in (1.0, 2.0, 3.0, 4.0):
        weights = {"0.bias": torch.full((2,), shift).double()}
        outputs.append(torch.func.functional_call(network, weights, (X,)))
    drawn = torch.stack(outputs).detach()
    assert_close(prediction.samples, drawn)
    assert_close(prediction.mean, drawn.mean(0))
    assert_close(prediction.epistemic, drawn.var(0))
    assert_close(prediction.aleatoric, torch.full_like(Y, 0.25))
    assert_close(prediction.plain, network(X).detach())


def test_large_batches_and_many_networks_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = Shifted(model(), Regression(0.5)).fit([(X, Y)], progress=False)
    whole = baseline.predict(X, samples=7).samples
    monkeypatch.setattr("infoform.baselines.baseline.VMAP_NUMBERS", 70)  # 2 networks at a time
    assert_close(baseline.predict(X, samples=7).samples, whole)
    monkeypatch.setattr("infoform.baselines.baseline.VMAP_WEIGHTS", 1)  # one by one
    assert_close(baseline.predict(X, samples=7).samples, whole)


def test_a_loader_is_predicted_as_one_batch_with_its_targets() -> None:
    baseline = Shifted(model(), Regression(0.5)).fit([(X, Y)], progress=False)
    whole, targets = baseline.predict_loader([(X[:4], Y[:4]), (X[4:], Y[4:])], samples=3, progress=False)
    assert_close(whole.samples, baseline.predict(X, samples=3).samples)
    assert_close(targets, Y)
    _, none = baseline.predict_loader([(X[:4], Y[:4]), X[4:]], samples=3, progress=False)
    assert none is None


def test_the_noise_is_fitted_to_the_residuals_where_nobody_knows_it() -> None:
    network = model()
    baseline = Shifted(network, "regression").fit([(X[:2], Y[:2]), (X[2:], Y[2:])], progress=False)
    assert baseline.noise == pytest.approx(float((network(X).detach() - Y).square().mean().sqrt()))
    assert Shifted(network, Regression(0.3)).fit([], progress=False).noise == 0.3
    assert Shifted(network, "classification").fit([], progress=False).noise is None


@pytest.mark.parametrize("noise", [0.3, [0.3, 2.0]])
def test_the_log_density_at_a_noise_is_that_of_torch_distributions(noise: Any) -> None:
    likelihood = Regression(noise)
    outputs = model()(X).detach()
    scale = torch.tensor(noise, dtype=torch.float64) * torch.ones(2).double()
    expected = torch.distributions.Normal(outputs, 1.7 * scale).log_prob(Y).sum(1)
    sigma = torch.tensor(1.7 * float(likelihood.noise or 1), dtype=torch.float64)
    assert_close(log_density(likelihood, outputs, Y, sigma), expected)


@pytest.mark.parametrize("likelihood", [Classification(), MultiLabel()])
def test_the_log_density_without_noise_is_the_likelihoods(likelihood: Likelihood) -> None:
    outputs = model()(X).detach()
    targets = torch.tensor([0, 1, 1, 0, 1, 0]) if isinstance(likelihood, Classification) else Y.sigmoid()
    assert_close(log_density(likelihood, outputs, targets, None), likelihood.log_prob(outputs, targets))


def test_misuse_is_named() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got str"):
        Shifted("model", "regression")  # type: ignore[arg-type]
    baseline = Shifted(model(), "regression")
    with pytest.raises(RuntimeError, match="this Shifted is not fitted yet"):
        baseline.sample(3)
    with pytest.raises(ValueError, match="training needs targets, got inputs alone"):
        baseline.fit([X], progress=False)
    baseline.fit([(X, Y)], progress=False)
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1, got 0"):
        baseline.predict(X, samples=0)
    with pytest.raises(ValueError, match="at least one example to predict"):
        baseline.predict(X[:0])
    with pytest.raises(ValueError, match="the loader gave no examples to predict"):
        baseline.predict_loader([], progress=False)
