"""Regression: y ~ N(f, σ² diag(s²)), with σ known or fitted and s the relative scales of the outputs.

The curvature is taken at σ = 1, where the Fisher matrix is diag(1/s²), so that σ can be fitted or tuned
afterwards without another pass: information at σ is `information_scale(σ)` times that at 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.likelihoods import own_data
from infoform.likelihoods.base import DataSummary, Likelihood, check_batch, check_matrix, known_log_likelihood
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.prediction import Prediction


class Regression(Likelihood):
    """C numbers: the network's outputs plus Gaussian noise; targets are (N, C) numbers.

    Args:
        noise: standard deviation of the noise: one number for all outputs, or one for each output. None: one number,
            which is fitted to the residuals of the data that the posterior is fitted on.
        axis: axis of the C numbers in outputs with positions, as of a network from images to images, whose targets are
            arranged as its outputs are; None for the last of three axes and the second of more.

    Raises:
        ValueError: if a noise is not positive and finite.

    Example:
        ```python
        import torch
        from infoform import Regression
        prediction = Regression(noise=0.5).plain_prediction(torch.zeros(1, 1), noise=0.5)
        assert prediction.std.item() == 0.5
        ```
    """

    name: ClassVar[str] = "regression"
    default_prior: ClassVar[str] = "isotropic"
    takes_noise: ClassVar[bool] = True
    own_density: ClassVar[bool] = False
    closed_form: ClassVar[bool] = True

    def __init__(self, noise: float | Sequence[float] | None = None, *, axis: int | None = None) -> None:
        values = [noise] if isinstance(noise, int | float) else list(noise or [])
        if noise is not None and not (values and all(0 < value < math.inf for value in values)):
            raise ValueError(f"noise must be a positive standard deviation, one an output, or None, got {noise!r}.")
        self.scales = None if noise is None or isinstance(noise, int | float) else tuple(map(float, values))
        self.noise = float(noise) if isinstance(noise, int | float) else None if noise is None else 1.0
        self.axis = axis

    @property
    def free_noise(self) -> bool:  # type: ignore[override]
        """Whether the noise is to be found from data."""
        return self.noise is None

    def with_noise(self, noise: float) -> Self:
        return type(self)(noise, axis=self.axis)

    def with_inner_noise(self, num_outputs: int) -> Self:
        assert self.noise is not None
        return self if self.scales is not None else type(self)([self.noise] * num_outputs, axis=self.axis)

    @property
    def inner_noise(self) -> float | None:  # type: ignore[override]
        """Return 1 where the noise is in the density; σ else."""
        return self.noise

    def check_outputs(self, outputs: Tensor) -> Tensor:
        outputs = check_matrix(outputs.unsqueeze(1) if outputs.dim() == 1 else outputs, self.name)
        if self.scales is not None and len(self.scales) != outputs.shape[1]:
            raise ValueError(
                f"noise must hold one standard deviation for each of the model's {outputs.shape[1]} outputs, "
                f"got {len(self.scales)}."
            )
        return outputs

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() == 1 and outputs.shape[1] == 1:
            targets = targets.unsqueeze(1)
        if targets.shape != outputs.shape:
            raise ValueError(
                f"regression needs targets of the outputs' shape {tuple(outputs.shape)}, got {tuple(targets.shape)}; "
                "reshape the targets in the loader."
            )
        if targets.is_complex() or not bool(targets.isfinite().all()):
            raise ValueError("regression targets must be finite real numbers; remove or impute the missing ones.")
        return targets.to(outputs.dtype)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scales = self._scales(outputs)
        residual = (targets - outputs) / scales
        return -0.5 * (residual**2).sum(1) - (0.5 * math.log(2 * math.pi) + scales.log()).sum()

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (targets - outputs) / self._scales(outputs) ** 2

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        scales = self._scales(outputs)
        for index in range(outputs.shape[1]):
            vector = outputs.new_zeros(outputs.shape)
            vector[:, index] = 1 / scales[index]
            yield vector

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        normals: Tensor = torch.special.ndtri(uniforms.clamp(1e-16, 1 - 1e-16))
        return outputs + self._scales(outputs) * normals.to(outputs.dtype)

    def settings(self) -> dict[str, Any]:
        noise = {"noise": list(self.scales) if self.scales is not None else self.noise}
        return noise if self.axis is None else noise | {"axis": self.axis}

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        centred = samples - samples.mean(0)
        covariance = torch.einsum("mnc,mnd->ncd", centred, centred) / max(1, len(samples) - 1)
        outputs = GaussianOutputs(samples.mean(0), covariance)
        return self._predict(outputs, plain, noise, samples)

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        return self._predict(outputs, outputs.mean, noise, None)

    def _predict(
        self, outputs: GaussianOutputs, plain: Tensor, noise: float | None, samples: Tensor | None
    ) -> Prediction:
        assert noise is not None
        mean = outputs.mean
        aleatoric = (noise * self._scales(mean)) ** 2  # (C,)
        information = 0.5 * outputs.log_det_ratio(aleatoric)  # log det(Σ + noise) − log det(noise)
        return Prediction(
            epistemic=outputs.variance.clamp_min(0),
            aleatoric=aleatoric.expand_as(mean),
            entropy=information + 0.5 * (2 * math.pi * math.e * aleatoric).log().sum(),
            mutual_information=information,
            plain=plain,
            mean=mean,
            samples=samples,
        )

    def count(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        return own_data.count_numbers(outputs, targets)

    def training_scores(self, summary: DataSummary) -> dict[str, float]:
        if "squares" not in summary.counts:
            return {}
        return {"rmse": math.sqrt(summary.counts["squares"] / (summary.num_answers * summary.num_outputs))}

    def training_troubles(self, summary: DataSummary, classes: Sequence[str] | None = None) -> list[str]:
        scores, examples = self.training_scores(summary), summary.num_answers
        if not scores or examples < own_data.LEAST:
            return []
        sums = [(summary.counts[f"y {c}"], summary.counts[f"yy {c}"]) for c in range(summary.num_outputs)]
        spread = math.sqrt(max(sum(squares / examples - (total / examples) ** 2 for total, squares in sums), 0.0))
        spread /= math.sqrt(summary.num_outputs)
        if scores["rmse"] < spread or spread == 0:
            return []
        told = f"on the data of the fit the network's RMSE is {scores['rmse']:.3g}"
        causes = own_data.causes(summary.counts)
        return [f"{told}, and the mean of the targets alone has {spread:.3g}: {causes}"]

    def fitted_noise(self, summary: DataSummary) -> float | None:
        if self.noise is not None:
            return self.noise
        if summary.log_likelihood is None:
            raise ValueError(
                "fitting the noise needs targets, and the loader gave none; "
                "give (input, target) batches or a known noise, as in Regression(noise=0.1)."
            )
        count = summary.num_answers * summary.num_outputs
        variance = -2 * summary.log_likelihood / count - math.log(2 * math.pi)
        if not variance > 0:  # also where rounding takes it below
            raise ValueError(
                "the model fits its targets exactly, so that no noise can be fitted; give Regression(noise=...)."
            )
        return math.sqrt(variance)

    def log_likelihood(self, summary: DataSummary, noise: float | None) -> float:
        assert noise is not None
        count = summary.num_answers * summary.num_outputs
        scales = summary.num_answers * sum(map(math.log, self.scales or ()))
        constant = 0.5 * count * math.log(2 * math.pi) + scales
        squares = -2 * (known_log_likelihood(summary) + constant)  # Σ (y - f)² / s²
        return -0.5 * squares / noise**2 - count * math.log(noise) - constant

    def information_scale(self, noise: float | None, kind: str) -> float:
        assert noise is not None
        # the score is (y - f)/σ²: its square has mean 1/σ² over the model's own draws, |y - f|²/σ⁴ over given labels
        return noise**-4 if kind == "empirical" else noise**-2

    def _worse_than_plain(self, prediction: Prediction, targets: Tensor | None) -> str | None:
        if targets is None:
            return None
        shape = prediction.plain.shape
        plain, sampled = (
            (out - targets.reshape(shape).to(out)).square().mean().sqrt()
            for out in (prediction.plain, prediction.value)
        )
        return f"their RMSE is {sampled:.3g}, the trained network's {plain:.3g}" if sampled > 1.5 * plain else None

    def _scales(self, outputs: Tensor) -> Tensor:  # (C,)
        if self.scales is None:
            return outputs.new_ones(outputs.shape[1])
        return outputs.new_tensor(self.scales)
