"""The facade: a model and a likelihood in; fit, posterior, samples, a file out. No mathematics here."""

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from glob import escape
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from infoform.common import files
from infoform.common.bad_files import refusing
from infoform.common.bytes import read_bytes, show_bytes
from infoform.common.checks import check_whole
from infoform.common.processes import Processes
from infoform.common.progress import known_length, progress_bar
from infoform.common.randomness import isolated
from infoform.conformal import Conformal
from infoform.curvature.curvature import Curvature, Fit
from infoform.deprecated_keywords import read_keywords
from infoform.export import Export, ExportOptions, export_predictor
from infoform.fitted import Fitted
from infoform.fitting.checkpoint import Checkpoint
from infoform.fitting.find_last_layer import find_last_layer
from infoform.fitting.fit import FitTask, fit_curvature
from infoform.fitting.fit_groups import fit_in_groups
from infoform.fitting.layer_check import warn_of_held_layers
from infoform.fitting.layer_sums import layer_dimensions
from infoform.fitting.placement import Placement
from infoform.guarantee import (
    CHANGED,
    CHOSEN_ON,
    OTHER_POSTERIOR,
    OTHER_VALUES,
    Guarantee,
    attach,
    conformal_of,
    made_by,
)
from infoform.likelihoods import Likelihood, get_likelihood
from infoform.likelihoods.own_data import UntrainedWarning
from infoform.likelihoods.temperature import check_temperature
from infoform.network.batches import Batch, batch_size, cut_batch, device_of, read_batch, read_inputs
from infoform.network.coverage import FROZEN, NOT_SELECTED, Coverage, describe, find_layers, ordinary_layers
from infoform.network.last_layer import LAST
from infoform.network.layer import Layer
from infoform.network.plain_run import check_has_values
from infoform.network.private_copy import PrivateCopies
from infoform.network.selection import ALL, Selection, as_patterns, is_frozen, split_patterns
from infoform.network.sharding import distributed_sampler, unwrap
from infoform.network.single_input import missing_axis_told
from infoform.novelty.calibrate import calibrate
from infoform.novelty.known_inputs import KnownInputs
from infoform.novelty.ranks import LIKELY, SHARE
from infoform.novelty.scorer import NoveltyScorer
from infoform.options import FitOptions
from infoform.planning.after_fit import MAX_RANK, plan_posterior, plan_ranks
from infoform.planning.plan import Plan
from infoform.planning.target import PlanTarget
from infoform.posteriors import Structure, StructureChoice, structure_for
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.checks import PredictionChecks
from infoform.predicting.kinds import AUTO, choose_kind, may_be_last
from infoform.predicting.over_loader import predict_all, scored_rows, warn_if_worse
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.resumable_batches import BatchStore
from infoform.prediction import NO_CONFORMAL, Novelty, Prediction
from infoform.pretrained import POSTERIOR, load_folder, save_folder
from infoform.priors import Prior, get_prior
from infoform.saved import Archive, pack, unpack
from infoform.saved_schema import check_built, check_contents, check_metadata, frozen_layers
from infoform.tuned import Tuned, TuneTarget, ValidationRequest, tune_by_evidence, tune_on_validation_data
from infoform.tuning.evidence import log_evidence
from infoform.tuning.losses import Answers
from infoform.tuning.search import Trial

EXAMPLES = 4  # of the last inputs that are kept, for an export to be traced with


