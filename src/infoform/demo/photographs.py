"""Unknown images for a network that has learned digits: pieces of the two photographs that come with scikit-learn."""

import torch
from torch import Tensor
from torch.nn import functional

SHRINK, SIDE = 4, 8  # pixels: a photograph is shrunk by the one and cut into squares of the other
FAINTEST = 0.05  # contrast below which a piece is not stretched to the whole range, as the sky's


def photograph_pieces(count: int, *, noise: float, seed: int) -> Tensor:  # -> (count, 1, 8, 8)
    """Return grey pieces, each stretched to values from 0 to 1 as digits have them, with the digits' noise.

    Args:
        count: How many; the photographs have 1,000.
        noise: Standard deviation of what is added to every pixel.
        seed: Of the choice of pieces and of the noise.
    """
    from sklearn.datasets import load_sample_images

    generator = torch.Generator().manual_seed(seed)
    pieces = []
    for photograph in load_sample_images().images:  # (H, W, 3)
        grey = torch.tensor(photograph, dtype=torch.float32).mean(2) / 255
        small = functional.avg_pool2d(grey[None, None], SHRINK)[0, 0]
        pieces.append(small.unfold(0, SIDE, SIDE).unfold(1, SIDE, SIDE).reshape(-1, 1, SIDE, SIDE))
    images = torch.cat(pieces)
    images = images - images.amin((2, 3), keepdim=True)
    images = images / images.amax((2, 3), keepdim=True).clamp_min(FAINTEST)
    images = images[torch.randperm(len(images), generator=generator)[:count]]
    return images + noise * torch.randn(images.shape, generator=generator)
