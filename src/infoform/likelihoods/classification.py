"""Classification: one of C classes, p = softmax(f).

The Fisher matrix diag(p) − p pᵀ has the root with columns √p_c (e_c − p).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from infoform.common.float64 import in_double
from infoform.common.ignored import IGNORED
from infoform.likelihoods import categorical, own_data
from infoform.likelihoods.base import DataSummary, Likelihood, check_batch, check_matrix
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.prediction import Prediction

BLOCK = 2**17  # draws that a softmax takes at a time


class Classification(Likelihood):
    """One of C classes: softmax over C logits; targets are class indices (N,).

    Where the network classifies every position of an example, tokens (N, T, C) or pixels (N, C, H, W), targets are
    class indices of all positions, (N, T) or (N, H, W), and −100 where a position does not count.

    Args:
        axis: axis of the C logits in outputs with positions; None for the last of three and the second of more.
        next_token: whether the logits of a token are for the token after it, as in a causal language model whose labels
            are the tokens themselves.

    Example:
        ```python
        import torch
        from infoform import Classification
        prediction = Classification().plain_prediction(torch.tensor([[2.0, 0.0, 0.0]]), noise=None)
        assert prediction.labels.tolist() == [0]
        ```
    """

    name: ClassVar[str] = "classification"
    has_logits: ClassVar[bool] = True
    one_of_many: ClassVar[bool] = True
    index_targets: ClassVar[bool] = True
    own_density: ClassVar[bool] = False

    def __init__(self, *, axis: int | None = None, next_token: bool = False) -> None:
        self.axis, self.next_token = axis, next_token

    def settings(self) -> dict[str, Any]:
        given = {} if self.axis is None else {"axis": self.axis}
        return given | ({"next_token": True} if self.next_token else {})

    def arrange_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        if not self.next_token:
            return super().arrange_targets(targets, outputs)
        if outputs.dim() != 3:
            raise ValueError(
                "next_token=True is for logits of shape (examples, tokens, classes), got those of shape "
                f"{tuple(outputs.shape)}; leave it out."
            )
        tokens = super().arrange_targets(targets, outputs)
        return torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], IGNORED)], dim=1)

    def check_outputs(self, outputs: Tensor) -> Tensor:
        outputs = check_matrix(outputs, self.name)
        if outputs.shape[1] < 2:
            raise ValueError(
                "classification needs at least 2 logits for each example, got 1; "
                "use likelihood='multilabel' for a single yes/no output."
            )
        return outputs

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() != 1 or targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            raise ValueError(
                "classification needs integer class indices of shape (examples,), "
                f"got {targets.dtype} of shape {tuple(targets.shape)}; use targets.argmax(1) for one-hot rows."
            )
        low, high = (int(bound) for bound in targets.aminmax())
        if low < 0 or high >= outputs.shape[1]:
            raise ValueError(
                f"class indices must be between 0 and {outputs.shape[1] - 1} (the model has {outputs.shape[1]} "
                f"logits), got {low if low < 0 else high}; check the labels or the model's last layer."
            )
        return targets.long()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -functional.cross_entropy(outputs, targets, reduction="none")

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        score = -outputs.softmax(1)
        rows = torch.arange(len(targets), device=targets.device)
        score[rows, targets] += 1
        return score

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        probs = outputs.softmax(1)
        for label in range(outputs.shape[1]):
            vector = -probs
            vector[:, label] += 1
            yield probs[:, label : label + 1].sqrt() * vector

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        cumulative = outputs.double().softmax(1).cumsum(1)
        # scaled by the last entry, so that rounding cannot push a draw past the last class
        return (
            torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
            .squeeze(1)
            .clamp_max(outputs.shape[1] - 1)
        )

    def noise_width(self, num_outputs: int) -> int:
        return 1

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        return categorical.summarise(samples.softmax(-1).unsqueeze(2), plain, yes_no=False)

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        mean = outputs.mean
        if link == "bridge":
            variance, rows = outputs.variance.unsqueeze(1), outputs.row_sums.unsqueeze(1)
            return categorical.bridge(mean.unsqueeze(1), variance, rows, mean, yes_no=False)
        probs = None
        if link == "probit":
            probs = (mean * categorical.probit_scale(outputs.variance)).softmax(1).unsqueeze(1)
        return categorical.summarise(outputs.draw().softmax(-1).unsqueeze(2), mean, yes_no=False, probs=probs)

    def answers_at_temperatures(self, samples: Tensor) -> Callable[[float], Tensor]:
        size = max(1, BLOCK // (samples.shape[0] * samples.shape[2]))
        # over few classes a softmax is far faster so, and as many examples at a time as a cache holds
        blocks = [part.permute(2, 0, 1).contiguous() for part in samples.split(size, dim=1)]
        return lambda temperature: torch.cat([(part / temperature).softmax(0).mean(1) for part in blocks], dim=1).T

    def answers_from_gaussian(self, outputs: GaussianOutputs, *, link: str) -> Tensor:
        if link == "mc":
            return self.answers_at_temperatures(outputs.draw())(1.0)
        if link == "probit":
            return (outputs.mean * categorical.probit_scale(outputs.variance)).softmax(1)
        return super().answers_from_gaussian(outputs, link=link)

    def check_validation(self, targets: Tensor) -> None:
        if len(targets) > 1 and bool((targets == targets[0]).all()):
            raise ValueError(
                f"validation data must have examples of more than one class, got class {int(targets[0])} alone; "
                "give examples of all classes, in a loader that is not sorted by class."
            )

    def read_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        fractions = targets.is_floating_point() and not bool((targets == targets.round()).all())
        return targets.to(dtype) if fractions else targets.long()

    def known_classes(self, outputs: Tensor, targets: Tensor | None) -> Tensor | None:
        return outputs.argmax(1) if targets is None else targets  # without labels the network's own answer will do

    def answer_strangeness(self, outputs: Tensor) -> Tensor | None:
        # the energy: what is strange has small logits, also where one of them stands out
        return -in_double(outputs).logsumexp(1)

    def count(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        return own_data.count_classes(outputs, targets)

    def training_scores(self, summary: DataSummary) -> dict[str, float]:
        if summary.log_likelihood is None or not any(">" in name for name in summary.counts):
            return {}
        table = own_data.confusion(summary.counts, summary.num_outputs)
        right, nll = float(table.diagonal().sum() / table.sum()), -summary.log_likelihood / summary.num_answers
        return {"accuracy": right, "nll": nll}

    def training_troubles(self, summary: DataSummary, classes: Sequence[str] | None = None) -> list[str]:
        if summary.counts.get("tokens") and not self.next_token:
            return [
                "the labels are the tokens that the network is given, each its own: where a token is to be told from "
                "those before it, as by a causal language model, give Classification(next_token=True)."
            ]
        scores, examples = self.training_scores(summary), summary.num_answers
        if not scores or examples < own_data.LEAST:
            return []
        if summary.counts.get("shares") == examples:
            return [own_data.probabilities("softmax", "log-probabilities")]
        table = own_data.confusion(summary.counts, summary.num_outputs)
        order = own_data.other_order(table)
        what = "examples" if summary.num_targets is None else "positions"
        told = f"on the data of the fit the network is right in {scores['accuracy']:.1%} of {examples:,} {what}"
        if order is not None:
            return [f"{told}, and would be in {float(table.amax(1).sum()) / examples:.1%}, {_order(order, classes)}"]
        chance, uniform = float(table.sum(0).max()) / examples, math.log(summary.num_outputs)
        lost = own_data.barely_better(scores["accuracy"], chance, examples)
        if not lost and scores["nll"] <= uniform:
            return []
        beside = f"the most frequent class alone is in {chance:.1%}"
        if not lost:
            beside = f"its NLL is {scores['nll']:.3g}, where a guess without looking has {uniform:.3g}"
        return [f"{told}, and {beside}: {own_data.causes(summary.counts)}"]

    def target_covariance(self, prediction: Prediction, index: int) -> Tensor:
        return categorical.class_covariance(prediction, index)

    def _worse_than_plain(self, prediction: Prediction, targets: Tensor | None) -> str | None:
        plain_labels = prediction.plain.argmax(1)
        if targets is None:
            agree, count = int((prediction.labels == plain_labels).sum()), len(plain_labels)
            # a share needs enough inputs: less than half by more than the error that a fair coin would have
            if agree / count + 2 * math.sqrt(0.25 / count) >= 0.5:
                return None
            return f"they agree with the trained network on {agree / count:.0%} of {count} inputs"
        plain, sampled = ((labels == targets).double().mean() for labels in (plain_labels, prediction.labels))
        error = (plain * (1 - plain) / len(targets)).sqrt()
        if plain - sampled > 0.05 + 2 * error:
            return f"their accuracy is {sampled:.1%}, the trained network's {plain:.1%}"
        return None


def _order(order: Sequence[int], classes: Sequence[str] | None) -> str:
    """Return what to do where outputs answer other classes than they are taken for."""
    if classes is not None and len(classes) == len(order):
        named = ",".join(str(classes[label]) for label in order)
        return f"if the classes stood in the order {named}: the network was trained with that order; give it."
    moved = [f"output {output} answers class {label}" for output, label in enumerate(order) if output != label]
    return f"if {', '.join(moved[:3])}{', ...' if len(moved) > 3 else ''}: the labels stand in another order."
