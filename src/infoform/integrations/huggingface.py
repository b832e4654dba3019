"""Hugging Face: a posterior for a model and the data of its `Trainer`.

A model and its tokenised batches need no integration: `Laplace(model, "classification").fit(loader)` takes dicts with
`labels`, and outputs with `.logits`. What is here saves the steps around a `Trainer`.
"""

from typing import TYPE_CHECKING, Any

from torch import nn

from infoform.laplace import Laplace
from infoform.likelihoods import Likelihood

if TYPE_CHECKING:
    from transformers import Trainer

PROBLEMS = {
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
    "regression": "regression",
}


def likelihood_of(model: nn.Module) -> str:
    """Return the likelihood that a model's head was trained with, by its configuration, as transformers reads it."""
    config = getattr(model, "config", None)
    if config is None:
        raise ValueError(
            f"the model must have a config that tells its head, got a {type(model).__name__}; give likelihood=."
        )
    problem = getattr(config, "problem_type", None)
    if problem is not None:
        if problem not in PROBLEMS:
            raise ValueError(f"problem_type must be one of {', '.join(PROBLEMS)}, got {problem!r}; give likelihood=.")
        return PROBLEMS[problem]
    return "regression" if getattr(config, "num_labels", 2) == 1 else "classification"


def laplace_of_trainer(
    trainer: "Trainer",
    likelihood: str | Likelihood | None = None,
    *,
    tune: bool = True,
    kind: str = "linear",
    samples: int = 100,
    progress: bool = True,
    **options: Any,
) -> Laplace:
    """Return the posterior of a trainer's model, fitted on its training data.

    With an evaluation set it is tuned on that, and the scores go to `trainer.log` under `laplace_...`; without one, or
    with `tune=False`, its prior precision is to be set by you. Further options go to `Laplace`.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    laplace = Laplace(model, likelihood_of(model) if likelihood is None else likelihood, **options)
    laplace.fit(trainer.get_train_dataloader(), progress=progress)
    if not tune:
        return laplace
    if trainer.eval_dataset is None:
        raise ValueError("tuning needs the trainer's eval_dataset, which is None; give the Trainer one, or tune=False.")
    from infoform.metrics import evaluate

    loader = trainer.get_eval_dataloader()
    how: dict[str, Any] = {"kind": kind, "samples": samples, "progress": progress}
    laplace.tune(loader, **how)
    prediction, targets = laplace.predict_loader(loader, **how)
    assert targets is not None  # the search has asked for them
    scores = evaluate(prediction, targets) | {"prior_precision": float(laplace.prior_precision)}  # type: ignore[arg-type]
    trainer.log({f"laplace_{name}": value for name, value in scores.items()})
    return laplace
