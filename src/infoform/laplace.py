"""The facade: a model and a likelihood in; fit, posterior, samples, a file out. No mathematics here."""

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import asdict, replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from infoform.common import files as storage
from infoform.common.bytes import read_bytes
from infoform.common.checks import check_choice, check_whole
from infoform.common.processes import Processes
from infoform.common.progress import progress_bar
from infoform.curvature.curvature import Curvature, Fit
from infoform.curvature.request import ALL_STATISTICS, CHUNK_BYTES, StatisticsRequest
from infoform.defaults import default_prior
from infoform.fitted import Fitted
from infoform.fitting.checkpoint import Checkpoint
from infoform.fitting.fit import FitTask, fit_curvature
from infoform.fitting.fit_groups import fit_in_groups
from infoform.fitting.placement import Placement
from infoform.likelihoods import Likelihood, get_likelihood
from infoform.network.batches import device_of, read_inputs
from infoform.network.coverage import Coverage, describe, find_layers
from infoform.network.sharding import distributed_sampler, unwrap
from infoform.options import Rank, Settings
from infoform.planning.plan import Plan
from infoform.posteriors import STRUCTURES, LayerPosterior
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.over_loader import predict_all, warn_if_worse
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.resumable_batches import BatchStore
from infoform.prediction import Prediction
from infoform.priors import Prior, get_prior
from infoform.saved import Archive, pack, unpack
from infoform.tuning.by_evidence import maximise_evidence
from infoform.tuning.by_validation import ValidationData, search_on_validation
from infoform.tuning.evidence import log_evidence
from infoform.tuning.search import Trial


