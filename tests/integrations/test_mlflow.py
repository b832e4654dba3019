"""A posterior in a real local MLflow store."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import infoform
from infoform.integrations.tables import to_pandas

mlflow = pytest.importorskip("mlflow")


@pytest.mark.filterwarnings("ignore")
def test_a_logged_posterior_predicts_a_data_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from infoform.integrations.mlflow import log_laplace

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    x = torch.randn(40, 4)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    laplace = infoform.Laplace(model, "classification").fit([(x, torch.arange(40) % 3)], progress=False)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.create_experiment("tests", artifact_location=(tmp_path / "artifacts").as_uri())
        mlflow.set_experiment("tests")
        with mlflow.start_run():
            logged = log_laplace(laplace, name="net")
        loaded = mlflow.pyfunc.load_model(logged.model_uri)
        frame = loaded.predict(x[:7].numpy())
    expected = to_pandas(laplace.predict(x[:7]))
    assert list(frame.columns) == list(expected.columns)
    assert len(frame) == 7
    torch.testing.assert_close(torch.tensor(frame["confidence"]), torch.tensor(expected["confidence"]))
