"""Networks of Hugging Face with every parameter covered: small ones from a config, exact against autograd."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exactness import check_exact

TOKENS: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 11,
    "max_position_embeddings": 9,
    "num_labels": 2,
    "pad_token_id": 0,
    "attn_implementation": "eager",
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Sequence", TOKENS),
    "gpt2": ("Sequence", {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11, "n_positions": 9, **TOKENS}),
    "llama": ("Sequence", TOKENS),
    "mixtral": ("Sequence", {**TOKENS, "num_local_experts": 3, "head_dim": 4, "experts_implementation": "eager"}),
    "vit": ("Image", {**TOKENS, "image_size": 8, "patch_size": 4}),
}


class Outputs(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).logits  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_parameter_of_a_network_is_exact(kind: str) -> None:
    import transformers

    task, options = CONFIGS[kind]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **options)
    makers: dict[str, Any] = {
        "Sequence": transformers.AutoModelForSequenceClassification,
        "Image": transformers.AutoModelForImageClassification,
    }
    model = Outputs(makers[task].from_config(config))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(1, 11, (4, 6), generator=generator)
    if task == "Image":
        x = torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64)
    laplace = check_exact(model, x)
    assert all(row.covered for row in laplace.coverage())
