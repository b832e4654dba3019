"""The last layer as one deterministic graph: one forward pass, then plain algebra on the last layer's inputs.

f = W a,   Cov(f) from a alone;   p = E softmax(f / T) over frozen draws, or softmax(f κ(Var f) / T) by "probit"
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from infoform.export.frozen_draws import FrozenDraws, RootByProducts
from infoform.export.inputs import GraphInputs
from infoform.export.network import Network
from infoform.export.outputs import Computed, read_outputs_of
from infoform.likelihoods import DenseCovariance, DiagonalCovariance, Likelihood, OutputCovariance
from infoform.likelihoods.balanced_noise import balanced_normal
from infoform.likelihoods.categorical import probit_scale
from infoform.posteriors import LayerPosterior
from infoform.predicting.kinds import MANY_OUTPUTS

GRAPH_LINKS = ("mc", "probit")


class LastLayerGraph(nn.Module):
    """The trained network with a posterior over its last layer.

    Args:
        network: with its last layer as head.
        inputs: form of the inputs.
        posterior: of the last layer.
        temperature: T that logits are divided by.
        noise: standard deviation of the targets, of a regression.
        link: "mc" (frozen draws) or "probit"; None for the first where it can be, with few outputs.
        samples: number of frozen draws.
        seed: of the draws, as in `Laplace.predict`.
    """

    def __init__(
        self,
        network: Network,
        inputs: GraphInputs,
        posterior: LayerPosterior,
        *,
        temperature: float,
        noise: float | None,
        link: str | None,
        samples: int,
        seed: int,
    ) -> None:
        super().__init__()
        assert network.head is not None
        self.network, self.inputs, self.posterior = network, inputs, posterior
        self.temperature, self.noise = temperature, noise
        posterior.prepare_export()
        probe = torch.zeros(1, posterior.shape[1], dtype=posterior.dtype, device=posterior.device)
        form = self._form(posterior.output_covariance(probe))  # computes, for once, what all examples share
        drawable = isinstance(form, RootByProducts) or not _needs_root(form)
        self.link = (("mc" if drawable else "probit") if link is None else link) if self.likelihood.has_logits else None
        if self.link == "mc" and not drawable:
            raise ValueError(
                f"link='mc' takes a root of every example's covariance, which no exported graph has for more than "
                f"{MANY_OUTPUTS} outputs, got {posterior.shape[0]}; use link='probit'."
            )
        self.samples = samples if self.link == "mc" else 0
        if self.link == "mc":
            self.register_buffer("normals", balanced_normal(samples, form.noise_width, seed=seed).to(probe))

    @property
    def likelihood(self) -> Likelihood:
        """Return what the outputs are for."""
        return self.network.likelihood

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return all outputs by name."""
        seen = self.network.see(self.inputs.batch(tensors), {})
        assert seen.head_inputs is not None
        plain, posterior = seen.outputs, self.posterior
        wide = torch.float64 if posterior.differences else posterior.dtype
        form = self._form(posterior.output_covariance(seen.head_inputs.to(wide)))
        mean = plain.to(posterior.dtype)
        if self.link == "probit":
            variance = form.variance.to(mean.dtype) / self.temperature**2
            prediction = self.likelihood.plain_prediction(
                mean / self.temperature * probit_scale(variance), noise=self.noise
            )
        else:
            normals = self.normals if self.link == "mc" else mean.new_zeros(1, 1)
            assert isinstance(normals, Tensor)
            gaussian = FrozenDraws(mean, form, normals).at_temperature(self.temperature)
            prediction = self.likelihood.from_gaussian(gaussian, noise=self.noise, link="mc")
        assert self.network.head is not None
        width = posterior.shape[1] - ("bias" in self.network.head.parameters)
        return read_outputs_of(
            Computed(
                plain,
                replace(prediction, input_novelty=seen.novelty),
                features=seen.head_inputs[:, :width],
                variance=form.variance.to(plain.dtype),
                has_draws=self.link != "probit",
            )
        )

    def _form(self, covariance: OutputCovariance) -> OutputCovariance:
        """Return a form that draws and determinants need no factorisation of, where there are few outputs."""
        if self.posterior.shape[0] > MANY_OUTPUTS:
            return covariance
        return RootByProducts(covariance.dense().to(self.posterior.dtype))


def _needs_root(form: OutputCovariance) -> bool:
    return isinstance(form, DenseCovariance) or (isinstance(form, DiagonalCovariance) and form.taken is not None)
