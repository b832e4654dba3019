"""Inputs as the network was trained on them: channels first, divided, a mean subtracted, divided by a deviation.

x ← (x / d − mean) / std,    mean and std one number, or one for each entry of axis 1 (channels, or columns)
"""

import torch
from torch import Tensor

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions

CHANNELS = ("first", "last", "none")


def channels_first(inputs: Tensor, where: str | None, what: str) -> Tensor:  # (N, ...) -> (N, C, ...)
    """Return arrays with the channels at axis 1, where `--channels` says that they are elsewhere, or that none are."""
    if where in (None, "first"):
        return inputs
    if where not in CHANNELS:
        raise Mistake(f"--channels must be {', '.join(CHANNELS[:-1])} or {CHANNELS[-1]}, got '{where}'.")
    if where == "none":
        return inputs.unsqueeze(1)
    if inputs.dim() < 3:
        raise Mistake(f"--channels last is for images, (N, H, W, C), got {what} of shape {tuple(inputs.shape)}.")
    return inputs.movedim(-1, 1).contiguous()


def standardise(inputs: Tensor, options: DataOptions) -> Tensor:  # (N, C, ...)
    """Return the inputs divided by `--divide-by`, without `--mean`, divided by `--std`; as they are without these."""
    if options.divide_by is not None:
        if options.divide_by == 0:
            raise Mistake("--divide-by must not be 0; give the number that training divided by, such as 255.")
        inputs = inputs / options.divide_by
    if options.image_mean is None and options.image_std is None:
        return inputs
    size = inputs.shape[1] if inputs.dim() > 1 else 1
    inputs = inputs if inputs.is_floating_point() else inputs.to(torch.float32)
    shape = [-1, *(1 for _ in inputs.shape[2:])] if inputs.dim() > 1 else [-1]
    mean = channel_values(options.image_mean, "--image-mean", size).to(inputs).reshape(shape)
    std = channel_values(options.image_std, "--image-std", size).to(inputs).reshape(shape)
    return (inputs - mean) / std


def channel_values(text: str | None, option: str, channels: int) -> Tensor:  # -> (1 or C, 1, 1)
    """Return the numbers of `--image-mean` or `--image-std`: one, or one for each channel; 0 or 1 where not given."""
    scale = option == "--image-std"
    try:
        values = [float(scale)] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, channels) or (scale and any(value <= 0 for value in values)):
        raise Mistake(f"{option} must be one number, or one for each of {channels} channels, got '{text}'.")
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1)
