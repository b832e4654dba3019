"""Lightning: a callback that fits a posterior when training ends, tunes it, and logs how good it is.

trainer = lightning.Trainer(callbacks=[callback := LaplaceCallback("classification", path="posterior.safetensors")])
trainer.fit(module, train_loader, val_loader)
callback.laplace.predict(images)
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

import lightning
import torch
from torch import nn

from infoform.laplace import Laplace
from infoform.likelihoods import Likelihood


class LaplaceCallback(lightning.Callback):
    """Fit on the training data at the end of training; tune on the validation data, where there are any.

    `network(module)` is the part of the LightningModule that maps inputs to outputs, where its `forward` does not
    (`lambda module: module.net`); `kind`, `samples` and `objective` are as in `Laplace.tune`, `path` is where the
    posterior is saved, and further options go to `Laplace`. Afterwards: `callback.laplace`, and the validation scores
    under `laplace/...` in every logger and in `trainer.callback_metrics`.
    """

    def __init__(
        self,
        likelihood: str | Likelihood,
        *,
        network: Callable[[Any], nn.Module] | None = None,
        path: str | PathLike[str] | None = None,
        kind: str = "linear",
        samples: int = 100,
        objective: str | None = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        self.likelihood, self.network, self.path = likelihood, network, path
        self.kind, self.samples, self.objective = kind, samples, objective
        self.progress, self.options = progress, options
        self.laplace: Laplace | None = None
        self.scores: dict[str, float] = {}

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Fit, tune, evaluate, log, save: all processes of a distributed training together."""
        network = pl_module if self.network is None else self.network(pl_module)
        laplace = Laplace(network, self.likelihood, **self.options)
        laplace.fit(_loader(trainer.train_dataloader, "training"), progress=self.progress)
        if trainer.val_dataloaders:
            validation = _loader(trainer.val_dataloaders, "validation")
            how: dict[str, Any] = {"kind": self.kind, "samples": self.samples, "progress": self.progress}
            laplace.tune(validation, objective=self.objective, **how)
            self.scores = _scores(laplace, validation, how)
        else:
            laplace.tune()
        if isinstance(laplace.prior_precision, float):
            self.scores["prior_precision"] = laplace.prior_precision
        logged = {f"laplace/{name}": value for name, value in self.scores.items()}
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in logged.items()})
        for logger in trainer.loggers:
            logger.log_metrics(logged, step=trainer.global_step)
        if self.path is not None:
            laplace.save(self.path)
        self.laplace = laplace


def _scores(laplace: Laplace, loader: Any, how: dict[str, Any]) -> dict[str, float]:
    from infoform.metrics import evaluate

    prediction, targets = laplace.predict_loader(loader, **how)
    assert targets is not None  # the search has asked for them
    return evaluate(prediction, targets)


def _loader(given: Any, name: str) -> Any:
    """Return the one loader of a kind; several have no order that a posterior could be fitted in."""
    if isinstance(given, list | tuple) and len(given) == 1:
        given = given[0]
    if given is None or isinstance(given, list | tuple | dict):
        raise ValueError(
            f"LaplaceCallback needs one {name} loader, got {type(given).__name__}; fit a Laplace after training."
        )
    return given