class Laplace:
    """A Gaussian posterior over the weights of a trained network, by Laplace's approximation.

    The model is never changed.

    Args:
        model: A trained network.
        likelihood: "classification", "regression", "multilabel", or a `Likelihood`.
        structure: "inf", "diag", "kfac", "efb", "full", a form of the paper ("inf-paper", "efb-paper", "okf-paper"), or
            an object with options of its own such as `infoform.Inf(rank=200)`. {"head": "full", "*": "inf"} says one
            for each pattern of layers' names, of which the first that matches counts; "auto" takes the exact block of
            small layers and "inf" for the others.
        prior: "isotropic", "activation", or an object such as `infoform.Activation(rank=16)`. Where it is not given,
            "activation" for the structure "inf" of a classifier, and "isotropic" for all else.
        layers: Names of layers, or patterns as "head.*", that get a posterior; "!*.embed*" leaves layers out. All that
            have a rule and train (`requires_grad`) where not given. A function of name and module chooses, too. "last"
            is the layer that the outputs come from, which the fit finds: predictions take one forward pass.
        fit_options: How the curvature is measured: `infoform.FitOptions(...)`.
        seed: Of sampled labels, sampled weights and sketches.
        deprecated: Options of structure, prior and fit one by one, as they were given before these were objects.

    Raises:
        TypeError: If the model is no module, or an option is unknown.
        ValueError: If an option has a value that it cannot have, or no layer of the model has a rule.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification").fit(train_loader)
        prediction = laplace.predict(images)
        prediction.probs, prediction.epistemic
        ```
    """

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        structure: StructureChoice = "inf",
        prior: str | Prior | None = None,
        layers: Selection = None,
        fit_options: FitOptions | None = None,
        seed: int = 0,
        **deprecated: Any,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        model = unwrap(model)
        layers = as_patterns(model, layers)
        self.settings = read_keywords(
            deprecated,
            structure=structure,
            prior=prior,
            fit_options=fit_options,
            layers=layers,
            seed=seed,
            caller="Laplace",
            stacklevel=3,
        )
        if self.structure.warning:
            warnings.warn(self.structure.warning, stacklevel=2)
        self.model = model
        self.likelihood = get_likelihood(likelihood)
        self.layers, self._fixed = find_layers(model, None if layers == LAST else layers)
        if is_frozen(model) and (layers == ALL or not isinstance(layers, str)) and not _names(layers):
            warnings.warn(
                "all parameters have requires_grad=False: every layer with a rule gets a posterior as if it trained; "
                "name the layers in layers= to choose.",
                stacklevel=2,
            )
        self.num_data: float | None = None
        self.noise: float | None = None
        self._temperature = 1.0
        self.prior = get_prior(self.structure.default_prior(self.likelihood) if prior is None else prior)
        self._default_prior = prior is None
        self._built: Fitted | None = None
        self._present: _Present | None = None
        self._known: KnownInputs | None = None
        self._scorer: NoveltyScorer | None = None
        self._guarantee: Guarantee | None = None
        self._no_guarantee = NO_CONFORMAL
        self._copies = PrivateCopies(model, self.likelihood.join_outputs if self.likelihood.joins else None)
        self._checks = PredictionChecks()
        self._warned = False
        self._example: Batch | None = None  # of the last inputs, for an export
        self.fit_seconds: float | None = None
        self._tuned_on: Iterable[Any] | None = None  # validation data of the last tune, for `compare`
        self.trials: list[Trial] = []
        self.plain_trial: Trial | None = None
        self.tuning_note = ""

    @property
    def structure(self) -> Structure:
        """Return the structure of the posterior, with its options."""
        return self.settings.structure

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
        check: bool = True,
        progress: bool = True,
    ) -> "Laplace":
        """Measure the curvature on the training data.

        Dropout is off and batch-norm in evaluation mode, whatever mode the model is in; afterwards all is as found.
        Where torch.distributed is initialised, all processes fit together, each with its own part of the data.

        Args:
            loader: Gives batches: (input, target) tuples, dicts, or inputs alone.
            update: Add the data to what was fitted before, in the basis found then: information adds up.
            checkpoint: A folder in which the fit writes its sums; started again with the same arguments after it was
                killed or stopped by Ctrl-C, it goes on from there, and removes the file when it is done.
            checkpoint_every: Seconds between two writes.
            max_memory: What the fit may take beside model and data ("2GB", or bytes): layers are fitted in groups that
                it holds, with passes of their own over the data.
            device: Where the work is done; the model's device where not given.
            offload: A device, or a folder, that takes what has been measured; the model's device where not given.
            check: Whether the gradients of a few examples are compared with autograd's before they count, here and in
                predictions: a layer that differs is held fixed, and `coverage` says why.
            progress: Whether a bar is shown.

        Returns:
            This object.

        Raises:
            ValueError: If data, outputs or targets are not as the likelihood needs them; what was fitted before stays.

        Example:
            ```python
            laplace.fit(train_loader, checkpoint="runs/fit.part")
            ```
        """
        begun, settings, selection = time.perf_counter(), self.settings, (self.layers, self._fixed)
        check_has_values(self.model)
        told = partial(missing_axis_told, self.model, partial(self._first_batch, loader))
        if settings.layers == LAST and not update:
            with told(), self._copies.private() as copy:
                name, loader = find_last_layer(copy.model, self.likelihood, loader, seed=settings.seed)
            selection = find_layers(self.model, [escape(name)])
        layers = selection[0]
        shapes = {name: layer.shape for name, layer in layers.items() if not layer.rule.only_diagonal}
        settings.structure.check_layers(shapes, block_limit=settings.fit.block_limit)
        if update:
            layers = {name: layer for name, layer in layers.items() if name not in self._fitted().fit.odd}
        place = Placement.of(self.model, device=device, offload=offload)
        request = replace(self._plan_target(), layers=layers).request()
        previous = replace(self._fitted().fit, curvature=self.curvature, novelty=self._known) if update else None
        # what an earlier fit has not looked at cannot be added to
        looks = settings.fit.novelty and (previous is None or previous.novelty is not None)
        novelty_bytes = self._novelty_bytes(layers) if looks else None
        how: dict[str, Any] = {
            "previous": previous,
            "checkpoint": None if checkpoint is None else _checkpoint(checkpoint, checkpoint_every),
            "progress": progress,
        }
        with told(), self._copies.private() as copy:
            copied = {name: layer.on(copy) for name, layer in layers.items()}
            task = FitTask(
                copy.model,
                self.likelihood,
                copied,
                request,
                settings.for_fit(),
                place,
                novelty_bytes,
                named=frozenset(layers).intersection(_names(settings.layers)),
                check=check,
            )
            if max_memory is None:
                fit = fit_curvature(task, loader, **how)
            else:
                fit = fit_in_groups(replace(task, keep_bytes=0), loader, max_memory=read_bytes(max_memory), **how)
        noise = self.likelihood.fitted_noise(fit.summary)
        self.layers, self._fixed = selection
        self._built, self._present, self._known = Fitted(fit, settings.prior_rank), None, fit.novelty
        self.noise, self.num_data = noise, float(fit.summary.num_examples)
        for trouble in self.likelihood.training_troubles(fit.summary):
            warnings.warn(trouble, UntrainedWarning, stacklevel=2)
        self._checks = PredictionChecks(check)
        if not update:
            self._tuned_on = None
            warn_of_held_layers(fit)
        self._guarantee, self._no_guarantee = None, NO_CONFORMAL
        self.fit_seconds = time.perf_counter() - begun
        return self

    @property
    def curvature(self) -> Mapping[str, Curvature]:
        """Return the statistics of every layer, as the fit measured them."""
        fit = self._fitted().fit
        if not fit.curvature:
            raise ValueError("the loaded file holds no curvature; save it with curvature=True to have it.")
        return fit.curvature

    @property
    def training_scores(self) -> dict[str, float]:
        """Return how good the trained network alone is on the data of the fit: accuracy and NLL, or RMSE.

        Empty where the data had no targets. A network that is no better than chance there is warned of by `fit`.
        """
        return self.likelihood.training_scores(self._fitted().fit.summary)

    def training_troubles(self, classes: Sequence[str] | None = None) -> list[str]:
        """Say what looks wrong with the network on the data of the fit: no better than chance, or outputs no logits.

        Args:
            classes: Names of the classes, in the order of the outputs, where they are known.

        Returns:
            The sentences that `fit` has warned with; none where nothing looks wrong.

        Example:
            ```python
            for trouble in laplace.training_troubles():
                print(trouble)
            ```
        """
        return self.likelihood.training_troubles(self._fitted().fit.summary, classes)

    @property
    def prior_precision(self) -> float | dict[str, float]:
        """Return τ, for all layers or by layer; it can be set."""
        return self.prior.precision

    @prior_precision.setter
    def prior_precision(self, value: float | Mapping[str, float]) -> None:
        self.prior = self.prior.with_precision(value)

    @property
    def temperature(self) -> float:
        """Return T, which the logits of every prediction are divided by; 1 unless tuned. It can be set."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._temperature = check_temperature(value, self.likelihood)

    @property
    def conformal(self) -> Conformal | None:
        """Return the conformal calibration, where one was made for the present hyperparameters; else None."""
        return None if self._guarantee is None else self._guarantee.present(self._hyperparameters(), self._known)

    def posterior(
        self,
        *,
        prior_precision: float | Mapping[str, float] | None = None,
        num_data: float | None = None,
        prior: str | Prior | None = None,
        prior_rank: int | None = None,
        structure: StructureChoice | None = None,
        **options: Any,
    ) -> Posterior:
        """Return the posterior for these hyperparameters; the object's own where not given.

        The object's own posterior is built once, and again only when one of its hyperparameters has changed.

        Args:
            prior_precision: τ, one number or one for each layer.
            num_data: N, the number of examples that the posterior stands for.
            prior: Another prior; another structure has its own default prior, unless one was given.
            prior_rank: Fewer eigenpairs of the inputs than the fit kept for the prior.
            structure: Another structure than the object's own, where the fit has collected what it needs.
            options: Options of the structure that differ, such as `rank=50`.

        Returns:
            The posterior of all layers.

        Raises:
            ValueError: If the fit did not collect what structure or prior need.
            TypeError: If the structure has no such option.

        Example:
            ```python
            sharper = laplace.posterior(prior_precision=100.0)
            laplace.predict(images, posterior=sharper)
            ```
        """
        fitted = self._fitted()
        given = (prior_precision, num_data, prior, prior_rank, structure)
        if not options and all(one is None for one in given):
            return self._present_posterior(fitted)
        chosen = self._chosen_prior(prior, structure)
        if prior_precision is not None:
            chosen = chosen.with_precision(prior_precision)
        count = self._information_count(num_data)
        return fitted.posterior(
            self.settings.resolve(structure, options), chosen, num_data=count, prior_rank=prior_rank
        )

    def log_evidence(
        self,
        *,
        prior_precision: float | Mapping[str, float] | None = None,
        num_data: float | None = None,
        structure: StructureChoice | None = None,
        **options: Any,
    ) -> float:
        """Return Laplace's log marginal likelihood of the data; models and priors can be compared by it.

        Args:
            prior_precision: τ, one number or one for each layer; the object's own where not given.
            num_data: N, where the fitted examples stand for N such examples, as a part of the training data does; the
                object's own where not given.
            structure: Another structure than the object's own.
            options: Options of the structure that differ.

        Returns:
            The log evidence, in nats.

        Raises:
            ValueError: If the data were fitted without targets.

        Example:
            ```python
            laplace.log_evidence(prior_precision=10.0) - laplace.log_evidence(prior_precision=1.0)
            ```
        """
        summary = self._fitted().fit.summary
        posterior = self.posterior(prior_precision=prior_precision, num_data=num_data, structure=structure, **options)
        count = self.num_data if num_data is None else num_data
        assert count is not None
        log_likelihood = count / summary.num_examples * self.likelihood.log_likelihood(summary, self.noise)
        return log_evidence(log_likelihood, posterior, self.layers)

    def tune(
        self,
        val_loader: Iterable[Any] | None = None,
        *,
        structure: StructureChoice | None = None,
        prior: str | Prior | None = None,
        objective: str | None = None,
        per_layer: bool = False,
        noise: str | None = None,
        temperature: bool | None = None,
        standard_errors: float = 1.0,
        method: str = "grid",
        trials: int = 27,
        exact_trials: int | None = None,
        prior_precision: tuple[float, float] | None = None,
        num_data: float | tuple[float, float] | None = None,
        kind: str = "auto",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        path: str | PathLike[str] | None = None,
        progress: bool = True,
    ) -> "Laplace":
        """Choose τ by evidence or, where validation data are given, τ and the temperature (or the noise) on them.

        A search takes the smallest τ that is as good as the best, as far as the data can tell: where the score hardly
        depends on τ, a smaller one keeps more uncertainty for inputs unlike the data. `tuning_note` says so.

        Args:
            val_loader: Data that the network was not trained on. Without it τ is found by evidence.
            structure: Tune, and have from now on, another structure that the fit has collected the statistics of.
            prior: Tune, and have from now on, another prior.
            objective: What a trial on validation data is scored by: "nll", "ece" or "brier".
            per_layer: By evidence, one τ for each layer.
            noise: Where the free noise of a regression comes from: "validation" (the default with validation data,
                together with τ), "residuals" of the fitted data (the default without), or "evidence".
            temperature: On validation data, whether T is searched together with τ; it is, where outputs are logits.
            standard_errors: How far from the best score that of the chosen τ may be (a thousandth at least); 0 takes
                the best.
            method: "grid", "random", "halving" (random pairs, most of which see a part of the data only) or "optuna".
            trials: How many pairs (N, τ) are tried.
            exact_trials: At how many τ, at most, all validation data are predicted; outputs at the others are combined
                from these. 2 for sampled networks and 3 else, where not given; as many as `trials` for all of them.
            prior_precision: Range of τ that is searched; from 1e-7 (by evidence 1e-6) to 1e6 where not given, and a
                grid then goes on beyond an end where the score still improves by more than a standard error.
            num_data: N, the number of examples that the fitted ones stand for, or on validation data a range of N that
                is searched; the number of fitted examples where not given.
            kind: How trials predict, as for `predict`; so do `samples`, `link` and `seed`.
            samples: Number of draws.
            link: How uncertain logits become probabilities.
            seed: Of the draws, the same in every trial.
            path: A JSON file that keeps every trial, and that a search goes on from.
            progress: Whether a bar is shown.

        Returns:
            This object; `trials` has all trials of a search, `plain_trial` that of the network alone at its best
            temperature or noise, and `tuning_note` what to know of the choice: that no posterior was better than the
            network alone, or that the score hardly depends on τ.

        Raises:
            ValueError: If the validation data have no targets, or an argument has a value that it cannot have.

        Example:
            ```python
            laplace.tune(val_loader)
            laplace.prior_precision, laplace.num_data
            ```
        """
        fitted = self._fitted()
        settings = replace(self.settings, structure=self.settings.resolve(structure))
        chosen = self._chosen_prior(prior, structure)
        target = TuneTarget(fitted, self.layers, self.likelihood, settings, chosen, self.noise, self.temperature)
        if val_loader is None:
            found = tune_by_evidence(
                target,
                objective=objective,
                per_layer=per_layer,
                noise=noise,
                temperature=temperature,
                prior_precision=prior_precision,
                num_data=num_data,
            )
        else:
            request = ValidationRequest(
                PredictOptions(self._kind(kind), samples, link, settings.seed if seed is None else seed),
                objective=objective,
                noise=noise,
                temperature=temperature,
                standard_errors=standard_errors,
                method=method,
                trials=trials,
                exact_trials=exact_trials,
                prior_precision=prior_precision,
                num_data=num_data,
                path=path,
            )
            with missing_axis_told(self.model, partial(self._first_batch, val_loader)):
                found = tune_on_validation_data(target, self._predictor(), val_loader, request, progress=progress)
            self.trials, self.plain_trial, self.tuning_note = found.trials, found.plain_trial, found.note
            self._tuned_on = None if isinstance(val_loader, Iterator) else val_loader
        self.prior, self.num_data, self.noise = found.prior, found.num_data, found.noise
        self._temperature = found.temperature
        novelty = None
        if found.data is not None and self._known is not None:
            scorer, batches = self._novelty_scorer(), found.data.on(device_of(self.model))
            with self._copies.private() as copy:
                calibrated = calibrate(scorer.on(copy), batches, sampler=found.data.sampler)
            self._known, novelty = replace(scorer.known, calibration=calibrated.calibration), calibrated.novelty
        self.settings = settings
        self._default_prior = self._default_prior and prior is None
        if found.data is not None:
            first = next(iter(found.data.on(device_of(self.model))), None)
            self._example = None if first is None else replace(cut_batch(first, slice(0, EXAMPLES)), targets=None)
            self._calibrate_after(found, request.options, novelty)
        return self

    def shrink(self, memory: int | str) -> Plan:
        """Set the ranks that keep most within this memory, and return the plan that chose them.

        Args:
            memory: Bytes, or a size such as "48MB".

        Returns:
            The plan, which prints as a table.

        Raises:
            ValueError: If the memory holds not even rank 1 in every layer, or the structure has no rank.

        Example:
            ```python
            print(laplace.shrink("2MB"))
            ```
        """
        self._fitted()
        chosen = self._plan(structure=None, budget=read_bytes(memory))
        self.settings = replace(self.settings, structure=self.structure.with_layer_ranks(chosen.ranks))
        return chosen

    def sample(self, n: int, *, seed: int | None = None) -> dict[str, Tensor]:
        """Draw sets of weights.

        Args:
            n: How many.
            seed: Of the draws; the object's own where not given.

        Returns:
            Weights by parameter name, (n, *shape) each; for `torch.func.functional_call`.

        Raises:
            ValueError: If n is no positive whole number.

        Example:
            ```python
            weights = {name: drawn[0] for name, drawn in laplace.sample(1).items()}
            outputs = torch.func.functional_call(model, weights, (images,))
            ```
        """
        check_whole("n", n)
        generator = torch.Generator().manual_seed(self.settings.seed if seed is None else seed)
        return self.weights(self.posterior().sample(n, generator=generator))

    def predict(
        self,
        x: Any,
        *,
        kind: str = "auto",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        posterior: Posterior | None = None,
    ) -> Prediction:
        """Return the prediction for a batch of inputs.

        Args:
            x: A tensor, a tuple of the model's arguments, or a dict of them.
            kind: "linear" (closed form), "mc" (networks with sampled weights) or "linear-mc" (both; for many outputs).
                "auto" is "linear" for up to 64 outputs and for the last layer alone, else "linear-mc";
                `prediction.kind` and `prediction.reason` tell.
            samples: Number of draws.
            link: How the uncertain logits of "linear" become probabilities: "mc" (the mean over draws), "probit" or
                "bridge".
            seed: Of the draws; the object's own where not given.
            posterior: Another posterior than the object's own, as `posterior(structure=...)` gives it.

        Returns:
            Probabilities or means, and how uncertain they are.

        Raises:
            ValueError: If the batch is empty, or an argument has a value that it cannot have.

        Example:
            ```python
            prediction = laplace.predict(images)
            prediction.labels, prediction.confidence
            ```
        """
        options = PredictOptions(kind, samples, link, self.settings.seed if seed is None else seed)
        batch = read_inputs(x, device_of(self.model))
        with missing_axis_told(self.model, lambda: batch), self._predictor(posterior).private() as predictor:
            prediction = predictor.predict(batch, options, noise=self.noise)
        self._example = cut_batch(batch, slice(0, EXAMPLES))
        self._warned = self._warned or warn_if_worse(prediction.kind, prediction, None, likelihood=self.likelihood)
        return self._promising(prediction, options, posterior)

    def predict_loader(
        self,
        loader: Iterable[Any],
        *,
        kind: str = "auto",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        posterior: Posterior | None = None,
        gather: bool | None = None,
        keep: BatchStore | None = None,
        progress: bool = True,
    ) -> tuple[Prediction, Tensor | None]:
        """Return one prediction for all of a loader's data, and its targets where it gives any.

        Every batch sees the same sampled networks. `prediction.columns()` makes a table of it.

        Args:
            loader: Gives batches of inputs, with or without targets.
            kind: As for `predict`; so are `samples`, `link`, `seed` and `posterior`.
            samples: Number of draws.
            link: How uncertain logits become probabilities.
            seed: Of the draws.
            posterior: Another posterior than the object's own.
            gather: Whether each process of torch.distributed predicts its part, and all return the whole; done where
                the loader has a DistributedSampler, if not said otherwise.
            keep: Called with every batch; returns what was kept of it from an earlier call, or where to keep it now.
            progress: Whether a bar is shown.

        Returns:
            The prediction, and the targets or None.

        Raises:
            ValueError: If the loader gives no examples.

        Example:
            ```python
            prediction, targets = laplace.predict_loader(test_loader)
            infoform.metrics.evaluate(prediction, targets)
            ```
        """
        options = PredictOptions(kind, samples, link, self.settings.seed if seed is None else seed)
        with progress_bar(progress) as bar:
            tick = bar("predict", known_length(loader))
            sampler = distributed_sampler(loader)
            gather = sampler is not None if gather is None else gather
            told = missing_axis_told(self.model, partial(self._first_batch, loader))
            with told, self._predictor(posterior).private() as predictor:
                prediction, targets = predict_all(
                    predictor, loader, options, noise=self.noise, sampler=sampler, gather=gather, tick=tick, keep=keep
                )
        self._warned = self._warned or warn_if_worse(prediction.kind, prediction, targets, likelihood=self.likelihood)
        return self._promising(prediction, options, posterior), targets

    def novelty(self, x: Any) -> Novelty:
        """Return how unlike the training data a batch of inputs is, from one forward pass of the trained network.

        Args:
            x: A tensor, a tuple of the model's arguments, or a dict of them.

        Returns:
            The share of known inputs that look less strange, for all parts together, by part and by layer.

        Raises:
            ValueError: If the batch is empty, or the fit knows nothing of the training data's inputs.

        Example:
            ```python
            novelty = laplace.novelty(images)
            novelty.novel(false_alarms=0.05), novelty.novelty_layers
            ```
        """
        batch = read_inputs(x, device_of(self.model))
        if batch_size(batch) == 0:
            raise ValueError("a batch must have at least one example, got none; check the inputs.")
        scorer = self._novelty_scorer()
        if scorer.known.calibration is None:
            raise ValueError(
                "novelty needs percentiles of known examples, and the fit had too few examples to leave some out; call "
                "calibrate_novelty(loader) with known data."
            )
        with missing_axis_told(self.model, lambda: batch), self._copies.private() as copy:
            return scorer.on(copy).novelty(batch)

    def calibrate_novelty(self, loader: Iterable[Any], *, progress: bool = True) -> "Laplace":
        """Take the percentiles of novelty from known data that the network was not trained on; `tune` does it, too.

        Without it the percentiles are those of training examples that the fit has left out of its moments. The network
        has been trained on these, so that fresh known data look a little stranger and false alarms are more than asked
        for.

        Args:
            loader: Gives batches of known inputs; targets in them are not used.
            progress: Whether a bar is shown.

        Returns:
            This object.

        Raises:
            ValueError: If the loader gives no examples, or inputs that the network has no finite activations for.

        Example:
            ```python
            laplace.calibrate_novelty(val_loader)
            laplace.predict(images).novel(false_alarms=0.01)
            ```
        """
        scorer, device = self._novelty_scorer(), device_of(self.model)
        sampler = distributed_sampler(loader)
        seeded = isolated(self.settings.seed, loader=loader)
        with progress_bar(progress) as bar, seeded, self._copies.private() as copy:
            tick = bar("novelty", known_length(loader))
            batches = (read_batch(raw, device) for raw in loader)
            calibration = calibrate(scorer.on(copy), batches, sampler=sampler, tick=tick).calibration
        self._known = replace(scorer.known, calibration=calibration)
        return self

    def calibrate_conformal(
        self,
        loader: Iterable[Any],
        *,
        kind: str = "auto",
        samples: int = 100,
        link: str = "mc",
        seed: int | None = None,
        progress: bool = True,
    ) -> "Laplace":
        """Make prediction sets and intervals hold what they promise, from data that nothing was chosen on.

        `tune` does it, too, from the data that it chooses τ and the temperature on: then the promise holds but for a
        little, which the guide on guarantees measures. From data that neither the network nor `tune` has seen it holds
        exactly. It is void after a change of hyperparameters, and for predictions that are made in another way.

        Args:
            loader: Gives batches with targets.
            kind: How predictions are made, as for `predict`; so are `samples`, `link` and `seed`.
            samples: Number of draws.
            link: How uncertain logits become probabilities.
            seed: Of the draws.
            progress: Whether a bar is shown.

        Returns:
            This object.

        Raises:
            ValueError: If the data have no targets or no examples, or are of yes/no labels.

        Example:
            ```python
            laplace.calibrate_conformal(val_loader)
            laplace.predict(images).set(0.9)
            ```
        """
        if not self.likelihood.takes_conformal:
            raise ValueError(
                f"there are no sets or intervals of the {self.likelihood.name} likelihood; fit a model that returns "
                "one head to have them."
            )
        prediction, targets = self.predict_loader(
            loader, kind=kind, samples=samples, link=link, seed=seed, progress=progress
        )
        if targets is None:
            raise ValueError("a conformal calibration needs targets, and the loader gives inputs alone; add them.")
        if prediction.answer == "labels":
            raise ValueError(
                "sets are of one of C classes and intervals of numbers, and these are C yes/no labels, for which there "
                "is no conformal calibration; fit a classifier for each label to have one."
            )
        options = PredictOptions(prediction.kind, samples, link, self.settings.seed if seed is None else seed)
        rows, kept, examples = scored_rows(prediction, targets)
        self._promise(Answers.of(rows), kept, _novelty_of(prediction), options, examples)
        return self

    def weights(self, deviations: Mapping[str, Tensor]) -> dict[str, Tensor]:  # by layer: (..., G, A)
        """Return the model's parameters, by name, at these deviations from the trained ones.

        Args:
            deviations: By layer, as `posterior().sample(...)` gives them.

        Returns:
            Parameters by their names in the model.

        Example:
            ```python
            laplace.weights(laplace.posterior().sample(3))
            ```
        """
        weights: dict[str, Tensor] = {}
        for name, deviation in deviations.items():
            mean = self.layers[name].mean
            weights.update(self.layers[name].as_parameters(mean + deviation.to(mean)))
        return weights

    def coverage(self) -> Coverage:
        """Say, for every parameter of the model, whether it has a posterior, or why it is held fixed.

        Returns:
            One row for every parameter; prints as a table.

        Example:
            ```python
            print(laplace.coverage())
            ```
        """
        labels = {name: self._label(name, layer) for name, layer in self.layers.items()}
        structures = {name: (label, "") for name, label in labels.items()}
        fixed = dict(self._fixed)
        if self._untraced:
            structures, fixed = {}, fixed | dict.fromkeys(self.layers, "layers='last' is found by fit")
        if self._built is not None:
            layers = self._built.layers(self.structure)
            structures = {name: (labels[name], layer.note) for name, layer in layers.items()}
            fixed |= self._built.fit.unreached
        return describe(self.model, self.layers, fixed, structures)

    def save(self, path: str | PathLike[str], *, curvature: bool = False) -> None:
        """Write the posterior to a safetensors file.

        Of several processes of torch.distributed, which hold the same, the first one writes. All of them must call
        this: they wait until the file is there, so that none leaves while another one writes.

        Args:
            path: The file; it appears when it is complete.
            curvature: Whether all that was measured is written, too: for other structures, updates and plans later.

        Raises:
            ValueError: If the curvature is not here to be saved.
            FileNotFoundError: If the folder does not exist.

        Example:
            ```python
            laplace.save("posterior.safetensors")
            ```
        """
        processes = Processes.running()
        with processes.together():
            if processes.rank == 0:
                self._write(path, curvature=curvature)

    def _write(self, path: str | PathLike[str], *, curvature: bool) -> None:
        fitted = self._fitted()
        if curvature and not fitted.fit.curvature:
            raise ValueError("the curvature is not here to be saved: this posterior was loaded from a file without it.")
        assert self.num_data is not None
        layers = fitted.layers(self.structure)
        needed = [name for name in layers if name not in fitted.only_diagonal] if self.prior.needs_inputs else []
        inputs = {name: fitted.spectrum(name) for name in needed}
        fit = replace(fitted.fit, novelty=self._known)
        archive = Archive(
            self.settings,
            self.likelihood,
            self.prior,
            self.num_data,
            self.noise,
            fit,
            layers,
            inputs,
            self.conformal,
            fitted.only_diagonal.intersection(layers),
        )
        tensors, metadata = pack(archive, curvature=curvature)
        metadata |= {"model": type(self.model).__name__, "fingerprint": files.fingerprint(self.model)}
        metadata |= {"default_prior": self._default_prior, "temperature": self.temperature}
        metadata["frozen"] = frozen_layers(self.model, self.settings, [*layers, *fitted.fit.unreached])
        files.write_file(path, tensors, metadata)

    def export(
        self,
        path: str | PathLike[str],
        *,
        kind: str = "auto",
        example: Any = None,
        validation: Iterable[Any] | None = None,
        to: str | None = None,
        samples: int | None = None,
        link: str | None = None,
        precision: str = "float32",
        coverage: float = 0.9,
        seed: int | None = None,
    ) -> Export:
        """Write the network and its posterior as one deterministic graph that runs without infoform.

        The file is run by its own runtime before it appears, and must agree with PyTorch within 1e-5 (variances, which
        are small differences of large numbers, within 1e-4).

        Args:
            path: The file; its suffix tells the format: .onnx, .pt2 (torch.export) or .pte (ExecuTorch).
            kind: "last-layer" (one forward pass), "samples" (networks with sampled weights) or "heads" (sampled last
                layers on shared features). "auto" is "last-layer" where that alone has a posterior. "linear" over all
                layers cannot be exported; the error says what the other forms lose.
            example: Inputs as for `predict`, to trace and compare with; the first ones of `validation`, or of the last
                `tune` or `predict`, where not given.
            validation: Batches with targets: of a posterior over all layers, the last layer gets a temperature of its
                own on them, and a refusal says what it loses.
            to: "onnx", "pt2" or "pte", where the suffix does not tell it.
            samples: Number of networks, 16 where not given, or of draws of a last layer's outputs, 100.
            link: "mc" or "probit" of a last layer; "mc", as `predict` has it, for up to 64 outputs.
            precision: Of the stored weights: "float32", "float16" or "int8". They are computed with in float32.
            coverage: Of the prediction sets, or intervals, among the outputs. They are there where the calibration of
                `tune` is of the predictions that are exported, or where `validation` is given, whose first 500 examples
                then calibrate them.
            seed: Of the samples; the object's own where not given.

        Returns:
            The file's manifest, bytes, latency and differences to PyTorch; prints as a sentence.

        Raises:
            ValueError: If the format or the form is unknown, the model cannot be traced (the operator is named), or the
                file does not agree with PyTorch.
            ImportError: If the format's packages are not installed.

        Example:
            ```python
            print(laplace.export("model.onnx", kind="last-layer", example=images))
            ```
        """
        chosen = self.settings.seed if seed is None else seed
        options = ExportOptions(kind, samples, link, precision, chosen, coverage)
        batch = self._example if example is None else read_inputs(example, device_of(self.model))
        return export_predictor(
            self._predictor(),
            path,
            example=batch if validation is None or example is not None else None,
            validation=validation,
            noise=self.noise,
            conformal=self.conformal,
            to=to,
            options=options,
        )

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        model: nn.Module,
        *,
        likelihood: Likelihood | None = None,
        prior: Prior | None = None,
        structure: Structure | None = None,
        strict: bool = True,
    ) -> "Laplace":
        """Return the saved posterior on its model.

        Args:
            path: A file that `save` wrote.
            model: The network it was fitted to; an error says what differs if it is another one.
            likelihood: Needed only where the saved one is not among infoform's own; so are `prior`, whose τ is that of
                the file, and `structure`.
            prior: A prior of your own.
            structure: A structure of your own.
            strict: False accepts a model with the same parameters but other values (one cast to another dtype, say).

        Returns:
            An object that predicts as the saved one did.

        Raises:
            BadFileError: If the file is damaged, not infoform's, of another model, or holds values that make no sense;
                a ValueError.
            FileNotFoundError: If there is no such file.

        Example:
            ```python
            laplace = infoform.load("posterior.safetensors", model)
            ```
        """
        model = unwrap(model)
        tensors, saved = files.read_file(path, device=device_of(model))
        with refusing(f"'{path}'", "save it again"):
            found = check_metadata(saved, path)
            files.check_fingerprint(found.fingerprint, model, strict=strict)
            shapes = {name: layer.shape for name, layer in find_layers(model, ALL, frozen=True)[0].items()}
            archive = unpack(tensors, saved, shapes=shapes, likelihood=likelihood, prior=prior, structure=structure)
            settings = archive.settings
            check_contents(tensors, found, settings, archive.prior, model, path)
            check_built(archive.layers, model, path)
            if archive.noise is None and archive.likelihood.takes_noise:
                raise ValueError(f"'{path}' must have the noise of its likelihood, got none; save it again.")
            # those of the file: flags of parameters may be others now
            names = [escape(name) for name in (*archive.layers, *archive.fit.unreached)]
            laplace = cls(model, archive.likelihood, structure=settings.structure, prior=archive.prior, layers=names)
            laplace.settings = settings
            if settings.layers is None:
                laplace._fixed = {one: FROZEN if why == NOT_SELECTED else why for one, why in laplace._fixed.items()}
            laplace.num_data, laplace.noise = archive.num_data, archive.noise
            laplace._built = Fitted.loaded(archive.fit, settings, archive.layers, archive.inputs, archive.only_diagonal)
            laplace._known = archive.fit.novelty
            laplace._default_prior = saved["default_prior"]
            laplace.temperature = saved.get("temperature", 1.0)
            if archive.conformal is not None and saved["fingerprint"] == files.fingerprint(model):
                laplace._guarantee = Guarantee(archive.conformal, laplace._hyperparameters(), laplace._known)
            elif archive.conformal is not None:
                laplace._no_guarantee = OTHER_VALUES
        return laplace

    def save_pretrained(
        self, folder: str | PathLike[str], *, base_model: str | None = None, comparison: str | None = None
    ) -> Path:
        """Write network and posterior into a folder, as the Hugging Face Hub keeps models.

        Args:
            folder: Made where it does not exist: weights and posterior as safetensors, config.json, and a model card,
                which is written once and then yours.
            base_model: The model that the network is, or was made from, as the Hub names it.
            comparison: A Markdown table for the model card, as of `infoform.compare`.

        Returns:
            The folder.

        Raises:
            FileNotFoundError: If the folder that it is to lie in does not exist.

        Example:
            ```python
            laplace.save_pretrained("digits-with-uncertainty")
            ```
        """
        self._fitted()
        return save_folder(self, folder, base_model=base_model, comparison=comparison)

    @classmethod
    def from_pretrained(cls, folder: str | PathLike[str], model: nn.Module) -> "Laplace":
        """Return the posterior of a folder that `save_pretrained` wrote, on a network that gets the folder's weights.

        Args:
            folder: The folder; of a name on the Hub, `infoform.integrations.hub` loads it first.
            model: A network of the same form. Its weights are overwritten.

        Returns:
            An object that predicts as the saved one did.

        Raises:
            FileNotFoundError: If the folder lacks a file.
            ValueError: If the weights are of another model.

        Example:
            ```python
            laplace.save_pretrained("digits-with-uncertainty")
            laplace = infoform.Laplace.from_pretrained("digits-with-uncertainty", model)
            ```
        """
        load_folder(Path(folder), model)
        return cls.load(Path(folder) / POSTERIOR, model)

    def prior_bytes(self, name: str, structure: StructureChoice | None = None) -> int:
        """Return what the prior stores for a layer of a fitted model.

        Args:
            name: The layer's name.
            structure: Whose default prior is meant, where the user gave none.

        Returns:
            Bytes.
        """
        prior = self._chosen_prior(None, structure)
        return self._fitted().prior(prior, name, num_data=1.0).nbytes if prior.needs_inputs else 0

    def _present_posterior(self, fitted: Fitted) -> Posterior:
        """Return the posterior of the object's own hyperparameters, built when one of them has changed."""
        key = (fitted, self.structure, self.prior, self.num_data, self.noise)
        if self._present is None or not all(a is b or a == b for a, b in zip(self._present.key, key, strict=True)):
            count = self._information_count(None)
            self._present = _Present(key, fitted.posterior(self.structure, self.prior, num_data=count))
        return self._present.posterior

    def _hyperparameters(self) -> tuple[Any, ...]:
        """Return what predictions depend on besides the network and the way of predicting."""
        prior = (self.prior.name, self.prior.settings())
        return (self._built, self.structure, prior, self.num_data, self.noise, self.temperature)

    def _promise(
        self,
        answers: Answers,
        targets: Tensor,
        novelty: Tensor | None,
        options: PredictOptions,
        examples: Tensor | None = None,
    ) -> None:
        """Calibrate sets or intervals on the predictions of some examples; of yes/no labels there are none."""
        if novelty is not None and examples is not None:
            novelty = novelty[examples.to(novelty.device)]
        self._guarantee = None
        if not self.likelihood.takes_conformal:
            return
        found = conformal_of(answers.value, answers.variance, targets, novelty)
        if found is not None:
            examples = None if examples is None else examples.cpu()
            found = replace(found, examples=examples, made_by=made_by(options.kind, options, self.likelihood))
            self._guarantee = Guarantee(found, self._hyperparameters(), self._known)

    def _calibrate_after(self, tuned: Tuned, options: PredictOptions, novelty: Tensor | None) -> None:
        """Calibrate sets or intervals on the data of a search, predicted anew where the search has not done that."""
        answers, targets, data, examples = tuned.answers, tuned.targets, tuned.data, tuned.examples
        assert data is not None
        if answers is None or targets is None or data.sampler is not None:
            with self._predictor().private() as predictor:
                prediction, targets = predict_all(
                    predictor,
                    data.batches,
                    options,
                    noise=self.noise,
                    sampler=data.sampler,
                    gather=data.sampler is not None,
                )
            assert targets is not None
            rows, targets, examples = scored_rows(prediction, targets)
            answers, novelty = Answers.of(rows), _novelty_of(prediction)
        self._promise(answers, targets, novelty, options, examples)
        if self._guarantee is not None:
            found = replace(self._guarantee.conformal, source=CHOSEN_ON)
            self._guarantee = replace(self._guarantee, conformal=found)

    def _promising(self, prediction: Prediction, options: PredictOptions, posterior: Posterior | None) -> Prediction:
        """Return the prediction with its conformal calibration, or with the reason why it has none."""
        if posterior is not None:
            return attach(prediction, None, {}, otherwise=OTHER_POSTERIOR)
        how = made_by(prediction.kind, options, self.likelihood)
        return attach(
            prediction, self.conformal, how, otherwise=self._no_guarantee if self._guarantee is None else CHANGED
        )

    def _information_count(self, num_data: float | None) -> float:
        """Return N times the factor from the information at σ = 1 to that at the present noise."""
        count = self.num_data if num_data is None else num_data
        assert count is not None
        if not 0 < count < math.inf:
            raise ValueError(f"num_data must be positive and finite, got {count}.")
        return count * self.likelihood.information_scale(self.noise, self.settings.fit.fisher)

    def _predictor(self, posterior: Posterior | None = None) -> Predictor:
        return Predictor(
            self.model,
            self.layers,
            self.likelihood,
            posterior or self.posterior(),
            self.temperature,
            self._fitted().fit.summary.num_outputs,
            self._fitted().fit.summary.positions,
            None if self._known is None or self._known.calibration is None else self._novelty_scorer(),
            self._copies,
            self._checks,
        )

    def _first_batch(self, loader: Iterable[Any]) -> Batch | None:
        """Return the first batch of a loader; None where it cannot be read once more."""
        with isolated(self.settings.seed, loader=loader):
            raw = next(iter(loader), None)
        return None if raw is None else read_batch(raw, device_of(self.model))

    def _novelty_scorer(self) -> NoveltyScorer:
        fitted = self._fitted()
        if self._known is None:
            why = "was made with FitOptions(novelty=False)"
            if self.settings.fit.novelty:
                why = "is from a file of an earlier version" if fitted.saved_as else "did not call any layer"
            raise ValueError(
                f"novelty needs what a fit has seen of every layer's inputs, and this fit {why}; fit again to have it."
            )
        if self._scorer is None or self._scorer.known is not self._known:
            every = ordinary_layers(self.model)
            self._scorer = NoveltyScorer(self.model, every, self.likelihood, self._known)
        return self._scorer

    def _novelty_bytes(self, layers: Mapping[str, Layer]) -> int:
        """Return what novelty may store: a share of the posterior's bytes, had all layers one as these have."""
        target, settings = replace(self._plan_target(), layers=layers), self.settings
        request = target.request()
        own_layers = {name: one for name, one in layers.items() if one.rule.by_default} or layers
        sizes = {name: layer_dimensions(one, request, target.settings, use=None) for name, one in own_layers.items()}
        own: float = sum(
            structure_for(settings.structure, only_diagonal=size.only_diagonal).planned_bytes(size, layer=name)
            + self.prior.planned_bytes(size)
            for name, size in sizes.items()
        )
        own *= 1 if settings.structure.planned_exactly else LIKELY
        every = sum(layer.shape[0] * layer.shape[1] for layer in ordinary_layers(self.model).values())
        return int(SHARE * own * every / sum(size.weights for size in sizes.values()))

    def _label(self, name: str, layer: Layer) -> str:
        """Return the name of the structure that a layer has, or would have."""
        try:
            own = structure_for(self.structure, only_diagonal=layer.rule.only_diagonal)
            return own.of_layer(name, layer.shape).label
        except ValueError:  # a pattern is missing, as the fit will say
            return self.structure.label

    def _kind(self, kind: str) -> str:
        """Return the kind that a search predicts by: "auto" resolved, so that its record says which."""
        if kind != AUTO:
            return kind
        fit, outputs = self._fitted().fit, self._fitted().fit.summary.num_outputs
        shapes = [layer.shape for name, layer in self.layers.items() if name not in fit.unreached]
        return "linear" if may_be_last(shapes, outputs) else choose_kind(outputs, fit.summary.positions).kind

    @property
    def _untraced(self) -> bool:
        """Whether the last layer is to be found by a fit that has not been made."""
        return self.settings.layers == LAST and self._built is None

    def _chosen_prior(self, prior: str | Prior | None, structure: StructureChoice | None) -> Prior:
        """Return the prior asked for, or that goes with a structure: the object's own, or the default of another."""
        if isinstance(prior, Prior):
            return prior
        if prior is None:
            if structure is None or not self._default_prior:
                return self.prior
            prior = self.settings.resolve(structure).default_prior(self.likelihood)
        return self.prior if prior == self.prior.name else get_prior(prior).with_precision(self.prior.precision)

    def _plan(self, *, structure: StructureChoice | None, budget: int | None, max_rank: int = MAX_RANK) -> Plan:
        """Return the plan of what was fitted."""
        own, device = self.settings.resolve(structure), device_of(self.model)
        if budget is None:
            plan = plan_posterior(own, self.posterior(structure=structure).layers, self.curvature, device=device)
            if self._known is None:
                return plan
            return replace(plan, notes=(*plan.notes, f"novelty takes {show_bytes(self._known.nbytes)} besides"))
        return plan_ranks(
            own,
            self.curvature,
            budget=budget,
            prior_bytes=lambda name: self.prior_bytes(name, structure),
            device=device,
            max_rank=max_rank,
        )

    def _plan_target(self) -> PlanTarget:
        settings = self.settings
        return PlanTarget(
            self.model,
            self.layers,
            self.likelihood,
            settings.structure,
            self.prior,
            settings.for_fit(),
            settings.fit.statistics == "all",
            settings.fit.novelty,
        )

    @property
    def _fit(self) -> Fit | None:
        return None if self._built is None else self._built.fit

    def _fitted(self) -> Fitted:
        if self._built is None:
            raise RuntimeError(
                "this Laplace has no posterior yet; call fit(loader) first, or infoform.load(path, model)."
            )
        return self._built


load = Laplace.load


def _names(layers: Sequence[str] | str | None) -> list[str]:
    """Return the names and patterns of layers to take that the user gave."""
    return split_patterns(None if isinstance(layers, str) else layers)[0]


class _Present(NamedTuple):
    """The posterior of the present hyperparameters, and what these were."""

    key: tuple[Any, ...]
    posterior: Posterior


def _novelty_of(prediction: Prediction) -> Tensor | None:  # (N,)
    return None if prediction.input_novelty is None else prediction.novelty


def _checkpoint(folder: str | PathLike[str], every: float) -> Checkpoint:
    if isinstance(folder, Checkpoint):
        return folder
    processes = Processes.running()
    return Checkpoint(folder, every=every, process=processes.rank, processes=processes.count)
