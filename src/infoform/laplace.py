"""The facade: a model and a likelihood in; fit, posterior, samples, a file out. No mathematics here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from infoform import storage
from infoform.batches import device_of
from infoform.coverage import Coverage, ParameterCoverage, find_layers
from infoform.curvature import (
    BASES,
    EVERYTHING,
    Curvature,
    Fit,
    FitSettings,
    fit_curvature,
    pack_curvature,
    unpack_curvature,
)
from infoform.eigenbasis import SUPPORTS
from infoform.likelihoods import FISHER_KINDS, LIKELIHOODS, DataSummary, Likelihood, get_likelihood
from infoform.posterior import Posterior
from infoform.posteriors import CORRECTIONS, DAMPINGS, PRESETS, STRUCTURES, Inf, LayerPosterior
from infoform.priors import PRIORS, Isotropic, LayerPrior, Prior

STORAGES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Laplace:
    """A Gaussian posterior over the weights of a trained network, by Laplace's approximation.

    The model is never changed. `structure` is one of "inf", "diag", "kfac", "efb", "full", or a preset of the paper
    ("inf-paper", "efb-paper", "okf-paper"); `rank` is the number of eigenpairs kept in a layer (a layer that has
    fewer keeps all), or their share as a float below 1. `statistics="all"` collects in `fit` what every structure
    needs, so that `posterior(structure=...)` can give each of them.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        structure: str = "inf",
        rank: int | float | Mapping[str, int] = 100,
        basis: str = "gradient",
        support: str = "top",
        correction: str = "scaled",
        damping: str = "factored",
        basis_size: int | None = None,
        storage: str | None = None,
        fisher: str = "mc",
        fisher_samples: int = 1,
        layers: Sequence[str] | None = None,
        statistics: str = "needed",
        block_limit: int = 4096,
        seed: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        _check_choice("structure", structure, [*STRUCTURES, *PRESETS])
        _check_choice("basis", basis, BASES)
        _check_choice("support", support, SUPPORTS)
        _check_choice("correction", correction, CORRECTIONS)
        _check_choice("damping", damping, DAMPINGS)
        _check_choice("fisher", fisher, FISHER_KINDS)
        _check_choice("statistics", statistics, ("needed", "all"))
        if storage is not None:
            _check_choice("storage", storage, list(STORAGES))
        _check_rank(rank)
        _check_positive("fisher_samples", fisher_samples)
        _check_positive("block_limit", block_limit)
        if basis_size is not None:
            _check_positive("basis_size", basis_size)
        if isinstance(layers, str):
            raise TypeError(
                f"layers must be a list of layer names, got the string {layers!r}; write layers=[{layers!r}]."
            )
        self.model = model
        self.likelihood = get_likelihood(likelihood)
        self.structure = structure
        self.options: dict[str, Any] = {
            "rank": rank if not isinstance(rank, Mapping) else dict(rank),
            "basis": basis,
            "support": support,
            "correction": correction,
            "damping": damping,
            "storage": storage,
        }
        self.fit_settings = FitSettings(fisher, fisher_samples, basis_size, block_limit, seed)
        self.statistics = statistics
        self.layer_patterns = None if layers is None else list(layers)
        self.layers, self._fixed = find_layers(model, self.layer_patterns)
        self.num_data: float | None = None
        self.noise: float | None = None
        self._prior: Prior = Isotropic(1.0)
        self._fit: Fit | None = None
        self._structured: dict[str, dict[str, LayerPosterior]] = {}

    def fit(self, loader: Iterable[Any], *, progress: bool = True) -> "Laplace":
        """Measure the curvature on the loader's data: (input, target) tuples, dicts, or inputs alone.

        Dropout is off and batch-norm in evaluation mode, whatever mode the model is in; afterwards all is as found.
        """
        structure, options = self._resolve(None, {})
        wanted = EVERYTHING if self.statistics == "all" else STRUCTURES[structure].wanted(options)
        if structure == "full":
            self._check_blocks()
        fit = fit_curvature(
            self.model,
            loader,
            self.likelihood,
            self.layers,
            wanted=wanted,
            settings=self.fit_settings,
            progress=progress,
        )
        noise = self.likelihood.fitted_noise(fit.summary)
        self._fit, self._structured = fit, {}
        self.noise, self.num_data = noise, float(fit.summary.num_examples)
        return self

    @property
    def curvature(self) -> Mapping[str, Curvature]:
        """Return the statistics of every layer, as the fit measured them."""
        fit = self._fitted()
        if not fit.curvature:
            raise ValueError("the loaded file holds no curvature; save it with curvature=True to have it.")
        return fit.curvature

    @property
    def prior_precision(self) -> float | dict[str, float]:
        """Return τ, for all layers or by layer; it can be set."""
        assert isinstance(self._prior, Isotropic)
        return self._prior.precision

    @prior_precision.setter
    def prior_precision(self, value: float | Mapping[str, float]) -> None:
        self._prior = Isotropic(value)

    def posterior(
        self,
        *,
        prior_precision: float | Mapping[str, float] | None = None,
        num_data: float | None = None,
        structure: str | None = None,
        **options: Any,
    ) -> Posterior:
        """Return the posterior for these hyperparameters; the object's own where not given.

        `structure` and its options may differ from the object's, where the fit has collected what they need.
        """
        prior = self._prior if prior_precision is None else Isotropic(prior_precision)
        self._fitted()
        count = self.num_data if num_data is None else num_data
        assert count is not None
        if not 0 < count < math.inf:
            raise ValueError(f"num_data must be positive and finite, got {count}.")
        scale = self.likelihood.information_scale(self.noise, self.fit_settings.fisher)
        return Posterior(
            {
                name: layer.with_prior(prior.layer(name, num_data=count * scale, inputs=None), count * scale)
                for name, layer in self._structure_layers(structure, options).items()
            }
        )

    def sample(self, n: int, *, seed: int | None = None) -> dict[str, Tensor]:
        """Draw n sets of weights, by parameter name, (n, *shape) each; for `torch.func.functional_call`."""
        _check_positive("n", n)
        generator = torch.Generator().manual_seed(self.fit_settings.seed if seed is None else seed)
        drawn: dict[str, Tensor] = {}
        for name, deviation in self.posterior().sample(n, generator=generator).items():
            layer = self.layers[name]
            mean = layer.mean
            drawn.update(layer.as_parameters(mean + deviation.to(mean)))
        return drawn

    def coverage(self) -> Coverage:
        """Say, for every parameter of the model, whether it has a posterior, or why it is held fixed."""
        owners = {parameter: layer for layer in self.layers.values() for parameter in layer.parameters.values()}
        unreached = {} if self._fit is None else self._fit.unreached
        built = {} if self._fit is None else self._structure_layers(None, {})
        rows = []
        for name, parameter in self.model.named_parameters():
            layer = owners.get(name)
            if layer is None:
                rows.append(ParameterCoverage(name, tuple(parameter.shape), None, None, self._fixed[name]))
            elif layer.name in unreached:
                reason = unreached[layer.name]
                rows.append(ParameterCoverage(name, tuple(parameter.shape), layer.name, None, reason))
            else:
                reason = f"{type(layer.module).__name__} '{layer.name}'" + _clipping(built.get(layer.name))
                rows.append(ParameterCoverage(name, tuple(parameter.shape), layer.name, self.structure, reason))
        return Coverage(rows)

    def save(self, path: str | PathLike[str], *, curvature: bool = False) -> None:
        """Write the posterior to a safetensors file; with `curvature=True` also all that was measured."""
        fit = self._fitted()
        own = self._structure_layers(None, {})
        tensors = {f"layer/{name}/{key}": value for name, one in own.items() for key, value in one.state_dict().items()}
        metadata: dict[str, Any] = {
            "structure": self.structure,
            "options": self.options,
            "fit": asdict(self.fit_settings),
            "statistics": self.statistics,
            "layer_patterns": self.layer_patterns,
            "likelihood": {"name": self.likelihood.name, "settings": self.likelihood.settings()},
            "prior": {"name": self._prior.name, "settings": self._prior.settings()},
            "num_data": self.num_data,
            "noise": self.noise,
            "data": asdict(fit.summary),
            "layers": {name: layer.settings() for name, layer in own.items()},
            "unreached": dict(fit.unreached),
            "model": type(self.model).__name__,
            "fingerprint": storage.fingerprint(self.model),
        }
        if curvature:
            packed = {name: pack_curvature(one) for name, one in self.curvature.items()}
            tensors |= {
                f"curvature/{name}/{key}": value for name, (part, _) in packed.items() for key, value in part.items()
            }
            metadata["curvature"] = {name: settings for name, (_, settings) in packed.items()}
        storage.write_file(path, tensors, metadata)

    def _structure_layers(self, structure: str | None, options: Mapping[str, Any]) -> dict[str, LayerPosterior]:
        """Return the layers in a structure, prior and data-set size still at 1; built once for each choice."""
        kind, chosen = self._resolve(structure, options)
        key = _key(kind, chosen)
        if key not in self._structured:
            fit = self._fitted()
            if not fit.curvature:
                raise ValueError(
                    f"the loaded file holds the structure {self.structure!r} alone; "
                    "save it with curvature=True to have others from it."
                )
            unit = LayerPrior(1.0)
            built = {}
            for name, curvature in fit.curvature.items():
                given = dict(chosen)
                if "rank" in given:
                    given["rank"] = _layer_rank(given["rank"], curvature, given["basis"])
                built[name] = STRUCTURES[kind].from_curvature(curvature, prior=unit, num_data=1.0, **given)
            self._structured[key] = built
        return self._structured[key]

    def _resolve(self, structure: str | None, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the structure behind a name and those options that it takes."""
        structure = structure or self.structure
        _check_choice("structure", structure, [*STRUCTURES, *PRESETS])
        kind, preset = PRESETS.get(structure, (structure, {}))
        takes = STRUCTURES[kind].OPTIONS
        for name in options:
            if name not in takes:
                raise TypeError(
                    f"structure {structure!r} takes the options {', '.join(takes) or 'none'}, got {name!r}."
                )
        if "rank" in options:
            _check_rank(options["rank"])
        if "basis" in options:
            _check_choice("basis", options["basis"], BASES)
        chosen = {name: value for name, value in self.options.items() if name in takes} | preset | dict(options)
        if chosen.get("storage") is not None:
            _check_choice("storage", chosen["storage"], list(STORAGES))
            chosen["storage"] = STORAGES[chosen["storage"]]
        return kind, chosen

    def _fitted(self) -> Fit:
        if self._fit is None:
            raise RuntimeError(
                "this Laplace has no posterior yet; call fit(loader) first, or infoform.load(path, model)."
            )
        return self._fit

    def _check_blocks(self) -> None:
        for layer in self.layers.values():
            size = layer.shape[0] * layer.shape[1]
            if size > self.fit_settings.block_limit:
                raise ValueError(
                    f"structure='full' holds layers of at most block_limit={self.fit_settings.block_limit} weights, "
                    f"got {size} in layer '{layer.name}'; leave it out with layers=, raise block_limit "
                    f"({8 * size**2 / 2**30:.3g} GiB in float64), or use another structure."
                )


def load(
    path: str | PathLike[str], model: nn.Module, *, likelihood: Likelihood | None = None, strict: bool = True
) -> Laplace:
    """Return the saved posterior on its model; an error says what differs if the model is another one.

    `strict=False` accepts a model with the same parameters but other values (one cast to another dtype, say);
    `likelihood` is needed only where the saved one is not among infoform's own.
    """
    tensors, saved = storage.read_file(path, device=device_of(model))
    storage.check_fingerprint(saved["fingerprint"], model, strict=strict)
    if likelihood is None:
        name = saved["likelihood"]["name"]
        if name not in LIKELIHOODS:
            raise ValueError(
                f"'{path}' was saved with the likelihood {name!r}, not one of infoform's; pass likelihood=."
            )
        likelihood = LIKELIHOODS[name](**saved["likelihood"]["settings"])
    laplace = Laplace(
        model,
        likelihood,
        structure=saved["structure"],
        **saved["options"],
        **saved["fit"],
        layers=saved["layer_patterns"],
        statistics=saved["statistics"],
    )
    kind, chosen = laplace._resolve(None, {})
    unit = LayerPrior(1.0)
    laplace._structured[_key(kind, chosen)] = {
        name: STRUCTURES[kind](prior=unit, num_data=1.0, **_under(tensors, f"layer/{name}/"), **settings)  # type: ignore[call-arg]
        for name, settings in saved["layers"].items()
    }
    curvature = {
        name: unpack_curvature(_under(tensors, f"curvature/{name}/"), settings)
        for name, settings in saved.get("curvature", {}).items()
    }
    laplace._fit = Fit(curvature, DataSummary(**saved["data"]), saved["unreached"])
    laplace._prior = PRIORS[saved["prior"]["name"]](**saved["prior"]["settings"])
    laplace.num_data, laplace.noise = saved["num_data"], saved["noise"]
    return laplace


def _layer_rank(rank: int | float | Mapping[str, int], curvature: Curvature, basis: str) -> int:
    available = curvature.bases[basis].eigenvalues.numel() if basis in curvature.bases else math.prod(curvature.shape)
    if isinstance(rank, Mapping):
        if curvature.name not in rank:
            raise ValueError(f"rank must have a value for each layer, got none for '{curvature.name}'; add it.")
        return rank[curvature.name]
    if isinstance(rank, float):
        return min(available, max(1, round(rank * math.prod(curvature.shape))))
    return min(available, rank)


def _clipping(layer: LayerPosterior | None) -> str:
    if not isinstance(layer, Inf) or not layer.clipped:
        return ""
    return f"; additive correction clipped at 0 for {layer.clipped / math.prod(layer.shape):.0%} of its weights"


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")


def _check_rank(rank: object) -> None:
    if isinstance(rank, Mapping):
        for value in rank.values():
            _check_positive("rank", value)
    elif isinstance(rank, float):
        if not 0 < rank <= 1:
            raise ValueError(f"rank as a share of a layer's weights must be above 0 and at most 1, got {rank}.")
    else:
        _check_positive("rank", rank)


def _key(structure: str, options: Mapping[str, Any]) -> str:
    return repr((structure, sorted(options.items(), key=str)))


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
