"""What is built from a fit, once for each choice: its layers in a structure, and what a prior knows of their inputs.

All of it is free of τ and N: a posterior is made from it by `with_prior`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infoform.common.checks import check_whole
from infoform.curvature.curvature import Fit
from infoform.curvature.input_spectrum import InputSpectrum, input_spectrum
from infoform.options import Settings, layer_rank
from infoform.posteriors import STRUCTURES, LayerPosterior
from infoform.priors import LayerPrior, Prior


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit, and what has been asked of it so far."""

    fit: Fit
    by_choice: dict[str, dict[str, LayerPosterior]] = field(default_factory=dict)
    inputs: dict[str, InputSpectrum] = field(default_factory=dict)  # by layer, at the rank of the settings

    @classmethod
    def loaded(
        cls,
        fit: Fit,
        settings: Settings,
        layers: Mapping[str, LayerPosterior],
        inputs: Mapping[str, InputSpectrum],
    ) -> "Fitted":
        """Return what a file holds: the layers in one structure, perhaps without the curvature they came from."""
        return cls(fit, {_key(*settings.resolve(None, {})): dict(layers)}, dict(inputs))

    def layers(
        self, settings: Settings, structure: str | None = None, options: Mapping[str, Any] | None = None
    ) -> dict[str, LayerPosterior]:
        """Return the layers in a structure, that of the settings if not given; prior and data-set size still at 1."""
        kind, chosen = settings.resolve(structure, options or {})
        key = _key(kind, chosen)
        if key not in self.by_choice:
            if not self.fit.curvature:
                raise ValueError(
                    f"the loaded file holds the structure {settings.structure!r} alone; "
                    "save it with curvature=True to have others from it."
                )
            built = {}
            for name, curvature in self.fit.curvature.items():
                given = dict(chosen)
                if "rank" in given:
                    given["rank"] = layer_rank(given["rank"], curvature, given["basis"])
                built[name] = STRUCTURES[kind].from_curvature(curvature, prior=LayerPrior(1.0), num_data=1.0, **given)
            self.by_choice[key] = built
        return self.by_choice[key]

    def spectrum(self, name: str, settings: Settings, rank: int | None = None) -> InputSpectrum:
        """Return what a prior knows of a layer's inputs, with the rank of the settings or a lower one."""
        if name not in self.inputs:
            known = self.fit.curvature.get(name)
            if known is not None and known.inputs is not None:
                self.inputs[name] = known.inputs.stored()
            elif known is not None and known.input_factor is not None:
                whole = input_spectrum(known.input_factor, rank=settings.prior_rank, name=name)
                self.inputs[name] = whole.stored()
            else:
                raise ValueError(
                    f"this prior needs the inputs of layer '{name}', which the fit did not collect; "
                    "fit with prior='activation' or statistics='all'."
                )
        if rank is None:
            return self.inputs[name]
        check_whole("prior_rank", rank, least=0)
        if rank > settings.prior_rank:
            raise ValueError(
                f"prior_rank must be at most the {settings.prior_rank} of this Laplace, got {rank}; "
                "make one with a larger prior_rank."
            )
        return self.inputs[name].leading(rank)

    def prior(
        self, prior: Prior, name: str, settings: Settings, *, num_data: float, rank: int | None = None
    ) -> LayerPrior:
        """Return the prior of one layer."""
        inputs = self.spectrum(name, settings, rank) if prior.needs_inputs else None
        return prior.layer(name, num_data=num_data, inputs=inputs)


def _key(structure: str, options: Mapping[str, Any]) -> str:
    return repr((structure, sorted(options.items(), key=str)))
