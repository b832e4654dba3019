"""Training that is interrupted, and what a checkpoint is refused for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infoform.experiments.networks.training import Shuffled, Training, train


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(50, 2, 2, 2, generator=generator), torch.randint(3, (50,), generator=generator)


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    x, y = data()
    states = []
    for name in ("whole", "parts"):
        path = tmp_path / f"{name}.pt"
        reports: list[str] = []

        def stop(line: str, reports: list[str] = reports, name: str = name) -> None:
            reports.append(line)
            if name == "parts":
                raise KeyboardInterrupt

        training = Training(3, 20, 1e-2)
        for _ in range(3):
            try:
                trained = train(network, x, y, training=training, seed=4, path=path, report=stop)
            except KeyboardInterrupt:
                continue
        trained = train(network, x, y, training=training, seed=4, path=path, report=stop)
        assert len(reports) == 3
        assert len(trained.losses) == 3
        states.append(trained.network.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_network_trained_with_other_settings_is_refused(tmp_path: Path) -> None:
    x, y = data()
    known: dict[str, Any] = {"seed": 0, "path": tmp_path / "one.pt", "report": lambda _: None}
    train(network, x, y, training=Training(1), **known)
    with pytest.raises(ValueError, match="other settings"):
        train(network, x, y, training=Training(2), **known)


def test_a_shuffled_loader_gives_every_picture_once_and_augmented() -> None:
    x, y = data()
    torch.manual_seed(0)
    loader = Shuffled(x, y, 20, lambda batch: batch + 1)
    first, second = list(loader), list(loader)
    assert [len(batch) for batch, _ in first] == [20, 20, 10]
    assert len(loader) == 3
    together = torch.cat([batch for batch, _ in first])
    assert torch.equal(together.sort(0).values, (x + 1).sort(0).values)
    assert not torch.equal(first[0][0], second[0][0])
    for batch, targets in first:
        for picture, target in zip(batch, targets, strict=True):
            assert y[((x + 1) == picture).flatten(1).all(1)].item() == target


def test_the_rate_is_constant_or_falls_to_zero() -> None:
    constant, falling = Training(3, learning_rate=0.5), Training(3, learning_rate=0.5, cosine=True)
    assert [constant.rate(share) for share in (0, 0.5, 1)] == [0.5, 0.5, 0.5]
    assert [falling.rate(share) for share in (0, 0.5, 1)] == pytest.approx([0.5, 0.25, 0])
