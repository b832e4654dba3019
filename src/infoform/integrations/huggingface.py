"""Hugging Face: a posterior for the model and the data of a `Trainer`.

Without a `Trainer` you need no integration: `Laplace(model, "classification").fit(loader)` takes batches that are dicts
with `labels`, and models that return an object with `.logits`.
"""

from typing import TYPE_CHECKING, Any

from torch import nn

from infoform.laplace import Laplace
from infoform.likelihoods import Classification, Likelihood

if TYPE_CHECKING:
    from transformers import Trainer

CAUSAL = ("ForCausalLM", "LMHeadModel")  # how classes of language models are called that tell the next token
PROBLEMS = {
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
    "regression": "regression",
}


def likelihood_of(model: nn.Module) -> str | Likelihood:
    """Return the likelihood that the head of a model was trained with.

    Args:
        model: A model of transformers. Its `config.problem_type` decides or, if that is None, `config.num_labels`:
            one label is a regression, several are a classification.

    Returns:
        `"classification"`, `"multilabel"` or `"regression"`; of a causal language model, whose labels are the tokens
        themselves, `Classification(next_token=True)`.

    Raises:
        ValueError: If the model has no `config`, or its `problem_type` is not known.

    Examples:
        >>> from types import SimpleNamespace
        >>> from infoform.integrations.huggingface import likelihood_of
        >>> likelihood_of(SimpleNamespace(config=SimpleNamespace(problem_type="regression")))
        'regression'
    """
    config = getattr(model, "config", None)
    if config is None:
        raise ValueError(
            f"the model must have a config that tells its head, got a {type(model).__name__}; give likelihood=."
        )
    if type(model).__name__.endswith(CAUSAL):
        return Classification(next_token=True)
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
    kind: str = "auto",
    samples: int = 100,
    progress: bool = True,
    **options: Any,
) -> Laplace:
    """Fit the posterior of a trainer's model on its training data, and tune it on its evaluation data.

    The scores on the evaluation data go to `trainer.log` as `laplace_nll`, `laplace_ece` and so on. Tuning sets
    the scale of novelty on the same data: `laplace.novelty(batch)` and `laplace.predict(batch).novelty` then tell
    inputs that are unlike those of training.

    Args:
        trainer: A `transformers.Trainer` after training. Model, data, collator and device come from it.
        likelihood: The likelihood; if None, `likelihood_of` finds it from the model's configuration.
        tune: Whether to tune. If False, set `prior_precision` of the result yourself.
        kind: The kind of the predictions that are scored, as in `Laplace.predict`.
        samples: The number of samples of these predictions.
        progress: Whether to show progress bars.
        **options: Options of `infoform.Laplace`, such as `layers=["classifier"]`.

    Returns:
        The fitted and tuned `Laplace`.

    Raises:
        ValueError: If `tune` is True and the trainer has no `eval_dataset`.

    Examples:
        >>> laplace = laplace_of_trainer(trainer, layers=["classifier"])  # doctest: +SKIP
        >>> laplace.predict(batch).probs, laplace.predict(batch).novel()  # doctest: +SKIP
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
