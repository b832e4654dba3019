"""The paper's five ImageNet architectures, by pytorchcv, at a random start: no weights are downloaded.

Numbers of values and times depend on the layers alone. Batch norms have the statistics of some pictures, since deep
networks in evaluation mode explode without; the last pooling is over all of the picture, so that small ones will do.
"""

import torch
from torch import Tensor, nn

ARCHITECTURES: dict[str, str] = {  # name of pytorchcv -> title
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "densenet121": "DenseNet-121",
    "densenet161": "DenseNet-161",
}
TINY = ("tiny-resnet", "tiny-densenet")  # for quick runs and tests: two stages, ten classes


def build(name: str, *, seed: int = 0) -> nn.Module:
    """Return the network at a random start, in evaluation mode; the global seed is left as found."""
    if name not in (*ARCHITECTURES, *TINY):
        raise ValueError(f"an architecture must be one of {', '.join((*ARCHITECTURES, *TINY))}, got {name!r}.")
    try:
        from pytorchcv.model_provider import get_model
        from pytorchcv.models.densenet import DenseNet
        from pytorchcv.models.resnet import ResNet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "the architectures are pytorchcv's, which is not installed; pip install 'infoform[imagenet]'."
        ) from None
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "tiny-resnet":
            model = ResNet([[4, 4], [8, 8]], 4, bottleneck=False, conv1_stride=True, num_classes=10)
        elif name == "tiny-densenet":
            model = DenseNet([[12, 16], [12, 16]], 8, num_classes=10)
        else:
            model = get_model(name, pretrained=False)
    model.features.final_pool = nn.AdaptiveAvgPool2d(1)
    built: nn.Module = model.eval()
    return built


def build_for(name: str, images: Tensor, *, seed: int = 0) -> nn.Module:  # (N, 3, H, W)
    """Return the network at a random start, with batch norms that have the statistics of these images."""
    model = build(name, seed=seed)
    calibrate_norms(model, images)
    return model


def calibrate_norms(model: nn.Module, images: Tensor) -> None:
    """Give batch norms the mean and variance of these images, and leave the model in evaluation mode."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(images)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    model.eval()
