"""What a likelihood tells: log p(y | f), draws of y, and what to make of sampled outputs; all else has a default.

    E_y[∇_f log p ∇_f log pᵀ] = Σ_v u_v u_vᵀ,     u_v: the Fisher vectors, (N, C) each

Three choices of vectors: "exact" (a deterministic root), "mc" (labels drawn from the model itself) and
"empirical" (the labels of the data; a biased estimate, see Kunstner et al. 2019).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform import metrics
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
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


class Likelihood(ABC):
    """A probability of targets given the network's outputs f (N, C); immutable.

    A likelihood of your own is a subclass with a `name` and three methods: `log_prob`, `sample_targets` and
    `from_samples`. Every other method has a default, which a subclass overrides where it knows better.

    Attributes:
        name: name in `infoform.likelihoods.LIKELIHOODS` and in saved files.
        default_prior: name of the prior where a user names none, measured in docs/predictives.md.
        one_of_many: whether a target is the index of one of C classes.
        has_logits: whether outputs are logits, which a temperature may divide.
        takes_noise: whether it has a noise σ, the argument of `with_noise`.
        free_noise: whether that σ is to be found from data.

    Example:
        ```python
        import dataclasses, torch
        from infoform import Likelihood, Regression

        class Poisson(Likelihood):
            name = "poisson"

            def log_prob(self, outputs, targets):
                return torch.distributions.Poisson(outputs.exp()).log_prob(targets).sum(1)

            def sample_targets(self, outputs, uniforms):
                counts = torch.arange(100.0).reshape(-1, 1, 1)
                below = torch.distributions.Poisson(outputs.exp()).log_prob(counts).exp().cumsum(0)
                return (below < uniforms).sum(0).to(outputs)

            def from_samples(self, samples, plain, *, noise):
                rates = Regression().from_samples(samples.exp(), plain.exp(), noise=1.0)
                return dataclasses.replace(rates, plain=plain)

        assert Poisson().score(torch.zeros(1, 1), torch.tensor([[3.0]])) == 2
        ```
    """

    name: ClassVar[str]
    default_prior: ClassVar[str] = "activation"
    one_of_many: ClassVar[bool] = False
    has_logits: ClassVar[bool] = False
    takes_noise: ClassVar[bool] = False
    free_noise: bool = False

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

    @abstractmethod
    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        """Return the prediction of M networks.

        Args:
            samples: outputs of the networks, (M, N, C).
            plain: outputs of the trained network, (N, C).
            noise: standard deviation σ of the targets, where the likelihood has one.

        Returns:
            The prediction for the N examples.
        """

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

    def check_outputs(self, outputs: Tensor) -> Tensor:  # -> (N, C)
        """Return the outputs of a network as a matrix.

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
            Scores by name ("accuracy", "nll" or "rmse"); none where the data had no targets, or unless overridden.
        """
        return {}

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

    def num_vectors(self, num_outputs: int, kind: str, samples: int) -> int:
        """Return how many Fisher vectors an example has.

        Args:
            num_outputs: number C of outputs.
            kind: choice of Fisher vectors: "mc", "exact" or "empirical".
            samples: number of sampled labels of "mc".

        Returns:
            The number V of vectors that `fisher_vectors` yields.
        """
        return {"mc": samples, "exact": num_outputs, "empirical": 1}[kind]

    def fisher_vectors(
        self, outputs: Tensor, kind: str, *, targets: Tensor | None = None, uniforms: Tensor | None = None
    ) -> Iterator[Tensor]:  # uniforms (N, V, noise_width) -> V times (N, C)
        """Yield the Fisher vectors of a batch, one at a time.

        Args:
            outputs: outputs of the network, (N, C).
            kind: choice of Fisher vectors: "mc", "exact" or "empirical".
            targets: targets of the batch, for "empirical".
            uniforms: random numbers between 0 and 1, (N, V, `noise_width(C)`), for "mc".

        Returns:
            An iterator over V tensors (N, C).
        """
        if kind == "exact":
            yield from self.fisher_root(outputs)
        elif kind == "empirical":
            assert targets is not None
            yield self.score(outputs, targets)
        else:
            assert uniforms is not None
            scale = 1 / math.sqrt(uniforms.shape[1])
            for draw in uniforms.unbind(1):
                yield scale * self.score(outputs, self.sample_targets(outputs, draw))

    def scores(self, prediction: Prediction, targets: Tensor) -> dict[str, float]:
        """Return how good a prediction of this likelihood is.

        Args:
            prediction: prediction of N examples, made by this likelihood.
            targets: their targets.

        Returns:
            Measures by name; unless overridden, those of `infoform.metrics.evaluate`.

        Raises:
            ValueError: if targets and prediction do not fit each other.
        """
        return metrics.evaluate(prediction, targets)

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
        return self._worse_than_plain(prediction, targets)

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
            "wrap the model so that it returns one row of outputs for each example."
        )
    return outputs
