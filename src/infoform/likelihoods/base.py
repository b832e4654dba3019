"""What a likelihood tells: log p(y | f), draws of y, and what to make of sampled outputs; all else has a default.

    E_y[∇_f log p ∇_f log pᵀ] = Σ_v u_v u_vᵀ,     u_v: the Fisher vectors, (N, C) each

Three choices of vectors: "exact" (a deterministic root), "mc" (labels drawn from the model itself) and
"empirical" (the labels of the data; a biased estimate, see Kunstner et al. 2019).

Outputs at several positions of an example (tokens, pixels) become rows, one a position (positions.py): a likelihood is
one of a row, and N stands for rows in all that a subclass writes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform import metrics
from infoform.common.ignored import counting
from infoform.likelihoods import from_draws
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.likelihoods.positions import (
    RowTargets,
    arranged_targets,
    as_rows,
    outputs_last,
    positions_of,
    rows_where,
)
from infoform.prediction import Prediction

FISHER_KINDS = ("mc", "exact", "empirical")
LINKS = ("probit", "bridge", "mc")


@dataclass(frozen=True)
class DataSummary:
    """What a fit learns of its data besides the curvature.

    Args:
        num_examples: number of examples.
        num_outputs: number C of the network's outputs.
        log_likelihood: Σ_n log p(y_n | f_n), at σ = 1; None where the data had no targets.
        counts: what the likelihood counted of answers and targets, by name; see `Likelihood.count`.
        num_targets: number of targets: of examples, or of positions that count where there are several; None for one
            an example.
        positions: the largest number of positions of an example.

    Example:
        ```python
        from infoform.likelihoods import DataSummary, Regression
        summary = DataSummary(num_examples=10, num_outputs=1, log_likelihood=-20.0)
        assert 1.4 < Regression().fitted_noise(summary) < 1.5
        ```
    """

    num_examples: int
    num_outputs: int
    log_likelihood: float | None  # Σ_n log p(y_n | f_n), at σ = 1; None where the data had no targets
    counts: Mapping[str, float] = field(default_factory=dict)
    num_targets: int | None = None  # None for one an example
    positions: int = 1  # at most, of an example

    @property
    def num_answers(self) -> int:
        """Return the number of targets that the log-likelihood is of."""
        return self.num_examples if self.num_targets is None else self.num_targets


class Likelihood(ABC):
    """A probability of targets given the network's outputs f (N, C); immutable.

    A likelihood of your own is a subclass with a `name` and two methods, `log_prob` and `sample_targets`, and mostly
    the two checks `check_outputs` and `check_targets`. Every other method has a default, which a subclass overrides
    where it knows better: gradients by autograd, means and variances by the sampler, scores by the density.

    A network may answer at several positions of an example: every position is then one of the N rows that these
    methods see, and nothing in them changes.

    Attributes:
        name: name in `infoform.likelihoods.LIKELIHOODS` and in saved files.
        default_prior: name of the prior where a user names none, measured in docs/predictives.md.
        one_of_many: whether a target is the index of one of C classes.
        has_logits: whether outputs are logits, which a temperature may divide.
        takes_noise: whether it has a noise σ, the argument of `with_noise`.
        free_noise: whether that σ is to be found from data.
        axis: axis of the network's outputs that has the C numbers of a position, where there are positions; None for
            the last of three axes, (N, T, C), and the second of more, (N, C, H, W).
        own_density: whether predictions are scored by `log_density`, since they are neither probabilities of classes or
            labels nor Gaussian.
        closed_form: whether `from_gaussian` needs no draws.
        index_targets: whether a target is the index of a class or grade.
        joins: whether the network's outputs are made one tensor by `join_outputs`.
        tuned_by_density: whether a search goes by `log_density` also where `scores` is overridden.
        takes_conformal: whether sets or intervals can be calibrated.
        inner_noise: the noise of a head that has it in its density; None where there is none.

    Example:
        ```python
        import torch
        from infoform import Likelihood

        class Exponential(Likelihood):
            name = "exponential"

            def log_prob(self, outputs, targets):
                return (outputs - targets * outputs.exp()).sum(1)

            def sample_targets(self, outputs, uniforms):
                return -torch.log1p(-uniforms).to(outputs) / outputs.exp()

        score = Exponential().score(torch.zeros(1, 1), torch.tensor([[3.0]]))
        assert score == -2
        ```
    """

    name: ClassVar[str]
    default_prior: ClassVar[str] = "activation"
    one_of_many: ClassVar[bool] = False
    has_logits: ClassVar[bool] = False
    takes_noise: ClassVar[bool] = False
    own_density: ClassVar[bool] = True
    closed_form: ClassVar[bool] = False
    index_targets: ClassVar[bool] = False
    joins: ClassVar[bool] = False
    tuned_by_density: ClassVar[bool] = False
    takes_conformal: ClassVar[bool] = True
    inner_noise: float | None = None
    free_noise: bool = False
    axis: int | None = None

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # -> (N,)
        """Return log p(target | output) of every example.

        Args:
            outputs: outputs of the network, (N, C).
            targets: targets as `check_targets` returns them.

        Returns:
            Log probabilities or densities, (N,); of a likelihood with noise at σ = 1.
        """

    @abstractmethod
    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:  # uniforms (N, noise_width)
        """Turn uniform random numbers into targets drawn from the model.

        Args:
            outputs: outputs of the network, (N, C).
            uniforms: numbers between 0 and 1, (N, `noise_width(C)`).

        Returns:
            One target for each example, as `log_prob` takes them.
        """

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        """Return the prediction of M networks; unless overridden, of numbers whose moments `moments` tells.

        Args:
            samples: outputs of the networks, (M, N, C).
            plain: outputs of the trained network, (N, C).
            noise: standard deviation σ of the targets, where the likelihood has one.

        Returns:
            The prediction for the N examples.
        """
        return from_draws.predict_numbers(self, samples, plain)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:  # (N, C) -> (N, K), (N, K)
        """Return mean and variance of the target given the outputs; unless overridden, by the sampler's quantiles.

        Args:
            outputs: outputs of a network, (N, C).

        Returns:
            Means and variances of the K numbers of a target.
        """
        return from_draws.moments_by_sampler(self, outputs)

    def log_density(self, prediction: Prediction, targets: Tensor) -> Tensor:  # -> (N,)
        """Return log p(target | input) of a prediction, averaged over its draws of outputs.

        Args:
            prediction: prediction of N examples, made by this likelihood.
            targets: targets as `check_targets` returns them.

        Returns:
            The log of the mean density over draws, (N,).
        """
        return from_draws.log_density(self, prediction, targets)

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        """Return the prediction for Gaussian outputs; unless overridden, that of draws from them.

        Args:
            outputs: mean and covariance of every example's outputs, and how to draw from them.
            noise: standard deviation σ of the targets, where the likelihood has one.
            link: "probit", "bridge" or "mc": the way from uncertain logits to probabilities, for classes and labels.

        Returns:
            The prediction for the N examples.
        """
        return self.from_samples(outputs.draw(), outputs.mean, noise=noise)

    def answers_at_temperatures(self, samples: Tensor) -> Callable[[float], Tensor]:  # (M, N, C) -> (N, C)
        """Return what gives the probabilities of `from_samples` alone, for a search over many temperatures.

        Args:
            samples: outputs of the networks, (M, N, C).

        Returns:
            A function from a temperature to probabilities, (N, C).
        """
        return lambda temperature: self.from_samples(samples / temperature, samples[0], noise=None).value

    def answers_from_gaussian(self, outputs: GaussianOutputs, *, link: str) -> Tensor:  # -> (N, C)
        """Return the probabilities of `from_gaussian` alone, for a search that asks for nothing else.

        Args:
            outputs: mean and covariance of every example's outputs, and how to draw from them.
            link: "probit", "bridge" or "mc".

        Returns:
            Probabilities, (N, C).
        """
        return self.from_gaussian(outputs, noise=None, link=link).value

    def plain_prediction(self, outputs: Tensor, *, noise: float | None) -> Prediction:
        """Return the prediction of the trained network alone, which has no epistemic part.

        Args:
            outputs: outputs of the trained network, (N, C).
            noise: standard deviation σ of the targets, where the likelihood has one.

        Returns:
            The prediction for the N examples, with zero `epistemic` and `mutual_information`.
        """
        return self.from_samples(outputs.unsqueeze(0), outputs, noise=noise)

    def arrange_outputs(self, outputs: Tensor) -> Tensor:  # -> (N, *P, C)
        """Return the outputs of a network, checked, with the numbers of a position last; a view of them.

        Args:
            outputs: what the network returned: (N, C), or outputs at several positions of an example.

        Returns:
            The outputs, (N, C) or (N, *P, C).

        Raises:
            ValueError: if the outputs have another shape than the likelihood needs.
        """
        if outputs.dim() < 3:
            return self.check_outputs(outputs)
        arranged = outputs_last(outputs, self.axis)
        self.check_outputs(as_rows(arranged))
        return arranged

    def arrange_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Return targets in the order of arranged outputs; those of positions that do not count are −100 or NaN.

        Args:
            targets: targets as the loader gave them.
            outputs: outputs as `arrange_outputs` returns them.

        Returns:
            The targets as `check_targets` returns them or, at positions, (N, *P) or (N, *P, K).

        Raises:
            ValueError: if the targets do not fit the outputs, or have values that the likelihood excludes.
        """
        if outputs.dim() < 3:
            return self.check_targets(targets, outputs)
        check_batch(targets, outputs)
        return arranged_targets(targets, outputs, self.axis)

    def row_targets(self, targets: Tensor | None, outputs: Tensor, *, mask: Tensor | None = None) -> RowTargets:
        """Return which rows of the outputs count, and their targets.

        Args:
            targets: targets as `arrange_targets` returns them; None where there are none.
            outputs: outputs as `arrange_outputs` returns them.
            mask: which positions are no padding, (N, T), where there are no targets to tell.

        Returns:
            The rows that have a target, and the targets of these, checked.

        Raises:
            ValueError: if targets have values that the likelihood excludes.
        """
        if outputs.dim() < 3:
            return RowTargets(None, targets)
        places = outputs.dim() - 1
        if targets is None:
            fits = mask is not None and mask.shape == outputs.shape[:-1]
            return RowTargets(rows_where(mask.to(outputs.device) if fits and mask is not None else None), None)
        targets = targets.to(outputs.device)
        found = RowTargets(rows_where(counting(targets, places)), None)
        given = found.of(targets.flatten(0, places - 1))
        if len(given) == 0:
            return RowTargets(found.rows, given)
        return RowTargets(found.rows, self.check_targets(given, found.of(as_rows(outputs))))

    def check_outputs(self, outputs: Tensor) -> Tensor:  # -> (N, C)
        """Return the outputs of a network as a matrix; of outputs at positions the rows are given.

        Args:
            outputs: what the network returned.

        Returns:
            The outputs, (N, C).

        Raises:
            ValueError: if the outputs have another shape than the likelihood needs.
        """
        return check_matrix(outputs, self.name)

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Return the targets in the form that `log_prob` takes.

        Args:
            targets: targets as the loader gave them.
            outputs: outputs for the same examples, (N, C).

        Returns:
            The targets, one for each example.

        Raises:
            ValueError: if the targets do not fit the outputs, or have values that the likelihood excludes.
        """
        check_batch(targets, outputs)
        return targets

    def check_validation(self, targets: Tensor) -> None:
        """Raise where hyperparameters cannot be chosen on data with these targets; unless overridden, nowhere.

        Args:
            targets: all targets of the validation data, as `check_targets` returns them.

        Raises:
            ValueError: if the targets tell nothing of the model's uncertainty.
        """
        return

    def read_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """Return targets from a file, which may hold whole numbers as floats, in the type that a loader should give.

        Args:
            targets: numbers as the file holds them.
            dtype: type of the network's weights.

        Returns:
            The same numbers in the type that `check_targets` takes.
        """
        return targets.to(dtype)

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:  # -> (N, C)
        """Return the gradient of `log_prob` in the outputs; unless overridden, by automatic differentiation.

        Args:
            outputs: outputs of the network, (N, C).
            targets: targets as `check_targets` returns them.

        Returns:
            The gradients, (N, C).
        """
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_prob(leaf, targets).sum(), leaf)
        return gradient

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:  # C times (N, C)
        """Yield the C vectors whose outer products sum to the Fisher matrix of the outputs.

        Args:
            outputs: outputs of the network, (N, C).

        Returns:
            An iterator over C tensors (N, C).

        Raises:
            ValueError: if the likelihood has no such root.
        """
        raise ValueError(f"the {self.name} likelihood has no exact root of its Fisher matrix; use fisher='mc'.")

    def noise_width(self, num_outputs: int) -> int:
        """Return how many uniform random numbers one sampled target takes.

        Args:
            num_outputs: number C of outputs.

        Returns:
            The width of the `uniforms` of `sample_targets`.
        """
        return num_outputs

    def settings(self) -> dict[str, Any]:
        """Return what the constructor needs to make this object again.

        Returns:
            Arguments by name, with values that JSON can hold.
        """
        return {}

    def target_width(self, num_outputs: int) -> int:
        """Return how many numbers a target has.

        Args:
            num_outputs: number C of outputs.

        Returns:
            The number K; 1 for an index.
        """
        return 1 if self.index_targets else num_outputs

    def join_outputs(self, outputs: Any) -> Tensor:
        """Return what the network returned as one tensor, where `joins` says so.

        Args:
            outputs: what the network returned.

        Returns:
            One tensor.
        """
        found: Tensor = outputs
        return found

    def with_inner_noise(self, num_outputs: int) -> Self:
        """Return this likelihood with its noise in the density itself, where it has one.

        Args:
            num_outputs: number C of outputs.

        Returns:
            A likelihood whose `log_prob` is at its own σ.
        """
        return self

    def with_noise(self, noise: float) -> Self:
        """Return this likelihood with a known noise.

        Args:
            noise: standard deviation σ of the targets.

        Returns:
            A new likelihood.

        Raises:
            ValueError: if the likelihood has no noise (`takes_noise` is False), or σ is not positive.
        """
        raise ValueError(f"noise is for regression, got {noise} for the {self.name} likelihood; leave it out.")

    def fitted_noise(self, summary: DataSummary) -> float | None:
        """Return the noise σ, given or fitted to the data.

        Args:
            summary: what a fit has learned of its data.

        Returns:
            The noise, or None where the likelihood has none.

        Raises:
            ValueError: if a noise is to be fitted and the data had no targets, or no residuals.
        """
        return None

    def log_likelihood(self, summary: DataSummary, noise: float | None) -> float:
        """Return Σ_n log p(y_n | f_n) of the fitted data.

        Args:
            summary: what a fit has learned of its data.
            noise: standard deviation σ of the targets, where the likelihood has one.

        Returns:
            The sum over all examples, at σ = `noise`.

        Raises:
            ValueError: if the data had no targets.
        """
        return known_log_likelihood(summary)

    def count(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """Count what tells whether this is the trained network on its own data; a fit adds the counts up.

        Args:
            outputs: outputs of the network, (N, C).
            targets: targets as `check_targets` returns them.

        Returns:
            Sums over the examples by name; none, unless overridden.
        """
        return {}

    def training_scores(self, summary: DataSummary) -> dict[str, float]:
        """Return how good the trained network alone is on the data of the fit.

        Args:
            summary: what a fit has learned of its data.

        Returns:
            Scores by name ("accuracy", "nll" or "rmse"); unless overridden, the NLL. None without targets.
        """
        return {} if summary.log_likelihood is None else {"nll": -summary.log_likelihood / summary.num_answers}

    def training_troubles(self, summary: DataSummary, classes: Sequence[str] | None = None) -> list[str]:
        """Say what looks wrong with the network on the data of the fit, and why that may be.

        Args:
            summary: what a fit has learned of its data.
            classes: names of the classes, where they are known.

        Returns:
            Sentences for warnings; none where nothing looks wrong, or unless overridden.
        """
        return []

    def information_scale(self, noise: float | None, kind: str) -> float:
        """Return the factor from the information at σ = 1, as a curvature keeps it, to that at σ = `noise`.

        Args:
            noise: standard deviation σ of the targets, where the likelihood has one.
            kind: choice of Fisher vectors: "mc", "exact" or "empirical".

        Returns:
            The factor; 1 for a likelihood without noise.
        """
        return 1.0

    def num_vectors(self, num_outputs: int, kind: str, samples: int, positions: int = 1) -> int:
        """Return how many Fisher vectors an example has.

        Args:
            num_outputs: number C of outputs.
            kind: choice of Fisher vectors: "mc", "exact" or "empirical".
            samples: number of sampled labels of "mc".
            positions: number P of positions of an example.

        Returns:
            The number V of vectors that `fisher_vectors` yields.
        """
        return {"mc": samples, "exact": num_outputs * positions, "empirical": 1}[kind]

    def fisher_vectors(
        self,
        outputs: Tensor,
        kind: str,
        *,
        targets: Tensor | None = None,
        uniforms: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Iterator[Tensor]:  # (N, *P, C), uniforms (N, V, P, noise_width) -> V times (N, *P, C)
        """Yield the Fisher vectors of a batch, one at a time.

        At positions a vector of "mc" has a label drawn for every position, one of "empirical" the label of every
        position, and one of "exact" is of a single position, so that there are P times as many.

        Args:
            outputs: outputs of the network, (N, C) or (N, *P, C).
            kind: choice of Fisher vectors: "mc", "exact" or "empirical".
            targets: targets of the rows that count, for "empirical".
            uniforms: random numbers between 0 and 1, (N, V, `noise_width(C)`) or (N, V, P, `noise_width(C)`), for "mc".
            rows: which rows (of N · P) count, (r,); None for all.

        Returns:
            An iterator over V tensors of the outputs' shape, zero where a position does not count.
        """
        count = RowTargets(rows, targets)
        own = count.of(as_rows(outputs))
        if kind == "mc":
            assert uniforms is not None
            # (N, V, P, w) -> V of (R, w)
            drawn = (count.of(one.flatten(0, -2)) for one in uniforms.unbind(1))
            vectors = self._sampled_vectors(own, drawn, uniforms.shape[1])
        elif kind == "exact":
            vectors = self.fisher_root(own)
        else:
            assert targets is not None
            vectors = iter([self.score(own, targets)])
        for vector in vectors:
            whole = count.put(vector, len(outputs) * math.prod(positions_of(outputs))).view(outputs.shape)
            if kind != "exact" or outputs.dim() < 3:
                yield whole
                continue
            by_position = whole.flatten(1, -2)  # (N, P, C)
            for position in range(by_position.shape[1]):
                single = torch.zeros_like(by_position)
                single[:, position] = by_position[:, position]
                yield single.view(outputs.shape)

    def _sampled_vectors(self, outputs: Tensor, uniforms: Iterable[Tensor], count: int) -> Iterator[Tensor]:
        for draw in uniforms:
            yield self.score(outputs, self.sample_targets(outputs, draw)) / math.sqrt(count)

    def scores(self, prediction: Prediction, targets: Tensor) -> dict[str, float]:
        """Return how good a prediction of this likelihood is.

        Args:
            prediction: prediction of N examples, made by this likelihood.
            targets: their targets.

        Returns:
            Measures by name; unless overridden, those of `infoform.metrics.evaluate`, with the NLL of `log_density`
            where `own_density` says so.

        Raises:
            ValueError: if targets and prediction do not fit each other.
        """
        if not self.own_density:
            return metrics.evaluate(prediction, targets)
        return from_draws.scores(self, prediction, targets)

    def sampling_trouble(self, prediction: Prediction, targets: Tensor | None) -> str | None:
        """Say what is wrong where sampled networks are much worse than the trained one.

        Args:
            prediction: prediction of sampled networks, made by this likelihood.
            targets: targets of the same examples, where they are known.

        Returns:
            A phrase for a warning, or None where nothing is wrong.
        """
        if not bool(prediction.value.isfinite().all()):
            return "the sampled networks' outputs are not finite"
        if targets is not None:
            return self._worse_than_plain(*metrics.as_rows(prediction, targets))
        return self._worse_than_plain(prediction.as_rows()[0] if prediction.positions else prediction, None)

    def example_strangeness(self, outputs: Tensor) -> Tensor | None:  # (N, *P, C) -> (N,)
        """Return `answer_strangeness` of every example: at positions its mean over them.

        Args:
            outputs: Outputs of the network as `arrange_outputs` returns them.

        Returns:
            Numbers (N,) of which the order alone matters, or None.
        """
        found = self.answer_strangeness(as_rows(outputs))
        return found if found is None or outputs.dim() < 3 else found.view(len(outputs), -1).mean(1)

    def known_classes(self, outputs: Tensor, targets: Tensor | None) -> Tensor | None:  # (N, C), (N, ...) -> (N,)
        """Return the class of each known example, by which novelty tells them apart; None where there are no classes.

        Args:
            outputs: Outputs of the network, (N, C).
            targets: Checked targets, where there are any.

        Returns:
            Class indices (N,), or None.
        """
        return None

    def answer_strangeness(self, outputs: Tensor) -> Tensor | None:  # (N, C) -> (N,)
        """Return how strange the trained network's own answer is, for novelty; None where that makes no sense.

        Args:
            outputs: Outputs of the network, (N, C).

        Returns:
            Numbers (N,) of which the order alone matters, or None.
        """
        return None

    def target_covariance(self, prediction: Prediction, index: int) -> Tensor:  # -> (C, C)
        """Return E[Cov(y | f)] of one example: what would be left of its target's spread if the weights were known.

        Args:
            prediction: prediction of sampled networks, made by this likelihood.
            index: place of the example.

        Returns:
            The covariance in float64, (C, C); unless overridden, with independent outputs.
        """
        return prediction.aleatoric[index].double().diag()

    def _worse_than_plain(self, prediction: Prediction, targets: Tensor | None) -> str | None:
        """Return `sampling_trouble` of finite outputs."""
        return None


def known_log_likelihood(summary: DataSummary) -> float:
    """Return the log-likelihood that the fit summed up, or say why there is none."""
    if summary.log_likelihood is None:
        raise ValueError("this needs the targets of the fitted data, and the loader gave none; fit on (x, y) batches.")
    return summary.log_likelihood


def check_batch(targets: Tensor, outputs: Tensor) -> None:
    """Raise unless there is one target for every output."""
    if targets.dim() == 0 or targets.shape[0] != outputs.shape[0]:
        raise ValueError(
            f"a batch needs one target for each of its {outputs.shape[0]} examples, "
            f"got targets of shape {tuple(targets.shape)}; check the loader."
        )


def check_matrix(outputs: Tensor, likelihood: str) -> Tensor:
    """Return (N, C) outputs as they are; raise for any other shape."""
    if outputs.dim() != 2:
        raise ValueError(
            f"the {likelihood} likelihood needs outputs of shape (examples, outputs), got {tuple(outputs.shape)}; "
            + (
                "outputs at positions are for Laplace, not for baselines."
                if outputs.dim() > 2
                else "wrap the model so that it returns one row of outputs for each example."
            )
        )
    return outputs
