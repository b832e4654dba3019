"""The callback leaves the posterior of the trained module, tuned, logged and saved."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import infoform
from flat import flat_laplace
from infoform.integrations.lightning import LaplaceCallback
from infoform.metrics import evaluate


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], index: int, dataloader_idx: int = 0) -> None:
        self.log("plain_nll", functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.05)


@pytest.fixture
def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1] > 0).long()
    data = TensorDataset(x[:50], y[:50]), TensorDataset(x[50:], y[50:])
    return DataLoader(data[0], batch_size=10), DataLoader(data[1], batch_size=30)


# what Lightning has to say about this machine, and its use of parts of torch and Python that go away
pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:the best prior_precision"),  # three epochs have not made it over-confident
]


def _train(folder: Path, callback: LaplaceCallback, *loaders: Any) -> tuple[Module, Trainer]:
    torch.manual_seed(0)
    module = Module()
    trainer = Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[callback],
        logger=CSVLogger(folder),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(module, *loaders)
    return module, trainer


def test_the_posterior_is_that_of_the_trained_module(tmp_path: Path, loaders: Any) -> None:
    callback = LaplaceCallback("classification", path=tmp_path / "posterior.safetensors", structure="kfac", rank=5)
    module, trainer = _train(tmp_path, callback, *loaders)
    expected = flat_laplace(module, "classification", structure="kfac", rank=5).fit(loaders[0], progress=False)
    expected.tune(loaders[1], progress=False)
    assert callback.laplace is not None
    assert callback.laplace.prior_precision == expected.prior_precision
    for name, layer in callback.laplace.posterior().layers.items():
        torch.testing.assert_close(layer.dense(), expected.posterior().layers[name].dense())
    prediction, targets = expected.predict_loader(loaders[1], progress=False)
    assert targets is not None
    scores = evaluate(prediction, targets)
    assert callback.scores.pop("prior_precision") == expected.prior_precision
    assert callback.scores == pytest.approx(scores)
    assert float(trainer.callback_metrics["laplace/nll"]) == pytest.approx(scores["nll"])
    assert "plain_nll" in trainer.callback_metrics
    infoform.load(tmp_path / "posterior.safetensors", module)


def test_scores_are_in_the_logger(tmp_path: Path, loaders: Any) -> None:
    import pandas

    callback = LaplaceCallback("classification")
    _, trainer = _train(tmp_path, callback, *loaders)
    assert trainer.logger is not None
    assert trainer.logger.log_dir is not None
    logged = pandas.read_csv(Path(trainer.logger.log_dir) / "metrics.csv")
    assert logged["laplace/ece"].dropna().iloc[-1] == pytest.approx(callback.scores["ece"])


def test_without_validation_data_by_evidence_and_a_part_of_the_module(tmp_path: Path, loaders: Any) -> None:
    callback = LaplaceCallback("classification", network=lambda module: module.net)
    module, _ = _train(tmp_path, callback, loaders[0])
    assert callback.laplace is not None
    assert callback.laplace.model is module.net
    assert list(callback.scores) == ["prior_precision"]


def test_several_loaders_are_refused(tmp_path: Path, loaders: Any) -> None:
    with pytest.raises(ValueError, match="needs one validation loader, got list"):
        _train(tmp_path, LaplaceCallback("classification"), loaders[0], [loaders[1], loaders[1]])
