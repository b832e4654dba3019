"""Scores of classes against their definitions, and the order that sets are filled in."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from infoform.conformal import SET_SCORES, adaptive_scores, least_ambiguous_scores


def probabilities(examples: int = 7, classes: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(2 * torch.randn(examples, classes, generator=generator, dtype=torch.float64), 1)


def before(probs: Tensor) -> Tensor:
    """Return the mass of the more probable classes, by comparing each class with each."""
    more = (probs.unsqueeze(1) > probs.unsqueeze(2)).double()  # (N, class, other)
    return torch.einsum("nco,no->nc", more, probs)


def test_scores_are_what_their_definitions_say() -> None:
    probs = probabilities()
    assert_close(adaptive_scores(probs), before(probs) - probs)
    assert_close(least_ambiguous_scores(probs), 1 - probs)


@pytest.mark.parametrize("name", SET_SCORES)
def test_a_more_probable_class_never_enters_a_set_after_a_less_probable_one(name: str) -> None:
    probs = probabilities(50)
    scores = SET_SCORES[name](probs)
    order = probs.argsort(1, descending=True)
    ranked = scores.gather(1, order)
    assert bool((ranked.diff(dim=1) > 0).all())


@pytest.mark.parametrize("name", SET_SCORES)
def test_scores_of_single_precision_are_those_of_the_same_numbers_in_double(name: str) -> None:
    probs = probabilities().float()
    assert torch.equal(SET_SCORES[name](probs), SET_SCORES[name](probs.double()))
