"""How badly each class suits an input, from its probabilities: the larger, the later the class enters a set.

With the classes in the order of their probabilities, p_1 ≥ p_2 ≥ ..., and a class of rank r,

    adaptive           p_1 + ... + p_{r-1} − p_r      what goes before the class, less its own probability
    least-ambiguous    1 − p_r                        Sadinle, Lei, Wasserman 2019: the smallest sets on average

Both rise with the rank, so that a set holds the most probable classes. The adaptive score is that of APS (Romano,
Sesia, Candès 2020), p_1 + ... + p_{r-1} + u p_r, with u = −1 in the place of a uniform random number. With u = 1,
inputs that the network is surest of lose their only class first when the level falls; with u random, two calls give
two sets. With u = −1 it is the inputs that the network is least sure of, and one input has one set.
"""

from collections.abc import Callable

from torch import Tensor


def adaptive_scores(probs: Tensor) -> Tensor:  # (N, C) -> (N, C)
    """Return the mass of all more probable classes, less the class's own probability.

    Args:
        probs: probabilities of C classes, (N, C).

    Returns:
        One score for each class, (N, C), between −1 and 1.

    Example:
        ```python
        import torch
        from infoform.conformal import adaptive_scores
        scores = adaptive_scores(torch.tensor([[0.7, 0.1, 0.2]], dtype=torch.float64))
        assert torch.allclose(scores, torch.tensor([[-0.7, 0.8, 0.5]], dtype=torch.float64))
        ```
    """
    ordered, classes = probs.double().sort(dim=1, descending=True, stable=True)
    scores = ordered.cumsum(1) - 2 * ordered
    return scores.gather(1, classes.argsort(dim=1))


def least_ambiguous_scores(probs: Tensor) -> Tensor:  # (N, C) -> (N, C)
    """Return 1 less the probability of each class.

    Args:
        probs: probabilities of C classes, (N, C).

    Returns:
        One score for each class, (N, C), between 0 and 1.

    Example:
        ```python
        import torch
        from infoform.conformal import least_ambiguous_scores
        assert least_ambiguous_scores(torch.tensor([[0.75, 0.25]])).tolist() == [[0.25, 0.75]]
        ```
    """
    return 1 - probs.double()


SET_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "adaptive": adaptive_scores,
    "least-ambiguous": least_ambiguous_scores,
}
