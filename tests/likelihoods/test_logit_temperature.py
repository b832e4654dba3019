"""A temperature divides the logits of every prediction, and nothing else; it is checked, saved and loaded."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
from infoform.likelihoods import LINKS, GaussianOutputs
from infoform.network.batches import read_inputs
from infoform.predicting.predictor import KINDS

SAMPLES = 7
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
    pytest.mark.filterwarnings("ignore:networks with sampled weights"),  # nothing is trained here
]


def fitted(likelihood: str) -> tuple[infoform.Laplace, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(30, 4, dtype=torch.float64)
    targets: dict[str, Tensor] = {
        "classification": torch.randint(3, (30,)),
        "multilabel": torch.randint(2, (30, 3)).double(),
        "regression": torch.randn(30, 3, dtype=torch.float64),
    }
    laplace = infoform.Laplace(model, likelihood).fit([(x, targets[likelihood])], progress=False)
    return laplace, x


def links(kind: str) -> tuple[str, ...]:
    return LINKS if kind == "linear" else ("mc",)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
@pytest.mark.parametrize(("kind", "link"), [(kind, link) for kind in KINDS for link in links(kind)])
@pytest.mark.parametrize("likelihood", ["classification", "multilabel"])
def test_a_temperature_is_a_network_with_smaller_logits(
    likelihood: str, kind: str, link: str, temperature: float
) -> None:
    laplace, x = fitted(likelihood)
    options: dict[str, Any] = {"kind": kind, "link": link, "samples": SAMPLES, "seed": 3}
    predictor = laplace._predictor()
    generator = torch.Generator().manual_seed(3)
    if kind == "linear":
        mean, covariance = predictor.linear(read_inputs(x, x.device))
        scaled = GaussianOutputs(mean / temperature, covariance / temperature**2, samples=SAMPLES, seed=3)
        expected = laplace.likelihood.from_gaussian(scaled, noise=None, link=link)
    else:
        batch = read_inputs(x, x.device)
        (drawn,) = predictor.sampled(linear=kind == "linear-mc").outputs([batch], samples=SAMPLES, generator=generator)
        expected = laplace.likelihood.from_samples(drawn / temperature, predictor.outputs(batch), noise=None)
    laplace.temperature = temperature
    found = laplace.predict(x, **options)
    whole, _ = laplace.predict_loader([x[:11], x[11:]], **options, progress=False)
    for name in ("value", "epistemic", "entropy", "mutual_information"):
        assert_close(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-12)
        assert_close(getattr(whole, name), getattr(expected, name), rtol=1e-9, atol=1e-12)
    assert_close(found.plain, laplace.model(x).detach())  # the trained network's own outputs


def test_a_high_temperature_knows_nothing_and_a_low_one_all() -> None:
    laplace, x = fitted("classification")
    laplace.prior_precision = 1e9
    laplace.temperature = 1e6
    assert_close(laplace.predict(x).value, torch.full((30, 3), 1 / 3, dtype=torch.float64), rtol=0, atol=1e-4)
    laplace.temperature = 1e-6
    assert_close(laplace.predict(x).confidence, torch.ones(30, dtype=torch.float64), rtol=0, atol=1e-6)
    assert torch.equal(laplace.predict(x).labels, laplace.model(x).argmax(1))


def test_greedy_batches_are_chosen_at_the_temperature() -> None:
    laplace, x = fitted("classification")
    laplace.temperature = 2.0
    found = infoform.acquire(laplace, [x], 1, by="mutual_information", kind="mc", samples=20, seed=1, progress=False)
    scores = laplace.predict(x, kind="mc", samples=20, seed=1).mutual_information
    assert int(found[0]) == int(scores.argmax())


def test_a_temperature_is_saved_and_loaded(tmp_path: Path) -> None:
    laplace, x = fitted("classification")
    laplace.temperature = 1.7
    laplace.save(tmp_path / "posterior.safetensors")
    loaded = infoform.load(tmp_path / "posterior.safetensors", laplace.model)
    assert loaded.temperature == 1.7
    assert torch.equal(loaded.predict(x).value, laplace.predict(x).value)


def test_it_is_one_unless_it_was_set_and_a_fit_or_evidence_leaves_it() -> None:
    laplace, x = fitted("classification")
    assert laplace.temperature == 1.0
    before = laplace.predict(x)
    laplace.temperature = 1
    assert torch.equal(laplace.predict(x).value, before.value)
    laplace.temperature = 1.5
    laplace.tune()
    assert laplace.temperature == 1.5


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.inf, math.nan, "2", True, None])
def test_what_is_no_temperature_is_refused_and_the_object_stays(value: Any) -> None:
    laplace, _ = fitted("classification")
    laplace.temperature = 1.5
    with pytest.raises(ValueError, match="temperature must be a positive number, got"):
        laplace.temperature = value
    assert laplace.temperature == 1.5


def test_regression_has_no_logits() -> None:
    laplace, _ = fitted("regression")
    laplace.temperature = 1.0
    with pytest.raises(ValueError, match="the outputs of the regression likelihood are none, got 2"):
        laplace.temperature = 2.0
