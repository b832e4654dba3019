"""What is kept of a fit, as the tensors and metadata of one file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from infoform.curvature.curvature import Fit, pack_curvature, unpack_curvature
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.likelihoods import LIKELIHOODS, DataSummary, Likelihood
from infoform.options import Settings
from infoform.posteriors import STRUCTURES, LayerPosterior
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
    settings = asdict(archive.settings)
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
    }
    if curvature:
        packed = {name: pack_curvature(one) for name, one in archive.fit.curvature.items()}
        tensors |= {f"curvature/{n}/{key}": value for n, (part, _) in packed.items() for key, value in part.items()}
        metadata["curvature"] = {name: plain for name, (_, plain) in packed.items()}
    return tensors, metadata


def unpack(tensors: Mapping[str, Tensor], saved: Mapping[str, Any], likelihood: Likelihood | None) -> Archive:
    """Undo `pack`; a likelihood that is not infoform's own must be given."""
    settings = Settings(structure=saved["structure"], **saved["options"])
    if likelihood is None:
        name = saved["likelihood"]["name"]
        if name not in LIKELIHOODS:
            raise ValueError(
                f"the file was saved with the likelihood {name!r}, not one of infoform's; pass likelihood=."
            )
        likelihood = LIKELIHOODS[name](**saved["likelihood"]["settings"])
    kind = STRUCTURES[settings.resolve(None, {})[0]]
    unit = LayerPrior(1.0)
    names = list(saved["layers"])
    curvature = {
        name: unpack_curvature(_under(tensors, f"curvature/{name}/"), plain)
        for name, plain in saved.get("curvature", {}).items()
    }
    return Archive(
        settings=settings,
        likelihood=likelihood,
        prior=PRIORS[saved["prior"]["name"]](**saved["prior"]["settings"]),
        num_data=saved["num_data"],
        noise=saved["noise"],
        fit=Fit(curvature, DataSummary(**saved["data"]), saved["unreached"]),
        layers={
            name: kind(prior=unit, num_data=1.0, **_under(tensors, f"layer/{name}/"), **saved["layers"][name])  # type: ignore[call-arg]
            for name in names
        },
        inputs={
            name: InputSpectrum(**_under(tensors, f"inputs/{name}/"))
            for name in names
            if f"inputs/{name}/diagonal" in tensors
        },
    )


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
