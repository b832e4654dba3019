"""What a transformer of 7 billion weights would take, by `infoform.plan` on tensors without memory.

    python -m benchmarks.transformer_plan      # prints the numbers; benchmarks/memory.py makes a table of them

Sizes are Llama's: 32 blocks, d = 4096, feed-forward 11008, vocabulary 32000. The model is in bfloat16, its outputs are
the logits of the next token, one sequence a batch, and statistics are in float32.
"""

import json
from typing import Any

import torch
from benchmarks.common import laplace_of
from torch import Tensor, nn
from torch.nn import functional

import infoform

BLOCKS, WIDTH, HEADS, HIDDEN, VOCABULARY = 32, 4096, 32, 11008, 32000
TOKENS = (512, 2048)  # of a sequence, one of which is a batch
STRUCTURES: dict[str, dict[str, Any]] = {
    "diag": {"structure": "diag"},
    "diag, bfloat16": {"structure": "diag", "storage": "bfloat16"},
    "kfac": {"structure": "kfac"},
    "efb": {"structure": "efb"},
    "inf": {"structure": "inf", "rank": 100},
    "inf, bfloat16": {"structure": "inf", "rank": 100, "storage": "bfloat16"},
    "inf, last 4 blocks": {"structure": "inf", "rank": 100, "layers": [f"blocks.{n}.*" for n in range(28, 32)]},
    "inf, head alone": {"structure": "inf", "rank": 100, "layers": ["head"]},
}
GPUS = (24, 40, 80)  # gigabytes


class Block(nn.Module):
    """Attention and a gated feed-forward layer, each after a norm and added to its input; no biases."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (N, S, d) -> (N, S, d)
        y = self.norm(x)
        parts = (part(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key, value = parts  # (N, heads, S, d / heads) each
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.second_norm(x)
        moved: Tensor = self.down(functional.silu(self.gate(y)) * self.up(y))
        return x + moved


class Transformer(nn.Module):
    """Tokens to the logits of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:  # (N, S) -> (N, C)
        logits: Tensor = self.head(self.norm(self.blocks(self.embed(tokens))[:, -1]))
        return logits


def plan_transformer() -> dict[str, Any]:
    """Return bytes by structure, and how a fit goes on one GPU of several sizes with what is finished off-loaded."""
    with torch.device("meta"):
        model = Transformer().bfloat16()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    rows = [_row(model, name, options, weights) for name, options in STRUCTURES.items()]
    return {
        "model_bytes": weights,
        "parameters": weights // 2,
        "tokens": list(TOKENS),
        "gpus": list(GPUS),
        "rows": rows,
    }


def _row(model: nn.Module, name: str, options: dict[str, Any], weights: int) -> dict[str, Any]:
    row: dict[str, Any] = {"structure": name, "fits": []}
    for tokens in TOKENS:
        example = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        whole = infoform.plan(laplace_of(model, "classification", **options), example=example)
        row |= {
            "weights": sum(layer.shape[0] * layer.shape[1] for layer in whole.layers),
            "posterior_bytes": whole.total_bytes,
            "statistics_bytes": whole.statistics_bytes,
        }
        row["fits"].append({"tokens": tokens, "gpu": None, "peak_bytes": whole.peak_bytes, "cost": whole.cost})
        for size in GPUS:
            left = size * 10**9 - weights
            told: dict[str, Any] = {"tokens": tokens, "gpu": size}
            try:
                parted = infoform.plan(
                    laplace_of(model, "classification", **options), example=example, max_memory=left, offload=True
                )
                told |= {"groups": max(1, len(parted.groups)), "peak_bytes": parted.peak_bytes, "cost": parted.cost}
            except ValueError as error:
                told["refused"] = str(error)
            row["fits"].append(told)
    return row


if __name__ == "__main__":
    print(json.dumps(plan_transformer(), indent=1))
