"""Lightning: a callback that fits a posterior when training ends, tunes it, and logs its scores."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import torch
from torch import nn

from infoform.common.extras import needed_by
from infoform.laplace import Laplace
from infoform.likelihoods import Likelihood

with needed_by("the callback needs"):
    import lightning


class LaplaceCallback(lightning.Callback):
    """Fit a posterior on the training data when training ends, and tune it on the validation data.

    Without validation data, the evidence tunes it. After training, `callback.laplace` is the posterior and
    `callback.scores` has its scores on the validation data. Every logger and `trainer.callback_metrics` have the scores
    as `laplace/nll`, `laplace/ece` and so on.

    Args:
        likelihood: The likelihood, as in `infoform.Laplace`.
        network: A function that returns the part of the LightningModule that maps inputs to outputs, for example
            `lambda module: module.net`; if None, the module itself.
        path: The file to save the posterior to; if None, it is not saved.
        kind: The kind of the predictions that tune and score it, as in `Laplace.tune`.
        samples: The number of samples of these predictions.
        objective: The score that tuning minimises; if None, the default of `Laplace.tune`.
        progress: Whether to show progress bars.
        **options: Options of `infoform.Laplace`, such as `structure="kfac"`.

    Raises:
        ValueError: When training ends, if there are several training or validation loaders.

    Examples:
        >>> from infoform.integrations.lightning import LaplaceCallback
        >>> callback = LaplaceCallback("classification", structure="kfac")
        >>> trainer = lightning.Trainer(callbacks=[callback])  # doctest: +SKIP
        >>> trainer.fit(module, train_loader, val_loader)  # doctest: +SKIP
        >>> callback.laplace.predict(images)  # doctest: +SKIP
    """

    def __init__(
        self,
        likelihood: str | Likelihood,
        *,
        network: Callable[[Any], nn.Module] | None = None,
        path: str | PathLike[str] | None = None,
        kind: str = "auto",
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
        """Fit, tune, evaluate, log and save; Lightning calls this, in all processes of a distributed training.

        Args:
            trainer: The trainer, whose loaders give the data.
            pl_module: The trained module.
        """
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
