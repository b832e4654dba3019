"""What a plan is made for: the layers of a model, a structure, a prior, and how the fit is to measure."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from infoform.curvature.request import ALL_STATISTICS, FitSettings, StatisticsRequest
from infoform.likelihoods import Likelihood
from infoform.network.layer import Layer
from infoform.posteriors import Structure
from infoform.priors import Prior


@dataclass(frozen=True)
class PlanTarget:
    """Everything that bytes and operations depend on, besides the data."""

    model: nn.Module
    layers: Mapping[str, Layer]
    likelihood: Likelihood
    structure: Structure
    prior: Prior
    settings: FitSettings
    all_statistics: bool  # whether the fit collects what every structure and prior needs
    novelty: bool = True  # whether the fit looks at the inputs of every layer

    def request(self, structure: Structure | None = None) -> StatisticsRequest:
        """Return what the fit collects, for this structure or another."""
        shapes = {name: layer.shape for name, layer in self.layers.items() if not layer.rule.only_diagonal}
        own = ALL_STATISTICS if self.all_statistics else (structure or self.structure).request(shapes)
        return own | StatisticsRequest(inputs=self.prior.needs_inputs)
