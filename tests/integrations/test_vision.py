"""Networks of torchvision and timm, as they are: exact statistics, every parameter accounted for, nothing changed.

Their wheels are made for another build of torch, and come without their dependences into a folder of their own (`make
vision`), which is on the path in this file alone.
"""

import copy
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from flat import flat_laplace

FOLDER = Path(__file__).parents[2] / ".venv" / "vision"
WITH_RULES = (nn.Linear, nn.Conv2d)
SIZE, CLASSES = 32, 3


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from torchvision import models

        return getattr(models, name)(num_classes=CLASSES)  # type: ignore[no-any-return]

    return make


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, num_classes=CLASSES, **options)  # type: ignore[no-any-return]

    return make


NETWORKS = {
    "resnet18": _torchvision("resnet18"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "vit_tiny": _timm("vit_tiny_patch16_224", img_size=SIZE, depth=2),
    "convnext_atto": _timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 12, 16, 24)),
    "efficientnet_b0": _timm("efficientnet_b0"),
}


@pytest.fixture(scope="module")
def vision() -> Iterator[None]:
    """Make torchvision and timm importable, and take them away again."""
    if not FOLDER.is_dir():
        told = "torchvision and timm are not installed; run 'make vision'."
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)
    before = set(sys.modules)
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):  # the wheel's own operators are not loaded
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("torchvision", "timm"):
            del sys.modules[name]


def _network(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = NETWORKS[name]().double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: not the mean 0 and variance 1 of a new one
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var += 0.5
    return model


@pytest.fixture(scope="module", params=NETWORKS)
def fitted(vision: None, request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module, infoform.Laplace, Any]:
    """Fit one of the networks; return it, a copy made before, the posterior and the data."""
    model = _network(request.param)
    before = copy.deepcopy(model)
    data = [(torch.randn(2, 3, SIZE, SIZE, dtype=torch.float64), torch.tensor([0, 2])) for _ in range(2)]
    laplace = flat_laplace(model, "classification", structure="diag", fisher="empirical")
    return model, before, laplace.fit(data, progress=False), data


def _squared_gradients(model: nn.Module, data: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return the mean square of every parameter's gradient, one example at a time."""
    model = copy.deepcopy(model).train(False)
    squares = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    examples = [(x[None], y[None]) for inputs, targets in data for x, y in zip(inputs, targets, strict=True)]
    for x, y in examples:
        loss = nn.functional.cross_entropy(model(x), y)
        for name, gradient in zip(squares, torch.autograd.grad(loss, list(model.parameters())), strict=True):
            squares[name] += gradient.square() / len(examples)
    return squares


def test_statistics_are_the_squares_of_autograds_gradients(fitted: Any) -> None:
    _, before, laplace, data = fitted
    expected = _squared_gradients(before, data)
    diagonals = {name: curvature.diagonal for name, curvature in laplace.curvature.items()}
    found: dict[str, Tensor] = {}
    for name, diagonal in diagonals.items():
        found |= laplace.layers[name].as_parameters(diagonal)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-12 * float(expected[name].max()))
        assert bool(value.any())


def test_every_weight_of_a_known_layer_is_covered_and_all_else_is_named_with_a_reason(fitted: Any) -> None:
    model, _, laplace, _ = fitted
    rows = {row.parameter: row for row in laplace.coverage()}
    expected = {
        f"{name}.{own}"
        for name, module in model.named_modules()
        if isinstance(module, WITH_RULES)
        for own, _ in module.named_parameters(recurse=False)
    }
    assert set(rows) == {name for name, _ in model.named_parameters()}
    assert {name for name, row in rows.items() if row.covered} == expected
    assert all(row.reason for row in rows.values() if not row.covered)


def test_the_network_is_as_it_was(fitted: Any) -> None:
    model, before, _, _ = fitted
    state, old = model.state_dict(), before.state_dict()
    assert list(state) == list(old)
    assert all(torch.equal(state[name], value) for name, value in old.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    for module, twin in zip(model.modules(), before.modules(), strict=True):
        assert module.training == twin.training
        assert len(module._forward_hooks) == len(twin._forward_hooks)
        assert module._forward_pre_hooks.keys() == twin._forward_pre_hooks.keys()
