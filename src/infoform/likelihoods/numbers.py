"""What likelihoods of numbers share: their targets."""

from torch import Tensor

from infoform.likelihoods.base import check_batch


def finite_numbers(targets: Tensor, outputs: Tensor, *, numbers: int, likelihood: str) -> Tensor:  # -> (N, K)
    """Return targets as numbers of the outputs' type, or raise a ValueError.

    Args:
        targets: as the loader gave them.
        outputs: of the same examples, (N, C).
        numbers: how many numbers K an example has.
        likelihood: its name.
    """
    check_batch(targets, outputs)
    if targets.dim() == 1 and numbers == 1:
        targets = targets.unsqueeze(1)
    if targets.shape != (len(outputs), numbers):
        raise ValueError(
            f"the {likelihood} likelihood needs targets of shape {(len(outputs), numbers)} for outputs of shape "
            f"{tuple(outputs.shape)}, got {tuple(targets.shape)}; reshape the targets in the loader."
        )
    if targets.is_complex() or not bool(targets.isfinite().all()):
        raise ValueError(
            f"targets of the {likelihood} likelihood must be finite real numbers; remove or impute the missing ones."
        )
    return targets.to(outputs.dtype)


def counts(targets: Tensor, outputs: Tensor, *, likelihood: str) -> Tensor:  # -> (N, C)
    """Return targets as counts of the outputs' type, or raise a ValueError; the arguments are the same."""
    found = finite_numbers(targets, outputs, numbers=outputs.shape[1], likelihood=likelihood)
    bad = (found < 0) | (found != found.round())
    if bool(bad.any()):
        raise ValueError(
            f"targets of the {likelihood} likelihood are counts, whole numbers of at least 0, got "
            f"{float(found[bad][0]):g}; check the targets, or use likelihood='regression'."
        )
    return found
