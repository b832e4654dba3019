"""Predictions as tables: every number at its place, under the names given."""

import pandas
import pytest
import torch
from torch import Tensor, nn

import infoform
from infoform.integrations.tables import to_columns, to_pandas


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _prediction(likelihood: str, inputs: Tensor, outputs: int) -> infoform.Prediction:
    torch.manual_seed(0)
    model = nn.Linear(3, outputs).double()
    targets = torch.arange(6) % outputs if likelihood == "classification" else torch.randn(6, outputs).double()
    return infoform.Laplace(model, likelihood).fit([(inputs, targets)], progress=False).predict(inputs)


def test_classes_have_their_names(inputs: Tensor) -> None:
    prediction = _prediction("classification", inputs, 2)
    frame = to_pandas(prediction, classes=["cat", "dog"], names=list("abcdef"))
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns[:6]) == ["example", "class", "label", "confidence", "prob_cat", "prob_dog"]
    assert prediction.probs is not None
    torch.testing.assert_close(torch.tensor(frame[["prob_cat", "prob_dog"]].to_numpy()), prediction.probs)
    torch.testing.assert_close(torch.tensor(frame["epistemic_dog"].to_numpy()), prediction.epistemic[:, 1])
    assert list(frame["class"]) == [("cat", "dog")[label] for label in prediction.labels]
    assert list(frame["example"]) == list("abcdef")


def test_regression_has_deviations_and_intervals(inputs: Tensor) -> None:
    prediction = _prediction("regression", inputs, 2)
    table = to_columns(prediction, coverage=0.5)
    low, high = prediction.gaussian_interval(0.5)
    assert table["low_1"] == low[:, 1].tolist()
    assert table["high_0"] == high[:, 0].tolist()
    assert table["std_1"] == prediction.std[:, 1].tolist()
    assert "class" not in table


def test_novelty_stands_beside_the_uncertainty(inputs: Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = torch.randn(60, 3, dtype=torch.float64)
    laplace = infoform.Laplace(model, "classification").fit([(data, torch.arange(60) % 2)], progress=False)
    inputs = torch.cat([inputs[:3], 50 * inputs[3:]])
    frame, expected = to_pandas(laplace.predict(inputs)), laplace.novelty(inputs)
    torch.testing.assert_close(torch.tensor(frame["novelty"].to_numpy()), expected.novelty)
    assert frame["novel"].tolist() == (expected.novelty > 0.95).tolist()
    assert frame["novel"][3:].all()
    by_layer = pandas.DataFrame({name: values.numpy() for name, values in expected.novelty_layers.items()})
    assert frame["strangest_layer"].tolist() == by_layer.idxmax(axis=1).tolist()


def test_a_prediction_without_novelty_has_no_such_columns(inputs: Tensor) -> None:
    laplace = infoform.Laplace(
        nn.Linear(3, 2).double(), "classification", fit_options=infoform.FitOptions(novelty=False)
    )
    table = to_columns(laplace.fit([(inputs, torch.arange(6) % 2)], progress=False).predict(inputs))
    assert not {"novelty", "novel", "strangest_layer"} & set(table)


def test_names_must_be_as_many(inputs: Tensor) -> None:
    prediction = _prediction("classification", inputs, 2)
    with pytest.raises(ValueError, match="classes must name each of 2 outputs, got 1"):
        to_pandas(prediction, classes=["cat"])
    with pytest.raises(ValueError, match="one for each of 6 examples, got 2"):
        to_pandas(prediction, names=["a", "b"])
