"""For every likelihood of the table: a network's number of outputs, and targets that it may have."""

import torch
from torch import Tensor

from infoform.likelihoods import LIKELIHOODS, Likelihood

WIDTHS = {"heteroscedastic": 4, "ordinal": 1}  # others take any number: 3


def width_of(likelihood: Likelihood | str) -> int:
    return WIDTHS.get(likelihood if isinstance(likelihood, str) else likelihood.name, 3)


def outputs_of(likelihood: Likelihood, examples: int = 6, *, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return scale * torch.randn(examples, width_of(likelihood), dtype=torch.float64, generator=generator)


def targets_of(likelihood: Likelihood, outputs: Tensor, seed: int = 1) -> Tensor:
    width = likelihood.noise_width(outputs.shape[1])
    generator = torch.Generator().manual_seed(seed)
    return likelihood.sample_targets(outputs, torch.rand(len(outputs), width, dtype=torch.float64, generator=generator))


# of which tests of other rooms have targets of their own, for three outputs
WITH_THREE_OUTPUTS = [name for name in LIKELIHOODS if name in ("classification", "multilabel", "regression")]
