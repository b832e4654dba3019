from dataclasses import replace
from pathlib import Path

import pytest
import torch

import infoform
from export_cases import batches
from infoform.export.losses import first_examples, measured_losses
from infoform.export.options import ExportOptions
from infoform.metrics import nll


def validation() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(x.float(), y) for x, y in batches("classification")[2:]]


def test_linear_over_all_layers_is_refused_with_both_forms_and_their_loss(
    tmp_path: Path, all_layers: infoform.Laplace
) -> None:
    with pytest.raises(ValueError, match=r"needs Jacobians, which no exported graph computes") as told:
        all_layers.export(tmp_path / "model.onnx", validation=validation())
    (x, y), text = validation()[0], str(told.value)
    linear = nll(all_layers.predict(x, kind="linear").value, y)
    assert f"it has NLL {linear:.4f}; export kind='last-layer' (NLL " in text
    assert "or kind='samples' (" in text
    assert list(tmp_path.iterdir()) == []


def test_without_validation_data_the_refusal_says_how_to_have_the_loss(
    tmp_path: Path, all_layers: infoform.Laplace
) -> None:
    with pytest.raises(ValueError, match=r"kind='last-layer' or kind='samples', and give validation=loader"):
        all_layers.export(tmp_path / "model.onnx", kind="linear", example=validation()[0][0])


def test_the_loss_of_a_last_layer_is_that_of_its_own_posterior_at_its_best_temperature(
    all_layers: infoform.Laplace, classifier: infoform.Laplace
) -> None:
    data = first_examples(validation(), torch.device("cpu"))
    losses = measured_losses(all_layers._predictor(), "2", data, noise=None, options=ExportOptions())
    x, y = validation()[0]
    predictor = all_layers._predictor()
    own = replace(predictor.posterior, layers={"2": predictor.posterior.layers["2"]})
    best = min(_nll_at(all_layers, own, x, y, temperature) for temperature in torch.logspace(-1, 1, 201).tolist())
    assert losses["last-layer"] == pytest.approx(best, abs=1e-4)


def _nll_at(
    laplace: infoform.Laplace, own: infoform.Posterior, x: torch.Tensor, y: torch.Tensor, temperature: float
) -> float:
    before, laplace.temperature = laplace.temperature, temperature
    try:
        return nll(laplace.predict(x, posterior=own).value, y)
    finally:
        laplace.temperature = before


def test_a_last_layer_is_not_exported_from_a_posterior_without_it(tmp_path: Path) -> None:
    x, y = validation()[0]
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    laplace = infoform.Laplace(model, "classification", layers=["0"]).fit([(x, y)], progress=False)
    with pytest.raises(ValueError, match=r"kind='last-layer' needs .* and this one has '0'; use kind='samples'"):
        laplace.export(tmp_path / "model.pt2", kind="last-layer", example=x)
