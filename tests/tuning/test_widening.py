"""A search goes on beyond an end of its range where the score still improves there, and says so."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import infoform
from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.losses import Terms
from infoform.tuning.scorer import Profile
from infoform.tuning.widening import improving_end, widened

Data = list[tuple[Tensor, Tensor]]
TINY = 1e-5  # scale of inputs, for which the weights, and their deviations, have to be as large


def profile(losses: Tensor) -> Profile:  # (N,)
    return Profile(RawOutputs(torch.zeros(len(losses), 1)), 1.0, Terms(losses.double().unsqueeze(1)))


def test_a_score_improves_at_an_end_by_more_than_its_error() -> None:
    torch.manual_seed(0)
    base, noise = torch.rand(400), torch.randn(400)
    noise = (noise - noise.mean()) / noise.std()  # so that its error of the mean is 1/20
    falling, plain = [profile(base), profile(base + 0.06 + noise), profile(base + 1)], profile(base + 2)
    assert improving_end(falling, plain) == -1
    assert improving_end(falling[::-1], plain) == 1
    within_an_error = [profile(base), profile(base + 0.04 + noise), profile(base + 1)]
    assert improving_end(within_an_error, plain) == 0
    hardly_at_all = [profile(base), profile(base + 1e-4), profile(base + 1)]
    assert improving_end(hardly_at_all, plain) == 0
    inside = [profile(base + 1), profile(base), profile(base + 1)]
    assert improving_end(inside, plain) == 0


def test_the_network_alone_is_the_limit_of_the_upper_end() -> None:
    base = torch.rand(50)
    rising = [profile(base + 1), profile(base)]
    assert improving_end(rising, profile(base - 0.1)) == 0
    assert improving_end(rising, profile(base + 0.1)) == 1


def test_a_wider_grid_has_the_same_distances() -> None:
    assert widened([1.0, 10.0, 100.0], -1) == pytest.approx([1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0])
    assert widened([1.0, 10.0, 100.0], 1) == pytest.approx([1.0, 10.0, 100.0, 1e3, 1e4, 1e5])


def over_fitted() -> tuple[infoform.Laplace, Data]:
    """Return a regression on tiny inputs that fits its noise: it needs a wide posterior, at a τ below the range."""
    generator = torch.Generator().manual_seed(0)
    x = TINY * torch.randn(200, 20, generator=generator, dtype=torch.float64)
    y = x[:, :1] / TINY + torch.randn(200, 1, generator=generator, dtype=torch.float64)
    model = nn.Linear(20, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(x[:25], y[:25]).solution.T)
    laplace = infoform.Laplace(model, "regression", structure="full").fit([(x[:25], y[:25])], progress=False)
    return laplace, [(x[25:], y[25:])]


def test_a_search_goes_on_beyond_its_range_and_says_so(tmp_path: Path) -> None:
    laplace, validation = over_fitted()
    path = tmp_path / "trials.json"
    laplace.tune(validation, noise="residuals", path=path, progress=False)
    assert len(laplace.trials) == 33
    assert laplace.trials[0].prior_precision == pytest.approx(1e-10)
    assert "widened to 1e-10" in laplace.tuning_note
    scores = {trial.prior_precision: trial.scores["nll"] for trial in laplace.trials}
    assert isinstance(laplace.prior_precision, float)
    assert laplace.prior_precision < 1e-7
    assert scores[laplace.prior_precision] < min(score for tau, score in scores.items() if tau >= 1e-7)
    assert json.loads(path.read_text())["widened"] == pytest.approx([1e-10, 1e6])
    found = (laplace.prior_precision, laplace.trials, laplace.tuning_note)
    laplace.tune(validation, noise="residuals", path=path, progress=False)  # reads what was found
    assert (laplace.prior_precision, laplace.trials, laplace.tuning_note) == found


def test_a_range_that_was_given_is_kept() -> None:
    laplace, validation = over_fitted()
    with pytest.warns(UserWarning, match="at an end of the searched range"):
        laplace.tune(validation, noise="residuals", prior_precision=(1e-6, 1e6), progress=False)
    assert min(trial.prior_precision for trial in laplace.trials) == pytest.approx(1e-6)
    assert "widened" not in laplace.tuning_note