class Laplace:
    """A Gaussian posterior over the weights of a trained network, by Laplace's approximation.

    The model is never changed. `structure` is one of "inf", "diag", "kfac", "efb", "full", or a preset of the paper
    ("inf-paper", "efb-paper", "okf-paper"); `rank` is the number of eigenpairs kept in a layer (a layer that has
    fewer keeps all), or their share as a float up to 1. `prior` is "isotropic", "activation" or a `Prior`; where it is
    not given, "activation" for the structure "inf" of a classifier and "isotropic" for all else (see defaults.py).
    `autocast="bfloat16"` runs the forward passes of a fit in it; `chunk` is the memory for the gradients of single
    examples, of which a fit holds more at a time where it is larger. `statistics="all"` collects in `fit` what every
    structure and prior needs, so that `posterior` can give each.
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        structure: str = "inf",
        rank: Rank = 100,
        basis: str = "gradient",
        support: str = "top",
        correction: str = "scaled",
        core: str = "full",
        damping: str = "factored",
        basis_size: int | str | None = "auto",
        basis_data: float = 1.0,
        basis_floor: float = 0.1,
        storage: str | None = None,
        prior: str | Prior | None = None,
        prior_rank: int = 8,
        fisher: str = "mc",
        fisher_samples: int = 1,
        layers: Sequence[str] | None = None,
        statistics: str = "needed",
        block_limit: int = 4096,
        autocast: str | None = None,
        chunk: int | str = CHUNK_BYTES,
        seed: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        model = unwrap(model)
        self.settings = Settings(
            structure=structure,
            rank=rank,
            basis=basis,
            support=support,
            correction=correction,
            core=core,
            damping=damping,
            storage=storage,
            basis_size=basis_size,
            basis_data=basis_data,
            basis_floor=basis_floor,
            fisher=fisher,
            fisher_samples=fisher_samples,
            layers=layers,
            statistics=statistics,
            block_limit=block_limit,
            prior_rank=prior_rank,
            autocast=autocast,
            chunk=chunk,
            seed=seed,
        )
        self.model = model
        self.likelihood = get_likelihood(likelihood)
        self.layers, self._fixed = find_layers(model, layers)
        self.num_data: float | None = None
        self.noise: float | None = None
        self.prior = get_prior(default_prior(structure, self.likelihood) if prior is None else prior)
        self._default_prior = prior is None
        self._built: Fitted | None = None
        self._warned = False
        self.trials: list[Trial] = []

    def fit(
        self,
        loader: Iterable[Any],
        *,
        update: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_memory: int | str | None = None,
        device: str | torch.device | None = None,
        offload: str | torch.device | PathLike[str] | None = None,
        progress: bool = True,
    ) -> "Laplace":
        """Measure the curvature on the loader's data: (input, target) tuples, dicts, or inputs alone.

        Dropout is off and batch-norm in evaluation mode, whatever mode the model is in; afterwards all is as found.
        `update=True` adds the data to what was fitted before, in the basis found then: information adds up.
        `checkpoint` is a folder in which the fit writes its sums every so many seconds; started again with the same
        arguments after it was killed or stopped by Ctrl-C, it goes on from there, and removes the file when it is done.
        Where torch.distributed is initialised, all processes fit together, each with its own part of the data.
        `max_memory` ("2GB", or bytes) is what the fit may take beside model and data: layers are fitted in groups that
        it holds, with passes of their own over the data. `device` is where the work is done, and `offload` a device, or
        a folder, that takes what has been measured; both are the model's device where not given.
        """
        structure, options = self.settings.resolve(None, {})
        request = ALL_STATISTICS if self.settings.statistics == "all" else STRUCTURES[structure].request(options)
        if structure == "full":
            self._check_blocks()
        previous = replace(self._fitted().fit, curvature=self.curvature) if update else None
        request = request | StatisticsRequest(inputs=self.prior.needs_inputs)
        place = Placement.of(self.model, device=device, offload=offload)
        task = FitTask(self.model, self.likelihood, self.layers, request, self.settings.for_fit(), place)
        how: dict[str, Any] = {
            "previous": previous,
            "checkpoint": None if checkpoint is None else _checkpoint(checkpoint, checkpoint_every),
            "progress": progress,
        }
        if max_memory is None:
            fit = fit_curvature(task, loader, **how)
        else:
            fit = fit_in_groups(task, loader, max_memory=read_bytes(max_memory), **how)
        noise = self.likelihood.fitted_noise(fit.summary)
        self._built = Fitted(fit)
        self.noise, self.num_data = noise, float(fit.summary.num_examples)
        return self

    @property
    def curvature(self) -> Mapping[str, Curvature]:
        """Return the statistics of every layer, as the fit measured them."""
        fit = self._fitted().fit
        if not fit.curvature:
            raise ValueError("the loaded file holds no curvature; save it with curvature=True to have it.")
        return fit.curvature

    @property
    def prior_precision(self) -> float | dict[str, float]:
        """Return τ, for all layers or by layer; it can be set."""
        return self.prior.precision

    @prior_precision.setter
    def prior_precision(self, value: float | Mapping[str, float]) -> None:
        self.prior = self.prior.with_precision(value)

    def posterior(
        self,
        *,
        prior_precision: float | Mapping[str, float] | None = None,
        num_data: float | None = None,
        prior: str | Prior | None = None,
        prior_rank: int | None = None,
        structure: str | None = None,
        **options: Any,
    ) -> Posterior:
        """Return the posterior for these hyperparameters; the object's own where not given.

        Another structure has its own default prior, unless one was given. `prior`, `structure` and its options may
        differ from the object's, where the fit has collected what they need; `prior_rank` may be lower.
        """
        built = self._fitted()
        chosen = self._prior_of(structure)
        if prior is not None and not isinstance(prior, Prior):
            chosen = self._named_prior(prior)
        if isinstance(prior, Prior):
            chosen = prior
        if prior_precision is not None:
            chosen = chosen.with_precision(prior_precision)
        count = self.num_data if num_data is None else num_data
        assert count is not None
        if not 0 < count < math.inf:
            raise ValueError(f"num_data must be positive and finite, got {count}.")
        count = count * self.likelihood.information_scale(self.noise, self.settings.fisher)
        layers = {}
        for name, layer in built.layers(self.settings, structure, options).items():
            own = built.prior(chosen, name, self.settings, num_data=count, rank=prior_rank)
            layers[name] = layer.with_prior(own, count)
        return Posterior(layers)

    def log_evidence(
        self,
        *,
        prior_precision: float | Mapping[str, float] | None = None,
        structure: str | None = None,
        **options: Any,
    ) -> float:
        """Return Laplace's log marginal likelihood of the fitted data; models and priors can be compared by it."""
        log_likelihood = self.likelihood.log_likelihood(self._fitted().fit.summary, self.noise)
        posterior = self.posterior(prior_precision=prior_precision, structure=structure, **options)
        return log_evidence(log_likelihood, posterior, self.layers)

    def tune(
        self,
        val_loader: Iterable[Any] | None = None,
        *,
        objective: str | None = None,
        per_layer: bool = False,
        noise: str = "residuals",
        method: str = "grid",
        trials: int = 27,
        prior_precision: tuple[float, float] = (1e-7, 1e6),
        num_data: tuple[float, float] | None = None,
        kind: str = "linear",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        path: str | PathLike[str] | None = None,
        progress: bool = True,
    ) -> "Laplace":
        """Set τ (and, by a search, N) to the best found.

        Without `val_loader`: by evidence, with one τ or one for each layer (`per_layer=True`), and with
        `noise="evidence"` also the free noise of a regression, which otherwise stays. With it: a search over
        pairs (N, τ) within the given ranges, scored by `objective` ("nll", "ece" or "brier") of predictions of this
        `kind`; `method` is "grid", "random" or "optuna", `path` a JSON file that keeps every trial and resumes.
        The trials are in `self.trials` afterwards.
        """
        self._fitted()
        check_choice("noise", noise, ("residuals", "evidence"))
        if val_loader is None:
            check_choice("objective (without val_loader)", objective, (None, "evidence"))
            self._tune_by_evidence(per_layer, free_noise=noise == "evidence")
            return self
        check_choice("noise (with val_loader)", noise, ("residuals",))
        examples = float(self._fitted().fit.summary.num_examples)
        how = PredictOptions(kind, samples, link, self.settings.seed if seed is None else seed)
        prior = self.prior.tuned(by_evidence=False)
        self.trials, best = search_on_validation(
            ValidationData.read(val_loader, seed=how.seed),
            lambda count, tau: self._predictor(self.posterior(prior=prior.with_precision(tau), num_data=count)),
            how,
            noise=self.noise,
            objective=objective or "nll",
            method=method,
            trials=trials,
            num_data=(examples, examples) if num_data is None else num_data,
            prior_precision=prior_precision,
            path=path,
            settings={
                "posterior": asdict(self.settings),
                "prior": {"name": prior.name, **prior.with_precision(1.0).settings()},
                "model": storage.fingerprint(self.model),
                "examples": examples,
            },
            progress=progress,
        )
        self.prior, self.num_data = prior.with_precision(best.prior_precision), best.num_data
        return self

    def shrink(self, memory: int | str) -> Plan:
        """Set the ranks that keep most within this memory ("48MB", say), and return the plan that chose them."""
        from infoform.planner import plan  # which knows this class

        self._fitted()
        chosen = plan(self, memory=memory)
        self.settings = replace(self.settings, rank=chosen.ranks)
        return chosen

    def sample(self, n: int, *, seed: int | None = None) -> dict[str, Tensor]:
        """Draw n sets of weights, by parameter name, (n, *shape) each; for `torch.func.functional_call`."""
        check_whole("n", n)
        generator = torch.Generator().manual_seed(self.settings.seed if seed is None else seed)
        return self.weights(self.posterior().sample(n, generator=generator))

    def predict(
        self,
        x: Any,
        *,
        kind: str = "linear",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        posterior: Posterior | None = None,
    ) -> Prediction:
        """Return the prediction for a batch of inputs: a tensor, a tuple of arguments, or a dict of them.

        `kind` is "linear" (closed form), "mc" (networks with sampled weights) or "linear-mc" (both; for many outputs);
        `link` turns the uncertain logits of "linear" into probabilities: "mc" (the mean over draws), "probit" or
        "bridge". `posterior` is
        another than the object's own, as `posterior(structure=...)` gives it.
        """
        how = PredictOptions(kind, samples, link, self.settings.seed if seed is None else seed)
        batch = read_inputs(x, device_of(self.model))
        prediction = self._predictor(posterior).predict(batch, how, noise=self.noise)
        self._warned = self._warned or warn_if_worse(kind, prediction, None)
        return prediction

    def predict_loader(
        self,
        loader: Iterable[Any],
        *,
        kind: str = "linear",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        posterior: Posterior | None = None,
        gather: bool | None = None,
        keep: BatchStore | None = None,
        progress: bool = True,
    ) -> tuple[Prediction, Tensor | None]:
        """Return one prediction for all of a loader's data, and its targets where it gives any.

        Every batch sees the same sampled networks. `prediction.columns()` makes a table of it. With `gather`, each
        process of torch.distributed predicts its part, and all return the whole; done where the loader has a
        DistributedSampler, if not said otherwise. `keep` is called with every batch, and returns its place: what was
        kept of it from an earlier call, or where to keep it now (see kept.py).
        """
        how = PredictOptions(kind, samples, link, self.settings.seed if seed is None else seed)
        with progress_bar(progress) as bar:
            tick = bar("predict", len(loader) if isinstance(loader, Sized) else None)
            sampler = distributed_sampler(loader)
            gather = sampler is not None if gather is None else gather
            predictor = self._predictor(posterior)
            prediction, targets = predict_all(
                predictor, loader, how, noise=self.noise, sampler=sampler, gather=gather, tick=tick, keep=keep
            )
        self._warned = self._warned or warn_if_worse(kind, prediction, targets)
        return prediction, targets

    def weights(self, deviations: Mapping[str, Tensor]) -> dict[str, Tensor]:  # by layer: (..., G, A)
        """Return the model's parameters, by name, at these deviations from the trained ones."""
        weights: dict[str, Tensor] = {}
        for name, deviation in deviations.items():
            mean = self.layers[name].mean
            weights.update(self.layers[name].as_parameters(mean + deviation.to(mean)))
        return weights

    def coverage(self) -> Coverage:
        """Say, for every parameter of the model, whether it has a posterior, or why it is held fixed."""
        structures = dict.fromkeys(self.layers, (self.settings.structure, ""))
        fixed = dict(self._fixed)
        if self._built is not None:
            built = self._built.layers(self.settings)
            structures = {name: (self.settings.structure, layer.note) for name, layer in built.items()}
            fixed |= self._built.fit.unreached
        return describe(self.model, self.layers, fixed, structures)

    def save(self, path: str | PathLike[str], *, curvature: bool = False) -> None:
        """Write the posterior to a safetensors file; with `curvature=True` also all that was measured.

        Of several processes of torch.distributed, which hold the same, the first one writes.
        """
        built = self._fitted()
        if Processes.running().rank > 0:
            return
        if curvature and not built.fit.curvature:
            raise ValueError("the curvature is not here to be saved: this posterior was loaded from a file without it.")
        assert self.num_data is not None
        layers = built.layers(self.settings)
        inputs = {name: built.spectrum(name, self.settings) for name in layers} if self.prior.needs_inputs else {}
        archive = Archive(
            self.settings, self.likelihood, self.prior, self.num_data, self.noise, built.fit, layers, inputs
        )
        tensors, metadata = pack(archive, curvature=curvature)
        metadata |= {"model": type(self.model).__name__, "fingerprint": storage.fingerprint(self.model)}
        metadata["default_prior"] = self._default_prior
        storage.write_file(path, tensors, metadata)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        model: nn.Module,
        *,
        likelihood: Likelihood | None = None,
        strict: bool = True,
    ) -> "Laplace":
        """Return the saved posterior on its model; an error says what differs if the model is another one.

        `strict=False` accepts a model with the same parameters but other values (one cast to another dtype, say);
        `likelihood` is needed only where the saved one is not among infoform's own.
        """
        model = unwrap(model)
        tensors, saved = storage.read_file(path, device=device_of(model))
        storage.check_fingerprint(saved["fingerprint"], model, strict=strict)
        archive = unpack(tensors, saved, likelihood)
        laplace = cls(model, archive.likelihood, prior=archive.prior, **vars(archive.settings))
        laplace.num_data, laplace.noise = archive.num_data, archive.noise
        laplace._built = Fitted.loaded(archive.fit, archive.settings, archive.layers, archive.inputs)
        laplace._default_prior = saved["default_prior"]
        return laplace

    def _predictor(self, posterior: Posterior | None = None) -> Predictor:
        return Predictor(self.model, self.layers, self.likelihood, posterior or self.posterior())

    def _tune_by_evidence(self, per_layer: bool, *, free_noise: bool) -> None:
        built = self._fitted()
        layers, summary = built.layers(self.settings), built.fit.summary
        own = self.prior.tuned(by_evidence=True)

        def build(name: str, precision: float, noise: float | None) -> LayerPosterior:
            count = summary.num_examples * self.likelihood.information_scale(noise, self.settings.fisher)
            prior = built.prior(own.with_precision(precision), name, self.settings, num_data=count)
            return layers[name].with_prior(prior, count)

        found = maximise_evidence(
            build,
            {name: self.layers[name] for name in layers},
            per_layer=per_layer,
            noise=self.noise,
            log_likelihood=lambda noise: self.likelihood.log_likelihood(summary, noise),
            free_noise=free_noise and self.likelihood.free_noise,
        )
        self.prior, self.noise = own.with_precision(found.prior_precision), found.noise
        self.num_data = float(summary.num_examples)

    def _prior_of(self, structure: str | None) -> Prior:
        """Return the prior that goes with a structure: the object's own, or the default of another structure."""
        if structure is None or not self._default_prior:
            return self.prior
        return self._named_prior(default_prior(structure, self.likelihood))

    def _named_prior(self, name: str) -> Prior:
        """Return the prior of that name with the object's τ: the object's own, if that is its name."""
        return self.prior if name == self.prior.name else get_prior(name).with_precision(self.prior.precision)

    def prior_bytes(self, name: str, structure: str | None = None) -> int:
        """Return what the prior stores for a layer of a fitted model."""
        prior = self._prior_of(structure)
        if not prior.needs_inputs:
            return 0
        return self._fitted().prior(prior, name, self.settings, num_data=1.0).nbytes

    @property
    def _fit(self) -> Fit | None:
        return None if self._built is None else self._built.fit

    def _fitted(self) -> Fitted:
        if self._built is None:
            raise RuntimeError(
                "this Laplace has no posterior yet; call fit(loader) first, or infoform.load(path, model)."
            )
        return self._built

    def _check_blocks(self) -> None:
        limit = self.settings.block_limit
        for layer in self.layers.values():
            size = layer.shape[0] * layer.shape[1]
            if size > limit:
                raise ValueError(
                    f"structure='full' holds layers of at most block_limit={limit} weights, "
                    f"got {size} in layer '{layer.name}'; leave it out with layers=, raise block_limit "
                    f"({8 * size**2 / 2**30:.3g} GiB in float64), or use another structure."
                )


load = Laplace.load


def _checkpoint(folder: str | PathLike[str], every: float) -> Checkpoint:
    processes = Processes.running()
    return Checkpoint(folder, every=every, process=processes.rank, processes=processes.count)
