"""A network that replays what another one's layers were given, so that each picture goes through the real one once.

`Recorded` has a layer for each layer of the original, with as many inputs and weights, and the original's last layer. A
row of recorded numbers becomes inputs that have the recorded mean and root mean square: of a convolution two positions,

    mean ± √(square − mean²)

So whatever infoform sees of the layers through its public interface is what it would see of the original, to rounding.
"""

import torch
from benchmarks.novelty.features import WEIGHTED, Features
from torch import Tensor, nn


class Recorded(nn.Module):
    """Takes rows of `as_rows` and returns the original's outputs.

    Args:
        original: The network that was recorded.
        last: The name of its last layer.
    """

    def __init__(self, original: nn.Module, last: str) -> None:
        super().__init__()
        self.names = [name for name, one in original.named_modules() if isinstance(one, WEIGHTED) and name != last]
        self.layers = nn.ModuleList(_like(original.get_submodule(name)) for name in self.names)
        self.head = original.get_submodule(last)
        self.eval()

    def forward(self, rows: Tensor) -> Tensor:  # (N, columns) -> (N, C)
        widths = [_columns(layer) for layer in self.layers] + [_columns(self.head)]
        *parts, head = rows.split(widths, dim=1)
        for layer, part in zip(self.layers, parts, strict=True):
            layer(part if isinstance(layer, nn.Linear) else _positions(part))
        outputs: Tensor = self.head(head)
        return outputs

    def as_rows(self, features: Features) -> Tensor:  # -> (N, columns)
        """Return what was recorded, one row a picture."""
        return torch.cat([*(features.pooled[name] for name in self.names), features.head], 1)


def _like(layer: nn.Module) -> nn.Module:
    """Return a layer of as many inputs and weights whose call costs little."""
    assert isinstance(layer, WEIGHTED)
    if isinstance(layer, nn.Linear):
        return nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    return nn.Conv2d(layer.in_channels, layer.weight.numel() // layer.in_channels, 1, bias=layer.bias is not None)


def _columns(layer: nn.Module) -> int:
    return layer.in_features if isinstance(layer, nn.Linear) else 2 * layer.in_channels  # type: ignore[operator,return-value]


def _positions(part: Tensor) -> Tensor:  # (N, 2 A) -> (N, A, 1, 2)
    mean, root = part.double().chunk(2, dim=1)
    away = (root.square() - mean.square()).clamp_min(0).sqrt()
    return torch.stack([mean + away, mean - away], dim=2).to(part).unsqueeze(2)
