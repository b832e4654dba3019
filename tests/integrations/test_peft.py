"""A PEFT model: a posterior over its adapters alone, and samples that PEFT itself loads."""

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import infoform

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from infoform.integrations.peft import save_samples  # noqa: E402


def base() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
        num_labels=3,
    )
    made: nn.Module = transformers.BertForSequenceClassification(config).double().eval()
    return made


def adapted(model: nn.Module, **options: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], **options)
        made: nn.Module = peft.get_peft_model(copy.deepcopy(model), config).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return made


def batch(count: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(3, 40, (count, 6), generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def fitted(model: nn.Module, **options: Any) -> infoform.Laplace:
    options = {"structure": "diag", "fit_options": infoform.FitOptions(fisher="exact"), **options}
    return infoform.Laplace(model, "classification", **options).fit([batch()], progress=False)


@pytest.mark.parametrize("dora", [False, True])
def test_the_adapters_alone_have_a_posterior_and_it_is_autograds(dora: bool) -> None:
    model = adapted(base(), use_dora=dora)
    laplace, given = fitted(model), batch()
    covered = {row.parameter for row in laplace.coverage() if row.covered}
    trains = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert covered == {name for name in trains if "magnitude" not in name} or covered == trains
    frozen = [row for row in laplace.coverage() if row.parameter not in trains]
    assert all(row.reason.startswith("frozen") for row in frozen)
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    leaves = {name: state[name].clone().requires_grad_() for name in sorted(covered)}
    squares = {name: torch.zeros_like(one) for name, one in leaves.items()}
    inputs = {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}
    for n in range(5):
        one = {name: value[n : n + 1] for name, value in inputs.items()}
        logits = functional_call(model, {**state, **leaves}, (), one).logits[0]
        for index, share in enumerate(logits.softmax(0).detach()):
            gradients = torch.autograd.grad(logits.log_softmax(0)[index], list(leaves.values()), retain_graph=True)
            for name, gradient in zip(leaves, gradients, strict=True):
                squares[name] += share * gradient.square() / 5
    for name, layer in laplace.layers.items():
        if name in laplace.curvature:
            diagonal = laplace.curvature[name].diagonal
            assert diagonal is not None
            for parameter, measured in layer.as_parameters(diagonal).items():
                torch.testing.assert_close(measured, squares[parameter], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("dora", [False, True])
def test_samples_are_adapters_that_peft_loads_with_the_same_outputs(dora: bool, tmp_path: Path) -> None:
    plain = base()
    model = adapted(plain, use_dora=dora)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    laplace = fitted(model)
    laplace.prior_precision = 50.0
    folders = save_samples(laplace, tmp_path / "ensemble", 3, seed=4)
    assert [one.name for one in folders] == ["sample-000", "sample-001", "sample-002"]
    drawn = laplace.sample(3, seed=4)
    inputs = {name: value for name, value in batch().items() if name != "labels"}
    outputs = []
    for index, folder in enumerate(folders):
        assert json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["peft_type"] == "LORA"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            served = peft.PeftModel.from_pretrained(copy.deepcopy(plain), folder).double().eval()
        with torch.no_grad():
            found = served(**inputs).logits
            expected = functional_call(model, {name: one[index] for name, one in drawn.items()}, (), inputs).logits
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        outputs.append(found)
    assert not torch.allclose(outputs[0], outputs[1])
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


def test_what_no_adapter_holds_is_refused(tmp_path: Path) -> None:
    laplace = fitted(adapted(base()), layers=["*lora_A*", "*intermediate*"])
    with pytest.raises(ValueError, match=r"weights that adapter 'default' holds, and it is over .*intermediate"):
        save_samples(laplace, tmp_path, 1)
    plain = infoform.Laplace(base(), "classification", structure="diag", layers=["classifier"]).fit(
        [batch()], progress=False
    )
    with pytest.raises(TypeError, match="must be a PEFT model"):
        save_samples(plain, tmp_path, 1)
