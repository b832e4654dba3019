"""Where the score hardly depends on τ, the uncertainty stays: the smallest τ that is as good is taken."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.tuning.choice import Scored, smallest_as_good
from infoform.tuning.losses import Terms

Data = list[tuple[Tensor, Tensor]]
pytestmark = pytest.mark.filterwarnings("ignore:the best prior_precision")


def scored(tau: float, losses: Tensor) -> Scored:
    terms = Terms(losses.double().unsqueeze(1))
    return Scored(tau, terms.score(), terms)


def test_the_smallest_within_a_standard_error_is_taken() -> None:
    torch.manual_seed(0)
    base, noise = torch.rand(400), torch.randn(400)
    noise = (noise - noise.mean()) / noise.std()  # so that its error of the mean is 1/20
    trials = [
        scored(1e-2, base + 0.2 + noise),  # four errors away
        scored(1.0, base + 0.04 + noise),  # less than one
        scored(1e2, base),
        scored(math.inf, base + 0.001),
    ]
    assert smallest_as_good(trials, standard_errors=1.0, seed=0) == 1
    assert smallest_as_good(trials, standard_errors=0.0, seed=0) == 2
    assert smallest_as_good(trials, standard_errors=10.0, seed=0) == 0


def test_the_network_alone_is_a_rival_but_no_choice() -> None:
    base = torch.rand(50)
    trials = [scored(1.0, base + 1), scored(10.0, base + 0.5), scored(math.inf, base)]
    assert smallest_as_good(trials, standard_errors=1.0, seed=0) == 1


def test_a_difference_below_a_thousandth_counts_for_nothing() -> None:
    """A posterior that costs every example the same has no error of its cost: only the largest τ would be as good."""
    base = torch.rand(200)
    trials = [scored(10.0**power, base + 0.05 / 10**power) for power in range(6)] + [scored(math.inf, base)]
    assert smallest_as_good(trials, standard_errors=1.0, seed=0) == 2
    assert smallest_as_good(trials, standard_errors=0.0, seed=0) == 5


def cautious() -> tuple[nn.Module, Data, Data, Tensor]:
    """Return a network that is not over-confident, since it was trained shortly, and inputs far from its data."""
    torch.manual_seed(0)
    x = torch.randn(900, 8)
    y = (x[:, :3] @ torch.randn(3, 4) + 0.5 * torch.randn(900, 4)).argmax(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:600]), y[:600]).backward()
        optimizer.step()
    return model, [(x[:600], y[:600])], [(x[600:], y[600:])], 10 * torch.randn(200, 8)


def test_a_classifier_stays_uncertain_far_from_its_data() -> None:
    model, train, validation, far = cautious()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    laplace.tune(validation, progress=False)
    scores = [trial.scores["nll"] for trial in laplace.trials]
    assert max(scores[14:]) - min(scores[14:]) < 0.01  # flat over six decades
    known, unknown = laplace.predict(validation[0][0]), laplace.predict(far)
    assert float(unknown.mutual_information.mean()) > 0.05
    assert float(unknown.mutual_information.mean()) > 2 * float(known.mutual_information.mean())
    assert "was taken" in laplace.tuning_note
    laplace.tune(validation, standard_errors=0, progress=False)
    assert float(laplace.predict(far).mutual_information.mean()) < float(unknown.mutual_information.mean())


@pytest.mark.parametrize("structure", ["inf", "diag", "kfac"])
def test_a_posterior_that_costs_a_little_on_every_example_is_not_erased(structure: str) -> None:
    """An under-confident network is made worse by any posterior, a little and everywhere."""
    torch.manual_seed(1)
    x = torch.cat([torch.randn(60, 3) + shift for shift in (0.0, 2.0, 4.0)])
    y = torch.arange(3).repeat_interleave(60)
    order = torch.randperm(180)
    x, y = x[order], y[order]
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:90]), y[:90]).backward()
        optimizer.step()
    laplace = infoform.Laplace(model, "classification", structure=structure).fit([(x[:90], y[:90])], progress=False)
    laplace.tune([(x[90:], y[90:])], progress=False)
    assert laplace.plain_trial is not None
    least = min(trial.scores["nll"] for trial in [*laplace.trials, laplace.plain_trial])
    taken = next(one for one in laplace.trials if one.prior_precision == laplace.prior_precision)
    smaller = [one.scores["nll"] for one in laplace.trials if one.prior_precision < taken.prior_precision]
    assert all(score - least > 1e-3 for score in smaller[-1:])  # else the next smaller τ would have been as good
    assert float(laplace.predict(x[90:] * 10).mutual_information.mean()) > 1e-4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_regression_stays_uncertain_far_from_its_data(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.rand(300, 1) * 2 - 1
    y = torch.sin(3 * x) + 0.1 * torch.randn(300, 1)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(400):
        optimizer.zero_grad()
        functional.mse_loss(model(x[:150]), y[:150]).backward()
        optimizer.step()
    laplace = infoform.Laplace(model, "regression").fit([(x[:150], y[:150])], progress=False)
    laplace.tune([(x[150:], y[150:])], progress=False)
    inside, outside = laplace.predict(x[150:]), laplace.predict(torch.full((1, 1), 20.0))
    assert float(outside.std) > 3 * float(inside.std.mean())
