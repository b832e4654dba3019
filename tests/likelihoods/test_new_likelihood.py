"""A likelihood of one's own, here for counts: a name and three methods; all else has a default."""

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Poisson
from torch.testing import assert_close

import infoform
from flat import flat_laplace
from infoform.baselines import Ensemble
from infoform.likelihoods import LIKELIHOODS, Likelihood, Regression
from infoform.prediction import Prediction

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
]


class Counts(Likelihood):
    """Counts with rate exp(f), independent given f."""

    name: ClassVar[str] = "counts"

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        density: Tensor = Poisson(outputs.exp()).log_prob(targets)
        return density.sum(1)

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        counts = torch.arange(200, dtype=torch.float64).reshape(-1, 1, 1)
        below: Tensor = Poisson(outputs.double().exp()).log_prob(counts).exp().cumsum(0)
        return (below < uniforms).sum(0).to(outputs)

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        rates = samples.exp()
        epistemic, aleatoric = rates.var(0, correction=0), rates.mean(0)
        information = 0.5 * (1 + epistemic / aleatoric).log().sum(1)
        entropy = information + 0.5 * (2 * torch.pi * torch.e * aleatoric).log().sum(1)
        return Prediction(epistemic, aleatoric, entropy, information, plain, mean=rates.mean(0), samples=rates)


def data() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(60, 3, dtype=torch.float64)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double(), x, torch.poisson(x[:, :2].exp())


def test_the_score_is_the_gradient_of_the_density() -> None:
    outputs, targets = torch.randn(6, 2, dtype=torch.float64), torch.arange(12.0, dtype=torch.float64).reshape(6, 2)
    assert_close(Counts().score(outputs, targets), targets - outputs.exp())


def test_sampled_targets_have_the_mean_of_the_model() -> None:
    outputs = torch.tensor([[0.5, 1.5]], dtype=torch.float64).expand(20_000, 2)
    uniforms = torch.rand(20_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = Counts().sample_targets(outputs, uniforms)
    assert_close(drawn.mean(0), outputs[0].exp(), rtol=0.03, atol=0)


@pytest.mark.parametrize("kind", ["linear", "mc", "linear-mc"])
def test_it_is_fitted_tuned_and_predicted(kind: str) -> None:
    model, x, y = data()
    laplace = infoform.Laplace(model, Counts()).fit([(x, y)], progress=False).tune(progress=False)
    prediction, targets = laplace.predict_loader([(x, y)], kind=kind, samples=20, progress=False)
    assert targets is not None
    assert prediction.answer == "numbers"
    assert laplace.likelihood.scores(prediction, targets)["rmse"] < float(y.std()) * 2
    assert bool((prediction.epistemic > 0).all())
    plain = laplace.likelihood.plain_prediction(prediction.plain, noise=laplace.noise)
    assert_close(plain.mean, prediction.plain.exp())
    assert float(plain.epistemic.max()) == 0
    chosen = infoform.acquire(laplace, [x], 4, samples=10, progress=False)
    assert len(chosen.unique()) == 4


def test_it_is_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = data()
    laplace = infoform.Laplace(model, Counts()).fit([(x, y)], progress=False)
    laplace.save(tmp_path / "counts.infoform")
    given = infoform.load(tmp_path / "counts.infoform", model, likelihood=Counts())
    assert_close(given.predict(x).mean, laplace.predict(x).mean)
    monkeypatch.setitem(LIKELIHOODS, "counts", Counts)
    assert_close(infoform.load(tmp_path / "counts.infoform", model).predict(x).mean, laplace.predict(x).mean)


def test_a_baseline_is_trained_with_it() -> None:
    model, x, y = data()
    ensemble = Ensemble(model, Counts(), members=2, epochs=1).fit([(x, y)], progress=False)
    assert ensemble.predict(x).answer == "numbers"


def test_what_it_does_not_have_is_said() -> None:
    model, x, y = data()
    with pytest.raises(ValueError, match="counts likelihood has no exact root of its Fisher matrix; use fisher='mc'"):
        flat_laplace(model, Counts(), fisher="exact").fit([(x, y)], progress=False)
    with pytest.raises(ValueError, match=r"noise is for regression, got 0\.5 for the counts likelihood"):
        Counts().with_noise(0.5)
    with pytest.raises(ValueError, match="one target for each of its 60 examples"):
        flat_laplace(model, Counts(), fisher="empirical").fit([(x, y[:3])], progress=False)
    assert Regression().with_noise(0.5).noise == 0.5
