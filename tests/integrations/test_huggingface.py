"""A BERT with random weights: dict batches, masks and `.logits` are taken as they are; a Trainer's data too."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.func import functional_call
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import infoform
from flat import flat_laplace
from infoform.integrations.huggingface import laplace_of_trainer, likelihood_of
from infoform.metrics import evaluate
from infoform.network.batches import read_inputs
from infoform.predicting.predictor import Predictor

LAYERS = ["bert.encoder.layer.0.attention.self.query", "bert.encoder.layer.0.output.dense", "classifier"]


def _bert(**options: Any) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=6,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=8,
        **{"num_labels": 3} | options,
    )
    model: BertForSequenceClassification = BertForSequenceClassification(config)  # type: ignore[no-untyped-call]
    model.train(False)
    return model


def _batch(count: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 20, (count, 5), generator=generator)
    lengths = torch.randint(2, 6, (count, 1), generator=generator)
    mask = (torch.arange(5) < lengths).long()  # sentences of different lengths
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": torch.randint(3, (count,), generator=generator)}


@pytest.mark.parametrize("structure", ["kfac", "inf"])
def test_linear_variances_are_those_of_the_dense_jacobian(structure: str) -> None:
    model = _bert().double()
    data = [_batch(4, seed) for seed in range(3)]
    laplace = flat_laplace(model, "classification", structure=structure, rank=20, layers=LAYERS)
    posterior = laplace.fit(data, progress=False).posterior(prior_precision=5.0)
    inputs = {name: value for name, value in _batch(3, 9).items() if name != "labels"}
    predictor = Predictor(model, laplace.layers, laplace.likelihood, posterior)
    _, covariance = predictor.linear(read_inputs(inputs, torch.device("cpu")))
    expected = torch.zeros(3, 3, 3, dtype=torch.float64)
    for name, layer in posterior.layers.items():
        mean = laplace.layers[name].mean

        def logits(matrix: Tensor, name: str = name) -> Tensor:
            found: Tensor = functional_call(model, laplace.layers[name].as_parameters(matrix), kwargs=inputs).logits
            return found

        dense = jacobian(logits, mean).flatten(2)  # (N, C, G A)
        expected += dense @ torch.linalg.solve(layer.dense(), dense.mT)
    torch.testing.assert_close(covariance, expected, rtol=1e-8, atol=1e-12)


def test_fits_do_not_depend_on_padding() -> None:
    model = _bert().double()
    batch = _batch(4)
    padded = {
        "input_ids": torch.nn.functional.pad(batch["input_ids"], (0, 3)),
        "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (0, 3)),
        "labels": batch["labels"],
    }
    prediction, other = (
        flat_laplace(model, "classification", structure="diag", fisher="exact", layers=["classifier"])
        .fit([data], progress=False)
        .predict(data)
        for data in (batch, padded)
    )
    torch.testing.assert_close(prediction.epistemic, other.epistemic)


@pytest.mark.parametrize("kind", ["mc", "linear-mc"])
def test_sampled_predictions(kind: str) -> None:
    laplace = infoform.Laplace(_bert(), "classification", layers=["classifier"]).fit([_batch(6)], progress=False)
    laplace.prior_precision = 1e6
    probs = laplace.predict(_batch(3), kind=kind, samples=4).probs
    assert probs is not None
    torch.testing.assert_close(probs.sum(1), torch.ones(3))


class Sentences(Dataset[dict[str, Tensor]]):
    def __init__(self, count: int, seed: int) -> None:
        self.batch = _batch(count, seed)

    def __len__(self) -> int:
        return len(self.batch["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: value[index] for name, value in self.batch.items()}


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=8,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        logging_strategy="no",
    )
    return Trainer(model=_bert(), args=arguments, train_dataset=Sentences(16, 0), eval_dataset=Sentences(12, 1))


@pytest.mark.filterwarnings("ignore:the best prior_precision")  # labels are random
def test_the_posterior_of_a_trainer(trainer: Trainer) -> None:
    trainer.train()
    laplace = laplace_of_trainer(
        trainer,
        progress=False,
        structure="diag",
        layers=["classifier"],
        fit_options=infoform.FitOptions(fisher="exact"),
    )
    assert laplace.likelihood.name == "classification"
    assert laplace.model is trainer.model
    data = Sentences(16, 0).batch
    expected = flat_laplace(laplace.model, "classification", structure="diag", layers=["classifier"], fisher="exact")
    expected.fit([data], progress=False)
    torch.testing.assert_close(
        laplace.posterior(prior_precision=1.0).layers["classifier"].dense(),
        expected.posterior(prior_precision=1.0).layers["classifier"].dense(),
    )
    held = Sentences(12, 1).batch
    scores = evaluate(laplace.predict(held), held["labels"])
    logged = trainer.state.log_history[-1]
    assert logged["laplace_nll"] == pytest.approx(scores["nll"], rel=1e-4)
    assert logged["laplace_prior_precision"] == laplace.prior_precision
    novelty = laplace.novelty({name: value for name, value in held.items() if name != "labels"})
    torch.testing.assert_close(laplace.predict(held).novelty, novelty.novelty)
    assert "classifier" in novelty.novelty_layers


def test_tuning_needs_an_evaluation_set(trainer: Trainer) -> None:
    trainer.eval_dataset = None
    with pytest.raises(ValueError, match="needs the trainer's eval_dataset"):
        laplace_of_trainer(trainer, progress=False, structure="diag", layers=["classifier"])
    assert laplace_of_trainer(trainer, tune=False, progress=False, layers=["classifier"]).num_data == 16


@pytest.mark.parametrize(
    ("options", "likelihood"),
    [
        ({}, "classification"),
        ({"num_labels": 1}, "regression"),
        ({"problem_type": "multi_label_classification"}, "multilabel"),
        ({"problem_type": "single_label_classification"}, "classification"),
    ],
)
def test_the_likelihood_follows_the_head(options: dict[str, Any], likelihood: str) -> None:
    assert likelihood_of(_bert(**options)) == likelihood


def test_a_model_without_a_configuration() -> None:
    with pytest.raises(ValueError, match="got a Linear; give likelihood="):
        likelihood_of(torch.nn.Linear(2, 2))
