"""What is built from a fit, once for each choice: its layers in a structure, and what a prior knows of their inputs.

All of it is free of τ and N: a posterior is made from it by `with_prior`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoform.common.checks import check_whole
from infoform.curvature.curvature import Fit
from infoform.curvature.input_spectrum import InputSpectrum, input_spectrum
from infoform.options import Settings
from infoform.posteriors import LayerPosterior, Structure, structure_for
from infoform.posteriors.network_posterior import Posterior
from infoform.priors import LayerPrior, Prior


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit, and what has been built from it so far."""

    fit: Fit
    prior_rank: int  # eigenpairs of a layer's inputs that were kept
    by_structure: dict[str, dict[str, LayerPosterior]] = field(default_factory=dict)
    inputs: dict[str, InputSpectrum] = field(default_factory=dict)  # by layer, at that rank
    saved_as: str = ""  # the structure of the file that it was loaded from, if it was
    saved_diagonal: frozenset[str] = frozenset()  # layers of that file of which the diagonal alone is measured

    @classmethod
    def loaded(
        cls,
        fit: Fit,
        settings: Settings,
        layers: Mapping[str, LayerPosterior],
        inputs: Mapping[str, InputSpectrum],
        only_diagonal: frozenset[str] = frozenset(),
    ) -> "Fitted":
        """Return what a file holds: the layers in one structure, perhaps without the curvature they came from."""
        return cls(
            fit,
            settings.prior_rank,
            {_key(settings.structure): dict(layers)},
            dict(inputs),
            settings.structure.label,
            only_diagonal,
        )

    @property
    def only_diagonal(self) -> frozenset[str]:
        """Return the layers of which the diagonal alone is measured: norms and embeddings, say."""
        return self.saved_diagonal | {name for name, one in self.fit.curvature.items() if one.only_diagonal}

    def layers(self, structure: Structure) -> dict[str, LayerPosterior]:
        """Return the layers in a structure; prior and data-set size still at 1."""
        key = _key(structure)
        if key not in self.by_structure:
            if not self.fit.curvature:
                raise ValueError(
                    f"the loaded file holds the structure {self.saved_as!r} alone; "
                    "save it with curvature=True to have others from it."
                )
            self.by_structure[key] = {
                name: structure_for(structure, only_diagonal=curvature.only_diagonal).build(
                    curvature, prior=LayerPrior(1.0), num_data=1.0
                )
                for name, curvature in self.fit.curvature.items()
            }
        return self.by_structure[key]

    def posterior(
        self, structure: Structure, prior: Prior, *, num_data: float, prior_rank: int | None = None
    ) -> Posterior:
        """Return the posterior of all layers for a prior and N; `num_data` counts the noise of a regression, too."""
        layers = {}
        for name, layer in self.layers(structure).items():
            own = self.prior(prior, name, num_data=num_data, rank=prior_rank)
            layers[name] = layer.with_prior(own, num_data)
        return Posterior(layers)

    def spectrum(self, name: str, rank: int | None = None) -> InputSpectrum:
        """Return what a prior knows of a layer's inputs, with the rank of the fit or a lower one."""
        if name not in self.inputs:
            known = self.fit.curvature.get(name)
            if known is not None and known.inputs is not None:
                self.inputs[name] = known.inputs.stored()
            elif known is not None and known.input_factor is not None:
                whole = input_spectrum(known.input_factor, rank=self.prior_rank, name=name)
                self.inputs[name] = whole.stored()
            else:
                raise ValueError(
                    f"this prior needs the inputs of layer '{name}', which the fit did not collect; "
                    "fit with prior='activation' or statistics='all'."
                )
        if rank is None:
            return self.inputs[name]
        check_whole("prior_rank", rank, least=0)
        if rank > self.prior_rank:
            raise ValueError(
                f"prior_rank must be at most the {self.prior_rank} of this Laplace, got {rank}; "
                "make one with a larger prior_rank."
            )
        return self.inputs[name].leading(rank)

    def prior(self, prior: Prior, name: str, *, num_data: float, rank: int | None = None) -> LayerPrior:
        """Return the prior of one layer; `rank` wins over the prior's own."""
        rank = prior.rank if rank is None else rank
        needed = prior.needs_inputs and name not in self.only_diagonal
        inputs = self.spectrum(name, rank) if needed else None
        return prior.layer(name, num_data=num_data, inputs=inputs)


def _key(structure: Structure) -> str:
    return repr((structure.name, sorted(structure.options().items(), key=str)))
