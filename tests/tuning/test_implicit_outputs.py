"""Tuning with many outputs of a last layer: scores are those of predictions, whatever is held in memory."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform import Laplace

CLASSES = 70


def tuned(link: str) -> tuple[Laplace, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()
    x = torch.randn(160, 6, dtype=torch.float64)
    y = torch.where(torch.rand(160) < 0.6, model(x).argmax(1), torch.randint(CLASSES, (160,)))
    laplace = Laplace(model, "classification", layers="last").fit([(x[:80], y[:80])], progress=False)
    held_out = [(x[80:130], y[80:130]), (x[130:], y[130:])]
    laplace.tune(held_out, link=link, trials=9, prior_precision=(1e-2, 1e6), progress=False)
    return laplace, held_out


@pytest.mark.parametrize("part", ["whole", "third", "nothing"])
@pytest.mark.parametrize("link", ["mc", "probit", "bridge"])
def test_scores_are_those_of_predictions(link: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [trial.temperature for trial in tuned(link)[0].trials]
    all_draws = 80 * CLASSES * 100 * 8
    held = {"whole": all_draws, "third": all_draws // 3, "nothing": 1}[part]
    monkeypatch.setattr("infoform.predicting.implicit_outputs.HELD_BYTES", held)
    laplace, held_out = tuned(link)
    for trial in laplace.trials[::4]:
        laplace.prior_precision, laplace.temperature = trial.prior_precision, trial.temperature
        prediction, targets = laplace.predict_loader(held_out, link=link, progress=False)
        assert prediction.probs is not None
        assert targets is not None
        nll = float(functional.nll_loss(prediction.probs.log(), targets))
        assert abs(nll - trial.scores["nll"]) < 1e-9
    found = [trial.temperature for trial in laplace.trials]
    most = 0.25 if part == "third" and link == "mc" else 1e-9  # where it is searched on a third of the examples
    assert all(abs(one / other - 1) < most for one, other in zip(found, expected, strict=True))


def test_a_neighbours_temperature_leads_to_the_best_one() -> None:
    laplace, held_out = tuned("mc")
    for trial in laplace.trials[1::3]:
        laplace.prior_precision = trial.prior_precision
        for factor in (0.97, 1.03):
            laplace.temperature = factor * trial.temperature
            prediction, targets = laplace.predict_loader(held_out, progress=False)
            assert prediction.probs is not None
            assert targets is not None
            assert float(functional.nll_loss(prediction.probs.log(), targets)) > trial.scores["nll"] - 1e-6
