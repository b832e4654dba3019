"""What is kept of a fit, as the tensors and metadata of one file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from infoform.common.files import under
from infoform.conformal import Conformal
from infoform.curvature.curvature import Fit, pack_curvature, unpack_curvature
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.likelihoods import LIKELIHOODS, DataSummary, Likelihood
from infoform.novelty.known_inputs import KnownInputs, pack_known, unpack_known
from infoform.options import Settings
from infoform.posteriors import PRESETS, STRUCTURES, LayerPosterior, Structure, structure_for
from infoform.priors import PRIORS, LayerPrior, Prior


@dataclass(frozen=True)
class Archive:
    """Everything but the model."""

    settings: Settings
    likelihood: Likelihood
    prior: Prior
    num_data: float
    noise: float | None
    fit: Fit  # its curvature may be empty
    layers: Mapping[str, LayerPosterior]  # in the structure of the settings
    inputs: Mapping[str, InputSpectrum]  # where the prior needs them
    conformal: Conformal | None = None  # where sets and intervals are calibrated for these hyperparameters
    only_diagonal: frozenset[str] = frozenset()  # layers of which the diagonal alone is measured


def pack(archive: Archive, *, curvature: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return named tensors and what JSON can hold."""
    tensors = {
        f"layer/{n}/{key}": value for n, one in archive.layers.items() for key, value in one.state_dict().items()
    }
    tensors |= {
        f"inputs/{n}/{field.name}": getattr(one, field.name)
        for n, one in archive.inputs.items()
        for field in fields(one)
    }
    settings = archive.settings.flat()
    metadata: dict[str, Any] = {
        "structure": settings.pop("structure"),
        "options": settings,
        "likelihood": {"name": archive.likelihood.name, "settings": archive.likelihood.settings()},
        "prior": {"name": archive.prior.name, "settings": archive.prior.settings()},
        "num_data": archive.num_data,
        "noise": archive.noise,
        "data": asdict(archive.fit.summary),
        "layers": {name: layer.settings() for name, layer in archive.layers.items()},
        "unreached": dict(archive.fit.unreached),
        "odd": sorted(archive.fit.odd),
    }
    if archive.only_diagonal:
        metadata["only_diagonal"] = sorted(archive.only_diagonal)
    if archive.fit.novelty is not None:
        known, metadata["novelty"] = pack_known(archive.fit.novelty)
        tensors |= {f"novelty/{key}": value for key, value in known.items()}
    if archive.conformal is not None:
        scores, metadata["conformal"] = archive.conformal.pack()
        tensors |= {f"conformal/{key}": value for key, value in scores.items()}
    if curvature:
        packed = {name: pack_curvature(one) for name, one in archive.fit.curvature.items()}
        tensors |= {f"curvature/{n}/{key}": value for n, (part, _) in packed.items() for key, value in part.items()}
        metadata["curvature"] = {name: plain for name, (_, plain) in packed.items()}
    return tensors, metadata


def unpack(
    tensors: Mapping[str, Tensor],
    saved: Mapping[str, Any],
    *,
    shapes: Mapping[str, tuple[int, int]],
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
    structure: Structure | None = None,
) -> Archive:
    """Undo `pack`, for a network whose layers have these shapes (G, A).

    A likelihood, prior or structure that is not infoform's own must be given.
    """
    label = saved["structure"]
    if structure is None and label not in {**STRUCTURES, **PRESETS}:
        raise ValueError(f"the file was saved with the structure {label!r}, not one of infoform's; pass structure=.")
    settings = Settings.from_flat({"structure": label, **saved["options"]}, structure)
    if likelihood is None:
        name = saved["likelihood"]["name"]
        if name not in LIKELIHOODS:
            raise ValueError(
                f"the file was saved with the likelihood {name!r}, not one of infoform's; pass likelihood=."
            )
        likelihood = LIKELIHOODS[name](**saved["likelihood"]["settings"])
    if prior is None:
        name = saved["prior"]["name"]
        if name not in PRIORS:
            raise ValueError(f"the file was saved with the prior {name!r}, not one of infoform's; pass prior=.")
        prior = PRIORS[name](**saved["prior"]["settings"])
    else:
        prior = prior.with_precision(saved["prior"]["settings"].get("precision", prior.precision))
    unit = LayerPrior(1.0)
    names, only_diagonal = list(saved["layers"]), frozenset(saved.get("only_diagonal", ()))
    curvature = {
        name: unpack_curvature(under(tensors, f"curvature/{name}/"), plain)
        for name, plain in saved.get("curvature", {}).items()
    }
    return Archive(
        settings=settings,
        likelihood=likelihood,
        prior=prior,
        num_data=saved["num_data"],
        noise=saved["noise"],
        fit=Fit(
            curvature,
            DataSummary(**saved["data"]),
            saved["unreached"],
            _novelty(tensors, saved),
            frozenset(saved.get("odd", ())),
        ),
        layers={
            name: structure_for(settings.structure, only_diagonal=name in only_diagonal)
            .of_layer(name, shapes.get(name, (0, 0)))
            .posterior(  # type: ignore[call-arg]
                prior=unit, num_data=1.0, **under(tensors, f"layer/{name}/"), **saved["layers"][name]
            )
            for name in names
        },
        inputs={
            name: InputSpectrum(**under(tensors, f"inputs/{name}/"))
            for name in names
            if f"inputs/{name}/diagonal" in tensors
        },
        conformal=Conformal.unpack(_on_cpu(under(tensors, "conformal/")), saved["conformal"])
        if "conformal" in saved
        else None,
        only_diagonal=only_diagonal,
    )


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.cpu() for name, one in tensors.items()}


def _novelty(tensors: Mapping[str, Tensor], saved: Mapping[str, Any]) -> KnownInputs | None:
    """Return what is known of inputs; None in files of earlier versions, and of fits without it."""
    return unpack_known(under(tensors, "novelty/"), saved["novelty"]) if "novelty" in saved else None
