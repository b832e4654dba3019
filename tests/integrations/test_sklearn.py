"""The estimators keep scikit-learn's rules, learn, and tell the posterior's uncertainty in the targets' units."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from infoform.integrations.sklearn import InfClassifier, InfRegressor

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 60, "learning_rate": 0.03, "rank": 8}
FIXED: dict[str, Any] = {"hidden": (8,), "epochs": 15, "learning_rate": 0.1, "rank": 4, "tune": 10.0, "random_state": 0}


# without a search, for time; InfClassifier() and InfRegressor() pass too
@parametrize_with_checks([InfClassifier(**FIXED), InfRegressor(**FIXED)])  # type: ignore[untyped-decorator]
def test_rules_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_a_classifier_learns_and_knows_less_far_away() -> None:
    x, y = make_moons(200, noise=0.1, random_state=0)
    labels = np.array(["left", "right"])[y]
    model = InfClassifier(**SMALL | {"epochs": 200}, random_state=0).fit(x, labels)
    assert model.score(x, labels) > 0.9
    probs = model.predict_proba(x)
    np.testing.assert_allclose(probs.sum(1), 1)
    assert set(model.predict(x)) == {"left", "right"}
    near, far = model.predictive(x), model.predictive(20 * x)
    assert far.mutual_information.mean() > near.mutual_information.mean()


def test_the_same_seed_gives_the_same_and_the_global_one_is_left_alone() -> None:
    x, y = make_moons(30, noise=0.1, random_state=0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (InfClassifier(**SMALL, random_state=3).fit(x, y).predict_proba(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_probabilities_are_those_of_the_posterior() -> None:
    x, y = make_moons(50, noise=0.1, random_state=0)
    model = InfClassifier(**SMALL, random_state=0, tune=3.0).fit(x, y)
    assert model.laplace_.prior_precision == 3.0
    scaled = torch.tensor((x - x.mean(0)) / x.std(0))
    expected = model.laplace_.predict(scaled).probs
    assert expected is not None
    np.testing.assert_allclose(model.predict_proba(x), expected.numpy(), rtol=1e-9)


def test_novelty_is_that_of_the_posterior_and_tells_far_inputs() -> None:
    x, y = make_moons(200, noise=0.1, random_state=0)
    for model in (InfClassifier(**SMALL, random_state=0), InfRegressor(**SMALL, random_state=0)):
        model.fit(x, y.astype(float) if isinstance(model, InfRegressor) else y)
        novelty = model.novelty(x)
        assert novelty.shape == (200,)
        np.testing.assert_allclose(novelty, model.predictive(x).novelty.numpy(), rtol=1e-9)
        assert np.all((novelty >= 0) & (novelty <= 1))
        assert model.novelty(20 * x).mean() > 0.99 > novelty.mean()


def test_novelty_needs_a_fit_and_inputs_of_its_width() -> None:
    x, y = make_moons(50, noise=0.1, random_state=0)
    with pytest.raises(NotFittedError):
        InfClassifier().novelty(x)
    with pytest.raises(ValueError, match="3 features"):
        InfClassifier(**FIXED).fit(x, y).novelty(np.ones((2, 3)))


def _line(targets: int = 1) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (120, 1))
    y = 100 * np.sin(3 * x) + 10 * generator.normal(size=(120, targets)) + 1000
    return x, y[:, 0] if targets == 1 else y


def test_deviations_are_in_the_targets_units() -> None:
    x, y = _line()
    model = InfRegressor(**SMALL | {"epochs": 300}, random_state=0).fit(x, y)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (120,)
    assert model.score(x, y) > 0.9
    assert 7 < std.mean() < 20  # the noise is 10
    np.testing.assert_allclose(model.predict(x), mean)
    noise = model.laplace_.noise
    assert noise is not None
    prediction = model.predictive(x)
    expected = np.sqrt((noise * y.std()) ** 2 + prediction.epistemic[:, 0].numpy())
    np.testing.assert_allclose(std, expected, rtol=1e-9)
    _, beyond = model.predict(10 * x[np.abs(x[:, 0]) > 0.5], return_std=True)
    assert beyond.mean() > std.mean()


def test_several_targets() -> None:
    x, y = _line(targets=2)
    mean, std = InfRegressor(**SMALL, tune="evidence", random_state=0).fit(x, y).predict(x, return_std=True)
    assert mean.shape == std.shape == (120, 2)


def test_a_network_of_ones_own() -> None:
    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 7), nn.ReLU(), nn.Linear(7, outputs))

    x, y = make_moons(40, random_state=0)
    model = InfClassifier(network, **SMALL, random_state=0).fit(x, y)
    assert isinstance(model.module_, nn.Sequential)
    assert model.module_[0].out_features == 7


def test_pipelines_and_searches() -> None:
    x, y = make_moons(60, noise=0.1, random_state=0)
    pipeline = make_pipeline(StandardScaler(), InfClassifier(**SMALL, random_state=0, tune=1.0))
    search = GridSearchCV(pipeline, {"infclassifier__structure": ["diag", "inf"]}, cv=2, scoring="neg_log_loss")
    search.fit(x, y)
    assert search.best_params_["infclassifier__structure"] in ("diag", "inf")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tune": "guess"}, "tune must be one of auto, validation, evidence or a positive number, got 'guess'"),
        ({"tune": -1.0}, "tune must be one of"),
        ({"validation_fraction": 1.5}, "validation_fraction must be between 0 and 1"),
        ({"structure": "kfca"}, "structure must be one of"),
    ],
)
def test_bad_options(options: dict[str, Any], said: str) -> None:
    x, y = make_moons(20, random_state=0)
    with pytest.raises(ValueError, match=said):
        InfClassifier(**{"epochs": 1} | options).fit(x, y)
