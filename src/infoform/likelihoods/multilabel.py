"""Multi-label classification: C yes/no answers, p = sigmoid(f), independent given f.

The Fisher matrix is diag(p (1 − p)).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from infoform.common.float64 import in_double
from infoform.likelihoods import categorical, own_data
from infoform.likelihoods.base import DataSummary, Likelihood, check_batch
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.prediction import Prediction


class MultiLabel(Likelihood):
    """C yes/no answers: a Bernoulli for each of C logits; targets are (N, C) numbers between 0 and 1.

    Outputs may be those of every position of an example, as of a network that finds C kinds of things in an image;
    targets are then arranged as the outputs are, and NaN in all C labels where a position does not count.

    Args:
        axis: axis of the C logits in outputs with positions; None for the last of three and the second of more.

    Example:
        ```python
        import torch
        from infoform import MultiLabel
        prediction = MultiLabel().plain_prediction(torch.tensor([[2.0, -2.0]]), noise=None)
        assert prediction.probs[0, 0] > 0.8 and prediction.probs[0, 1] < 0.2
        ```
    """

    name: ClassVar[str] = "multilabel"
    has_logits: ClassVar[bool] = True
    own_density: ClassVar[bool] = False

    def __init__(self, *, axis: int | None = None) -> None:
        self.axis = axis

    def settings(self) -> dict[str, Any]:
        return {} if self.axis is None else {"axis": self.axis}

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() == 1 and outputs.shape[1] == 1:
            targets = targets.unsqueeze(1)
        if targets.shape != outputs.shape:
            raise ValueError(
                f"multilabel needs targets of the outputs' shape {tuple(outputs.shape)}, "
                f"got {tuple(targets.shape)}; use likelihood='classification' for one class index an example."
            )
        targets = targets.to(outputs.dtype)
        low, high = (float(bound) for bound in targets.aminmax())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"multilabel targets must be between 0 and 1, got {low if not low >= 0 else high}; check the labels."
            )
        return targets

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(1)

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return targets - outputs.sigmoid()

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        root = (outputs.sigmoid() * (-outputs).sigmoid()).sqrt()
        for label in range(outputs.shape[1]):
            vector = root.new_zeros(root.shape)
            vector[:, label] = root[:, label]
            yield vector

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        return (uniforms < outputs.double().sigmoid()).to(outputs.dtype)

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        return categorical.summarise(_answers(samples.sigmoid()), plain, yes_no=True)

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        mean, variance = outputs.mean, outputs.variance
        if link == "bridge":  # a yes/no question is a softmax over the logits -f/2 and f/2
            halves = torch.stack([-mean / 2, mean / 2], dim=-1)
            quarters = (variance / 4).unsqueeze(-1).expand_as(halves)  # the sum of the two does not vary
            return categorical.bridge(halves, quarters, torch.zeros_like(halves), mean, yes_no=True)
        probs = None
        if link == "probit":
            probs = _answers((mean * categorical.probit_scale(variance)).sigmoid())
        return categorical.summarise(_answers(outputs.draw().sigmoid()), mean, yes_no=True, probs=probs)

    def answer_strangeness(self, outputs: Tensor) -> Tensor | None:
        wide = in_double(outputs)
        yes, no = (x.sigmoid() * functional.logsigmoid(x) for x in (wide, -wide))
        return -(yes + no).mean(1)

    def count(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        return own_data.count_labels(outputs, targets)

    def training_scores(self, summary: DataSummary) -> dict[str, float]:
        if summary.log_likelihood is None or not any(name.startswith("yes") for name in summary.counts):
            return {}
        answers = summary.num_answers * summary.num_outputs
        return {"accuracy": summary.counts.get("right", 0) / answers, "nll": -summary.log_likelihood / answers}

    def training_troubles(self, summary: DataSummary, classes: Sequence[str] | None = None) -> list[str]:
        scores, examples = self.training_scores(summary), summary.num_answers
        if not scores or examples < own_data.LEAST:
            return []
        if summary.counts.get("shares") == examples:
            return [own_data.probabilities("sigmoid", "their logits")]
        yes = [summary.counts.get(f"yes {label}", 0) / examples for label in range(summary.num_outputs)]
        chance = sum(max(share, 1 - share) for share in yes) / len(yes)
        if not own_data.barely_better(scores["accuracy"], chance, examples):  # labels of an example go together
            return []
        told = f"on the data of the fit the network gives {scores['accuracy']:.1%} of the labels rightly"
        return [f"{told}, and the more frequent answers alone {chance:.1%}: {own_data.causes(summary.counts)}"]

    def answers_at_temperatures(self, samples: Tensor) -> Callable[[float], Tensor]:
        return lambda temperature: (samples / temperature).sigmoid().mean(0)

    def answers_from_gaussian(self, outputs: GaussianOutputs, *, link: str) -> Tensor:
        if link == "mc":
            return self.answers_at_temperatures(outputs.draw())(1.0)
        if link == "probit":
            return (outputs.mean * categorical.probit_scale(outputs.variance)).sigmoid()
        return super().answers_from_gaussian(outputs, link=link)


def _answers(yes: Tensor) -> Tensor:  # (..., L) -> (..., L, 2)
    return torch.stack([1 - yes, yes], dim=-1)
